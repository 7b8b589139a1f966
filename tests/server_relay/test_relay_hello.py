"""What a relay answers to a Hello: heads, what lies above the cursors, and that a log was lost."""

import pytest
from msgspec.structs import replace

from server_relay.effects import ReadTail, RelayAnswer, RelayRead
from server_relay.records import StartStream
from sync_core.entry import Entry, EntryKind, Plan, VersionDecision, encode_record
from sync_core.frames import Entries, Heads, Hello, Push, Receipt, Refused, StreamPosition, Unfollow
from sync_core.ids import StreamName
from tests.server_relay.harness import Client, Harness, chain_of, position
from tests.server_relay.wire_client import history_entry

TASK = "expense/TRIP-118"
PHONE, DESKTOP = 700_001, 800_002
STATE, HISTORY = StreamName.STATE, StreamName.HISTORY


def item(seq: int, writer: int = PHONE, device: str = "phone") -> Entry:
    return history_entry(TASK, writer, seq, device)


def version(seq: int, writer: int = PHONE, device: str = "phone") -> Entry:
    payload = encode_record(VersionDecision(seq, "anna"))
    return Entry(f"{TASK}:state", writer, seq, EntryKind.VERSION, payload, device)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def epoch_of(heads: Heads, name: StreamName = HISTORY) -> bytes:
    (stream,) = [stream for stream in heads.streams if stream.name is name]
    return stream.epoch


def heads_of(heads: Heads) -> dict[StreamName, int]:
    return {stream.name: stream.head for stream in heads.streams}


def filled(harness: Harness, *entries: Entry) -> Client:
    """A phone that follows the task and has pushed these entries."""
    phone = harness.login("phone")
    phone.hello(TASK)
    phone.push(TASK, *entries)
    phone.frames.clear()
    return phone


# --- heads and catching up --------------------------------------------------------------------------------------------


def test_an_unknown_task_is_unknown_and_followed_all_the_same(harness: Harness) -> None:
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK)
    assert (heads.known, heads.streams) == (False, ())
    assert harness.writes == []
    filled(harness, item(1))
    assert desktop.entries() == [_numbered(item(1), 1)]


def _numbered(entry: Entry, relay_seq: int) -> Entry:
    return replace(entry, relay_seq=relay_seq)


def test_a_new_reader_gets_heads_and_then_everything(harness: Harness) -> None:
    filled(harness, item(1), version(1), item(2))
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK)
    assert (heads.known, heads_of(heads)) == (True, {HISTORY: 2, STATE: 1})
    assert desktop.entries() == [_numbered(item(1), 1), _numbered(version(1), 1), _numbered(item(2), 2)]


def test_streams_come_in_the_order_in_which_they_were_stored(harness: Harness) -> None:
    order = [item(1), version(1), version(2), item(2), item(3), version(3)]
    filled(harness, *order)
    harness.restart()
    desktop = harness.login("desktop")
    desktop.hello(TASK)
    harness.drain()
    assert [(entry.stream, entry.writer_seq) for entry in desktop.entries()] == [
        (e.stream, e.writer_seq) for e in order
    ]


def test_a_reader_goes_on_from_its_cursors(harness: Harness) -> None:
    entries = [item(1), version(1), item(2), version(2), item(3)]
    phone = filled(harness, *entries)
    heads = phone.hello(TASK)
    desktop = harness.login("desktop")
    desktop.hello(
        TASK,
        position(HISTORY, epoch_of(heads), (item(1), item(2))),
        position(STATE, epoch_of(heads, STATE), (version(1),)),
    )
    assert [(entry.stream, entry.writer_seq) for entry in desktop.entries()] == [
        (f"{TASK}:state", 2),
        (f"{TASK}:history", 3),
    ]


def test_what_a_reader_has_is_not_even_read_for_it(harness: Harness) -> None:
    """A reader near the head costs the mailbox its tail, not the whole log."""
    phone = filled(harness, *(item(seq) for seq in range(1, 10)), version(1))
    heads = phone.hello(TASK)
    reads: list[int] = []
    take = harness.model.read

    def noted(read: RelayRead) -> RelayAnswer:
        if isinstance(read, ReadTail):
            reads.append(read.after_no)
        return take(read)

    harness.model.read = noted  # type: ignore[method-assign]
    desktop = harness.login("desktop")
    desktop.hello(TASK, position(HISTORY, epoch_of(heads), tuple(item(seq) for seq in range(1, 9))))
    desktop.hello(
        TASK,
        position(HISTORY, epoch_of(heads), tuple(item(seq) for seq in range(1, 9))),
        position(STATE, epoch_of(heads, STATE), (version(1),)),
    )
    assert reads == [8, 8]


