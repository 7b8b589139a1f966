"""A fresh device catches up: entry by entry against bare guard, pycrdt and SQLite, and from a snapshot by its bytes."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from time import perf_counter

from server_relay.config import RelaySettings
from sync_core.endpoint.transport import Connection, WebsocketTransport
from sync_core.entry import Entry
from sync_core.frames import Heads
from sync_core.wire import decode_relay
from tests.benchmarks.devices import CREATION_ENTRIES, SYNC_S, TASK, open_device, overwrite, stored_state
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.floors import bare_ingest
from tests.benchmarks.servers import relay_server
from tests.benchmarks.stores import task_document

__all__ = ["run"]

_SNAPSHOT_S = 60.0


async def run(scale: Scale, folder: Path) -> list[Figure]:
    """Return the time to catch up by number of entries, and the bytes that a snapshot costs."""
    figures = [await _entry_by_entry(scale, folder, size) for size in scale.sizes]
    figures += [await _from_snapshot(folder, size) for size in scale.sizes]
    return figures


# --- entry by entry ---------------------------------------------------------------------------------------------------


async def _entry_by_entry(scale: Scale, folder: Path, size: int) -> Figure:
    own = folder / f"entries-{size}"
    own.mkdir()
    async with relay_server(own / "relay.db") as relay:
        async with open_device(own, "phone", relay) as phone, phone.task(TASK, create=True) as task:
            await overwrite(task, size)
            await phone.synced(timeout_s=SYNC_S)
        entries = (await stored_state(own / "phone.db")).entries
        floors, values = [], []
        for place in range(scale.rounds):
            floors.append(_bare_s(own / f"bare-{place}.db", entries))
            values.append(await _caught_up_s(own, f"desktop-{place}", relay))
    return Figure("entry by entry", size, "entries", "ms", median(values) * 1e3, median(floors) * 1e3, 3)


def _bare_s(path: Path, entries: Sequence[Entry]) -> float:
    started = perf_counter()
    bare_ingest(path, entries)
    return perf_counter() - started


async def _caught_up_s(folder: Path, device: str, relay: str) -> float:
    """Return how long a fresh device takes from its first open to a handle on the whole task."""
    async with open_device(folder, device, relay) as desktop:
        started = perf_counter()
        async with desktop.task(TASK):
            return perf_counter() - started


# --- from a snapshot --------------------------------------------------------------------------------------------------


class _CountingNetwork:
    """Websockets that count the bytes received, and notice when the relay has a snapshot that may be used."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.snapshot_usable = asyncio.Event()
        self._websockets = WebsocketTransport()

    async def connect(self, url: str) -> Connection:
        return _CountedConnection(self, await self._websockets.connect(url))


class _CountedConnection:
    def __init__(self, network: _CountingNetwork, connection: Connection) -> None:
        self._network = network
        self._connection = connection
        self.send = connection.send
        self.close = connection.close

    async def receive(self) -> bytes | str:
        message = await self._connection.receive()
        self._network.received_bytes += len(message)
        for frame in decode_relay(message):
            if isinstance(frame, Heads) and any(head.snapshot and head.snapshot.usable for head in frame.streams):
                self._network.snapshot_usable.set()
        return message


async def _from_snapshot(folder: Path, size: int) -> Figure:
    """The relay is told to ask for a snapshot at the entry after all others; by itself it does so for long logs."""
    own = folder / f"snapshot-{size}"
    own.mkdir()
    network, fresh = _CountingNetwork(), _CountingNetwork()
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(relay_server(own / "relay.db", tail_entries=size + CREATION_ENTRIES))
        phone = await stack.enter_async_context(open_device(own, "phone", relay))
        desktop = await stack.enter_async_context(open_device(own, "desktop", relay, network))
        task = await phone.task(TASK, create=True)
        await overwrite(task, size)
        await phone.synced(timeout_s=SYNC_S)
        await desktop.task(TASK)
        # The desktop is level with the phone, so it can confirm what the phone offers when it is asked now.
        await task.slots.confirm("slot_0", "CC-1042")
        await asyncio.wait_for(network.snapshot_usable.wait(), _SNAPSHOT_S)
        await _caught_up_over(own, relay, fresh)
    stored = await stored_state(own / "phone.db")
    document = task_document(TASK)
    document.load(stored.document, stored.entries)
    return Figure(
        "from a snapshot, bytes received",
        size,
        "entries",
        "KB",
        fresh.received_bytes / 1e3,
        len(document.state_bytes()) / 1e3,
        1.2 if size > RelaySettings(db=own).snapshot_tail_entries else None,
    )


async def _caught_up_over(folder: Path, relay: str, network: _CountingNetwork) -> None:
    async with open_device(folder, "tablet", relay, network) as tablet, tablet.task(TASK):
        pass
