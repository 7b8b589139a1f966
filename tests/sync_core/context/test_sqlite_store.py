"""SqliteStore beyond the contract: damage, failure, cancellation, closing, and what it costs."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sync_core.context import reads
from sync_core.context.sqlite_store import SqliteStore
from sync_core.entry import CHAIN_START, EntryKind, WriterRow
from sync_core.errors import Closed, StoreDamaged, ValueRefused
from sync_core.replica.writes import (
    CompactStream,
    FollowTask,
    PinBase,
    PutBlob,
    PutEntry,
    SetAside,
    SetPosition,
    SetWriter,
    TruncateStream,
    Write,
)
from tests.contracts.store_values import CHAIN, EPOCH, MINE, STATE, TASK, THEIRS, image_of, make_entry, sha

BASE: list[Write] = [
    FollowTask(TASK),
    SetPosition(STATE, EPOCH, 3, CHAIN),
    SetWriter(STATE, WriterRow(MINE, "phone", 2, 3)),
    PutEntry(make_entry(MINE, 1, relay_seq=1), own=True),
    PutEntry(make_entry(THEIRS, 1, relay_seq=2), own=False),
    PutEntry(make_entry(MINE, 2, relay_seq=3), own=True),
    PutEntry(make_entry(MINE, 3), own=True),
    PutEntry(make_entry(MINE, 4), own=True),
]


async def reopened(path: Path, writes: list[Write], *spoil: str) -> SqliteStore:
    """Commit, close, change the file behind the store's back, open."""
    store = await SqliteStore.open(path, subject="acme")
    await store.commit(writes)
    await store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    for sql in spoil:
        assert connection.execute(sql).rowcount == 1
    connection.close()
    return await SqliteStore.open(path, subject="acme")


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "payload = CAST(replace(payload, '1', '7') AS BLOB)",
        "payload = 'text'",
        "kind = 'call'",
        "kind = 'unknown'",
        "device = 'desktop'",
        "device = CAST(x'ff80' AS TEXT)",
        "at_ms = at_ms + 1",
        "blob = 'ab'",
        "vouched_by = 'mallory'",
        "checksum = checksum + 1",
        "checksum = 'text'",
    ],
)
async def test_a_damaged_entry_is_reported_and_not_shown(tmp_path: Path, change: str) -> None:
    store = await reopened(
        tmp_path / "acme.db", BASE, f"UPDATE entries SET {change} WHERE writer = {MINE} AND writer_seq = 1"
    )
    image = await image_of(store)
    assert image.damaged == ((MINE, 1, 1),)
    assert [(entry.writer, entry.writer_seq) for entry in image.entries] == [
        (THEIRS, 1), (MINE, 2), (MINE, 3), (MINE, 4),
    ]  # fmt: skip
    await store.close()


async def test_a_damaged_entry_is_neither_sent_nor_named_nor_what_follows_it(tmp_path: Path) -> None:
    store = await reopened(tmp_path / "acme.db", BASE, "UPDATE entries SET at_ms = 0 WHERE writer_seq = 3")
    image = await store.load_task(TASK)
    assert image.unsent == ((STATE, MINE, 4),)
    assert image.streams[0].damaged == ((MINE, 3, None),)
    (followed,) = await store.followed_tasks()
    assert (followed.streams[0].own, followed.waiting) == ((), 2)
    await store.close()


async def test_a_truncation_clears_damaged_entries_and_a_put_heals_them(tmp_path: Path) -> None:
    spoil = f"UPDATE entries SET at_ms = 0 WHERE writer = {MINE} AND writer_seq = 1"
    store = await reopened(tmp_path / "acme.db", BASE, spoil)
    await store.commit([TruncateStream(STATE, 0, CHAIN_START, ())])
    image = await image_of(store)
    assert image.damaged == ()
    assert [(entry.writer, entry.writer_seq) for entry in image.entries] == [(MINE, 2), (MINE, 3), (MINE, 4)]
    await store.close()
    store = await reopened(tmp_path / "acme.db", BASE, spoil)
    await store.commit([PutEntry(make_entry(MINE, 1, relay_seq=1), own=True)])
    image = await image_of(store)
    assert (image.damaged, len(image.entries)) == ((), 5)
    await store.close()


@pytest.mark.parametrize(
    "change", ["document = x'00'", "document = 'text'", "writers = x'90'", "chain = x'00'", "zipped = NOT zipped"]
)
async def test_a_damaged_compacted_row_is_reported_and_cleared_by_a_truncation(tmp_path: Path, change: str) -> None:
    rows = (WriterRow(MINE, "phone", 1, 2),)
    compaction = CompactStream(STATE, 2, b"document" * 50, rows, CHAIN)
    store = await reopened(tmp_path / "acme.db", [*BASE, compaction], f"UPDATE documents SET {change}")
    image = await image_of(store)
    assert image.document_damaged
    assert (image.document, image.covers_seq, image.snapshot_writers) == (b"", 0, ())
    await store.commit([TruncateStream(STATE, 3, CHAIN, ())])
    image = await image_of(store)
    assert not image.document_damaged
    await store.close()


@pytest.mark.parametrize(
    "change", ["positions SET cursor = 9", "positions SET chain = x'00'", "writers SET next_seq = 9"]
)
async def test_a_damaged_position_or_writer_table_is_an_error(tmp_path: Path, change: str) -> None:
    store = await reopened(tmp_path / "acme.db", BASE, f"UPDATE {change}")
    with pytest.raises(StoreDamaged, match="checksum"):
        await store.load_task(TASK)
    await store.close()


