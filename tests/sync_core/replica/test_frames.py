"""What the relay says of a task: heads, places, receipts and refusals, frame by frame."""

import pytest

from sync_core.document.slots import CandidateStatus, Slot
from sync_core.document.view import TaskView
from sync_core.entry import Entry, EntryKind
from sync_core.frames import (
    BlobWanted,
    Entries,
    Heads,
    Hello,
    Push,
    Receipt,
    Refusal,
    RefusalCode,
    SnapshotRef,
    StreamHead,
)
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import EntrySetAside, LogChanged
from sync_core.replica.writes import DiscardEntries, NumberEntries, QuarantineEntry, SetAside, SetPosition, StartEpoch
from tests.sync_core.replica.fleet import TASK, Device
from tests.sync_core.replica.solo import EPOCH, STATE, Log, Solo, log_of

NEW = b"epoch-02"


@pytest.fixture
def log() -> Log:
    """Five entries: a decision, then four lines."""

    def work(author: Device) -> None:
        for number in range(4):
            author.append("n", f"{number}\n")

    return log_of(work)[StreamName.STATE]


@pytest.fixture
def phone(log: Log) -> Solo:
    """A device that has merged all of the log but its last entry."""
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(StreamHead(StreamName.STATE, EPOCH, 4))
    phone.hear(log.frame(1, 4))
    assert isinstance(phone.replies.pop(1), TaskView)
    phone.forget()
    return phone


def refuse(phone: Solo, entry: Entry, code: RefusalCode, expected: int = 1) -> None:
    phone.hear(Refusal(entry.stream, entry.writer, entry.writer_seq, code, "no", expected))


def pushed(phone: Solo) -> list[Entry]:
    return [entry for push in phone.sent(Push) for entry in push.entries]


def lines(phone: Solo) -> list[str]:
    return phone.open().notes["n"].text.split()


# --- heads ------------------------------------------------------------------------------------------------------------


def test_another_epoch_starts_recovery_and_hello_is_said_again(phone: Solo) -> None:
    phone.drop_link()
    phone.log_in()
    phone.heads(StreamHead(StreamName.STATE, NEW, 2))
    assert phone.written(StartEpoch) == [StartEpoch(STATE, NEW)]
    assert LogChanged(TASK, STATE) in phone.changes
    (position,) = phone.sent(Hello)[-1].streams
    assert (position.epoch, position.cursor) == (NEW, 0)


def test_heads_that_answer_an_older_hello_are_ignored(phone: Solo) -> None:
    phone.hear(Heads(TASK, True, (StreamHead(StreamName.STATE, NEW, 2),), 0, answers=77))
    assert phone.log == [x for x in phone.log if isinstance(x, e.SendFrame)]
    assert phone.written(StartEpoch) == []


def test_unasked_heads_of_another_epoch_only_have_hello_said_again(phone: Solo) -> None:
    before = len(phone.sent(Hello))
    phone.hear(Heads(TASK, True, (StreamHead(StreamName.STATE, NEW, 2),), 0))
    assert len(phone.sent(Hello)) == before + 1
    assert phone.written(StartEpoch) == []


def test_a_stream_that_the_relay_leaves_out_ends_its_epoch_where_nothing_was_read() -> None:
    phone = Solo()
    phone.drop_link()
    phone.open()
    phone.log_in()
    phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    phone.drop_link()
    phone.log_in()
    phone.heads(known=False)
    phone.receipt(phone.unsent()[0], place=1)
    assert phone.cursor() == 1


def test_a_usable_snapshot_is_fetched_only_where_the_tail_no_longer_reaches(phone: Solo) -> None:
    ref = SnapshotRef(5, "a" * 64, bytes(32), "desktop", usable=True)
    phone.hear(Heads(TASK, True, (StreamHead(StreamName.STATE, EPOCH, 9, 5, ref),), 0))
    assert phone.sent(BlobWanted) == []
    phone.hear(Heads(TASK, True, (StreamHead(StreamName.STATE, EPOCH, 9, 6, ref),), 0))
    assert phone.sent(BlobWanted) == [BlobWanted(TASK, "a" * 64, 0)]


# --- places -----------------------------------------------------------------------------------------------------------


def test_frames_of_another_epoch_are_ignored(phone: Solo, log: Log) -> None:
    phone.hear(Entries(STATE, NEW, log.entries[4:]), Receipt(STATE, NEW, log.entries[4].writer, 5, 5, 5))
    assert phone.cursor() == 4
    phone.hear(log.frame(5))
    assert phone.cursor() == 5


