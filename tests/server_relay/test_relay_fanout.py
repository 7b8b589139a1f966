"""Who is sent what, in which order and how much of it; and what a failed commit leaves behind."""

import pytest

from server_relay.effects import Disconnected, Drained, ReadTail, Send, Written
from server_relay.fanout import CATCH_UP_ROOM_BYTES, PORTION_BYTES
from server_relay.records import AppendStored
from server_relay.sessions import CLOSE_TRY_LATER
from sync_core.entry import Entry, EntryKind, VersionDecision, encode_record
from sync_core.errors import StoreFull
from sync_core.frames import BlobWanted, DigestAt, Entries, Hello, ListTasks, Push, Receipt
from sync_core.ids import StreamName
from sync_core.limits import FRAME_BYTES_MAX, OUT_QUEUE_BYTES_MAX
from sync_core.wire import ClientFrame
from tests.server_relay.harness import Client, Harness, position
from tests.server_relay.wire_client import history_entry

TASK = "expense/TRIP-118"
PHONE, DESKTOP = 700_001, 800_002


def item(seq: int, writer: int = PHONE, device: str = "phone", size: int = 10, task: str = TASK) -> Entry:
    return history_entry(task, writer, seq, device, f'"{"x" * size}"')


def version(seq: int, writer: int = PHONE, device: str = "phone") -> Entry:
    payload = encode_record(VersionDecision(seq, "anna"))
    return Entry(f"{TASK}:state", writer, seq, EntryKind.VERSION, payload, device)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def follower(harness: Harness, device: str, task: str = TASK) -> Client:
    client = harness.login(device)
    client.hello(task)
    harness.drain()
    client.frames.clear()
    return client


# --- live -------------------------------------------------------------------------------------------------------------


def test_fifty_first_opens_in_one_turn_are_one_log(harness: Harness) -> None:
    """SE-05."""
    clients = [harness.login(f"d{number}") for number in range(50)]
    events = []
    for number, client in enumerate(clients):
        own = history_entry(TASK, PHONE + number, 1, f"d{number}")
        events += client.received(Hello(TASK), Push(TASK, (own,)))
    harness.turn(*events)
    harness.drain()
    appends = [write for write in harness.writes if isinstance(write, AppendStored)]
    assert [len(write.entries) for write in appends] == [50]
    assert len({row.relay_seq for row in appends[0].entries}) == 50
    for client in clients:
        # Few of all are its own, so all come as they are: one encoding serves everybody.
        assert [(e.writer, e.relay_seq) for e in client.entries()] == [(PHONE + n, n + 1) for n in range(50)]
        assert not client.receipts()


def test_the_pusher_gets_receipts_and_the_others_entries_in_stored_order(harness: Harness) -> None:
    phone, desktop, tablet = (follower(harness, device) for device in ("phone", "desktop", "tablet"))
    harness.turn(
        *phone.received(Push(TASK, (item(1), version(1)))),
        *desktop.received(Push(TASK, (item(1, DESKTOP, "desktop"),))),
        *phone.received(Push(TASK, (item(2),))),
    )
    order = [("history", PHONE), ("state", PHONE), ("history", DESKTOP), ("history", PHONE)]
    assert [(e.stream.rpartition(":")[2], e.writer) for e in tablet.entries()] == order
    kinds = [type(frame) for frame in phone.frames]
    assert kinds == [Receipt, Receipt, Entries, Receipt]
    assert [e.writer for e in phone.entries()] == [DESKTOP]
    assert phone.receipts() == [(PHONE, 1, 1), (PHONE, 1, 1), (PHONE, 2, 3)]


def test_the_bytes_of_a_turn_are_encoded_once_for_all_readers(harness: Harness) -> None:
    phone = follower(harness, "phone")
    for number in range(3):
        follower(harness, f"d{number}")
    effects = phone.push(TASK, item(1))
    sent = [effect for effect in effects if isinstance(effect, Send) and effect.conn != phone.conn]
    assert len(sent) == 3
    assert len({id(effect.frames[0]) for effect in sent}) == 1


