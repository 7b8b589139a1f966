"""An endpoint on a fresh store, without a relay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.task import Task
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
