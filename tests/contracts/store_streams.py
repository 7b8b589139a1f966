"""What every store does with whole streams: a lost log, a truncation, a compaction."""

from sync_core.context.store import Store
from sync_core.entry import CHAIN_START, EntryKind, WriterRow
from sync_core.replica.writes import (
    AsideEntry,
    CompactStream,
    NumberEntries,
    PutBlob,
    PutEntry,
    QuarantineEntry,
    SetPosition,
    SetWriter,
    StartEpoch,
    TruncateStream,
)
from tests.contracts.store_values import (
    CHAIN,
    EPOCH,
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

__all__ = ["StreamTests"]


class StreamTests:
    """Each test gets a fresh `store`."""

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