def test_a_reader_at_the_heads_gets_nothing_but_what_comes_next(harness: Harness) -> None:
    phone = filled(harness, item(1), item(2))
    desktop = harness.login("desktop")
    desktop.hello(TASK, position(HISTORY, epoch_of(phone.hello(TASK)), (item(1), item(2))))
    assert desktop.entries() == []
    phone.push(TASK, item(3))
    assert [entry.writer_seq for entry in desktop.entries()] == [3]


def test_hello_in_the_turn_of_a_push_misses_nothing_and_gets_nothing_twice(harness: Harness) -> None:
    phone, desktop = filled(harness, item(1)), harness.login("desktop")
    harness.turn(*phone.received(*_pushes(item(2))), *desktop.received(Hello(TASK)), *phone.received(*_pushes(item(3))))
    assert [entry.writer_seq for entry in desktop.entries()] == [1, 2, 3]


def test_hello_at_the_head_in_the_turn_of_a_push_misses_nothing(harness: Harness) -> None:
    phone, desktop = filled(harness, item(1)), harness.login("desktop")
    here = position(HISTORY, epoch_of(phone.hello(TASK)), (item(1), item(2)))
    harness.turn(
        *phone.received(*_pushes(item(2))), *desktop.received(Hello(TASK, (here,))), *phone.received(*_pushes(item(3)))
    )
    assert [entry.writer_seq for entry in desktop.entries()] == [3]


def _pushes(*entries: Entry) -> list[Push]:
    return [Push(TASK, entries)]


def test_an_unfollowed_task_is_sent_no_more(harness: Harness) -> None:
    phone, desktop = filled(harness, item(1)), harness.login("desktop")
    desktop.hello(TASK)
    desktop.send(Unfollow(TASK))
    desktop.frames.clear()
    phone.push(TASK, item(2))
    assert desktop.frames == []


def test_unfollowing_what_nobody_holds_reads_nothing(harness: Harness) -> None:
    assert harness.login("desktop").send(Unfollow(TASK)) == []


def test_a_follower_that_left_is_forgotten(harness: Harness) -> None:
    phone, desktop = filled(harness, item(1)), harness.login("desktop")
    desktop.hello(TASK)
    desktop.leave()
    desktop.frames.clear()
    phone.push(TASK, item(2))
    assert desktop.frames == []
    assert harness.relay.connections == 1


# --- what is on the device already ------------------------------------------------------------------------------------


def test_own_entries_come_as_receipts_up_to_what_hello_named(harness: Harness) -> None:
    filled(harness, item(1), item(2), item(3), item(4))
    harness.restart()
    phone = harness.login("phone")
    phone.hello(TASK, position(HISTORY, b"", own=((PHONE, 2),)))
    assert phone.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2)]
    assert [entry.writer_seq for entry in phone.entries()] == [3, 4]


def test_receipts_and_entries_of_a_catch_up_keep_their_order(harness: Harness) -> None:
    phone = filled(harness, item(1))
    desktop = harness.login("desktop")
    desktop.push(TASK, item(1, DESKTOP, "desktop"))
    phone.push(TASK, item(2))
    harness.restart()
    phone = harness.login("phone")
    phone.hello(TASK, position(HISTORY, b"", own=((PHONE, 9),)))
    kinds = [type(frame) for frame in phone.frames if isinstance(frame, (Entries, Receipt))]
    assert kinds == [Receipt, Entries, Receipt]


def test_anothers_writer_is_never_taken_for_the_devices_own(harness: Harness) -> None:
    filled(harness, item(1), item(2))
    desktop = harness.login("desktop")
    desktop.hello(TASK, position(HISTORY, b"", own=((PHONE, 2),)))
    assert [entry.writer_seq for entry in desktop.entries()] == [1, 2]


def test_the_pages_of_a_hello_are_one_hello(harness: Harness) -> None:
    filled(harness, item(1), item(1, PHONE + 1), item(1, PHONE + 2))
    phone = harness.login("phone")
    phone.frames.clear()
    first, second = ((PHONE, 1),), ((PHONE + 1, 1),)
    phone.send(Hello(TASK, (position(HISTORY, b"", own=first),), more=True))
    assert phone.frames == []
    phone.send(Hello(TASK, (position(HISTORY, b"", own=second),)))
    assert phone.receipts() == [(PHONE, 1, 1), (PHONE + 1, 1, 2)]
    assert [entry.writer for entry in phone.entries()] == [PHONE + 2]


def test_pages_without_end_are_refused(harness: Harness) -> None:
    phone = harness.login("phone")
    for _ in range(65):
        phone.send(Hello(TASK, (position(HISTORY, b""),), more=True))
    assert [frame.code for frame in phone.take(Refused)] == ["protocol_error"]
    assert phone.closed is not None


def test_a_negative_cursor_is_refused(harness: Harness) -> None:
    phone = harness.login("phone")
    phone.send(Hello(TASK, (StreamPosition(HISTORY, b"e", -1, b""),)))
    assert phone.closed is not None