async def test_a_damaged_position_is_an_error_at_the_start_too(tmp_path: Path) -> None:
    store = await reopened(tmp_path / "acme.db", BASE, "UPDATE positions SET cursor = 9")
    with pytest.raises(StoreDamaged, match="checksum"):
        await store.followed_tasks()
    await store.close()


async def test_damaged_blobs_and_pins_are_as_good_as_gone(tmp_path: Path) -> None:
    writes: list[Write] = [
        PutBlob(TASK, sha(b"x"), b"x", upload=True),
        PinBase(TASK, "worklog", sha(b"y"), b"state", 1),
    ]
    store = await reopened(
        tmp_path / "acme.db", writes, "UPDATE blob_bytes SET data = x'00'", "UPDATE pins SET state = x'00'"
    )
    assert await store.load_blob(TASK, sha(b"x")) is None
    assert await store.load_base(TASK, "worklog", sha(b"y")) is None
    await store.close()


async def test_a_damaged_entry_that_was_set_aside_is_left_out_and_still_counted(tmp_path: Path) -> None:
    writes: list[Write] = [*BASE, SetAside(STATE, MINE, 3, "role", ""), SetAside(STATE, MINE, 4, "role", "")]
    store = await reopened(tmp_path / "acme.db", writes, "UPDATE set_aside SET at_ms = 0 WHERE writer_seq = 3")
    assert [aside.entry.writer_seq for aside in (await image_of(store)).set_aside] == [4]
    assert (await store.stats()).set_aside == 2
    await store.close()


async def test_a_database_that_cannot_be_read_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    await (await reopened(path, BASE)).close()
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreDamaged):
        store = await SqliteStore.open(path, subject="acme")
        try:
            await store.load_task(TASK)
        finally:
            await store.close()
    assert path.read_bytes()[:4096] == data[:4096]


# --- failure, cancellation, closing -----------------------------------------------------------------------------------


async def test_a_commit_that_raises_keeps_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    too_large = make_entry(MINE, 2, relay_seq=2**70)
    with pytest.raises(OverflowError):
        await store.commit([FollowTask(TASK), PutEntry(make_entry(), own=True), PutEntry(too_large, own=True)])
    assert await store.known_tasks("") == ()
    await store.commit(BASE)
    assert len((await image_of(store)).entries) == 5
    await store.close()


async def test_a_cancelled_commit_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    for seq in range(1, 40):
        writes: list[Write] = [PutEntry(make_entry(MINE, seq), own=True), PutEntry(make_entry(THEIRS, seq), own=True)]
        commit = asyncio.create_task(store.commit(writes))
        for _ in range(seq % 4):
            await asyncio.sleep(0)
        commit.cancel()
        await asyncio.wait([commit])
    entries = (await store.load_task(TASK)).streams
    names = [(entry.writer, entry.writer_seq) for image in entries for entry in image.entries]
    assert {seq for writer, seq in names if writer == MINE} == {seq for writer, seq in names if writer == THEIRS}
    assert len(names) > 0
    await store.close()


async def test_the_loop_goes_on_while_a_commit_runs(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    commit = asyncio.create_task(store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in range(1, 2000)]))
    turns = 0
    while not commit.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    await store.close()


async def test_a_closed_store_says_so_and_frees_the_file(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    await store.commit(BASE)
    await asyncio.gather(store.close(), store.close())
    with pytest.raises(Closed):
        await store.commit(BASE)
    with pytest.raises(Closed):
        await store.load_task(TASK)
    again = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    assert len((await image_of(again)).entries) == 5
    await again.close()


async def test_a_subject_is_a_plain_name(tmp_path: Path) -> None:
    with pytest.raises(ValueRefused):
        await SqliteStore.open(tmp_path / "acme.db", subject="../acme")
    assert list(tmp_path.iterdir()) == []


# --- time and size ----------------------------------------------------------------------------------------------------


async def test_a_clock_that_steps_back_changes_no_order(tmp_path: Path) -> None:
    """SE-12."""
    path = tmp_path / "acme.db"
    store = await SqliteStore.open(path, subject="acme")
    written = []
    for seq in range(1, 251):
        at_ms = 1_790_000_000_000 + seq - (3_600_000 if seq > 200 else 0)
        entry = make_entry(MINE, seq, kind=EntryKind.UPDATE)
        written.append(type(entry)(STATE, MINE, seq, entry.kind, entry.payload, "phone", at_ms))
    for seq in range(0, 250, 50):
        await store.commit([PutEntry(entry, own=True) for entry in written[seq : seq + 50]])
    await store.close()
    store = await SqliteStore.open(path, subject="acme")
    image = await store.load_task(TASK)
    assert image.streams[0].entries == tuple(written)
    assert image.unsent == tuple((STATE, MINE, seq) for seq in range(1, 251))
    await store.close()


@pytest.mark.parametrize(
    "read",
    [
        lambda connection: reads.load_task(connection, TASK),
        lambda connection: reads.followed_tasks(connection),
    ],
)
async def test_no_read_of_a_task_walks_through_a_table(
    tmp_path: Path, read: Callable[[sqlite3.Connection], object]
) -> None:
    """Opening one task costs the same in a large store: every statement finds its rows through an index."""
    path = tmp_path / "acme.db"
    await (await reopened(path, BASE)).close()
    connection = sqlite3.connect(path, isolation_level=None)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    read(connection)
    connection.set_trace_callback(None)
    plans = [row[3] for sql in statements for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    scans = {plan for plan in plans if plan.startswith("SCAN")}
    assert len(statements) in (8, 2)
    assert scans <= {
        "SCAN followed",
        "SCAN p",
        "SCAN entries USING INDEX entries_without_number",
    }
    connection.close()
