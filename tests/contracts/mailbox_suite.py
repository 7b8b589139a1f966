"""What every mailbox must do, whoever implements it. A test class derives from `MailboxSuite`, with a `mailbox`
fixture."""

import hashlib

import msgspec
import pytest

from server_relay.effects import (
    BlobHashed,
    BlobRead,
    FoundEntry,
    FoundPlace,
    HashBlob,
    ListingRead,
    LookedUp,
    LookUp,
    PieceRead,
    ReadBlob,
    ReadListing,
    ReadPiece,
    ReadTail,
    TailRead,
)
from server_relay.mailbox.mailbox import Mailbox
from server_relay.records import (
    BlobRow,
    Cover,
    DropBlob,
    PutPiece,
    SetBlobAbsent,
    SetSnapshots,
    StepRow,
    StoredWriter,
    StreamImage,
    TaskImage,
    TaskSummary,
)
from sync_core.entry import CHAIN_START, WriterRow
from sync_core.errors import StoreDamaged
from sync_core.frames import PlannedStep, SnapshotRef, TaskListing
from sync_core.ids import StreamName
from tests.contracts.mailbox_endings import MailboxEndings
from tests.contracts.mailbox_guards import MailboxGuards
from tests.contracts.mailbox_rows import HISTORY, STATE, SUBJECT, TASK, WRITER, append, load, start, stored

__all__ = ["MailboxSuite"]


async def tail(
    mailbox: Mailbox, after_no: int = 0, *, skip: tuple[tuple[StreamName, int], ...] = (), bytes_max: int = 10_000
) -> TailRead:
    (answer,) = await mailbox.read([ReadTail(SUBJECT, TASK, 7, after_no, skip, bytes_max)])
    assert isinstance(answer, TailRead)
    return answer


async def look_up(
    mailbox: Mailbox,
    entries: tuple[tuple[StreamName, int, int], ...] = (),
    places: tuple[tuple[StreamName, int], ...] = (),
) -> LookedUp:
    (answer,) = await mailbox.read([LookUp(SUBJECT, TASK, entries, places)])
    assert isinstance(answer, LookedUp)
    return answer


async def listing(mailbox: Mailbox, prefix: str = "", after: str = "", tasks_max: int = 10) -> ListingRead:
    (answer,) = await mailbox.read([ReadListing(7, SUBJECT, 3, prefix, after, tasks_max)])
    assert isinstance(answer, ListingRead)
    return answer


