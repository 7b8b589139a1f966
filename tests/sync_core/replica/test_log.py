"""Consuming the log: place by place, in the order of arrival across streams; what cannot be merged is quarantined."""

import hashlib

import msgspec
import pytest

from sync_core.document.document import DocumentBroken, TaskDocument
from sync_core.document.view import TaskView
from sync_core.entry import CHAIN_START, Entry, EntryKind, Snapshot, WriterRow, chain_next, encode_record, entry_hash
from sync_core.frames import BlobPiece, BlobWanted, Entries, Hello, Receipt, StreamHead
from sync_core.guard import check_entry
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import EntryQuarantined
from sync_core.replica.writes import NumberEntries, PutEntry, QuarantineEntry, SetWriter
from tests.sync_core.replica.fleet import TASK, Device
from tests.sync_core.replica.solo import EPOCH, STATE, Log, Solo, log_of, numbered


def work(author: Device) -> None:
    for number in range(3):
        author.append("n", f"{author.name} {number}\n")
        author.ask(c.AppendHistory(author.ref(), TASK, ('{"role":"user"}',)), object)


@pytest.fixture
def logs() -> tuple[Log, Log]:
    logs = log_of(work)
    return logs[StreamName.STATE], logs[StreamName.HISTORY]


@pytest.fixture
def phone(logs: tuple[Log, Log]) -> Solo:
    """A device whose program waits for the task; of the log only the heads are known."""
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(logs[0].head, logs[1].head)
    phone.forget()
    return phone


def places(phone: Solo) -> list[tuple[str, int | None]]:
    """What was put into the store, in order."""
    return [(StreamName(w.entry.stream.rpartition(":")[2]).value, w.entry.relay_seq) for w in phone.written(PutEntry)]


# --- order ------------------------------------------------------------------------------------------------------------


def test_early_places_wait_and_are_consumed_in_the_order_of_their_arrival_across_streams(
    phone: Solo, logs: tuple[Log, Log]
) -> None:
    state, history = logs
    phone.hear(state.frame(3, 4), history.frame(2, 3))
    assert places(phone) == []
    phone.hear(history.frame(1, 1))
    assert places(phone) == [("history", 1), ("history", 2), ("history", 3)]
    phone.hear(state.frame(1, 2))
    assert places(phone)[3:] == [("state", 1), ("state", 2), ("state", 3), ("state", 4)]
    assert phone.cursor() == 4
    assert isinstance(phone.replies[1], TaskView)


def test_repeats_and_what_was_consumed_change_nothing(phone: Solo, logs: tuple[Log, Log]) -> None:
    state, _ = logs
    phone.hear(state.frame(1, 3), state.frame(1, 3), state.frame(2))
    assert places(phone) == [("state", 1), ("state", 2), ("state", 3), ("state", 4)]


def test_an_entry_its_number_its_row_and_the_cursor_are_one_commit(phone: Solo, logs: tuple[Log, Log]) -> None:
    effects = phone.handle(e.FrameReceived(logs[0].frame(1, 1)))
    writes = [type(effect.write).__name__ for effect in effects if isinstance(effect, e.Written)]
    assert writes == ["SetWriter", "PutEntry", "SetPosition"]


def test_a_gap_that_does_not_close_has_hello_said_again_after_a_second(phone: Solo, logs: tuple[Log, Log]) -> None:
    phone.hear(logs[0].frame(3))
    before = len(phone.sent(Hello))
    phone.wait(800)
    assert len(phone.sent(Hello)) == before
    phone.wait(400)
    assert len(phone.sent(Hello)) == before + 1


# --- quarantine (rule E) ----------------------------------------------------------------------------------------------


def bad(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, payload=b"\x01\x01garbage")


def test_an_entry_that_cannot_be_merged_counts_as_consumed_and_closes_its_writer(
    phone: Solo, logs: tuple[Log, Log]
) -> None:
    state, history = logs
    entries = (*state.entries[:1], bad(state.entries[1]), *state.entries[2:])
    phone.hear(history.frame(), Entries(STATE, EPOCH, entries))
    assert [(w.entry.relay_seq, w.code) for w in phone.written(QuarantineEntry)] == [
        (2, "entry_refused"),
        (3, "closed"),
        (4, "closed"),
    ]
    assert phone.written(SetWriter)[-1].row == WriterRow(state.entries[0].writer, "author", 0, 2, closed=True)
    assert phone.cursor() == 4
    view = phone.replies[1]
    assert isinstance(view, TaskView)
    assert view.notes == {}
    assert phone.replica.status.quarantined == 3
    (kept,) = [stream for stream in phone.image.streams if stream.stream == STATE]
    assert {row.writer: row.closed for row in kept.writers} == {state.entries[0].writer: True}


