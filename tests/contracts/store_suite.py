"""What every store must do, whoever implements it. A test class derives from `StoreSuite` and has a `store` fixture."""

import hashlib

from msgspec.structs import replace

from sync_core.context.store import Store
from sync_core.entry import CHAIN_START, Entry, EntryKind, WriterRow
from sync_core.limits import BASE_PIN_KEEP_MS, BASE_PINS_PER_NOTE_MAX
from sync_core.replica.writes import (
    AsideEntry,
    CompactStream,
    DiscardEntries,
    DropTask,
    FollowedStream,
    FollowedTask,
    FollowTask,
    NumberEntries,
    PinBase,
    PutBlob,
    PutEntry,
    QuarantineEntry,
    SetAside,
    SetBlobState,
    SetPosition,
    SetWriter,
    StartEpoch,
    StreamImage,
    TaskImage,
    TruncateStream,
)

__all__ = ["StoreSuite", "make_entry"]

TASK = "expense/TRIP-118"
STATE = f"{TASK}:state"
HISTORY = f"{TASK}:history"
MINE, THEIRS, OTHER = 700_001, 800_002, 900_003
EPOCH, NEXT_EPOCH = b"epoch-1", b"epoch-2"
CHAIN = bytes(range(16))
HOUR_MS = 3_600_000


def make_entry(
    writer: int = MINE,
    seq: int = 1,
    *,
    stream: str = STATE,
    payload: bytes = b"",
    kind: EntryKind = EntryKind.UPDATE,
    relay_seq: int | None = None,
    vouched_by: str | None = None,
) -> Entry:
    """Return an entry whose payload, if not given, names it."""
    content = payload or f"{writer}/{seq}".encode()
    device = "phone" if writer == MINE else "desktop"
    return Entry(stream, writer, seq, kind, content, device, 1_700 + seq, None, relay_seq, vouched_by)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def image_of(store: Store, stream: str = STATE) -> StreamImage:
    (found,) = [image for image in (await store.load_task(TASK)).streams if image.stream == stream]
    return found


def places(image: StreamImage) -> list[tuple[int, int, int | None]]:
    return [(entry.writer, entry.writer_seq, entry.relay_seq) for entry in image.entries]


