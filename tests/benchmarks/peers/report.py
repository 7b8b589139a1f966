"""The table: one line per workload, one column per server, and what Segue reaches of the best peer, in the same run."""

import msgspec

from tests.benchmarks.machine import Machine
from tests.benchmarks.peers.catching_up import CatchUp
from tests.benchmarks.peers.fan_out import FanOut
from tests.benchmarks.peers.receipts import Receipts
from tests.benchmarks.peers.standing import Idle, Kill, Storm

__all__ = ["FLOOR", "OWN", "Results", "as_json", "as_markdown"]

OWN = "segue"
FLOOR = "bare-websockets"
"""What a websocket costs in Python: it keeps nothing and knows no document, so it is a floor and no peer."""


class Results(msgspec.Struct):
    """What one server did; None where it has no such thing or failed, which `failed` explains by workload."""

    w1: FanOut | None = None
    w2: FanOut | None = None
    w3: CatchUp | None = None
    w4: Idle | None = None
    w5: Kill | None = None
    w6: Storm | None = None
    receipts: Receipts | None = None
    failed: dict[str, str] = msgspec.field(default_factory=dict)


_Row = tuple[str, dict[str, float | None], str, bool]


def as_json(machine: Machine, date: str, results: dict[str, Results]) -> str:
    """Return everything as one JSON document."""
    document = {"date": date, "machine": machine, "results": results}
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def as_markdown(machine: Machine, date: str, results: dict[str, Results]) -> str:
    """Return the table, the machine and the date above it."""
    names = list(results)
    lines = [
        f"{date}; {machine.cpu}, {machine.cores} cores, the server pinned to one; Python {machine.python},"
        f" SQLite {machine.sqlite}; an fsync of 4 KiB takes {machine.fsync_ms:.2f} ms.",
        "",
        "| workload | " + " | ".join(names) + " | Segue against the best peer |",
        "| --- |" + " ---: |" * (len(names) + 1),
    ]
    for what, values, form, more_is_better in _rows(results):
        cells = ["-" if (value := values.get(name)) is None else form.format(value) for name in names]
        lines.append(f"| {what} | " + " | ".join(cells) + f" | {_against(values, more_is_better)} |")
    for name, one in results.items():
        lines += [f"\n{name} failed at {what}: {why}" for what, why in one.failed.items()]
    return "\n".join(lines)


def _against(values: dict[str, float | None], more_is_better: bool) -> str:
    own = values.get(OWN)
    peers = [value for name, value in values.items() if name not in (OWN, FLOOR) and value]
    if not own or not peers:
        return ""
    best = max(peers) if more_is_better else min(peers)
    return f"{own / best:.2f} ×"


def _rows(results: dict[str, Results]) -> list[_Row]:
    def of(workload: str, *path: str) -> dict[str, float | None]:
        values: dict[str, float | None] = {}
        for name, one in results.items():
            value: object = getattr(one, workload)
            for part in path:
                value = getattr(value, part, None)
            values[name] = value if isinstance(value, (int, float)) else None
        return values

    return [
        ("W1 one room, 50 clients: delivered/s at p99 ≤ 100 ms", of("w1", "best", "delivered_rate"), "{:,.0f}", True),
        ("W2 500 rooms × 2: updates/s", of("w2", "best", "rate"), "{:,.0f}", True),
        ("W3 10,000 updates, fresh client, warm: ms", of("w3", "warm_ms"), "{:.1f}", False),
        ("W3 the same, server just started: ms", of("w3", "cold_ms"), "{:.1f}", False),
        ("W3 bytes received", of("w3", "received_bytes"), "{:,.0f}", False),
        ("W4 idle connection: KiB", of("w4", "kib_per_connection"), "{:.1f}", False),
        ("W5 lost after kill -9 although confirmed", of("w5", "lost"), "{:,.0f}", False),
        ("W5 of so many confirmed", of("w5", "confirmed"), "{:,.0f}", True),
        ("W6 500 clients in sync after a restart: s", of("w6", "total_s"), "{:.2f}", False),
        ("durable receipts/s, 32 writers, p99 ≤ 25 ms", of("receipts", "rate"), "{:,.0f}", True),
        ("their p99: ms", of("receipts", "p99_ms"), "{:.1f}", False),
        ("updates joined in one message", of("receipts", "joined"), "{:.0f}", False),
        ("durable receipts/s, however late", of("receipts", "most_rate"), "{:,.0f}", True),
    ]