def test_another_connection_of_the_same_device_gets_what_it_does_not_hold(harness: Harness) -> None:
    old, new = follower(harness, "phone"), harness.login("phone")
    new.hello(TASK, position(StreamName.HISTORY, b"", own=((PHONE, 1),)))
    new.frames.clear()
    old.push(TASK, item(1), item(2))
    assert new.receipts() == [(PHONE, 1, 1)]
    assert [entry.writer_seq for entry in new.entries()] == [2]


def test_a_reader_may_have_any_mix_of_turns_and_loses_nothing(harness: Harness) -> None:
    phone, desktop = follower(harness, "phone"), follower(harness, "desktop")
    for seq in range(1, 30):
        phone.push(TASK, item(seq), *([version(seq // 3)] if seq % 3 == 0 else []))
        if seq % 7 == 0:
            desktop.reads = not desktop.reads
    desktop.reads = True
    harness.drain()
    assert [e.writer_seq for e in desktop.entries() if e.kind is EntryKind.HISTORY] == list(range(1, 30))


# --- behind -----------------------------------------------------------------------------------------------------------


def big(harness: Harness, count: int, task: str = TASK) -> Client:
    phone = harness.login("phone")
    for seq in range(1, count + 1):
        phone.push(task, item(seq, size=20_000, task=task))
        harness.drain()
    return phone


def test_catching_up_comes_in_portions_and_pauses_while_the_queue_is_full(harness: Harness) -> None:
    big(harness, 60)
    desktop = harness.login("desktop")
    desktop.reads = False
    desktop.send(Hello(TASK))
    assert CATCH_UP_ROOM_BYTES < desktop.sent_bytes <= CATCH_UP_ROOM_BYTES + 2 * PORTION_BYTES
    sizes = [
        sum(len(entry.payload) for entry in frame.entries) for frame in desktop.frames if isinstance(frame, Entries)
    ]
    assert max(sizes) <= PORTION_BYTES
    desktop.reads = True
    harness.drain()
    assert [entry.writer_seq for entry in desktop.entries()] == list(range(1, 61))


def test_a_reader_that_does_not_read_holds_no_more_than_its_queue(harness: Harness) -> None:
    phone, slow, quick = follower(harness, "phone"), follower(harness, "slow"), follower(harness, "quick")
    slow.reads = False
    for seq in range(1, 101):
        phone.push(TASK, item(seq, size=20_000))
        assert slow.sent_bytes <= OUT_QUEUE_BYTES_MAX
    assert len(quick.entries()) == 100
    got = len(slow.entries())
    assert got < 30
    slow.reads = True
    harness.drain()
    phone.push(TASK, item(101))
    assert [entry.writer_seq for entry in slow.entries()] == list(range(got + 1, 102))


def test_the_tasks_of_a_reader_take_turns(harness: Harness) -> None:
    for task in ("a", "b"):
        big(harness, 20, task)
    desktop = harness.login("desktop")
    desktop.send(Hello("a"), Hello("b"))
    harness.drain()
    first = [frame.stream for frame in desktop.take(Entries)][:6]
    assert first == ["a:history", "b:history"] * 3


def test_live_entries_go_before_what_other_tasks_catch_up(harness: Harness) -> None:
    big(harness, 60)
    phone = follower(harness, "phone", "small")
    desktop = follower(harness, "desktop", "small")
    desktop.reads = False
    desktop.send(Hello(TASK))
    phone.push("small", history_entry("small", PHONE, 1, "phone"))
    streams = [frame.stream for frame in desktop.take(Entries)]
    assert streams[-1] == "small:history"
    assert len(streams) < 10


def test_receipts_do_not_wait_for_catching_up(harness: Harness) -> None:
    big(harness, 60)
    desktop = harness.login("desktop")
    desktop.reads = False
    desktop.send(Hello(TASK))
    desktop.push(TASK, item(1, DESKTOP, "desktop"))
    assert desktop.receipts() == [(DESKTOP, 1, 61)]
    desktop.reads = True
    harness.drain()
    assert len(desktop.entries()) == 60
    assert desktop.receipts() == [(DESKTOP, 1, 61)]


def test_a_second_hello_during_a_catch_up_starts_over_where_it_says(harness: Harness) -> None:
    big(harness, 30)
    desktop = harness.login("desktop")
    desktop.reads = False
    desktop.send(Hello(TASK))
    assert 0 < len(desktop.entries()) < 30
    desktop.send(Hello(TASK))
    desktop.reads = True
    harness.drain()
    assert [entry.writer_seq for entry in desktop.entries()][-30:] == list(range(1, 31))


def test_a_portion_that_was_read_for_an_earlier_hello_is_not_sent(harness: Harness) -> None:
    big(harness, 30)
    desktop = harness.login("desktop")
    first = harness.relay.turn(desktop.received(Hello(TASK)), harness.now_ms)
    (late,) = [effect for effect in first if isinstance(effect, ReadTail)]
    epoch = harness.login("other").hello(TASK).streams[0].epoch
    read = tuple(item(seq, size=20_000) for seq in range(1, 31))
    desktop.hello(TASK, position(StreamName.HISTORY, epoch, read))
    harness.turn(harness.model.read(late))
    harness.drain()
    assert desktop.entries() == []


def test_one_portion_at_a_time_is_read_for_a_session(harness: Harness) -> None:
    big(harness, 10)
    big(harness, 10, "other")
    desktop = harness.login("desktop")
    harness.turn(*desktop.received(Hello(TASK), Hello("other")))
    reads = [effect for effect in harness.effects if isinstance(effect, ReadTail)]
    assert len(reads) == 1


def test_a_reader_without_progress_is_closed_and_a_slow_one_is_not(harness: Harness) -> None:
    big(harness, 60)
    stuck, slow = harness.login("stuck"), harness.login("slow")
    for client in (stuck, slow):
        client.reads = False
        client.send(Hello(TASK))
    for _ in range(40):
        slow.sent_bytes, slow.reads = slow.sent_bytes // 2, False
        harness.turn(Drained(slow.conn, slow.sent_bytes))
        harness.tick(1_000)
    assert stuck.closed is not None
    assert slow.closed is None


def test_who_asks_without_reading_the_answers_is_closed(harness: Harness) -> None:
    for number in range(200):
        harness.login("phone").push(f"task-{number}", history_entry(f"task-{number}", PHONE, 1, "phone"))
    asker = harness.login("asker")
    asker.reads = False
    for number in range(2_000):
        asker.send(ListTasks(number))
        if asker.closed:
            break
    assert asker.closed is not None
    assert asker.sent_bytes < 2 * OUT_QUEUE_BYTES_MAX


@pytest.mark.parametrize(
    "frame", [Hello(TASK), BlobWanted(TASK, "a" * 64), Push("b", (history_entry("b", 9, 5, "asker"),))]
)
def test_answers_that_are_not_read_do_not_pile_up(harness: Harness, frame: ClientFrame) -> None:
    follower(harness, "phone").push(TASK, item(1))
    asker = harness.login("asker")
    asker.reads = False
    for _ in range(3_000):
        asker.send(*[frame] * 20)
        if asker.closed:
            break
    assert asker.closed is not None
    assert asker.sent_bytes <= OUT_QUEUE_BYTES_MAX + 2 * FRAME_BYTES_MAX + 10_000


# --- digests ----------------------------------------------------------------------------------------------------------


def test_a_digest_is_passed_on_with_the_name_of_its_device(harness: Harness) -> None:
    phone, desktop = follower(harness, "phone"), follower(harness, "desktop")
    phone.push(TASK, item(1))
    (frame,) = desktop.take(Entries)
    digest = DigestAt(frame.stream, frame.epoch, 1, b"d" * 32, "somebody")
    desktop.send(digest, DigestAt(frame.stream, b"old", 1, b"d" * 32))
    assert phone.take(DigestAt) == [DigestAt(frame.stream, frame.epoch, 1, b"d" * 32, "desktop")]
    assert desktop.take(DigestAt) == []


# --- a commit that fails ----------------------------------------------------------------------------------------------


def test_a_failed_commit_is_never_receipted_and_closes_who_had_a_part_in_it(harness: Harness) -> None:
    phone, desktop, other = follower(harness, "phone"), follower(harness, "desktop"), follower(harness, "other", "b")
    phone.push(TASK, item(1))
    phone.frames.clear()
    desktop.frames.clear()
    harness.model.fail_next(StoreFull("The disk is full."))
    phone.push(TASK, item(2))
    assert (phone.frames, desktop.frames) == ([], [])
    for client in (phone, desktop):
        assert client.closed is not None
        assert client.closed.code == CLOSE_TRY_LATER
    assert other.closed is None
    other.push("b", history_entry("b", DESKTOP, 1, "other"))
    assert other.receipts() == [(DESKTOP, 1, 1)]


def test_after_a_failed_commit_the_same_entries_are_stored_once(harness: Harness) -> None:
    phone = follower(harness, "phone")
    phone.push(TASK, item(1))
    harness.model.fail_next(StoreFull("The disk is full."))
    phone.push(TASK, item(2), version(1))
    phone = follower(harness, "phone")
    phone.push(TASK, item(1), item(2), version(1))
    assert phone.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2), (PHONE, 1, 1)]
    desktop = harness.login("desktop")
    desktop.hello(TASK)
    assert [(e.kind, e.writer_seq) for e in desktop.entries()] == [
        (EntryKind.HISTORY, 1),
        (EntryKind.HISTORY, 2),
        (EntryKind.VERSION, 1),
    ]


def test_a_first_open_whose_commit_fails_leaves_no_trace(harness: Harness) -> None:
    phone = harness.login("phone")
    harness.model.fail_next(StoreFull("The disk is full."))
    phone.push(TASK, item(1))
    assert phone.closed is not None
    assert follower(harness, "desktop").frames == []
    assert harness.login("tablet").hello(TASK).known is False


def test_what_is_sent_in_a_turn_comes_after_its_writes(harness: Harness) -> None:
    phone = follower(harness, "phone")
    follower(harness, "desktop")
    effects = phone.push(TASK, item(1), item(2))
    kinds = [type(effect) for effect in effects]
    assert kinds == sorted(kinds, key=lambda kind: kind is not Written)


def test_pushes_of_a_device_that_left_in_the_same_turn_are_stored(harness: Harness) -> None:
    """SE-03, the pure half: work that reached the relay is not torn down with its connection."""
    phone = harness.login("phone")
    pushes = [Push(TASK, (item(seq),)) for seq in range(1, 6)]
    harness.turn(*phone.received(*pushes), Disconnected(phone.conn))
    desktop = harness.login("desktop")
    desktop.hello(TASK)
    assert [entry.writer_seq for entry in desktop.entries()] == [1, 2, 3, 4, 5]


def test_a_hello_of_a_device_that_left_in_the_same_turn_follows_nothing(harness: Harness) -> None:
    phone = harness.login("phone")
    harness.turn(*phone.received(Hello(TASK)), Disconnected(phone.conn))
    harness.tick(60_000)
    assert harness.relay.tasks_held == 0


def test_idle_tasks_are_forgotten_and_followed_ones_are_not(harness: Harness) -> None:
    phone = follower(harness, "phone")
    harness.login("desktop").push("other", history_entry("other", DESKTOP, 1, "desktop"))
    assert harness.relay.tasks_held == 2
    harness.tick(60_000)
    assert harness.relay.tasks_held == 1
    phone.leave()
    harness.tick(60_000)
    assert harness.relay.tasks_held == 0
