"""Durable receipts a second within 25 ms: 32 writers, each in a task of its own, whose frames join.

Only Segue's receipt means *stored*, so no peer has this workload; it has a floor: what the same load gets per second
out of SQLite alone, one transaction per batch, is in `tests.benchmarks`.
"""

import msgspec

from tests.benchmarks.peers.fan_out import percentile
from tests.benchmarks.peers.load import NOW
from tests.benchmarks.peers.segue_dialect import SegueDialect
from tests.benchmarks.peers.targets import Server, quiet
from tests.benchmarks.peers.yjs import marked

__all__ = ["Receipts", "receipts"]

WRITERS = 32
P99_MS_MAX = 25.0
_STEPS = (8, 16, 20, 24, 32, 64)
"""Updates that one writer sends joined in one message, as many again once they are receipted. The more of them, the
more receipts a second, and the longer each waits for those before it."""


class Receipts(msgspec.Struct, frozen=True):
    """Receipts a second over some seconds, the time from sending a message to its last receipt, and how many updates
    each message joins; `most_rate` is reached without regard to the time."""

    rate: float
    p99_ms: float
    joined: int
    most_rate: float


def receipts(server: Server, seconds: float) -> Receipts:
    """Return the most receipts that came within the bound."""
    tried = [_keep_busy(server, step, seconds) for step in _STEPS]
    best = max(tried, key=lambda one: (one.p99_ms <= P99_MS_MAX, one.rate))
    return msgspec.structs.replace(best, most_rate=max(one.rate for one in tried))


def _keep_busy(server: Server, step: int, seconds: float) -> Receipts:
    """Keep every writer's window full, and count what is receipted."""
    load = server.fresh()
    dialect = load.dialect
    assert isinstance(dialect, SegueDialect)
    clients = load.open_all([f"w{number}" for number in range(WRITERS)])
    quiet(load.run_for)
    sent = [0] * WRITERS
    began_at = [0.0] * WRITERS
    waits: list[float] = []
    began = NOW()
    while NOW() - began < seconds:
        for number, client in enumerate(clients):
            if client.receipts < sent[number]:
                continue
            now = NOW()
            if sent[number]:
                waits.append((now - began_at[number]) * 1e3)
            began_at[number] = now
            first = sent[number] + 1
            sent[number] += step
            values = [marked(number, now, update) for update in range(first, first + step)]
            client.send(dialect.write_all(client, client.key, values))
        load.poll(0.001)
    took = NOW() - began
    done = sum(client.receipts for client in clients)
    load.close()
    rate, p99_ms = done / took, percentile(waits, 0.99)
    print(f"    {step:3d} joined  {rate:9,.0f} receipts/s  p99 {p99_ms:6.1f} ms", flush=True)
    return Receipts(rate, p99_ms, step, rate)