def test_a_receipt_fills_its_place_and_never_moves_the_cursor_past_a_gap(phone: Solo, log: Log) -> None:
    phone.append("n", "own\n")
    (own,) = phone.unsent()
    phone.receipt(own, place=6)
    assert phone.cursor() == 4
    assert phone.unsent() == [own]
    phone.hear(log.frame(5))
    assert phone.cursor() == 6
    assert phone.written(NumberEntries) == [NumberEntries(STATE, own.writer, 1, 1, 6)]
    assert phone.unsent() == []


def test_receipts_of_places_that_are_consumed_number_what_still_waits(phone: Solo) -> None:
    phone.append("n", "own\n")
    phone.append("n", "more\n")
    writer = phone.unsent()[0].writer
    phone.hear(Receipt(STATE, EPOCH, writer, 1, 2, 3, covered=True))
    assert phone.cursor() == 4
    assert phone.written(NumberEntries) == [
        NumberEntries(STATE, writer, seq, seq, 3, same_place=True) for seq in (1, 2)
    ]
    assert phone.unsent() == []


def test_a_receipt_that_claims_more_than_any_push_holds_is_ignored(phone: Solo) -> None:
    phone.hear(Receipt(STATE, EPOCH, 70_000, 1, 10**9, 5))
    assert phone.cursor() == 4
    assert phone.written(SetPosition) == []


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [RefusalCode.GAP, RefusalCode.STORE])
def test_what_is_asked_for_again_is_sent_again_with_the_next_tick(phone: Solo, code: RefusalCode) -> None:
    phone.append("n", "own\n")
    (own,) = phone.unsent()
    phone.forget()
    refuse(phone, own, code)
    assert pushed(phone) == []
    phone.wait(200)
    assert pushed(phone) == [own]


def test_a_gap_below_what_waits_here_has_hello_said_again(phone: Solo) -> None:
    phone.append("n", "own\n")
    (own,) = phone.unsent()
    before = len(phone.sent(Hello))
    refuse(phone, own, RefusalCode.GAP, expected=1)
    assert len(phone.sent(Hello)) == before
    refuse(phone, own, RefusalCode.GAP, expected=0)
    assert len(phone.sent(Hello)) == before + 1


def test_an_entry_refused_for_what_it_is_is_set_aside_and_the_later_ones_follow_under_a_new_id(phone: Solo) -> None:
    for text in ("refused\n", "kept\n"):
        phone.append("n", text)
    refused, kept = phone.unsent()
    refuse(phone, refused, RefusalCode.GUARD)
    assert phone.written(SetAside) == [SetAside(STATE, refused.writer, 1, "guard", "no")]
    assert EntrySetAside(TASK, STATE, 1, "guard") in phone.changes
    assert phone.written(DiscardEntries) == [DiscardEntries(STATE, kept.writer, (2,))]
    (again,) = phone.unsent()
    assert again.writer not in (refused.writer, kept.writer)
    assert again.writer_seq == 1
    assert lines(phone) == ["0", "1", "2", "kept"]
    assert phone.replica.status.set_aside == 1


def test_a_verdict_on_bytes_counts_only_once_nothing_before_waits_for_its_receipt(phone: Solo) -> None:
    for text in ("first\n", "second\n"):
        phone.append("n", text)
    first, second = phone.unsent()
    phone.forget()
    refuse(phone, second, RefusalCode.GUARD)
    assert phone.written(SetAside) == []
    phone.wait(200)
    assert pushed(phone) == [first, second]
    phone.hear(Receipt(STATE, EPOCH, first.writer, 1, 1, 6))
    refuse(phone, second, RefusalCode.GUARD)
    assert phone.written(SetAside) == [SetAside(STATE, second.writer, 2, "guard", "no")]


def test_that_a_reader_may_not_push_counts_only_once_the_log_was_read(phone: Solo, log: Log) -> None:
    phone.append("n", "own\n")
    (own,) = phone.unsent()
    phone.drop_link()
    phone.log_in()
    phone.heads(StreamHead(StreamName.STATE, EPOCH, 5))
    refuse(phone, own, RefusalCode.ROLE)
    assert phone.written(SetAside) == []
    assert phone.unsent() == [own]
    phone.hear(log.frame(5, 5))
    refuse(phone, own, RefusalCode.ROLE)
    assert phone.written(SetAside) == [SetAside(STATE, own.writer, 1, "role", "no")]


