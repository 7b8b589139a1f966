"""What every store does when a log was emptied or a task deleted: tombstones, and what only unsent work still needs."""

from msgspec.structs import replace

from sync_core.context.store import Store
from sync_core.entry import CHAIN_START, EntryKind, WriterRow
from sync_core.replica.writes import (
    CompactStream,
    DropTask,
    DropTombstone,
    EmptyStream,
    FollowTask,
    PutBlob,
    PutEntry,
    PutTombstone,
    QuarantineEntry,
    SetAside,
    SetPosition,
    SetWriter,
    StartEpoch,
    Tombstone,
    Write,
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

__all__ = ["EndingTests"]

TOMB = Tombstone(TASK, 2, "purged", (EPOCH, NEXT_EPOCH), 3, told=False, relay_time_ms=5_000)


def item(writer: int, seq: int, place: int | None = None, blob: bytes | None = None) -> PutEntry:
    name = None if blob is None else sha(blob)
    entry = make_entry(writer, seq, stream=HISTORY, kind=EntryKind.HISTORY, relay_seq=place, blob=name)
    return PutEntry(entry, own=writer == MINE)


def history() -> list[Write]:
    """Three numbered items, one of them with a blob, one that waits, and a call with a blob in the other stream."""
    blobs = [PutBlob(TASK, sha(data), data, upload=False) for data in (b"said", b"result", b"waits")]
    call = make_entry(MINE, 1, kind=EntryKind.CALL, relay_seq=1, blob=sha(b"result"))
    return [
        *blobs,
        item(MINE, 1, 1),
        item(THEIRS, 1, 2, b"said"),
        item(THEIRS, 2, 3),
        item(MINE, 2, None, b"waits"),
        PutEntry(call, own=True),
        SetPosition(HISTORY, EPOCH, 3, CHAIN),
        SetWriter(HISTORY, WriterRow(MINE, "phone", 0, 2)),
        SetPosition(STATE, EPOCH, 1, CHAIN),
    ]


class EndingTests:
    """Each test gets a fresh `store`."""

    async def test_an_emptied_log_leaves_what_waits_and_the_other_streams(self, store: Store) -> None:
        await store.commit(history())
        await store.commit([EmptyStream(HISTORY, NEXT_EPOCH)])
        image = await image_of(store, HISTORY)
        assert (image.epoch, image.cursor, image.chain, image.writers) == (NEXT_EPOCH, 0, CHAIN_START, ())
        assert places(image) == [(MINE, 2, None)]
        assert places(await image_of(store)) == [(MINE, 1, 1)]
        assert (await store.load_task(TASK)).unsent == ((HISTORY, MINE, 2),)
        assert [await store.load_blob(TASK, sha(data)) for data in (b"said", b"result", b"waits")] == [
            None,
            b"result",
            b"waits",
        ]

    async def test_an_emptied_log_takes_quarantined_and_ranked_entries_and_the_merged_row(self, store: Store) -> None:
        bad = replace(make_entry(OTHER, 1), relay_seq=2)
        await store.commit([PutEntry(make_entry(MINE, 1, relay_seq=1), own=True), QuarantineEntry(bad, "guard")])
        await store.commit([CompactStream(STATE, 1, b"document", (WriterRow(MINE, "phone", 1, 2),), CHAIN)])
        await store.commit([StartEpoch(STATE, NEXT_EPOCH), PutEntry(make_entry(MINE, 2), own=True)])
        await store.commit([EmptyStream(STATE, b"epoch-3")])
        image = await image_of(store)
        assert places(image) == [(MINE, 2, None)]
        assert (image.document, image.quarantined, image.ranks, image.covers_seq) == (b"", (), {}, 0)
        assert MINE in (await store.load_task(TASK)).own_writers

    async def test_own_writers_are_known_after_their_entries_went(self, store: Store) -> None:
        await store.commit([item(MINE, 1, 1), EmptyStream(HISTORY, NEXT_EPOCH)])
        assert (await store.load_task(TASK)).own_writers == {MINE}

    async def test_a_dropped_task_leaves_what_was_set_aside_with_its_blobs(self, store: Store) -> None:
        await store.commit([*history(), FollowTask(TASK)])
        aside = SetAside(HISTORY, MINE, 2, "tombstone", "The task was purged.")
        await store.commit([aside, PutTombstone(TOMB), DropTask(TASK)])
        image = await image_of(store, HISTORY)
        assert [kept.entry.writer_seq for kept in image.set_aside] == [2]
        assert (image.entries, image.cursor) == ((), 0)
        assert await store.load_blob(TASK, sha(b"waits")) == b"waits"
        assert await store.load_blob(TASK, sha(b"result")) is None
        assert await store.followed_tasks() == ()
        assert await store.tombstones() == (TOMB,)

    async def test_tombstones_come_in_key_order_and_are_replaced_and_dropped(self, store: Store) -> None:
        assert await store.tombstones() == ()
        others = [replace(TOMB, task=key) for key in ("b", "a/1", "a")]
        await store.commit([PutTombstone(tombstone) for tombstone in (TOMB, *others)])
        told = replace(TOMB, told=True, set_aside=0, epochs=())
        await store.commit([PutTombstone(told), DropTombstone("b"), DropTombstone("nothing")])
        assert await store.tombstones() == (others[2], others[1], told)
        assert await store.known_tasks("") == ()
