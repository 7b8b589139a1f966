"""What every store does with entries: their order, what is set aside, discarded or quarantined."""

from msgspec.structs import replace

from sync_core.context.store import Store
from sync_core.entry import CHAIN_START, Entry, EntryKind, WriterRow
from sync_core.replica.writes import (
    AsideEntry,
    DiscardEntries,
    FollowTask,
    NumberEntries,
    PutEntry,
    QuarantineEntry,
    SetAside,
    SetPosition,
    SetWriter,
    StartEpoch,
    TaskImage,
    TruncateStream,
)
from tests.contracts.store_values import (
    CHAIN,
    EPOCH,
    HISTORY,
    MINE,
    NEXT_EPOCH,
    OTHER,
    STATE,
    TASK,
    THEIRS,
    image_of,
    make_entry,
    places,
    sha,
)

__all__ = ["EntryTests"]


class EntryTests:
    """Each test gets a fresh `store`."""

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