@pytest.mark.parametrize("code", [RefusalCode.WRITER_REUSED, RefusalCode.WRITER_CLOSED])
def test_operations_under_an_id_that_somebody_else_used_are_written_again_once(phone: Solo, code: RefusalCode) -> None:
    phone.ask(c.WriteSlot(9, TASK, "a", '"x"', CandidateStatus.PROPOSED, frozenset()), Slot)
    (old,) = phone.unsent()
    refuse(phone, old, code)
    (again,) = phone.unsent()
    assert phone.written(DiscardEntries) == [DiscardEntries(STATE, old.writer, (1,))]
    assert again.writer != old.writer
    assert phone.open().slots["a"].value == "x"
    refuse(phone, again, code)
    assert phone.unsent() == []
    assert phone.written(SetAside) == [SetAside(STATE, again.writer, 1, code.value, "no")]
    assert "a" not in phone.open().slots


def test_only_what_stands_on_a_stolen_number_is_written_again_the_relay_may_have_the_rest(phone: Solo) -> None:
    phone.drop_link()
    phone.append("other", "stands on nothing\n")
    phone.append("n", "stolen\n")
    phone.crash()
    phone.log_in().heads(StreamHead(StreamName.STATE, EPOCH, 4))
    phone.open()
    phone.append("third", "stands on nothing\n")
    phone.append("n", "stands on what was stolen\n")
    one, stolen, apart, above = phone.unsent()
    phone.forget()
    refuse(phone, stolen, RefusalCode.WRITER_REUSED)
    assert phone.written(DiscardEntries) == [
        DiscardEntries(STATE, stolen.writer, (2,)),
        DiscardEntries(STATE, above.writer, (2,)),
    ]
    kept, still_apart, *again = phone.unsent()
    assert [kept, still_apart] == [one, apart]
    assert {entry.writer for entry in again}.isdisjoint({stolen.writer, above.writer})
    assert lines(phone) == ["0", "1", "2", "stolen", "stands", "on", "what", "was", "stolen"]


def test_a_refusal_of_what_is_not_here_changes_nothing(phone: Solo) -> None:
    phone.hear(Refusal(STATE, 70_000, 1, RefusalCode.GUARD, "no"))
    assert [x for x in phone.log if not isinstance(x, e.SendFrame)] == []


# --- what is brought back ---------------------------------------------------------------------------------------------


@pytest.fixture
def recovering(phone: Solo) -> Solo:
    """The device after its relay lost the log, with four recovered entries on their way."""
    phone.drop_link()
    phone.log_in()
    for _ in range(2):
        phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    assert len(pushed(phone)) == 4
    return phone


def test_a_recovered_entry_that_the_new_log_cannot_take_is_quarantined(recovering: Solo) -> None:
    last = pushed(recovering)[-1]
    refuse(recovering, last, RefusalCode.TOO_LARGE)
    assert [write.code for write in recovering.written(QuarantineEntry)] == ["too_large"]
    assert lines(recovering) == ["0", "1"]


def test_what_stands_behind_a_recovered_entry_that_the_log_cannot_take_is_given_up_with_it(recovering: Solo) -> None:
    first, *others = pushed(recovering)
    recovering.receipt(first, place=1, epoch=NEW)
    recovering.forget()
    refuse(recovering, others[0], RefusalCode.GUARD)
    assert [write.entry for write in recovering.written(QuarantineEntry)] == others
    recovering.wait(10_000)
    assert pushed(recovering) == []


def test_a_recovered_entry_whose_number_the_new_log_has_used_is_waited_for_no_longer(recovering: Solo) -> None:
    recovering.handle(c.AwaitSynced(5))
    recovering.heads(StreamHead(StreamName.STATE, NEW, 0))
    *others, last = pushed(recovering)[:4]
    for place, entry in enumerate(others, 1):
        recovering.receipt(entry, place=place, epoch=NEW)
    assert 5 not in recovering.replies
    refuse(recovering, last, RefusalCode.WRITER_REUSED)
    assert 5 in recovering.replies
    assert recovering.written(QuarantineEntry) == []


def test_a_snapshot_whose_bytes_are_gone_is_not_pushed_for_ever() -> None:
    phone = Solo()
    phone.drop_link()
    phone.open()
    phone.append("n", "one\n")
    phone.log_in()
    phone.heads(known=False)
    entries = phone.unsent()
    phone.receipt(entries[0], entries[-1], place=1)
    phone.ask(c.CompactTask(9, TASK), object)
    phone.drop_link()
    phone.log_in()
    phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    (snapshot,) = [entry for entry in phone.unsent() if entry.kind is EntryKind.SNAPSHOT]
    phone.disk._current._blobs.clear()
    phone.drop_link()
    phone.log_in()
    phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    refuse(phone, snapshot, RefusalCode.BLOB_MISSING)
    assert [write.entry.kind for write in phone.written(QuarantineEntry)] == [EntryKind.SNAPSHOT]
    (another,) = [entry for entry in phone.unsent() if entry.kind is EntryKind.SNAPSHOT]
    assert another.writer != snapshot.writer
