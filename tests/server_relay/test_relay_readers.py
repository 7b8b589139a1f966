"""Readers that do not read, or slowly (SE-17, RS-33): memory is bounded, progress is what counts, nothing is lost."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from server_relay.config import RelaySettings
from server_relay.effects import Drained
from server_relay.fanout import CATCH_UP_ROOM_BYTES
from server_relay.sessions import CLOSE_POLICY, CLOSE_TRY_LATER
from sync_core.frames import BlobWanted, Heads, ListTasks, Push
from sync_core.limits import FRAME_BYTES_MAX, OUT_QUEUE_BYTES_MAX
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import history_entry

TASK, PHONE = "expense/TRIP-118", 700_001
TEXT = f'"{"x" * 10_000}"'


@pytest.fixture
def harness() -> Harness:
    return Harness()


def room(harness: Harness, readers: int) -> tuple[Client, list[Client]]:
    """A writer and readers that follow one task."""
    writer = harness.login("writer")
    clients = [harness.login(f"d{number}") for number in range(readers)]
    for client in (writer, *clients):
        client.hello(TASK)
    return writer, clients


def write(harness: Harness, writer: Client, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        writer.send(Push(TASK, (history_entry(TASK, PHONE, seq, "writer", TEXT),)))


def test_one_of_twenty_does_not_read_and_nobody_is_held_up(harness: Harness) -> None:
    """SE-17: 5 MB in small updates."""
    writer, clients = room(harness, 20)
    slow, others = clients[0], clients[1:]
    slow.reads = False
    for seq in range(1, 501):
        write(harness, writer, seq, seq)
        assert slow.sent_bytes <= OUT_QUEUE_BYTES_MAX
        harness.turn()
        # Who reads has each update in the turn in which it was stored.
        assert [entry.writer_seq for entry in others[seq % 19].entries()][-1:] == [seq]
    assert len(writer.receipts()) == 500
    assert slow.closed is None
    kept = sum(len(log.fresh) + len(log.waiting) for log in harness.relay._tasks._logs.values())
    assert kept == 0
    slow.reads = True
    harness.drain()
    assert [entry.writer_seq for entry in slow.entries()] == list(range(1, 501))
    # It caught up on the connection that it had, without being sent away or told to begin anew.
    assert slow.closed is None
    assert slow.take(Heads) == []


def test_a_reader_without_progress_is_sent_away_and_resumes_where_it_was(harness: Harness) -> None:
    writer, (slow,) = room(harness, 1)
    slow.reads = False
    write(harness, writer, 1, 100)
    harness.tick(harness.settings.stalled_reader_ms - 1)
    assert slow.closed is None
    harness.tick(1)
    assert slow.closed is not None
    assert slow.closed.code == CLOSE_POLICY
    assert harness.relay.counts["stalled_readers"] == 1
    again = harness.login("d0")
    again.hello(TASK)
    harness.drain()
    assert len(again.entries()) == 100


def test_a_reader_that_makes_progress_stays_however_long_it_takes(harness: Harness) -> None:
    """SE-16: a big first sync over a slow link is judged by its progress, not by its length."""
    writer, (slow,) = room(harness, 1)
    slow.reads = False
    write(harness, writer, 1, 300)
    waiting = slow.sent_bytes
    assert waiting > CATCH_UP_ROOM_BYTES
    for _ in range(60):
        # A little is read every twenty seconds, and the relay puts more behind it where there is room.
        waiting = slow.sent_bytes = max(0, slow.sent_bytes - 20_000)
        harness.turn(Drained(slow.conn, waiting))
        harness.tick(20_000)
        assert slow.closed is None
        assert slow.sent_bytes <= OUT_QUEUE_BYTES_MAX
    slow.reads = True
    harness.drain()
    assert [entry.writer_seq for entry in slow.entries()] == list(range(1, 301))


def test_a_little_that_waits_is_no_stall(harness: Harness) -> None:
    writer, (slow,) = room(harness, 1)
    slow.reads = False
    write(harness, writer, 1, 2)
    for _ in range(10):
        harness.tick(harness.settings.stalled_reader_ms)
    assert slow.closed is None


def test_who_asks_and_does_not_read_the_answers_is_closed_within_a_bound(harness: Harness) -> None:
    writer, (greedy,) = room(harness, 1)
    write(harness, writer, 1, 5)
    greedy.reads = False
    for _ in range(40):
        greedy.send(*(BlobWanted(TASK, "a" * 64) for _ in range(500)), ListTasks(1))
        if greedy.closed is not None:
            break
    assert greedy.closed is not None
    assert greedy.closed.code == CLOSE_TRY_LATER
    assert greedy.sent_bytes <= OUT_QUEUE_BYTES_MAX + 3 * FRAME_BYTES_MAX


def test_a_hundred_sockets_one_floods_and_one_reads_nothing() -> None:
    """RS-33, small: what is held for each is bounded, the flood ends its sender's connection, the others have all."""
    settings = replace(RelaySettings(db=Path("unused")), entries_per_minute_max=400)
    harness = Harness(settings=settings)
    writer, clients = room(harness, 100)
    silent, flooding, others = clients[0], clients[1], clients[2:]
    silent.reads = False
    flood = 0
    while flooding.closed is None:
        flood += 1
        flooding.send(Push(TASK, (history_entry(TASK, 900_009, flood, "d1", TEXT),)))
        if flood % 20 == 0:
            write(harness, writer, flood // 20, flood // 20)
        assert silent.sent_bytes <= OUT_QUEUE_BYTES_MAX
    assert flooding.closed.code == CLOSE_TRY_LATER
    assert flood == 401
    harness.turn()
    assert all(len(client.entries()) == 401 + 20 for client in others)
    assert all(client.closed is None for client in others)
