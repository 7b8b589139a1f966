"""The mailbox's file: whose it is, when it is full, damaged, or not ours; the rest is in tests/contracts."""

import asyncio
import os
import sqlite3
import stat
import sys
from pathlib import Path
from zlib import crc32

import pytest

from server_relay.effects import ReadTail, TailRead
from server_relay.key_records import KeyRow, TaskGuard
from server_relay.mailbox import schema
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.records import PutKeys, PutPiece
from sync_core.errors import Closed, StoreDamaged, StoreFull, StoreInUse, StoreUnusable
from tests.contracts.mailbox_suite import append, load, start, stored, tail

SUBJECT_TASK = ("acme", "expense/TRIP-118")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "relay.db"


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.parametrize("mask", [0o000, 0o077])
async def test_only_this_user_may_read_the_files(path: Path, mask: int) -> None:
    """RS-36."""
    before = os.umask(mask)
    try:
        mailbox = await SqliteMailbox.open(path)
        await mailbox.commit([start(), append(stored(1, 1))])
        assert set(modes(path.parent).values()) == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await mailbox.close()
    finally:
        os.umask(before)


async def test_a_readable_file_is_made_private(path: Path) -> None:
    await (await SqliteMailbox.open(path)).close()
    path.chmod(0o644)
    mailbox = await SqliteMailbox.open(path)
    assert modes(path.parent)["relay.db"] == 0o600
    await mailbox.close()


async def test_a_symbolic_link_is_refused(path: Path, tmp_path: Path) -> None:
    await (await SqliteMailbox.open(path)).close()
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(StoreUnusable):
        await SqliteMailbox.open(link)


async def test_a_second_opener_is_refused_until_the_first_has_closed(path: Path) -> None:
    mailbox = await SqliteMailbox.open(path)
    with pytest.raises(StoreInUse):
        await SqliteMailbox.open(path)
    script = (
        "import asyncio, sys; from server_relay.mailbox.sqlite_mailbox import SqliteMailbox; "
        f"asyncio.run(SqliteMailbox.open({str(path)!r}))"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stderr=asyncio.subprocess.PIPE)
    _, stderr = await other.communicate()
    assert b"StoreInUse" in stderr
    await mailbox.close()
    await mailbox.close()
    await (await SqliteMailbox.open(path)).close()


async def test_a_closed_mailbox_says_so(path: Path) -> None:
    mailbox = await SqliteMailbox.open(path)
    await mailbox.close()
    with pytest.raises(Closed):
        await mailbox.commit([start()])


async def test_another_programs_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnusable):
        await SqliteMailbox.open(path)
    assert path.read_bytes() == before
    path.write_bytes(b"no database at all, but long enough to be looked at")
    with pytest.raises(StoreDamaged):
        await SqliteMailbox.open(path)


@pytest.mark.parametrize("version", range(1, len(schema._STEPS)))
async def test_a_file_of_an_earlier_version_is_brought_up_to_date_with_all_that_it_holds(
    path: Path, version: int
) -> None:
    """Its standing versions count as opened: it was never lost, as far as anybody knows."""
    path.parent.mkdir()
    rows = (stored(1, 1), stored(2, 2))
    with sqlite3.connect(path) as connection:
        for step in schema._STEPS[:version]:
            connection.executescript(step)
        connection.execute(f"PRAGMA application_id = {schema._APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        of_task = "INSERT INTO tasks (id, subject, task, stored_no, version) VALUES (7, ?, ?, 2, 4)"
        connection.execute(of_task, SUBJECT_TASK)
        connection.execute(
            "INSERT INTO streams VALUES (?, ?, 2, ?, 1, NULL, NULL)", (7 << 2, b"epoch-1", rows[1].chain)
        )
        for row in rows:
            values = (schema.entry_place(7, row.stored_no), 7 << 2, row.relay_seq, row.writer, row.writer_seq)
            blobs = (row.content_hash, row.chain, crc32(row.wire), row.wire)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, *blobs))
    connection.close()
    for _ in range(2):
        mailbox = await SqliteMailbox.open(path)
        image = await load(mailbox)
        assert (image.stored_no, image.summary.version, image.guard) == (2, 4, TaskGuard(opened_version=4))
        assert (await tail(mailbox)).entries == rows
        await mailbox.close()
    mailbox = await SqliteMailbox.open(path)
    await mailbox.commit([append(stored(3, 3)), PutKeys(*SUBJECT_TASK, rows=(KeyRow("p", "pay"),))])
    await mailbox.close()


async def test_an_update_of_a_file_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = schema._STEPS
    monkeypatch.setattr(schema, "_STEPS", steps[:1])
    await (await SqliteMailbox.open(path)).close()
    monkeypatch.setattr(schema, "_STEPS", (*steps, "CREATE TABLE more (x); INSERT INTO nowhere VALUES (1);"))
    with pytest.raises(sqlite3.OperationalError):
        await SqliteMailbox.open(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 1
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert "tasks" in tables
    assert not tables & {"more", "keys", "tombstones"}
    monkeypatch.undo()
    await (await SqliteMailbox.open(path)).close()


async def test_a_later_version_is_refused(path: Path) -> None:
    await (await SqliteMailbox.open(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreUnusable, match="version"):
        await SqliteMailbox.open(path)


async def test_a_full_disk_keeps_nothing_of_the_commit_and_recovers(path: Path) -> None:
    """P11."""
    mailbox = await SqliteMailbox.open(path, store_bytes_max=400_000)
    await mailbox.commit([start(), append(stored(1, 1))])
    big = [PutPiece("acme", "expense/TRIP-118", "a" * 64, 0, 1_000_000, bytes(1_000_000), False)]
    with pytest.raises(StoreFull):
        await mailbox.commit([start(task="new"), append(stored(1, 1), task="new"), *big])
    assert (await load(mailbox, task="new")).streams == ()
    await mailbox.commit([start(task="new"), append(stored(1, 1), task="new"), append(stored(2, 2))])
    assert (await load(mailbox, task="new")).stored_no == 1
    assert len((await tail(mailbox)).entries) == 2
    await mailbox.close()


async def test_a_damaged_entry_is_told_and_never_sent(path: Path) -> None:
    mailbox = await SqliteMailbox.open(path)
    await mailbox.commit([start(), append(stored(1, 1), stored(2, 2), stored(3, 3))])
    await mailbox.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET wire = CAST(x'c1' || substr(wire, 2) AS BLOB) WHERE relay_seq = 2")
    connection.close()
    mailbox = await SqliteMailbox.open(path)
    with pytest.raises(StoreDamaged):
        await mailbox.read([ReadTail("acme", "expense/TRIP-118", 1, 0, (), 10_000)])
    (rest,) = await mailbox.read([ReadTail("acme", "expense/TRIP-118", 1, 2, (), 10_000)])
    assert isinstance(rest, TailRead)
    assert rest.entries == (stored(3, 3),)
    await mailbox.close()


async def test_every_commit_is_synced(path: Path) -> None:
    """P2: FULL, in the log that survives power loss."""
    mailbox = await SqliteMailbox.open(path)
    rows = await mailbox._run(
        lambda: [
            mailbox._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")
        ]
    )
    assert rows == [2, "wal"]
    await mailbox.close()
