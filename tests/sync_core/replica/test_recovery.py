"""A damaged file, a writer that may not go on, merged rows: what a device does when something is not what it was."""

from collections.abc import Callable

import msgspec
import pytest

from sync_core.document.view import TaskView
from sync_core.entry import CHAIN_START, EntryKind, WriterRow, decode_snapshot
from sync_core.errors import SegueError, StoreDamaged
from sync_core.frames import BlobPiece, Hello, Push, Refusal, RefusalCode, SnapshotWanted, StreamHead
from sync_core.guard import check_entry
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica import recovery
from sync_core.replica.core import ReplicaSettings
from sync_core.replica.replica import Replica
from sync_core.replica.writes import (
    CompactStream,
    DiscardEntries,
    PutEntry,
    SetAside,
    StreamImage,
    TaskImage,
    TruncateStream,
)
from tests.sync_core.replica.fleet import TASK, Device
from tests.sync_core.replica.solo import EPOCH, STATE, Log, Solo, log_of

NEW = b"epoch-02"


def work(author: Device) -> None:
    for number in range(4):
        author.append("n", f"{author.name} {number}\n")


@pytest.fixture
def log() -> Log:
    return log_of(work)[StreamName.STATE]


@pytest.fixture
def phone(log: Log) -> Solo:
    """A device that has merged the log: a decision and four lines of another device."""
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(log.head)
    phone.hear(log.frame())
    assert isinstance(phone.replies.pop(1), TaskView)
    phone.forget()
    return phone


def state(image: TaskImage) -> StreamImage:
    return next(stream for stream in image.streams if stream.stream == STATE)


def reopen(phone: Solo, change: Callable[[StreamImage], StreamImage]) -> None:
    """Start a new process that finds this in its file, once."""
    phone.disconnect()
    phone.crash()
    phone.handle(e.LinkFailed("no route"))
    load = phone.disk.load_task
    image = load(TASK)
    changed = msgspec.structs.replace(image, streams=tuple(change(stream) for stream in image.streams))
    answers = [changed]
    phone.disk.load_task = lambda task: answers.pop() if answers else load(task)  # type: ignore[method-assign]
    phone.forget()


# --- a damaged file ---------------------------------------------------------------------------------------------------


def test_what_lies_above_a_hole_is_fetched_again_from_the_table_and_chain_before_it(phone: Solo, log: Log) -> None:
    hole = log.entries[2]
    reopen(phone, lambda stream: msgspec.structs.replace(stream, entries=tuple(e for e in stream.entries if e != hole)))
    phone.handle(c.OpenTask(1, TASK))
    table: dict[int, WriterRow] = {}
    for entry in log.entries[:2]:
        row, _ = check_entry(entry, table)
        table[row.writer] = row
    assert phone.written(TruncateStream) == [TruncateStream(STATE, 2, log.chain(2), tuple(table.values()))]
    phone.log_in()
    (position,) = phone.sent(Hello)[-1].streams
    assert (position.cursor, position.chain) == (2, log.chain(2))
    phone.heads(log.head)
    phone.hear(log.frame(3))
    assert phone.cursor() == 5


def test_a_damaged_merged_row_is_fetched_again_from_the_start(phone: Solo) -> None:
    phone.ask(c.CompactTask(9, TASK), object)

    def damage(stream: StreamImage) -> StreamImage:
        return msgspec.structs.replace(
            stream, document=b"", covers_seq=0, snapshot_writers=(), snapshot_chain=CHAIN_START, document_damaged=True
        )

    reopen(phone, damage)
    phone.handle(c.OpenTask(1, TASK))
    assert phone.written(TruncateStream) == [TruncateStream(STATE, 0, CHAIN_START, ())]