# --- lost and restored logs (rule J) ----------------------------------------------------------------------------------


def starts(harness: Harness) -> list[bytes]:
    return [write.epoch for write in harness.writes if isinstance(write, StartStream)]


def test_a_cursor_beyond_the_head_starts_a_new_epoch_durably_before_the_answer(harness: Harness) -> None:
    filled(harness, item(1), item(2))
    image = harness.model.image()
    epoch = starts(harness)[0]
    phone = harness.login("phone")
    phone.push(TASK, item(3))
    harness.model.restore(image)
    harness.restart()
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, position(HISTORY, epoch, (item(1), item(2), item(3))))
    assert epoch_of(heads) != epoch
    assert starts(harness) == [epoch, epoch_of(heads)]
    assert [entry.writer_seq for entry in desktop.entries()] == [1, 2]


def test_a_restored_log_whose_head_has_grown_past_the_cursor_is_found_by_its_chain(harness: Harness) -> None:
    filled(harness, item(1), item(2))
    image = harness.model.image()
    epoch = starts(harness)[0]
    lost = item(1, DESKTOP, "desktop")
    harness.login("desktop").push(TASK, lost)
    harness.model.restore(image)
    harness.restart()
    phone = harness.login("phone")
    phone.push(TASK, item(3), item(4), item(5))
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, position(HISTORY, epoch, (item(1), item(2), lost)))
    assert epoch_of(heads) != epoch
    assert [entry.writer_seq for entry in desktop.entries()] == [1, 2, 3, 4, 5]


def test_the_same_length_with_another_end_is_found_too(harness: Harness) -> None:
    filled(harness, item(1))
    epoch = starts(harness)[0]
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, position(HISTORY, epoch, (item(1, DESKTOP, "desktop"),)))
    assert epoch_of(heads) != epoch


def test_equal_chains_keep_the_epoch(harness: Harness) -> None:
    filled(harness, item(1), item(2), item(3))
    epoch = starts(harness)[0]
    for count in range(4):
        read = (item(1), item(2), item(3))[:count]
        heads = harness.login("desktop").hello(TASK, position(HISTORY, epoch, read))
        assert epoch_of(heads) == epoch
    assert starts(harness) == [epoch]


def test_a_lost_log_is_made_anew_so_that_devices_can_recover_into_it(harness: Harness) -> None:
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, StreamPosition(HISTORY, b"old-epoch", 3, chain_of(item(1), item(2), item(3))))
    assert heads.known is False
    assert heads_of(heads) == {HISTORY: 0}
    assert starts(harness) == [epoch_of(heads)]
    harness.restart()
    again = harness.login("desktop").hello(TASK, position(HISTORY, epoch_of(heads)))
    assert epoch_of(again) == epoch_of(heads)


def test_a_position_of_another_epoch_starts_from_the_beginning(harness: Harness) -> None:
    filled(harness, item(1), item(2))
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, StreamPosition(HISTORY, b"other", 2, chain_of(item(1), item(2))))
    assert epoch_of(heads) == starts(harness)[0]
    assert [entry.writer_seq for entry in desktop.entries()] == [1, 2]


def test_every_follower_hears_of_a_new_epoch_and_is_sent_nothing_before_its_next_hello(harness: Harness) -> None:
    phone = filled(harness, item(1), item(2))
    epoch = starts(harness)[0]
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, position(HISTORY, epoch, (item(1), item(2), item(3))))
    (told,) = phone.take(Heads)
    assert epoch_of(told) == epoch_of(heads)
    desktop.push(TASK, item(1, DESKTOP, "desktop"))
    assert phone.frames == []
    phone.hello(TASK, position(HISTORY, epoch_of(told), own=((PHONE, 2),)))
    assert phone.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2)]
    assert [entry.writer for entry in phone.entries()] == [DESKTOP]


def test_only_the_stream_that_was_lost_gets_a_new_epoch(harness: Harness) -> None:
    phone = filled(harness, item(1), version(1))
    before = phone.hello(TASK)
    desktop = harness.login("desktop")
    heads = desktop.hello(
        TASK,
        position(HISTORY, epoch_of(before), (item(1),)),
        position(STATE, epoch_of(before, STATE), (version(1), version(2))),
    )
    assert epoch_of(heads) == epoch_of(before)
    assert epoch_of(heads, STATE) != epoch_of(before, STATE)
    assert [entry.stream for entry in desktop.entries()] == [f"{TASK}:state"]


def test_a_plan_of_another_task_is_not_seen(harness: Harness) -> None:
    plan = Entry("other:state", PHONE, 1, EntryKind.PLAN, encode_record(Plan("scan", 1, "t", "{}", 1)), "phone")
    phone = harness.login("phone")
    phone.push("other", plan)
    assert harness.login("desktop").hello(TASK).known is False
