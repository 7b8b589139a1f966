"""Durable receipts a second: 32 writers, each in a task of its own, with so many updates under way that frames join.

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
_STEP = 64
"""Updates that one writer sends joined in one message; as many again once they are receipted."""


class Receipts(msgspec.Struct, frozen=True):
    """Receipts a second over some seconds, and the time from sending a batch to its last receipt."""

    rate: float
    p99_ms: float


def receipts(server: Server, seconds: float) -> Receipts:
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
            sent[number] += _STEP
            values = [marked(number, now, update) for update in range(first, first + _STEP)]
            client.send(dialect.write_all(client, client.key, values))
        load.poll(0.001)
    took = NOW() - began
    done = sum(client.receipts for client in clients)
    load.close()
    return Receipts(done / took, percentile(waits, 0.99))
