"""Gauges warn before they are at their bound; latencies are of what was measured, and of nothing else."""

import pytest

from sync_core.endpoint.gauges import Gauge, Latencies, Level
from sync_core.entry import Entry, EntryKind
from sync_core.frames import Push, Receipt

MS = 1_000_000
STATE, HISTORY = "a/1:state", "a/1:history"


@pytest.mark.parametrize(
    ("value", "level"),
    [(None, Level.OK), (0, Level.OK), (7.9, Level.OK), (8, Level.WARNING), (9.9, Level.WARNING), (10, Level.LIMIT)],
)
def test_a_gauge_warns_before_its_bound(value: float | None, level: Level) -> None:
    assert Gauge(value, 8, 10).level is level


def test_what_nothing_bounds_is_never_a_warning() -> None:
    assert Gauge(1e12).level is Level.OK
    assert Gauge(12, 8).level is Level.WARNING


def push(stream: str, writer: int, *seqs: int, recovered: bool = False) -> Push:
    entries = [Entry(stream, writer, seq, EntryKind.UPDATE, b"x", "phone", 0) for seq in seqs]
    return Push("a/1", tuple(entries), recovered)


def receipt(stream: str, writer: int, last: int) -> Receipt:
    return Receipt(stream, b"epoch", writer, 1, last, 1)


def test_a_push_ends_with_the_receipt_of_its_last_entry() -> None:
    latencies = Latencies()
    latencies.pushed(push(STATE, 7, 1, 2), 0)
    latencies.pushed(push(STATE, 7, 3), 10 * MS)
    latencies.received(receipt(HISTORY, 7, 3), 20 * MS)
    latencies.received(receipt(STATE, 8, 3), 20 * MS)
    latencies.received(receipt(STATE, 7, 1), 20 * MS)
    assert latencies.syncs(1, 2).count == 0
    latencies.received(receipt(STATE, 7, 3), 30 * MS)
    told = latencies.syncs(1, 40)
    assert (told.count, told.p50_ms, told.p95) == (2, 20.0, Gauge(30.0, 1, 40))
    latencies.received(receipt(STATE, 7, 3), 99 * MS)
    assert latencies.syncs(1, 2).count == 2


def test_what_was_brought_back_or_lost_its_link_is_not_measured() -> None:
    latencies = Latencies()
    latencies.pushed(push(STATE, 7, 1, recovered=True), 0)
    latencies.pushed(push(HISTORY, 7, 1), 0)
    latencies.disconnected()
    for stream in (STATE, HISTORY):
        latencies.received(receipt(stream, 7, 1), MS)
    told = latencies.syncs(1, 2)
    assert (told.count, told.p50_ms, told.p95.value) == (0, None, None)


def test_percentiles_are_of_the_newest_moments() -> None:
    latencies = Latencies()
    for duration in range(1, 101):
        latencies.committed(duration * MS)
    told = latencies.writes(50, 500)
    assert (told.count, told.p50_ms, told.p95.value, told.p95.level) == (100, 50.0, 95.0, Level.WARNING)
    for _ in range(5_000):
        latencies.committed(MS)
    assert latencies.writes(50, 500).p95.value == 1.0
    assert latencies.writes(50, 500).count == 5_100
