"""Links that are cut, first opens at once and two versions, with real endpoints and a real relay (SE-05, 16, 23)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from sync_core import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.opening import Opening
from sync_core.errors import Refused
from sync_core.replica.changes import LinkState

TASK = "expense/TRIP-118"
_OPENERS = 50
_ITEMS, _ITEM_BYTES = 300, 3_000
_BUDGET_BYTES = 400_000


def device(folder: Path, name: str, port: int) -> Opening[Endpoint]:
    backoff = Backoff(first_s=0.01, cap_s=0.05)
    return Endpoint.open(
        folder / f"{name}.db", subject="acme", device=name, relay=f"ws://127.0.0.1:{port}", backoff=backoff
    )


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayServer]:
    server = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    yield server
    await server.close()


class CuttingProxy:
    """Carries bytes; cuts each connection once it brought so many down. `down` is what each one brought."""

    def __init__(self, target_port: int) -> None:
        self.down: list[int] = []
        self._target_port = target_port
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        up = asyncio.ensure_future(self._pump_up(reader, far_writer))
        number = len(self.down)
        self.down.append(0)
        while self.down[number] < _BUDGET_BYTES and (data := await far_reader.read(16_384)):
            self.down[number] += len(data)
            writer.write(data)
            await writer.drain()
        # What was carried arrives; then the line is dead.
        writer.close()
        up.cancel()
        far_writer.transport.abort()

    async def _pump_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(16_384):
            writer.write(data)


@pytest.mark.slow
async def test_a_first_sync_that_is_cut_goes_on_where_it_was(tmp_path: Path, relay: RelayServer) -> None:
    """SE-16: each connection is too short for the whole, and what all bring is little more than the whole."""
    whole = _ITEMS * _ITEM_BYTES
    async with device(tmp_path, "phone", relay.port) as phone, phone.task(TASK, create=True) as task:
        for start in range(0, _ITEMS, 50):
            texts = [f"{number:04}" + "x" * _ITEM_BYTES for number in range(start, start + 50)]
            await task.history.append(*({"role": "user", "content": text} for text in texts))
        await phone.synced(timeout_s=30)
    proxy = CuttingProxy(relay.port)
    port = await proxy.start()
    async with asyncio.timeout(60), device(tmp_path, "desk", port) as desk, desk.task(TASK, access="read") as task:
        items = await task.history.items()
    proxy.close()
    assert [str(item["content"])[:4] for item in items] == [f"{number:04}" for number in range(_ITEMS)]
    assert len(proxy.down) >= whole // _BUDGET_BYTES + 1
    assert whole < sum(proxy.down) < whole * 1.35


@pytest.mark.slow
async def test_fifty_devices_that_begin_one_task_at_once_share_it(tmp_path: Path, relay: RelayServer) -> None:
    """SE-05: one log, fifty keys, and what every document begins with is there once."""
    devices = [await device(tmp_path, f"d{number}", relay.port) for number in range(_OPENERS)]

    async def begin(number: int) -> None:
        async with devices[number].task(TASK, create=True) as task:
            await task.slots.confirm(f"own-{number}", number)
        await devices[number].synced(timeout_s=60)

    try:
        await asyncio.gather(*map(begin, range(_OPENERS)))
        await asyncio.gather(*(one.synced(timeout_s=60) for one in devices))
        digests = set()
        for one in devices:
            async with one.task(TASK, access="read") as task:
                assert {name: slot.value for name, slot in task.view.slots.items()} == {
                    f"own-{number}": number for number in range(_OPENERS)
                }
                digests.add(repr(sorted(task.view.slots)))
            assert one.status.quarantined == one.status.set_aside == 0
            assert not one.status.diverged
        assert len(digests) == 1
        # Each wrote its key, and the version that it began the task with unless it had heard of one by then.
        assert _OPENERS < (await relay.metrics()).counts["entries_stored"] <= 2 * _OPENERS
    finally:
        for one in devices:
            await one.aclose()


@pytest.mark.parametrize("side", ["server_relay.admission", "sync_core.replica.link", "server_relay.relay"])
async def test_work_that_another_version_does_not_take_waits_for_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """SE-23: an unknown version of the wire is said, and the seven writes stay until both speak one version."""
    settings = RelaySettings(db=tmp_path / "relay.db", port=0)
    server = await serve(settings)
    with monkeypatch.context() as other:
        other.setattr(f"{side}.WIRE_VERSION", 2)
        async with device(tmp_path, "phone", server.port) as phone:
            async with phone.task(TASK, create=True) as task:
                for number in range(7):
                    await task.slots.confirm(f"slot-{number}", number)
            with pytest.raises(Refused):
                await phone.synced(timeout_s=10)
            assert phone.status.link is LinkState.REFUSED
            assert "version" in phone.status.reason
            # The task's version is the eighth entry.
            assert (phone.status.unsent, phone.status.set_aside) == (8, 0)
    await server.close()
    server = await serve(replace(settings, port=server.port))
    async with device(tmp_path, "phone", server.port) as phone, device(tmp_path, "desk", server.port) as desk:
        await phone.synced(timeout_s=10)
        assert phone.status.unsent == 0
        async with desk.task(TASK, access="read") as task:
            assert {name: slot.value for name, slot in task.view.slots.items()} == {
                f"slot-{number}": number for number in range(7)
            }
    await server.close()