class MailboxSuite(MailboxEndings, MailboxGuards):
    """The tests; each gets a fresh `mailbox`."""

    # --- logs --------------------------------------------------------------------------------------------------------

    async def test_a_task_of_which_nothing_is_kept_has_an_empty_image(self, mailbox: Mailbox) -> None:
        assert await load(mailbox) == TaskImage(SUBJECT, TASK)
        assert (await tail(mailbox)).entries == ()
        assert (await look_up(mailbox, ((STATE, WRITER, 1),))).missing == ((STATE, WRITER, 1),)
        assert (await mailbox.stats()).entries == 0

    async def test_an_append_moves_heads_and_keeps_rows_exactly(self, mailbox: Mailbox) -> None:
        rows = (stored(1, 1), stored(2, 1, name=HISTORY), stored(3, 2))
        writer = StoredWriter(STATE, WriterRow(WRITER, "phone", 5, 3, True), "anna@example.org")
        await mailbox.commit([start(), start(HISTORY), append(*rows, writers=(writer,))])
        image = await load(mailbox)
        assert image.stored_no == 3
        assert image.streams == (
            StreamImage(HISTORY, b"epoch-1", 1, rows[1].chain, 1, None, None, ()),
            StreamImage(STATE, b"epoch-1", 2, rows[2].chain, 1, None, None, (writer,)),
        )
        assert (await tail(mailbox)).entries == rows

    async def test_a_listing_within_keys_holds_them_and_what_is_below(self, mailbox: Mailbox) -> None:
        keys = ("a", "a-b", "a/b", "a/b/c", "a0", "ab", "b", "b/c")
        await mailbox.commit([write for key in keys for write in (start(task=key), append(stored(1, 1), task=key))])

        async def within(*keys: str, tasks_max: int = 10) -> tuple[list[str], bool]:
            (answer,) = await mailbox.read([ReadListing(7, SUBJECT, 3, "", "", tasks_max, keys)])
            assert isinstance(answer, ListingRead)
            return [task.task for task in answer.tasks], answer.more

        assert await within("a") == (["a", "a/b", "a/b/c"], False)
        assert await within("b", "a/b", tasks_max=2) == (["a/b", "a/b/c"], True)
        assert await within() == ([], False)

    async def test_appends_of_one_commit_may_be_of_many_tasks_and_subjects(self, mailbox: Mailbox) -> None:
        mine, theirs = append(stored(1, 1)), append(stored(1, 1, writer=9), subject="umbrella")
        await mailbox.commit([start(), mine, start(subject="umbrella"), theirs])
        assert (await tail(mailbox)).entries == (stored(1, 1),)
        assert (await load(mailbox, "umbrella")).stored_no == 1
        assert (await load(mailbox, "umbrell")).stored_no == 0

    async def test_a_place_of_the_log_is_given_once(self, mailbox: Mailbox) -> None:
        await mailbox.commit([start(), append(stored(1, 1))])
        for second in (stored(2, 1, writer=9, seq=7), stored(2, 2, seq=1), stored(1, 2)):
            with pytest.raises(StoreDamaged):
                await mailbox.commit([start(HISTORY), append(second)])
            assert [image.name for image in (await load(mailbox)).streams] == [STATE]
        await mailbox.commit([append(stored(2, 2))])
        assert (await load(mailbox)).stored_no == 2

    async def test_a_new_epoch_keeps_the_entries_and_forgets_the_snapshots(self, mailbox: Mailbox) -> None:
        ref = SnapshotRef(1, "0" * 64, b"digest", "phone", True)
        await mailbox.commit([start(), append(stored(1, 1)), SetSnapshots(SUBJECT, TASK, STATE, ref, None, 2)])
        await mailbox.commit([start(epoch=b"epoch-2")])
        (stream,) = (await load(mailbox)).streams
        assert stream == StreamImage(STATE, b"epoch-2", 1, stored(1, 1).chain, 1, None, None, ())
        assert (await tail(mailbox)).entries == (stored(1, 1),)

    async def test_a_stream_may_exist_without_entries(self, mailbox: Mailbox) -> None:
        await mailbox.commit([start()])
        assert (await load(mailbox)).streams == (StreamImage(STATE, b"epoch-1", 0, CHAIN_START, 1, None, None, ()),)
        assert (await listing(mailbox)).tasks == ()

    async def test_snapshots_come_back(self, mailbox: Mailbox) -> None:
        usable = SnapshotRef(3, "a" * 64, b"one", "phone", True)
        offered = SnapshotRef(9, "b" * 64, b"two", "desktop", False)
        await mailbox.commit([start(), SetSnapshots(SUBJECT, TASK, STATE, usable, offered, 4)])
        (stream,) = (await load(mailbox)).streams
        assert (stream.usable, stream.offered, stream.tail_from) == (usable, offered, 4)

    # --- reading the log ---------------------------------------------------------------------------------------------

    async def test_a_tail_comes_in_portions_in_stored_order(self, mailbox: Mailbox) -> None:
        rows = [stored(number, number, size=100) for number in range(1, 8)]
        await mailbox.commit([start(), append(*rows)])
        first = await tail(mailbox, bytes_max=350)
        assert (first.conn, first.entries, first.through_no) == (7, tuple(rows[:3]), 3)
        assert (await tail(mailbox, 3, bytes_max=1)).entries == (rows[3],)
        rest = await tail(mailbox, 4, bytes_max=300)
        assert (rest.entries, rest.through_no) == (tuple(rows[4:]), 7)
        assert (await tail(mailbox, 7)).through_no == 7

    async def test_a_tail_leaves_out_what_is_to_be_skipped(self, mailbox: Mailbox) -> None:
        rows = [stored(1, 1), stored(2, 1, name=HISTORY), stored(3, 2), stored(4, 2, name=HISTORY), stored(5, 3)]
        await mailbox.commit([start(), start(HISTORY), append(*rows)])
        read = await tail(mailbox, skip=((STATE, 2), (HISTORY, 1)))
        assert (read.entries, read.through_no) == ((rows[3], rows[4]), 5)
        assert (await tail(mailbox, skip=((STATE, 9), (HISTORY, 9)))).through_no == 5

    async def test_entries_and_places_are_found(self, mailbox: Mailbox) -> None:
        rows = [stored(1, 1), stored(2, 1, name=HISTORY, writer=9, seq=1), stored(3, 2)]
        await mailbox.commit([start(), start(HISTORY), append(*rows)])
        found = await look_up(
            mailbox,
            ((STATE, WRITER, 2), (STATE, 9, 1), (HISTORY, 9, 1)),
            ((STATE, 0), (STATE, 1), (STATE, 2), (HISTORY, 7)),
        )
        assert found.entries == (
            FoundEntry(STATE, WRITER, 2, 2, rows[2].content_hash),
            FoundEntry(HISTORY, 9, 1, 1, rows[1].content_hash),
        )
        assert found.missing == ((STATE, 9, 1),)
        assert found.places == (
            FoundPlace(STATE, 0, b"", 1),
            FoundPlace(STATE, 1, rows[0].chain, 3),
            FoundPlace(STATE, 2, rows[2].chain, 0),
            FoundPlace(HISTORY, 7, b"", 0),
        )

    async def test_what_a_recovered_snapshot_covers_is_found_at_its_place(self, mailbox: Mailbox) -> None:
        await mailbox.commit([start(), append(stored(1, 1), covers=(Cover(STATE, 9, 2, 4, 1),))])
        found = await look_up(mailbox, tuple((STATE, 9, number) for number in range(1, 6)))
        assert found.entries == tuple(FoundEntry(STATE, 9, number, 1, b"") for number in (2, 3, 4))
        assert found.missing == ((STATE, 9, 1), (STATE, 9, 5))

    # --- steps and listing -------------------------------------------------------------------------------------------

    async def test_steps_are_replaced_and_come_back(self, mailbox: Mailbox) -> None:
        planned = StepRow(1, "scan", True, "read_invoice", ("camera", "files"), False, ())
        running = StepRow(1, "check", False, "", (), False, ("a1", "a2"))
        await mailbox.commit([start(), append(stored(1, 1), steps=(planned, running))])
        done = msgspec.structs.replace(running, done=True, open=())
        await mailbox.commit([append(stored(2, 2), steps=(done,))])
        assert (await load(mailbox)).steps == (done, planned)

    async def test_a_listing_shows_the_waiting_steps_and_the_summary(self, mailbox: Mailbox) -> None:
        steps = (
            StepRow(1, "scan", True, "read_invoice", ("camera",), False, ()),
            StepRow(1, "check", True, "check", (), True, ()),
            StepRow(2, "pay", False, "", (), False, ("a1",)),
        )
        await mailbox.commit([start(), append(stored(1, 1), steps=steps, summary=TaskSummary(2, 1, 1, True, 1_700))])
        page = await listing(mailbox)
        planned = (PlannedStep("scan", "read_invoice", ("camera",)),)
        assert page == ListingRead(7, 3, (TaskListing(TASK, 2, planned, 1, 1, True, 1_700),), False)

    async def test_a_listing_is_paged_in_key_order_and_by_prefix(self, mailbox: Mailbox) -> None:
        keys = ["a/1", "a/2", "a/10", "ab", "b", "A"]
        for key in keys:
            await mailbox.commit([start(task=key), append(stored(1, 1), task=key)])
        await mailbox.commit([start(subject="other", task="a/3"), append(stored(1, 1), subject="other", task="a/3")])
        assert [task.task for task in (await listing(mailbox)).tasks] == sorted(keys)
        first = await listing(mailbox, "a/", tasks_max=2)
        assert ([task.task for task in first.tasks], first.more) == (["a/1", "a/10"], True)
        rest = await listing(mailbox, "a/", "a/10", tasks_max=2)
        assert ([task.task for task in rest.tasks], rest.more) == (["a/2"], False)
        assert (await listing(mailbox, "%")).tasks == ()

    # --- blobs -------------------------------------------------------------------------------------------------------

    async def test_a_blob_grows_piece_by_piece(self, mailbox: Mailbox) -> None:
        sha = "c" * 64
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 0, 8, b"01234", False)])
        assert (await load(mailbox)).blobs == (BlobRow(sha, 8, 5, False, False),)
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 5, 8, b"567", True)])
        assert (await load(mailbox)).blobs == (BlobRow(sha, 8, 8, True, False),)
        (whole,) = await mailbox.read([ReadBlob(SUBJECT, TASK, sha)])
        assert whole == BlobRead(SUBJECT, TASK, sha, b"01234567")
        assert await self._download(mailbox, sha, 3) == b"01234567"
        assert await self._download(mailbox, sha, 100) == b"01234567"

    async def test_a_blob_is_hashed_with_the_piece_that_ends_it(self, mailbox: Mailbox) -> None:
        sha = "c" * 64
        pieces = [PutPiece(SUBJECT, TASK, sha, at, 9, data, False) for at, data in ((0, b"01234"), (5, b"567"))]
        await mailbox.commit(pieces)
        for task, held in ((TASK, b"01234567"), ("other", b"")):
            (hashed,) = await mailbox.read([HashBlob(SUBJECT, task, sha, b"8")])
            assert hashed == BlobHashed(SUBJECT, task, sha, hashlib.sha256(held + b"8").hexdigest())

    async def _download(self, mailbox: Mailbox, sha: str, bytes_max: int) -> bytes:
        data = b""
        while True:
            (piece,) = await mailbox.read([ReadPiece(SUBJECT, TASK, 7, sha, len(data), bytes_max)])
            assert isinstance(piece, PieceRead)
            assert len(piece.data) <= bytes_max
            assert (piece.size_bytes, piece.offset) == (8, len(data))
            if not piece.data:
                return data
            data += piece.data

    async def test_a_blob_is_reachable_within_its_task_only(self, mailbox: Mailbox) -> None:
        sha = "d" * 64
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 0, 1, b"x", True)])
        for subject, task in ((SUBJECT, "other"), ("umbrella", TASK)):
            (blob,) = await mailbox.read([ReadBlob(subject, task, sha)])
            assert blob == BlobRead(subject, task, sha, None)
            (piece,) = await mailbox.read([ReadPiece(subject, task, 7, sha, 0, 10)])
            assert isinstance(piece, PieceRead)
            assert piece.data == b""

    async def test_a_dropped_blob_is_gone_and_may_be_sent_again(self, mailbox: Mailbox) -> None:
        sha = "e" * 64
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 0, 2, b"x", False), DropBlob(SUBJECT, TASK, sha)])
        assert (await load(mailbox)).blobs == ()
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 0, 1, b"y", True)])
        (whole,) = await mailbox.read([ReadBlob(SUBJECT, TASK, sha)])
        assert whole == BlobRead(SUBJECT, TASK, sha, b"y")

    async def test_an_absent_blob_is_absent_until_it_is_complete(self, mailbox: Mailbox) -> None:
        sha = "f" * 64
        await mailbox.commit([SetBlobAbsent(SUBJECT, TASK, sha)])
        assert (await load(mailbox)).blobs == (BlobRow(sha, absent=True),)
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 0, 2, b"x", False)])
        assert (await load(mailbox)).blobs == (BlobRow(sha, 2, 1, False, True),)
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 1, 2, b"y", True)])
        assert (await load(mailbox)).blobs == (BlobRow(sha, 2, 2, True, False),)

    async def test_the_empty_blob_is_a_blob(self, mailbox: Mailbox) -> None:
        sha = hashlib.sha256(b"").hexdigest()
        await mailbox.commit([PutPiece(SUBJECT, TASK, sha, 0, 0, b"", True)])
        assert (await load(mailbox)).blobs == (BlobRow(sha, 0, 0, True, False),)

    # --- sizes -------------------------------------------------------------------------------------------------------

    async def test_the_sizes_count_rows(self, mailbox: Mailbox) -> None:
        await mailbox.commit(
            [start(), append(stored(1, 1), stored(2, 2)), PutPiece(SUBJECT, TASK, "a" * 64, 0, 3, b"xyz", True)]
        )
        await mailbox.commit([start(task="b"), append(stored(1, 1), task="b", summary=TaskSummary(stored_at_ms=2_000))])
        stats = await mailbox.stats()
        assert (stats.subjects, stats.tasks, stats.streams, stats.entries) == (1, 2, 2, 3)
        assert (stats.blobs, stats.blob_bytes, stats.stored_at_ms) == (1, 3, 2_000)
        assert stats.store_bytes > 0
