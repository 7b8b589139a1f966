"""An endpoint on a fresh store, without a relay; two on one relay; and the outside system that their tools use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.task import Task
from sync_core.testing import TwoEndpoints, two_endpoints
from tests.sync_core.endpoint.bank import Bank
from tests.sync_core.endpoint.memory_transport import MemoryTransport

KEY = "expense/TRIP-118"


@pytest.fixture
async def phone(tmp_path: Path) -> AsyncIterator[Endpoint]:
    async with Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone") as endpoint:
        yield endpoint


@pytest.fixture
async def task(phone: Endpoint) -> AsyncIterator[Task]:
    async with phone.task(KEY, create=True) as task:
        yield task


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[TwoEndpoints]:
    async with two_endpoints(tmp_path, subject="acme") as ends:
        yield ends


@pytest.fixture
def bank() -> Bank:
    return Bank()


async def both(ends: TwoEndpoints) -> tuple[Task, Task]:
    """One task, open on both devices."""
    here = await ends.phone.task(KEY, create=True)
    await ends.phone.synced(timeout_s=30)
    return here, await ends.desktop.task(KEY)


async def endless(folder: Path, open_timeout_s: float = 60) -> Endpoint:
    """An endpoint whose relay takes the connection and never answers."""
    return await Endpoint.open(
        folder / "waiting.db",
        subject="acme",
        device="phone",
        relay="memory:relay",
        transport=MemoryTransport(),
        open_timeout_s=open_timeout_s,
    )