class StoreSuite:
    """The tests; each gets a fresh `store`."""

    # --- entries -----------------------------------------------------------------------------------------------------

    async def test_an_empty_store_knows_nothing(self, store: Store) -> None:
        assert await store.load_task(TASK) == TaskImage(TASK, False, (), (), frozenset(), frozenset())
        assert await store.followed_tasks() == ()
        assert await store.known_tasks("") == ()
        assert await store.load_blob(TASK, sha(b"x")) is None
        assert await store.load_base(TASK, "worklog", sha(b"x")) is None
        assert (await store.stats()).entries == 0

    async def test_an_entry_comes_back_exactly(self, store: Store) -> None:
        entry = Entry(
            STATE, MINE, 1, EntryKind.CALL, bytes(range(256)), "phone", -5, sha(b"result"), 2**40, vouched_by="desktop"
        )
        await store.commit([PutEntry(entry, own=True)])
        assert (await image_of(store)).entries == (entry,)

    async def test_a_stream_without_a_position_stands_at_the_start(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(), own=True)])
        image = await image_of(store)
        assert (image.epoch, image.cursor, image.chain) == (b"", 0, CHAIN_START)
        assert (image.document, image.covers_seq, image.snapshot_writers) == (b"", 0, ())
        assert image.snapshot_chain == CHAIN_START

    async def test_position_and_writer_table_are_replaced(self, store: Store) -> None:
        row = WriterRow(THEIRS, "desktop", 4, 2, False)
        await store.commit([SetPosition(STATE, EPOCH, 1, CHAIN), SetWriter(STATE, row)])
        await store.commit(
            [
                SetPosition(STATE, EPOCH, 7, CHAIN[::-1]),
                SetWriter(STATE, replace(row, next_clock=9, closed=True)),
                SetWriter(STATE, WriterRow(MINE, "phone", 1, 2)),
            ]
        )
        image = await image_of(store)
        assert (image.epoch, image.cursor, image.chain) == (EPOCH, 7, CHAIN[::-1])
        assert image.writers == (WriterRow(MINE, "phone", 1, 2), WriterRow(THEIRS, "desktop", 9, 2, True))

    async def test_own_entries_without_a_number_are_unsent_in_the_order_of_commits_across_streams(
        self, store: Store
    ) -> None:
        await store.commit([PutEntry(make_entry(MINE, 1), own=True)])
        await store.commit([PutEntry(make_entry(MINE, 1, stream=HISTORY, kind=EntryKind.HISTORY), own=True)])
        await store.commit([PutEntry(make_entry(OTHER, 1), own=True), PutEntry(make_entry(MINE, 2), own=True)])
        await store.commit([PutEntry(make_entry(THEIRS, 1, relay_seq=1), own=False)])
        image = await store.load_task(TASK)
        assert image.unsent == ((STATE, MINE, 1), (HISTORY, MINE, 1), (STATE, OTHER, 1), (STATE, MINE, 2))
        assert image.own_writers == {MINE, OTHER}
        assert [stream.stream for stream in image.streams] == [HISTORY, STATE]

    async def test_numbered_entries_come_by_place_before_the_others_in_local_order(self, store: Store) -> None:
        await store.commit(
            [
                PutEntry(make_entry(MINE, 1), own=True),
                PutEntry(make_entry(THEIRS, 2, relay_seq=3), own=False),
                PutEntry(make_entry(MINE, 2), own=True),
                PutEntry(make_entry(THEIRS, 1, relay_seq=2), own=False),
                PutEntry(make_entry(MINE, 3), own=True),
            ]
        )
        await store.commit([NumberEntries(STATE, MINE, 2, 2, 1)])
        assert places(await image_of(store)) == [
            (MINE, 2, 1),
            (THEIRS, 1, 2),
            (THEIRS, 2, 3),
            (MINE, 1, None),
            (MINE, 3, None),
        ]

    async def test_a_receipt_numbers_a_run_of_entries(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in (1, 2, 3, 4)])
        await store.commit([NumberEntries(STATE, MINE, 2, 3, 10)])
        image = await store.load_task(TASK)
        assert places(image.streams[0])[:2] == [(MINE, 2, 10), (MINE, 3, 11)]
        assert image.unsent == ((STATE, MINE, 1), (STATE, MINE, 4))

    async def test_a_covering_snapshot_numbers_a_run_with_one_place(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in (1, 2)])
        await store.commit([NumberEntries(STATE, MINE, 1, 2, 5, same_place=True)])
        assert places(await image_of(store)) == [(MINE, 1, 5), (MINE, 2, 5)]

    async def test_putting_an_entry_again_sets_its_number_and_keeps_its_order_and_owner(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in (1, 2)])
        await store.commit([PutEntry(make_entry(MINE, 1, relay_seq=1, vouched_by="desktop"), own=False)])
        image = await store.load_task(TASK)
        assert image.streams[0].entries[0] == make_entry(MINE, 1, relay_seq=1, vouched_by="desktop")
        assert image.unsent == ((STATE, MINE, 2),)
        assert image.own_writers == {MINE}
        await store.commit([TruncateStream(STATE, 0, CHAIN_START, ())])
        assert (await store.load_task(TASK)).unsent == ((STATE, MINE, 1), (STATE, MINE, 2))

    async def test_putting_other_content_replaces_the_entry_in_its_place(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in (1, 2)])
        await store.commit([PutEntry(make_entry(MINE, 1, payload=b"other", kind=EntryKind.CALL), own=True)])
        image = await store.load_task(TASK)
        assert [entry.payload for entry in image.streams[0].entries] == [b"other", b"700001/2"]
        assert image.streams[0].entries[0].kind is EntryKind.CALL
        assert image.unsent == ((STATE, MINE, 1), (STATE, MINE, 2))

    async def test_writes_of_one_commit_are_carried_out_in_order(self, store: Store) -> None:
        await store.commit(
            [
                PutEntry(make_entry(MINE, 1), own=True),
                NumberEntries(STATE, MINE, 1, 2, 1),
                PutEntry(make_entry(MINE, 2), own=True),
                SetPosition(STATE, EPOCH, 1, CHAIN),
                StartEpoch(STATE, NEXT_EPOCH),
                SetWriter(STATE, WriterRow(MINE, "phone", 1, 2)),
                SetPosition(STATE, NEXT_EPOCH, 4, CHAIN),
            ]
        )
        image = await image_of(store)
        assert image.ranks == {(MINE, 1): 1}
        assert (image.epoch, image.cursor) == (NEXT_EPOCH, 4)
        assert image.writers == (WriterRow(MINE, "phone", 1, 2),)

    async def test_an_empty_commit_does_nothing(self, store: Store) -> None:
        await store.commit([])
        assert (await store.stats()).tasks == 0

    # --- aside, discarded, quarantined -------------------------------------------------------------------------------

    async def test_an_entry_that_is_set_aside_leaves_the_stream_and_stays_in_the_file(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in (1, 2)])
        await store.commit([SetAside(STATE, MINE, 1, "role", "Readers may not write.")])
        image = await store.load_task(TASK)
        assert image.streams[0].set_aside == (AsideEntry(make_entry(MINE, 1), "role"),)
        assert places(image.streams[0]) == [(MINE, 2, None)]
        assert image.unsent == ((STATE, MINE, 2),)
        stats = await store.stats()
        assert (stats.set_aside, stats.entries, stats.waiting) == (1, 1, 1)

    async def test_another_entry_may_take_the_name_of_one_that_was_set_aside(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, 1), own=True), SetAside(STATE, MINE, 1, "writer_reused", "")])
        await store.commit([PutEntry(make_entry(MINE, 1, payload=b"the clone's", relay_seq=1), own=True)])
        image = await image_of(store)
        assert [entry.payload for entry in image.entries] == [b"the clone's"]
        assert image.set_aside == (AsideEntry(make_entry(MINE, 1), "writer_reused"),)

    async def test_setting_aside_what_is_not_there_does_nothing(self, store: Store) -> None:
        await store.commit([FollowTask(TASK), SetAside(STATE, MINE, 1, "role", "")])
        assert (await store.load_task(TASK)).streams == ()

    async def test_discarding_deletes_only_own_entries_without_a_number(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in (1, 2, 3)])
        await store.commit([NumberEntries(STATE, MINE, 1, 1, 1), DiscardEntries(STATE, MINE, (1, 2, 3, 4))])
        image = await store.load_task(TASK)
        assert places(image.streams[0]) == [(MINE, 1, 1)]
        assert image.unsent == ()

    async def test_own_writers_are_remembered_after_their_entries_went(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, 1), own=True), PutEntry(make_entry(OTHER, 1), own=True)])
        await store.commit([DiscardEntries(STATE, MINE, (1,)), SetAside(STATE, OTHER, 1, "role", "")])
        assert (await store.load_task(TASK)).own_writers == {MINE, OTHER}

    async def test_a_quarantined_entry_keeps_its_place_outside_the_entries(self, store: Store) -> None:
        poison = make_entry(THEIRS, 1, relay_seq=2)
        await store.commit([PutEntry(make_entry(THEIRS, 2, relay_seq=1), own=False), QuarantineEntry(poison, "broken")])
        image = await image_of(store)
        assert image.quarantined == (AsideEntry(poison, "broken"),)
        assert places(image) == [(THEIRS, 2, 1)]
        stats = await store.stats()
        assert (stats.quarantined, stats.entries) == (1, 1)

    async def test_an_entry_that_is_there_can_be_quarantined_and_taken_back(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, 1), own=True)])
        await store.commit([QuarantineEntry(make_entry(MINE, 1, relay_seq=4), "overwrites")])
        image = await store.load_task(TASK)
        assert (image.streams[0].entries, image.unsent) == ((), ())
        assert image.own_writers == {MINE}
        await store.commit([PutEntry(make_entry(MINE, 1, relay_seq=4), own=True)])
        assert places(await image_of(store)) == [(MINE, 1, 4)]

    # --- a lost log, a truncation, a compaction ----------------------------------------------------------------------

    async def test_a_new_epoch_turns_places_into_ranks(self, store: Store) -> None:
        await store.commit(
            [
                SetPosition(STATE, EPOCH, 3, CHAIN),
                SetWriter(STATE, WriterRow(THEIRS, "desktop", 1, 2)),
                PutEntry(make_entry(MINE, 2), own=True),
                PutEntry(make_entry(MINE, 1, relay_seq=3), own=True),
                PutEntry(make_entry(THEIRS, 1, relay_seq=1), own=False),
                QuarantineEntry(make_entry(OTHER, 1, relay_seq=2), "broken"),
                StartEpoch(STATE, NEXT_EPOCH),
            ]
        )
        image = await store.load_task(TASK)
        (stream,) = image.streams
        assert (stream.epoch, stream.cursor, stream.chain, stream.writers) == (NEXT_EPOCH, 0, CHAIN_START, ())
        assert stream.ranks == {(THEIRS, 1): 1, (OTHER, 1): 2, (MINE, 1): 3}
        assert places(stream) == [(THEIRS, 1, None), (MINE, 1, None), (MINE, 2, None)]
        assert image.unsent == ((STATE, MINE, 2),)
        assert stream.quarantined == (AsideEntry(make_entry(OTHER, 1), "broken"),)
        assert (await store.stats()).waiting == 3

    async def test_a_second_new_epoch_ranks_numbered_entries_before_the_earlier_ranks(self, store: Store) -> None:
        puts = [PutEntry(make_entry(THEIRS, seq, relay_seq=seq), own=False) for seq in (1, 2, 3)]
        await store.commit([*puts, StartEpoch(STATE, EPOCH)])
        await store.commit([NumberEntries(STATE, THEIRS, 3, 3, 1)])
        assert places(await image_of(store)) == [(THEIRS, 3, 1), (THEIRS, 1, None), (THEIRS, 2, None)]
        await store.commit([StartEpoch(STATE, NEXT_EPOCH)])
        assert (await image_of(store)).ranks == {(THEIRS, 3): 1, (THEIRS, 1): 2, (THEIRS, 2): 3}

    async def test_entries_of_one_place_come_by_rank(self, store: Store) -> None:
        await store.commit(
            [
                PutEntry(make_entry(THEIRS, 2, relay_seq=2), own=False),
                PutEntry(make_entry(THEIRS, 1, relay_seq=1), own=False),
                StartEpoch(STATE, EPOCH),
                PutEntry(make_entry(OTHER, 1, kind=EntryKind.SNAPSHOT, relay_seq=1), own=False),
                NumberEntries(STATE, THEIRS, 1, 2, 1, same_place=True),
            ]
        )
        image = await image_of(store)
        assert places(image) == [(THEIRS, 1, 1), (THEIRS, 2, 1), (OTHER, 1, 1)]
        assert image.ranks == {}

    async def test_a_new_epoch_keeps_the_compacted_row_before_the_new_log_and_uploads_blobs_again(
        self, store: Store
    ) -> None:
        rows = (WriterRow(THEIRS, "desktop", 1, 2),)
        await store.commit(
            [
                PutEntry(make_entry(THEIRS, 1, relay_seq=1), own=False),
                CompactStream(STATE, 1, b"document", rows, CHAIN),
                PutBlob(TASK, sha(b"x"), b"x", upload=False),
                PutBlob("other", sha(b"x"), b"x", upload=False),
                StartEpoch(STATE, EPOCH),
            ]
        )
        image = await store.load_task(TASK)
        (stream,) = image.streams
        assert (stream.document, stream.covers_seq, stream.snapshot_writers) == (b"document", 0, rows)
        assert stream.snapshot_chain == CHAIN
        assert image.uploads == {sha(b"x")}
        assert (await store.load_task("other")).uploads == frozenset()

    async def test_a_truncation_forgets_what_lies_above(self, store: Store) -> None:
        rows = (WriterRow(THEIRS, "desktop", 1, 2),)
        await store.commit(
            [
                SetPosition(STATE, EPOCH, 4, CHAIN),
                SetWriter(STATE, WriterRow(OTHER, "desktop", 5, 6)),
                PutEntry(make_entry(MINE, 1, relay_seq=2), own=True),
                PutEntry(make_entry(THEIRS, 1, relay_seq=1), own=False),
                PutEntry(make_entry(THEIRS, 2, relay_seq=3), own=False),
                QuarantineEntry(make_entry(OTHER, 1, relay_seq=4), "broken"),
                PutEntry(make_entry(MINE, 2), own=True),
                TruncateStream(STATE, 1, CHAIN[::-1], rows),
            ]
        )
        image = await store.load_task(TASK)
        (stream,) = image.streams
        assert (stream.epoch, stream.cursor, stream.chain) == (EPOCH, 1, CHAIN[::-1])
        assert (stream.writers, stream.quarantined) == (rows, ())
        assert places(stream) == [(THEIRS, 1, 1), (MINE, 1, None), (MINE, 2, None)]
        assert image.unsent == ((STATE, MINE, 1), (STATE, MINE, 2))

    async def test_a_truncation_takes_an_own_entry_out_of_the_old_ranks(self, store: Store) -> None:
        await store.commit([PutEntry(make_entry(MINE, 1, relay_seq=1), own=True), StartEpoch(STATE, EPOCH)])
        await store.commit([NumberEntries(STATE, MINE, 1, 1, 1), TruncateStream(STATE, 0, CHAIN_START, ())])
        image = await store.load_task(TASK)
        assert (image.streams[0].ranks, image.unsent) == ({}, ((STATE, MINE, 1),))

    async def test_a_truncation_drops_a_compacted_row_only_if_it_covers_more(self, store: Store) -> None:
        await store.commit([CompactStream(STATE, 5, b"document", (), CHAIN)])
        await store.commit([TruncateStream(STATE, 5, CHAIN, ())])
        assert (await image_of(store)).document == b"document"
        await store.commit([TruncateStream(STATE, 4, CHAIN, ())])
        assert (await image_of(store)).document == b""

    async def test_a_compaction_puts_one_row_in_place_of_the_updates_it_covers(self, store: Store) -> None:
        rows = (WriterRow(MINE, "phone", 3, 3), WriterRow(THEIRS, "desktop", 1, 4))
        await store.commit(
            [
                SetPosition(STATE, EPOCH, 6, CHAIN[::-1]),
                PutEntry(make_entry(MINE, 1, relay_seq=1), own=True),
                PutEntry(make_entry(THEIRS, 1, kind=EntryKind.CALL, relay_seq=2), own=False),
                PutEntry(make_entry(THEIRS, 2, kind=EntryKind.SNAPSHOT, relay_seq=3), own=False),
                QuarantineEntry(make_entry(OTHER, 1, relay_seq=4), "broken"),
                PutEntry(make_entry(THEIRS, 3, relay_seq=5), own=False),
                PutEntry(make_entry(THEIRS, 4, relay_seq=6), own=False),
                PutEntry(make_entry(MINE, 2), own=True),
                CompactStream(STATE, 5, b"document" * 100, rows, CHAIN),
            ]
        )
        image = await store.load_task(TASK)
        (stream,) = image.streams
        assert (stream.document, stream.covers_seq) == (b"document" * 100, 5)
        assert (stream.snapshot_writers, stream.snapshot_chain) == (rows, CHAIN)
        assert places(stream) == [(THEIRS, 1, 2), (THEIRS, 4, 6), (MINE, 2, None)]
        assert len(stream.quarantined) == 1
        assert (stream.cursor, stream.chain) == (6, CHAIN[::-1])
        assert image.own_writers == {MINE}

    async def test_own_writers_are_remembered_after_a_compaction(self, store: Store) -> None:
        await store.commit(
            [PutEntry(make_entry(MINE, 1, relay_seq=1), own=True), CompactStream(STATE, 1, b"document", (), CHAIN)]
        )
        assert (await store.load_task(TASK)).own_writers == {MINE}

    # --- followed tasks ----------------------------------------------------------------------------------------------

    async def test_followed_tasks_come_in_key_order_with_places_and_waiting_work(self, store: Store) -> None:
        await store.commit([FollowTask("b"), FollowTask(TASK), FollowTask("b")])
        await store.commit(
            [
                SetPosition(STATE, EPOCH, 2, CHAIN),
                SetWriter(STATE, WriterRow(MINE, "phone", 1, 2)),
                PutEntry(make_entry(MINE, 1, relay_seq=1), own=True),
                PutEntry(make_entry(THEIRS, 1, relay_seq=2), own=False),
                PutEntry(make_entry(MINE, 2, relay_seq=4), own=True),
                PutEntry(make_entry(MINE, 3), own=True),
                PutEntry(make_entry(MINE, 1, stream=HISTORY, kind=EntryKind.HISTORY), own=True),
                PutEntry(make_entry(MINE, 1, stream="unfollowed:state"), own=True),
            ]
        )
        assert await store.followed_tasks() == (
            FollowedTask("b", (), 0),
            FollowedTask(
                TASK,
                (
                    FollowedStream(HISTORY, b"", 0, CHAIN_START, ((MINE, 1),)),
                    FollowedStream(STATE, EPOCH, 2, CHAIN, ((MINE, 3),)),
                ),
                2,
            ),
        )

    async def test_own_writers_with_nothing_outstanding_are_not_named(self, store: Store) -> None:
        await store.commit(
            [
                FollowTask(TASK),
                SetPosition(STATE, EPOCH, 1, CHAIN),
                SetWriter(STATE, WriterRow(MINE, "phone", 1, 2)),
                PutEntry(make_entry(MINE, 1, relay_seq=1), own=True),
            ]
        )
        assert (await store.followed_tasks())[0].streams[0].own == ()

    async def test_an_own_writer_is_named_only_as_far_as_nothing_above_the_cursor_is_missing(
        self, store: Store
    ) -> None:
        puts = [PutEntry(make_entry(MINE, seq, relay_seq=seq), own=True) for seq in (1, 2, 3)]
        await store.commit([FollowTask(TASK), SetPosition(STATE, EPOCH, 3, CHAIN), *puts])
        await store.commit([CompactStream(STATE, 2, b"document", (), CHAIN), TruncateStream(STATE, 0, CHAIN_START, ())])
        assert (await store.load_task(TASK)).unsent == ((STATE, MINE, 3),)
        assert (await store.followed_tasks())[0].streams[0].own == ()

    async def test_ranked_entries_wait_and_own_ones_are_named(self, store: Store) -> None:
        await store.commit(
            [
                FollowTask(TASK),
                PutEntry(make_entry(MINE, 1, relay_seq=1), own=True),
                PutEntry(make_entry(THEIRS, 1, relay_seq=2), own=False),
                QuarantineEntry(make_entry(THEIRS, 2, relay_seq=3), "broken"),
                StartEpoch(STATE, EPOCH),
                PutEntry(make_entry(MINE, 2), own=True),
            ]
        )
        (followed,) = await store.followed_tasks()
        assert followed.waiting == 3
        assert followed.streams == (FollowedStream(STATE, EPOCH, 0, CHAIN_START, ((MINE, 2),)),)

    async def test_a_dropped_task_leaves_only_what_was_set_aside(self, store: Store) -> None:
        await store.commit(
            [
                FollowTask(TASK),
                SetPosition(STATE, EPOCH, 2, CHAIN),
                SetWriter(STATE, WriterRow(MINE, "phone", 1, 2)),
                PutEntry(make_entry(MINE, 1, relay_seq=1), own=True),
                PutEntry(make_entry(MINE, 2, relay_seq=2), own=True),
                CompactStream(STATE, 1, b"document", (), CHAIN),
                PutEntry(make_entry(MINE, 3), own=True),
                SetAside(STATE, MINE, 3, "purged", ""),
                PutBlob(TASK, sha(b"x"), b"x", upload=True),
                PinBase(TASK, "worklog", sha(b"y"), b"state", 1),
                PutEntry(make_entry(MINE, 1, stream=f"{TASK}-2:state"), own=True),
                PutEntry(make_entry(MINE, 1, stream="expense:state"), own=True),
            ]
        )
        await store.commit([DropTask(TASK)])
        image = await store.load_task(TASK)
        assert (image.followed, image.unsent, image.own_writers, image.uploads) == (False, (), frozenset(), frozenset())
        assert image.streams == (
            StreamImage(
                STATE, b"", 0, CHAIN_START, b"", 0, (), CHAIN_START, (), {}, (),
                (AsideEntry(make_entry(MINE, 3), "purged"),), (), (), False,
            ),
        )  # fmt: skip
        assert await store.followed_tasks() == ()
        assert await store.load_blob(TASK, sha(b"x")) is None
        assert await store.load_base(TASK, "worklog", sha(b"y")) is None
        assert len((await store.load_task(f"{TASK}-2")).streams) == 1
        assert len((await store.load_task("expense")).streams) == 1

    async def test_known_tasks_are_all_of_which_something_is_kept(self, store: Store) -> None:
        await store.commit(
            [
                FollowTask("b/followed"),
                PutEntry(make_entry(stream="a/entry:state"), own=True),
                PutEntry(make_entry(stream="a/entry:history"), own=True),
                SetPosition("c:state", EPOCH, 0, CHAIN_START),
                SetWriter("d:state", WriterRow(MINE, "phone")),
                CompactStream("e:state", 1, b"document", (), CHAIN),
                PutBlob("f", sha(b"x"), b"x", upload=False),
                PinBase("g", "worklog", sha(b"y"), b"state", 1),
                PutEntry(make_entry(stream="h:state"), own=True),
                SetAside("h:state", MINE, 1, "role", ""),
            ]
        )
        assert await store.known_tasks("") == ("a/entry", "b/followed", "c", "d", "e", "f", "g", "h")
        assert await store.known_tasks("a/") == ("a/entry",)
        assert await store.known_tasks("A") == ()
        assert (await store.stats()).tasks == 8

    # --- blobs and pins ----------------------------------------------------------------------------------------------

    async def test_a_blob_comes_back_for_its_own_task_only(self, store: Store) -> None:
        data = bytes(range(256)) * 1000
        await store.commit([PutBlob(TASK, sha(data), data, upload=True)])
        assert await store.load_blob(TASK, sha(data)) == data
        assert await store.load_blob("other", sha(data)) is None
        assert await store.load_blob(TASK, sha(b"another")) is None
        stats = await store.stats()
        assert (stats.blobs, stats.blob_bytes) == (1, len(data))

    async def test_a_blob_that_is_not_what_its_name_says_is_not_given_out(self, store: Store) -> None:
        await store.commit([PutBlob(TASK, sha(b"true"), b"false", upload=False)])
        assert await store.load_blob(TASK, sha(b"true")) is None
        await store.commit([PutBlob(TASK, sha(b"true"), b"true", upload=False)])
        assert await store.load_blob(TASK, sha(b"true")) == b"true"

    async def test_uploads_are_the_blobs_that_the_relay_lacks(self, store: Store) -> None:
        await store.commit([PutBlob(TASK, sha(b"1"), b"1", upload=True), PutBlob(TASK, sha(b"2"), b"2", upload=False)])
        assert (await store.load_task(TASK)).uploads == {sha(b"1")}
        await store.commit([SetBlobState(TASK, sha(b"1"), upload=False), SetBlobState(TASK, sha(b"2"), upload=True)])
        await store.commit([SetBlobState(TASK, sha(b"unknown"), upload=True)])
        assert (await store.load_task(TASK)).uploads == {sha(b"2")}

    async def test_a_base_is_found_by_note_and_hash(self, store: Store) -> None:
        await store.commit([PinBase(TASK, "worklog", sha(b"text"), b"state", 1)])
        assert await store.load_base(TASK, "worklog", sha(b"text")) == b"state"
        assert await store.load_base(TASK, "other", sha(b"text")) is None
        assert await store.load_base("other", "worklog", sha(b"text")) is None
        assert await store.load_base(TASK, "worklog", sha(b"texts")) is None

    async def test_pins_expire_after_seven_days_of_relay_time(self, store: Store) -> None:
        start_ms = 1_790_000_000_000
        await store.commit([PinBase(TASK, "worklog", sha(b"old"), b"old", start_ms)])
        await store.commit([PinBase(TASK, "worklog", sha(b"new"), b"new", start_ms + BASE_PIN_KEEP_MS)])
        assert await store.load_base(TASK, "worklog", sha(b"old")) == b"old"
        await store.commit([PinBase("other", "plan", sha(b"late"), b"late", start_ms + BASE_PIN_KEEP_MS + 1)])
        assert await store.load_base(TASK, "worklog", sha(b"old")) is None
        assert await store.load_base(TASK, "worklog", sha(b"new")) == b"new"

    async def test_a_relay_clock_that_steps_back_expires_nothing(self, store: Store) -> None:
        start_ms = 1_790_000_000_000
        await store.commit([PinBase(TASK, "worklog", sha(b"a"), b"a", start_ms)])
        await store.commit([PinBase(TASK, "worklog", sha(b"b"), b"b", start_ms - 10 * BASE_PIN_KEEP_MS)])
        assert await store.load_base(TASK, "worklog", sha(b"a")) == b"a"
        assert await store.load_base(TASK, "worklog", sha(b"b")) == b"b"

    async def test_a_pin_made_before_the_relays_time_was_known_starts_to_age_when_it_is(self, store: Store) -> None:
        start_ms = 1_790_000_000_000
        await store.commit([PinBase(TASK, "worklog", sha(b"offline"), b"offline", 0)])
        await store.commit([PinBase(TASK, "worklog", sha(b"b"), b"b", start_ms)])
        assert await store.load_base(TASK, "worklog", sha(b"offline")) == b"offline"
        await store.commit([PinBase(TASK, "worklog", sha(b"c"), b"c", start_ms + BASE_PIN_KEEP_MS + HOUR_MS)])
        assert await store.load_base(TASK, "worklog", sha(b"offline")) is None

    async def test_a_note_keeps_its_latest_hundred_pins(self, store: Store) -> None:
        def pin(number: int, note: str = "worklog") -> PinBase:
            return PinBase(TASK, note, sha(b"%d" % number), b"%d" % number, 1_000 - number)

        await store.commit([pin(number) for number in range(BASE_PINS_PER_NOTE_MAX)])
        await store.commit([pin(0), pin(500), pin(1, "other")])
        assert await store.load_base(TASK, "worklog", sha(b"0")) == b"0"
        assert await store.load_base(TASK, "worklog", sha(b"1")) is None
        assert await store.load_base(TASK, "worklog", sha(b"2")) == b"2"
        assert await store.load_base(TASK, "other", sha(b"1")) == b"1"

    async def test_close_is_idempotent(self, store: Store) -> None:
        await store.close()
        await store.close()
