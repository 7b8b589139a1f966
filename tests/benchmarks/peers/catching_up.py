"""W3: a fresh client fetches a document that 10,000 updates made, from a warm server and from one just started."""

import asyncio
import statistics
import time

import msgspec

from sync_core import Endpoint
from tests.benchmarks.peers.load import NOW, Client, Load
from tests.benchmarks.peers.segue_dialect import SegueDialect
from tests.benchmarks.peers.targets import TAIL_ENTRIES_MAX, Server, quiet
from tests.benchmarks.peers.yjs import marked, numbers_in

__all__ = ["CatchUp", "catch_up"]

UPDATES, KEYS = 10_000, 1_000
_ROOM = "document"
_WARM, _COLD = 20, 5


class CatchUp(msgspec.Struct, frozen=True):
    """Medians, milliseconds from connect to having all of it; `received_bytes` with framing, `document_bytes` without.

    `cold_ms` is None for a server that stores nothing.
    """

    warm_ms: float
    cold_ms: float | None
    received_bytes: int
    document_bytes: int


def catch_up(server: Server) -> CatchUp:
    """Seed, then fetch while the server is warm, then after each of several kills."""
    load = server.fresh()
    keep = _seed(server, load)
    quiet(load.run_for)
    warm = [_fetch(load, number) for number in range(_WARM)]
    cold: list[float] = []
    if server.target.stores:
        _let_settle(server, load)
        for number in range(_COLD):
            load.close()
            time.sleep(1.0)
            server.kill()
            server.start()
            quiet(load.run_for)
            load = server.load()
            cold.append(_fetch(load, 1_000 + number)[0])
    del keep
    load.close()
    return CatchUp(
        statistics.median(ms for ms, _, _ in warm),
        statistics.median(cold) if cold else None,
        warm[-1][1],
        warm[-1][2],
    )


def _fetch(load: Load, number: int) -> tuple[float, int, int]:
    """Return how long it took in milliseconds, the bytes received, and those of the document in them."""
    bodies: list[bytes] = []
    began = NOW()
    client = load.open(_ROOM, 50_000 + number)
    client.on_body = bodies.append
    if not load.run_until(lambda: client.synced or client.closed, 60) or client.closed:
        raise RuntimeError(f"catching up failed: {client.error or 'no answer in time'}")
    took = (NOW() - began) * 1e3
    have = numbers_in(b"".join(bodies))
    if len(have & set(range(UPDATES - KEYS, UPDATES))) < KEYS:
        raise RuntimeError(f"the document is not complete: {len(have)} values")
    client.close()
    return took, client.bytes, sum(map(len, bodies))


# --- seeding ----------------------------------------------------------------------------------------------------------


def _seed(server: Server, load: Load) -> Client | None:
    if isinstance(load.dialect, SegueDialect):
        asyncio.run(_seed_segue(server, load))
        return None
    client = load.open_all([_ROOM])[0]
    for number in range(UPDATES):
        client.send(load.dialect.write(client, f"k{number % KEYS}", marked(1, 0.0, number)))
        if number % 200 == 199:
            load.barrier(client)
    load.barrier(client)
    return client


async def _seed_segue(server: Server, load: Load) -> None:
    """Two real devices: one writes and makes the snapshot that the relay asks for, the other one confirms it."""
    relay = f"ws://127.0.0.1:{server.port}"
    async with (
        Endpoint.open(server.folder / "writer.db", subject="bench", device="writer", relay=relay) as writer,
        Endpoint.open(server.folder / "reader.db", subject="bench", device="reader", relay=relay) as reader,
        writer.task(_ROOM, create=True) as task,
    ):
        await writer.synced(timeout_s=30)
        async with reader.task(_ROOM) as other:
            for start in range(0, UPDATES, 100):
                numbers = range(start, start + 100)
                await asyncio.gather(*(task.slots.confirm(f"k{n % KEYS}", marked(1, 0.0, n)) for n in numbers))
            await writer.synced(timeout_s=60)
            await reader.synced(timeout_s=60)
            end = NOW() + 60
            nudges = 0
            while not _has_snapshot(load) and NOW() < end:
                # A snapshot is asked for when something is stored: a device that goes on working brings it about.
                await task.notes.append("worklog", f"{nudges}\n")
                nudges += 1
                await asyncio.sleep(0.5)
            assert other.key == _ROOM


def _has_snapshot(load: Load) -> bool:
    """Whether a fresh reader gets nearly all of the document as a snapshot."""
    client = load.open(_ROOM, 60_000)
    load.run_until(lambda: client.synced or client.closed, 10)
    client.close()
    return bool(client.snapshot) and client.tail <= TAIL_ENTRIES_MAX


def _let_settle(server: Server, load: Load) -> None:
    """Wait until the store's files have not changed for a while: some peers write seconds later."""
    end, since, last = NOW() + 90, NOW(), None
    while NOW() < end and NOW() - since < 2.5:
        now = [(file.name, file.stat().st_mtime_ns) for file in sorted(server.folder.glob("db.sqlite*"))]
        if now != last:
            last, since = now, NOW()
        load.poll(0.05)
