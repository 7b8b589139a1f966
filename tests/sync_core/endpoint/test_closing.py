"""The end of an endpoint, and of a task on it: whoever still holds or waits for something is told."""

import asyncio
from pathlib import Path

import pytest

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import Closed
from sync_core.frames import Welcome
from sync_core.replica.changes import LinkState
from sync_core.testing import two_endpoints
from sync_core.wire import encode
from tests.sync_core.endpoint.conftest import KEY, endless
from tests.sync_core.endpoint.memory_transport import MemoryTransport


async def test_after_closing_every_use_says_so(tmp_path: Path) -> None:
    phone = await Endpoint.open(tmp_path / "a.db", subject="acme", device="phone")
    task = await phone.task(KEY, create=True)
    other = await phone.task(KEY)
    await other.aclose()
    await task.slots.confirm("x", 1)
    for use in (lambda: other.slots["x"], lambda: other.view, lambda: other.brief()):
        with pytest.raises(Closed):
            use()
    with pytest.raises(Closed):
        await other.slots.confirm("x", 2)
    await phone.aclose()
    for use in (
        lambda: task.slots.confirm("x", 2),
        lambda: phone.task(KEY),
        lambda: phone.stats(),
        lambda: phone.evict(KEY),
    ):
        with pytest.raises(Closed) as caught:
            await use()
        assert caught.value.status == 410


async def test_closing_ends_watches_and_cancels_running_calls_which_are_recorded(tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool(effect=Effect.READ)
    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    phone = await Endpoint.open(tmp_path / "a.db", subject="acme", device="phone")
    task = await phone.task(KEY, create=True)
    changes = task.changes()
    calling = asyncio.create_task(task.call("slow", slow))
    await started.wait()
    await phone.aclose()
    assert [type(change).__name__ async for change in changes] == ["CallChanged", "CallChanged"]
    with pytest.raises(Closed, match="while the tool ran"):
        await calling
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        assert (await phone.task(KEY)).calls["slow"].state.value == "failed"


async def test_a_caller_that_was_cancelled_itself_while_the_endpoint_closed_stays_cancelled(tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool(effect=Effect.READ)
    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    phone = await Endpoint.open(tmp_path / "a.db", subject="acme", device="phone")
    task = await phone.task(KEY, create=True)
    calling = asyncio.create_task(task.call("slow", slow))
    await started.wait()
    closing = asyncio.create_task(phone.aclose())
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await closing


async def test_after_closing_the_status_says_so(tmp_path: Path) -> None:
    transport = MemoryTransport()
    phone = await Endpoint.open(
        tmp_path / "a.db", subject="acme", device="phone", relay="memory:relay", transport=transport
    )
    connection = await transport.accept()
    await connection.send(encode([Welcome(1, 0, "write", "ann")]))
    while phone.status.link is not LinkState.LIVE:
        await phone.stats()
    await phone.aclose()
    assert (phone.status.link, phone.status.reason) == (LinkState.OFFLINE, "the endpoint is closed")
    assert "offline" in repr(phone)


async def test_evicting_a_task_closes_its_handles(tmp_path: Path) -> None:
    async with two_endpoints(tmp_path) as ends:
        kept = await ends.phone.task("kept/1", create=True)
        task = await ends.phone.task(KEY, create=True)
        changes = task.changes()
        await ends.synced()
        await ends.phone.evict(KEY)
        assert changes.ended
        for use in (lambda: task.slots["x"], task.notes.list, task.brief):
            with pytest.raises(Closed):
                use()
        assert (await ends.phone.stats()).handles == 1
        async with ends.phone.task(KEY) as again:
            await again.slots.confirm("x", 1)
            await task.aclose()
            assert (await ends.phone.stats()).handles == 2
            assert again.slots["x"].value == 1
        assert kept.slots["x"].value is None


async def test_whoever_waits_when_the_endpoint_closes_is_told(tmp_path: Path) -> None:
    phone = await endless(tmp_path)
    waiting = asyncio.ensure_future(phone.task(KEY, create=True).__aenter__())
    await phone.stats()
    assert not waiting.done()
    await phone.aclose()
    with pytest.raises(Closed):
        await waiting