def test_a_damaged_numbered_row_is_fetched_again_and_a_damaged_unsent_one_is_said_loudly(phone: Solo) -> None:
    phone.append("n", "only here\n")
    own = phone.unsent()[0]

    def lose(stream: StreamImage, lost: tuple[int, int, int | None]) -> StreamImage:
        kept = tuple(entry for entry in stream.entries if (entry.writer, entry.writer_seq) != lost[:2])
        return msgspec.structs.replace(stream, entries=kept, damaged=(lost,))

    foreign = state(phone.image).entries[4]
    reopen(phone, lambda stream: lose(stream, (foreign.writer, foreign.writer_seq, 5)))
    phone.handle(c.OpenTask(1, TASK))
    assert [write.after_seq for write in phone.written(TruncateStream)] == [4]
    reopen(phone, lambda stream: lose(stream, (own.writer, own.writer_seq, None)))
    phone.handle(c.OpenTask(2, TASK))
    assert isinstance(phone.replies[2], StoreDamaged)


def test_the_table_at_an_earlier_place_starts_at_the_merged_row(phone: Solo, log: Log) -> None:
    whole = recovery.table_at(state(phone.image), 3)
    assert whole is not None
    assert [row.next_seq for row in whole.values()] == [4]
    phone.ask(c.CompactTask(9, TASK), object)
    merged = state(phone.image)
    assert recovery.table_at(merged, 5) == {row.writer: row for row in merged.writers}
    lost = msgspec.structs.replace(merged, covers_seq=0, writers=())
    assert recovery.table_at(lost, 5) is None


# --- a writer that may not go on --------------------------------------------------------------------------------------


def test_what_a_crash_left_behind_a_set_aside_entry_is_written_again(phone: Solo) -> None:
    for text in ("refused\n", "kept\n"):
        phone.append("n", text)
    refused, kept = phone.unsent()
    phone.disk.commit([SetAside(STATE, refused.writer, refused.writer_seq, "guard", "no")])
    phone.crash()
    phone.handle(e.LinkFailed("no route"))
    text = phone.open().notes["n"].text
    assert phone.written(DiscardEntries) == [DiscardEntries(STATE, kept.writer, (2,))]
    (again,) = phone.unsent()
    assert (again.writer_seq, text.splitlines()[-1]) == (1, "kept")


def test_recovered_own_entries_before_unsent_ones_leave_nothing_stranded() -> None:
    phone = Solo()
    phone.drop_link()
    phone.open()
    phone.log_in()
    phone.heads(known=False)
    phone.receipt(phone.unsent()[0], place=1)
    phone.append("n", "unsent\n")
    unsent = phone.unsent()
    phone.drop_link()
    phone.log_in()
    for _ in range(2):
        phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    assert phone.unsent() == unsent
    assert phone.written(DiscardEntries) == []
    assert [entry.writer_seq for push in phone.sent(Push) for entry in push.entries][-2:] == [1, 2]


def test_only_unsent_work_is_stranded_by_a_hole_what_is_ranked_is_given_up_with_what_stood_before_it() -> None:
    phone = Solo()
    phone.drop_link()
    phone.open()
    phone.append("n", "second\n")
    phone.log_in()
    phone.heads(known=False)
    first, second = phone.unsent()
    phone.receipt(first, second, place=1)
    phone.drop_link()
    phone.log_in()
    for _ in range(2):
        phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    phone.forget()
    phone.hear(Refusal(STATE, first.writer, 1, RefusalCode.TOO_LARGE, "no"))
    assert phone.count(e.LoadTask) == 1
    assert state(phone.image).entries == ()
    assert [aside.entry.writer_seq for aside in state(phone.image).quarantined] == [1, second.writer_seq]


# --- merged rows ------------------------------------------------------------------------------------------------------


def test_compaction_keeps_the_content_and_the_unsent_work(phone: Solo) -> None:
    phone.append("n", "unsent\n")
    before = phone.open()
    assert phone.ask(c.CompactTask(9, TASK), object) is None
    (row,) = phone.written(CompactStream)
    assert (row.covers_seq, row.chain) == (5, state(phone.image).chain)
    assert [entry.kind for entry in state(phone.image).entries] == [EntryKind.VERSION, EntryKind.UPDATE]
    phone.crash()
    phone.handle(e.LinkFailed("no route"))
    after = phone.open()
    assert (after.notes, after.version) == (before.notes, before.version)