def test_the_watchers_are_told_of_a_quarantined_entry(phone: Solo, logs: tuple[Log, Log]) -> None:
    state, history = logs
    phone.hear(state.frame(), history.frame())
    stranger = msgspec.structs.replace(bad(state.entries[3]), writer=70_000, writer_seq=1, device="mallory")
    phone.hear(Entries(STATE, EPOCH, (numbered(stranger, 5),)))
    assert EntryQuarantined(TASK, STATE, 5, "mallory") in phone.changes


def test_a_document_that_may_have_been_harmed_is_read_anew(
    phone: Solo, logs: tuple[Log, Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, history = logs
    phone.hear(history.frame(), state.frame(1, 2))
    merge = TaskDocument.merge

    def broken(self: TaskDocument, entry: Entry, *rest: object) -> object:
        if entry.relay_seq == 3:
            raise DocumentBroken
        return merge(self, entry, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(TaskDocument, "merge", broken)
    phone.forget()
    phone.hear(state.frame(3))
    assert phone.count(e.LoadTask) >= 1
    assert [(w.entry.relay_seq, w.code) for w in phone.written(QuarantineEntry)] == [
        (3, "document_broken"),
        (4, "closed"),
    ]
    assert phone.open().notes["n"].text == "author 0\n"


# --- own entries ------------------------------------------------------------------------------------------------------


@pytest.fixture
def writing(phone: Solo, logs: tuple[Log, Log]) -> Solo:
    """The device at the heads, with two own entries that wait."""
    phone.hear(logs[0].frame(), logs[1].frame())
    phone.replies.clear()
    phone.append("n", "own 1\n")
    phone.append("n", "own 2\n")
    phone.forget()
    return phone


def chain_after(log: Log, own: list[Entry]) -> bytes:
    chain = log.chain(len(log.entries))
    for entry in own:
        chain = chain_next(chain, entry_hash(entry))
    return chain


def test_a_receipt_numbers_what_waits_if_it_proves_the_content(writing: Solo, logs: tuple[Log, Log]) -> None:
    own = writing.unsent()
    writing.hear(Receipt(STATE, EPOCH, own[0].writer, 1, 2, 5, chain=chain_after(logs[0], own)))
    assert writing.cursor() == 6
    assert writing.unsent() == []
    assert [w.first_relay_seq for w in writing.written(NumberEntries)] == [5, 6]


def test_a_receipt_for_other_content_or_for_what_is_not_here_is_not_believed(writing: Solo) -> None:
    own = writing.unsent()
    before = len(writing.sent(Hello))
    writing.hear(Receipt(STATE, EPOCH, own[0].writer, 1, 2, 5, chain=b"another chain!!!"))
    assert writing.cursor() == 4
    hello = writing.sent(Hello)[-1]
    assert len(writing.sent(Hello)) == before + 1
    assert [position.own for position in hello.streams] == [(), ()]


def test_until_the_new_heads_are_told_nothing_else_of_the_session_is_believed(
    writing: Solo, logs: tuple[Log, Log]
) -> None:
    writing.hear(Receipt(STATE, EPOCH, 70_000, 1, 1, 5))
    more = log_of(work, "author", "tablet")[StreamName.HISTORY]
    writing.hear(more.frame(4))
    assert writing.cursor(StreamName.HISTORY) == 3
    writing.heads(logs[0].head, more.head)
    writing.hear(more.frame(4))
    assert writing.cursor(StreamName.HISTORY) == 6


def test_other_content_under_an_own_number_is_taken_and_the_own_work_is_written_again(
    writing: Solo, logs: tuple[Log, Log]
) -> None:
    own = writing.unsent()
    tablet = log_of(work, "author", "tablet")[StreamName.STATE].entries[4]
    stolen = msgspec.structs.replace(tablet, writer=own[0].writer, device="phone", kind=EntryKind.VERSION, relay_seq=5)
    stolen = msgspec.structs.replace(stolen, payload=logs[0].entries[0].payload)
    writing.hear(Entries(STATE, EPOCH, (stolen,)))
    assert writing.cursor() == 5
    again = writing.unsent()
    assert len(again) == 2
    assert {entry.writer for entry in again}.isdisjoint({own[0].writer})
    assert writing.open().notes["n"].text.splitlines()[-2:] == ["own 1", "own 2"]


def test_this_opening_goes_on_under_a_fresh_id_when_somebody_else_uses_its_own(
    phone: Solo, logs: tuple[Log, Log]
) -> None:
    phone.hear(logs[0].frame(), logs[1].frame())
    live = phone.replica._core.writer
    version = logs[0].entries[0]
    phone.hear(Entries(STATE, EPOCH, (msgspec.structs.replace(version, writer=live, device="phone", relay_seq=5),)))
    phone.append("n", "mine\n")
    (own,) = phone.unsent()
    assert own.writer != live


# --- snapshots as entries (rule J) ------------------------------------------------------------------------------------


@pytest.fixture
def recovered(logs: tuple[Log, Log]) -> tuple[Entry, bytes]:
    """A snapshot of the whole log, brought back as the first entry of a new one, and its bytes."""
    state = logs[0]
    random = iter(range(10**6))
    document = TaskDocument("acme", TASK, "author", 70_001, lambda count: next(random).to_bytes(count, "big"))
    document.load(b"", [entry for entry in state.entries if entry.kind is EntryKind.UPDATE])
    writer = state.entries[0].writer
    snapshot = Snapshot(
        stream=STATE,
        epoch=b"epoch-00",
        covers_seq=1,
        chain=CHAIN_START,
        document=document.state_bytes(),
        records=(numbered(state.entries[0], 1),),
        writers=(WriterRow(writer, "author", _clocks(state), 5),),
        digest=bytes(32),
    )
    data = encode_record(snapshot)
    sha256 = hashlib.sha256(data).hexdigest()
    return Entry(STATE, 70_002, 1, EntryKind.SNAPSHOT, b"", "author", 0, sha256, relay_seq=1), data


def _clocks(state: Log) -> int:
    table: dict[int, WriterRow] = {}
    for entry in state.entries:
        row, _ = check_entry(entry, table)
        table[row.writer] = row
    return table[state.entries[0].writer].next_clock


def test_a_recovered_snapshot_waits_for_its_bytes_and_holds_up_all_streams(
    logs: tuple[Log, Log], recovered: tuple[Entry, bytes]
) -> None:
    entry, data = recovered
    history = logs[1]
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(StreamHead(StreamName.STATE, EPOCH, 1), history.head)
    phone.hear(Entries(STATE, EPOCH, (entry,)), history.frame())
    assert phone.sent(BlobWanted) == [BlobWanted(TASK, entry.blob or "", 0)]
    assert phone.written(PutEntry) == []
    phone.hear(BlobPiece(TASK, entry.blob or "", 0, len(data), data))
    view = phone.replies[1]
    assert isinstance(view, TaskView)
    assert view.notes["n"].text == "author 0\nauthor 1\nauthor 2\n"
    assert len(view.history) == 3
    assert phone.written(SetWriter)[0].row.next_seq == 5


def test_entries_that_a_recovered_snapshot_covers_are_stored_with_it(
    logs: tuple[Log, Log], recovered: tuple[Entry, bytes]
) -> None:
    entry, data = recovered
    state, history = logs
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(state.head, history.head)
    phone.hear(state.frame(), history.frame())
    phone.drop_link()
    phone.log_in()
    for _ in range(2):
        phone.heads(StreamHead(StreamName.STATE, b"epoch-02", 1), history.head)
    phone.hear(Entries(STATE, b"epoch-02", (entry,)))
    phone.hear(BlobPiece(TASK, entry.blob or "", 0, len(data), data))
    (kept,) = [stream for stream in phone.image.streams if stream.stream == STATE]
    assert kept.ranks == {}
    assert {held.relay_seq for held in kept.entries} <= {1}
    assert phone.open().notes["n"].text == "author 0\nauthor 1\nauthor 2\n"
