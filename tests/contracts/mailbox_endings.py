"""What every mailbox must do when something ends: a stream, a task, a tombstone's time."""

import msgspec

from server_relay.effects import DueRead, NamedRead, ReadBlob, ReadDue, ReadListing, ReadNamed, ReadTail, TailRead
from server_relay.mailbox.mailbox import Mailbox
from server_relay.records import (
    Cover,
    EmptyStream,
    PassTime,
    PurgeTask,
    PutPiece,
    PutTombstone,
    StepRow,
    StoredEntry,
    StoredWriter,
    StreamImage,
    TaskImage,
    TaskSummary,
    Tombstone,
)
from sync_core.completion import GivenCompletion
from sync_core.entry import CHAIN_START, Completion, Entry, EntryKind, WriterRow
from sync_core.ids import stream_id
from tests.contracts.mailbox_rows import HISTORY, SUBJECT, TASK, WRITER, append, load, start, stored

__all__ = ["MailboxEndings"]

TOMB = Tombstone(2, "purged", 5_000, (b"epoch-1", b"epoch-2"))
BLOB = "a" * 64


def naming(row: StoredEntry, blob: str | None) -> StoredEntry:
    """Return the row with the bytes of an entry that names a blob."""
    entry = Entry(stream_id(TASK, row.name), row.writer, row.writer_seq, EntryKind.CALL, b"x", "phone", 0, blob)
    return msgspec.structs.replace(row, wire=msgspec.msgpack.encode(entry))


async def due(mailbox: Mailbox, *, expire: int = 0, clean: int = 0, tasks_max: int = 9) -> tuple[list[str], bool]:
    (answer,) = await mailbox.read([ReadDue(expire, clean, tasks_max)])
    assert isinstance(answer, DueRead)
    return [task for _, task in answer.tasks], answer.more


async def put(mailbox: Mailbox, task: str, summary: TaskSummary) -> None:
    await mailbox.commit([start(task=task), append(stored(1, 1), task=task, summary=summary)])


