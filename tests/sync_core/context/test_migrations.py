"""The file's schema: recorded step by step, and never touched when it is not ours (SE-23)."""

import sqlite3
from pathlib import Path

import pytest

from sync_core.context.apply import commit_writes
from sync_core.context.migrations import MIGRATIONS, Migration, migrate
from sync_core.context.reads import load_task
from sync_core.context.sqlite_store import SqliteStore
from sync_core.errors import StoreUnusable
from sync_core.replica.writes import FollowTask, PutEntry
from tests.contracts.store_values import MINE, STATE, TASK, make_entry

NEXT = Migration("9999 next", ("CREATE TABLE next (n INTEGER)", "ALTER TABLE followed ADD COLUMN since INTEGER"))
BROKEN = Migration("9999 next", ("CREATE TABLE next (n INTEGER)", "INSERT INTO missing VALUES (1)"))

RELEASED = [(migration.name,) for migration in MIGRATIONS]


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


async def made_store(path: Path) -> None:
    store = await SqliteStore.open(path, subject="acme")
    await store.commit([PutEntry(make_entry(MINE, seq), own=True) for seq in range(1, 8)])
    await store.close()


def test_released_migrations_keep_their_names_and_order() -> None:
    assert [migration.name for migration in MIGRATIONS] == ["0001 tasks", "0002 tombstones"]


async def test_a_new_file_records_its_migrations_and_subject(tmp_path: Path) -> None:
    await made_store(tmp_path / "acme.db")
    connection = raw(tmp_path / "acme.db")
    assert connection.execute("SELECT name FROM migrations").fetchall() == RELEASED
    assert connection.execute("SELECT subject FROM store").fetchall() == [("acme",)]
    connection.close()


async def test_unsent_work_survives_a_migration(tmp_path: Path) -> None:
    await made_store(tmp_path / "acme.db")
    connection = raw(tmp_path / "acme.db")
    before = load_task(connection, TASK)
    migrate(connection, "acme", (*MIGRATIONS, NEXT))
    assert load_task(connection, TASK) == before
    assert before.unsent == tuple((STATE, MINE, seq) for seq in range(1, 8))
    commit_writes(connection, [FollowTask(TASK)], compress=True)
    migrate(connection, "acme", (*MIGRATIONS, NEXT))
    assert connection.execute("SELECT name FROM migrations ORDER BY name").fetchall() == [*RELEASED, (NEXT.name,)]
    connection.close()


async def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    connection = raw(tmp_path / "acme.db")
    migrate(connection, "acme", MIGRATIONS[:1])
    commit_writes(connection, [PutEntry(make_entry(MINE, 1), own=True)], compress=True)
    connection.close()
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    assert (await store.load_task(TASK)).unsent == ((STATE, MINE, 1),)
    assert await store.tombstones() == ()
    await store.close()


async def test_a_migration_that_fails_leaves_no_half_of_itself(tmp_path: Path) -> None:
    await made_store(tmp_path / "acme.db")
    connection = raw(tmp_path / "acme.db")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, "acme", (*MIGRATIONS, BROKEN))
    assert connection.execute("SELECT name FROM migrations").fetchall() == RELEASED
    migrate(connection, "acme", (*MIGRATIONS, NEXT))
    assert connection.execute("SELECT count(*) FROM next").fetchone() == (0,)
    connection.close()


async def test_a_file_of_a_newer_version_is_refused_and_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    await made_store(path)
    connection = raw(path)
    migrate(connection, "acme", (*MIGRATIONS, NEXT))
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="newer version"):
        await SqliteStore.open(path, subject="acme")
    assert path.read_bytes() == before


async def test_a_file_of_another_subject_is_refused_and_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    await made_store(path)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="another subject"):
        await SqliteStore.open(path, subject="globex")
    assert path.read_bytes() == before
    await (await SqliteStore.open(path, subject="acme")).close()


async def test_another_programs_database_is_refused_and_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    connection = raw(path)
    connection.execute("CREATE TABLE theirs (n)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="not a store"):
        await SqliteStore.open(path, subject="acme")
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    path.write_text("minutes of the meeting " * 300)
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable):
        await SqliteStore.open(path, subject="acme")
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in tmp_path.iterdir()] == ["acme.db"]


async def test_a_database_of_somebody_else_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = raw(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    path.chmod(0o644)
    with pytest.raises(StoreUnusable):
        await SqliteStore.open(path, subject="acme")
    assert path.stat().st_mode & 0o777 == 0o644


async def test_an_open_that_was_cut_off_before_the_first_migration_is_made_good(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    connection = raw(path)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    await made_store(path)
    connection = raw(path)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    connection.close()


async def test_a_file_goes_on_under_the_device_that_it_began_with(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    await (await SqliteStore.open(path, subject="acme", device="laptop")).close()
    with pytest.raises(StoreUnusable, match="laptop"):
        await SqliteStore.open(path, subject="acme", device="laptop-new")
    await (await SqliteStore.open(path, subject="acme", device="laptop")).close()
