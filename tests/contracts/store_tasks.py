"""What every store does with tasks: followed, dropped and known ones, their blobs and pins."""

from sync_core.context.store import Store
from sync_core.entry import CHAIN_START, EntryKind, WriterRow
from sync_core.limits import BASE_PIN_KEEP_MS, BASE_PINS_PER_NOTE_MAX
from sync_core.replica.writes import (
    AsideEntry,
    CompactStream,
    DropTask,
    FollowedStream,
    FollowedTask,
    FollowTask,
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
    StreamSize,
    TaskSize,
    TruncateStream,
)
from tests.contracts.store_values import (
    CHAIN,
    EPOCH,
    HISTORY,
    MINE,
    STATE,
    TASK,
    THEIRS,
    make_entry,
    sha,
)

__all__ = ["TaskTests"]


class TaskTests:
    """Each test gets a fresh `store`."""

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

    async def test_the_sizes_of_a_task_are_those_of_its_streams_and_blobs(self, store: Store) -> None:
        document = b"a document that can be zipped " * 100
        await store.commit(
            [
                FollowTask("empty"),
                PutEntry(make_entry(MINE, 1, payload=b"x" * 10, relay_seq=1), own=True),
                PutEntry(make_entry(MINE, 2, payload=b"x" * 20, relay_seq=2), own=True),
                QuarantineEntry(make_entry(THEIRS, 1, payload=b"x" * 40, relay_seq=3), "broken"),
                PutEntry(make_entry(MINE, 3, stream=HISTORY, payload=b"x" * 80), own=True),
                PutEntry(make_entry(MINE, 1, stream=f"{TASK}-2:state", payload=b"x" * 160), own=True),
                PutBlob(TASK, sha(b"one"), b"one", upload=True),
                PutBlob(TASK, sha(b"three"), b"three", upload=False),
                PutBlob("blob/alone", sha(b"x"), b"x", upload=False),
                CompactStream(STATE, 1, document, (), CHAIN),
            ]
        )
        size = TaskSize(
            TASK,
            (
                StreamSize(HISTORY, 1, 80, 0, make_entry(MINE, 3).at_ms),
                StreamSize(STATE, 1, 60, len(document), make_entry(THEIRS, 1).at_ms),
            ),
            blobs=2,
            blob_bytes=8,
        )
        other = TaskSize(f"{TASK}-2", (StreamSize(f"{TASK}-2:state", 1, 160, 0, make_entry(MINE, 1).at_ms),), 0, 0)
        assert await store.task_sizes() == (TaskSize("blob/alone", (), 1, 1), size, other)
        assert await store.task_sizes(TASK) == (size,)
        assert await store.task_sizes("blob/alone") == (TaskSize("blob/alone", (), 1, 1),)
        assert await store.task_sizes("empty") == await store.task_sizes("expense") == ()

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
        await store.commit([PinBase(TASK, "worklog", sha(b"c"), b"c", start_ms + BASE_PIN_KEEP_MS + 3_600_000)])
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