class MailboxEndings:
    """The tests; each gets a fresh `mailbox`."""

    async def test_an_emptied_stream_begins_anew_and_the_others_stay(self, mailbox: Mailbox) -> None:
        rows = (stored(1, 1), stored(2, 1, name=HISTORY), stored(3, 2, name=HISTORY), stored(4, 2))
        table = StoredWriter(HISTORY, WriterRow(WRITER, "phone", 0, 3), "anna")
        cover = Cover(HISTORY, 9, 1, 4, 1)
        await mailbox.commit([start(), start(HISTORY), append(*rows, writers=(table,), covers=(cover,))])
        summary = TaskSummary(completed=True, cleaned=True, stored_at_ms=7)
        await mailbox.commit([EmptyStream(SUBJECT, TASK, HISTORY, b"epoch-9", summary)])
        image = await load(mailbox)
        assert (image.stored_no, image.summary) == (4, summary)
        assert image.streams[0] == StreamImage(HISTORY, b"epoch-9", 0, CHAIN_START, 1, None, None, ())
        assert (image.streams[1].epoch, image.streams[1].head) == (b"epoch-1", 2)
        (tail,) = await mailbox.read([ReadTail(SUBJECT, TASK, 7, 0, (), 10_000)])
        assert isinstance(tail, TailRead)
        assert (tail.entries, tail.through_no) == ((rows[0], rows[3]), 4)
        again = stored(5, 1, name=HISTORY)
        await mailbox.commit([append(again)])
        assert (await load(mailbox)).streams[0].head == 1

    async def test_a_stream_that_is_not_there_can_be_emptied(self, mailbox: Mailbox) -> None:
        await mailbox.commit([EmptyStream(SUBJECT, TASK, HISTORY, b"epoch-9", TaskSummary())])
        assert [stream.epoch for stream in (await load(mailbox)).streams] == [b"epoch-9"]

    async def test_of_a_purged_task_only_the_tombstone_stays(self, mailbox: Mailbox) -> None:
        given = GivenCompletion(Completion(1, "anna", (("state", 5, 6),)), "phone", WRITER, 1)
        full = append(stored(1, 1), steps=(StepRow(1, "a", planned=True),), completions=(given,))
        await mailbox.commit([start(), full, PutPiece(SUBJECT, TASK, BLOB, 0, 3, b"xyz", True)])
        assert (await load(mailbox)).completions == (given,)
        other = [start(task="b"), append(stored(1, 1), task="b")]
        await mailbox.commit([*other, append(stored(2, 2)), PurgeTask(SUBJECT, TASK, TOMB)])
        summary = TaskSummary(stored_at_ms=TOMB.at_ms)
        assert await load(mailbox) == TaskImage(SUBJECT, TASK, summary=summary, tombstone=TOMB)
        (blob,) = await mailbox.read([ReadBlob(SUBJECT, TASK, BLOB)])
        assert not getattr(blob, "data", None)
        (listing,) = await mailbox.read([ReadListing(7, SUBJECT, 1, "", "", 9)])
        assert [task.task for task in getattr(listing, "tasks", ())] == ["b"]
        stats = await mailbox.stats()
        assert (stats.entries, stats.blobs, stats.streams, stats.stored_at_ms) == (1, 0, 1, TOMB.at_ms)

    async def test_a_purged_task_can_be_begun_anew_beside_its_tombstone(self, mailbox: Mailbox) -> None:
        await mailbox.commit([start(), append(stored(1, 1), stored(2, 2)), PurgeTask(SUBJECT, TASK, TOMB)])
        opened = msgspec.structs.replace(TOMB, begun_anew=True)
        await mailbox.commit([start(epoch=b"epoch-3"), append(stored(1, 1)), PutTombstone(SUBJECT, TASK, opened)])
        image = await load(mailbox)
        assert (image.stored_no, image.tombstone, image.streams[0].epoch) == (1, opened, b"epoch-3")

    async def test_old_tombstones_are_forgotten_with_what_they_stood_for(self, mailbox: Mailbox) -> None:
        await mailbox.commit([PurgeTask(SUBJECT, "gone", TOMB), start(), append(stored(1, 1))])
        await mailbox.commit([PutTombstone(SUBJECT, TASK, TOMB), PassTime(6_000, TOMB.at_ms)])
        assert (await load(mailbox)).tombstone == TOMB
        assert (await load(mailbox, task="gone")).tombstone == TOMB
        await mailbox.commit([PassTime(7_000, TOMB.at_ms + 1)])
        image = await load(mailbox)
        assert (image.tombstone, image.stored_no) == (None, 1)
        assert await load(mailbox, task="gone") == TaskImage(SUBJECT, "gone")
        stats = await mailbox.stats()
        assert (stats.tasks, stats.stored_at_ms) == (1, 7_000)
        await mailbox.commit([start(task="new"), append(stored(1, 1), task="new")])
        assert (await load(mailbox, task="new")).stored_no == 1

    async def test_the_tasks_whose_time_has_come_are_due(self, mailbox: Mailbox) -> None:
        await put(mailbox, "old", TaskSummary(stored_at_ms=100))
        await put(mailbox, "done", TaskSummary(stored_at_ms=300, completed=True))
        await put(mailbox, "edited", TaskSummary(stored_at_ms=200, completed=True, edited=True))
        await put(mailbox, "cleaned", TaskSummary(stored_at_ms=250, completed=True, cleaned=True))
        await mailbox.commit([PurgeTask(SUBJECT, "purged", Tombstone(1, "purged", 50))])
        assert await due(mailbox) == ([], False)
        assert await due(mailbox, clean=300) == ([], False)
        assert await due(mailbox, clean=301) == (["done"], False)
        assert await due(mailbox, expire=251) == (["old", "edited", "cleaned"], False)
        assert await due(mailbox, expire=101, clean=900) == (["old", "done"], False)
        assert await due(mailbox, expire=900, clean=900, tasks_max=2) == (["old", "edited"], True)

    async def test_the_blobs_that_entries_name_are_told_but_those_of_one_stream(self, mailbox: Mailbox) -> None:
        rows = [
            naming(stored(1, 1), "1" * 64),
            naming(stored(2, 2), None),
            naming(stored(3, 1, name=HISTORY), "2" * 64),
            naming(stored(4, 2, name=HISTORY), "1" * 64),
        ]
        await mailbox.commit([start(), start(HISTORY), append(*rows)])
        (found,) = await mailbox.read([ReadNamed(SUBJECT, TASK, HISTORY)])
        assert found == NamedRead(SUBJECT, TASK, frozenset({"1" * 64}))
        (none,) = await mailbox.read([ReadNamed(SUBJECT, "other", HISTORY)])
        assert none == NamedRead(SUBJECT, "other", frozenset())
        assert (await load(mailbox)).blobs == ()