def test_a_compaction_that_would_change_the_content_deletes_nothing(
    phone: Solo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sync_core.document.document.TaskDocument.state_bytes", lambda self: b"\x00\x00")
    with pytest.raises(StoreDamaged):
        phone.ask(c.CompactTask(9, TASK), object)
    assert phone.written(CompactStream) == []


@pytest.mark.parametrize(
    ("settings", "due"),
    [
        (ReplicaSettings(True), False),
        (ReplicaSettings(True, compact_entries=5), False),
        (ReplicaSettings(True, compact_entries=4), True),
        (ReplicaSettings(True, compact_bytes=10_000), False),
        (ReplicaSettings(True, compact_bytes=100), True),
    ],
)
def test_stored_updates_are_merged_when_many_or_large_ones_are_found_at_load(
    phone: Solo, settings: ReplicaSettings, due: bool
) -> None:
    phone.crash()
    phone.forget()
    phone.replica = Replica("acme", "phone", phone.fleet.random.randbytes, phone.disk.followed_tasks(), settings)
    phone.handle(e.LinkFailed("no route"))
    phone.open()
    assert bool(phone.written(CompactStream)) is due


def test_a_merged_row_that_the_new_log_lacks_is_brought_back_with_the_records_that_it_passed(phone: Solo) -> None:
    phone.ask(c.CompactTask(9, TASK), object)
    phone.drop_link()
    phone.log_in()
    for _ in range(2):
        phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    (sha256,) = phone.image.uploads
    data = phone.disk.load_blob(TASK, sha256)
    assert data is not None
    snapshot = decode_snapshot(data)
    assert [record.kind for record in snapshot.records] == [EntryKind.VERSION]
    assert [row.next_seq for row in snapshot.writers] == [6]
    assert phone.sent(BlobPiece)[-1].sha256 == sha256
    (entry,) = [entry for entry in phone.unsent() if entry.kind is EntryKind.SNAPSHOT]
    assert entry.blob == sha256


def test_a_merged_row_too_large_for_a_snapshot_is_brought_back_by_nobody_and_asked_for_once(
    phone: Solo, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone.ask(c.CompactTask(9, TASK), object)
    monkeypatch.setattr("sync_core.replica.snapshots.SNAPSHOT_BYTES_MAX", 50)
    phone.drop_link()
    phone.log_in()
    phone.forget()
    for _ in range(2):
        phone.heads(StreamHead(StreamName.STATE, NEW, 0))
    loads = phone.count(e.LoadTask)
    phone.wait(5_000)
    assert phone.count(e.LoadTask) == loads
    assert phone.written(PutEntry) == []


# --- snapshots for the relay (rule F) ---------------------------------------------------------------------------------


def offered(phone: Solo) -> list[bytes | None]:
    return [phone.disk.load_blob(TASK, sha256) for sha256 in phone.image.uploads]


def test_a_snapshot_holds_exactly_what_is_numbered(phone: Solo) -> None:
    phone.append("n", "unsent\n")
    phone.hear(SnapshotWanted(STATE))
    (data,) = offered(phone)
    assert data is not None
    snapshot = decode_snapshot(data)
    assert (snapshot.epoch, snapshot.covers_seq, snapshot.chain) == (EPOCH, 5, state(phone.image).chain)
    assert [record.kind for record in snapshot.records] == [EntryKind.VERSION]
    assert b"unsent" not in snapshot.document


def test_a_snapshot_that_nobody_would_take_is_not_made(phone: Solo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_core.replica.snapshots.SNAPSHOT_BYTES_MAX", 50)
    phone.hear(SnapshotWanted(STATE))
    assert offered(phone) == []
    assert not any(isinstance(reply, SegueError) for reply in phone.replies.values())
