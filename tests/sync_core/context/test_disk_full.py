"""P11, RS-13: a full disk or a full store is a typed error; nothing is damaged, order is kept, no restart is needed."""

import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import apsw
import pytest

from sync_core.context.apply import commit_writes
from sync_core.context.connection import PRAGMAS
from sync_core.context.migrations import migrate
from sync_core.context.reads import load_task
from sync_core.context.sqlite_store import SqliteStore
from sync_core.errors import StoreFull
from sync_core.replica.writes import CompactStream, DropTask, PutBlob, PutEntry, TaskImage, Write
from tests.contracts.store_values import CHAIN, MINE, STATE, TASK, make_entry, sha
from tests.contracts.store_workload import TASKS, random_commit
from tests.simulation.disk import DiskModel
from tests.sync_core.context.power import PowerDisk, power_connection

BOUND = 400_000


def put(seq: int, size_bytes: int = 3_000) -> Write:
    """Return a write of an own entry that fills most of a page."""
    return PutEntry(make_entry(MINE, seq, payload=Random(seq).randbytes(size_bytes)), own=True)


def unsent_numbers(image: TaskImage) -> list[int]:
    return [seq for _, _, seq in image.unsent]


# --- every write of a commit in turn ----------------------------------------------------------------------------------


def fail_each_write(disk: PowerDisk, connection: apsw.Connection, writes: list[Write]) -> int:
    """Let the first, second, … write of a commit fail until it goes through; return how many failed.

    Only a checkpoint writes to the database itself, after the commit. SQLite goes on if that fails; apsw still raises.
    """
    before = [load_task(connection, task) for task in TASKS]
    for failing in range(1_000):
        disk.writes, disk.fail_write = 0, failing
        try:
            commit_writes(connection, writes, compress=True)
        except (apsw.FullError, apsw.IOError):
            disk.fail_write = None
            if disk.failed_file.endswith(".db"):
                return failing
            assert [load_task(connection, task) for task in TASKS] == before
        else:
            disk.fail_write = None
            return failing
    raise AssertionError("the commit never went through")


@pytest.mark.parametrize("seed", range(3))
def test_a_commit_whose_nth_write_fails_keeps_nothing_and_goes_through_afterwards(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    failed = 0
    with power_connection(str(tmp_path / "full.db")) as (disk, connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # A small cache spills pages to the log in the middle of a transaction; a short log checkpoints often.
        for sql in (*PRAGMAS, "PRAGMA wal_autocheckpoint = 25", "PRAGMA cache_size = 5"):
            connection.execute(sql).fetchall()
        migrate(connection, "acme")
        model = DiskModel()
        for _ in range(12):
            writes = random_commit(rng)
            failed += fail_each_write(disk, connection, writes)
            model.commit(writes)
            assert [load_task(connection, task) for task in TASKS] == [model.load_task(task) for task in TASKS]
        assert next(connection.execute("PRAGMA integrity_check"))[0] == "ok"
    assert failed > 50


# --- the store's own bound --------------------------------------------------------------------------------------------


@pytest.fixture
async def bounded(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme", store_bytes_max=BOUND)
    yield store
    await store.close()


async def fill(store: SqliteStore, make: Callable[[int], Write] = put) -> int:
    """Commit entry after entry until the store is full; return how many are in."""
    for seq in range(1, 10_000):
        try:
            await store.commit([make(seq)])
        except StoreFull:
            return seq - 1
    raise AssertionError("the store was never full")


async def test_a_store_at_its_bound_refuses_and_keeps_what_it_has(bounded: SqliteStore, tmp_path: Path) -> None:
    count = await fill(bounded)
    assert count > 30
    image = await bounded.load_task(TASK)
    assert unsent_numbers(image) == list(range(1, count + 1))
    assert image.streams[0].damaged == ()
    sizes = [path.stat().st_size for path in tmp_path.iterdir() if path.suffix in (".db", ".db-wal")]
    assert sum(sizes) <= BOUND
    assert (await bounded.stats()).store_bytes <= BOUND


async def test_a_full_store_refuses_a_group_whole(bounded: SqliteStore) -> None:
    count = await fill(bounded)
    with pytest.raises(StoreFull) as caught:
        await bounded.commit([put(seq) for seq in range(count + 1, count + 33)])
    assert "no restart" in caught.value.hint
    assert unsent_numbers(await bounded.load_task(TASK)) == list(range(1, count + 1))


async def test_a_full_store_works_again_after_a_task_went(bounded: SqliteStore) -> None:
    await bounded.commit([PutBlob("other", sha(b"x" * 100_000), b"x" * 100_000, upload=False)])
    count = await fill(bounded)
    await bounded.commit([DropTask("other")])
    await bounded.commit([put(count + 1)])
    assert unsent_numbers(await bounded.load_task(TASK)) == list(range(1, count + 2))


async def test_a_full_store_works_again_after_a_compaction(bounded: SqliteStore) -> None:
    def put_numbered(seq: int) -> Write:
        entry = make_entry(MINE, seq, payload=Random(seq).randbytes(3_000), relay_seq=seq)
        return PutEntry(entry, own=True)

    count = await fill(bounded, put_numbered)
    await bounded.commit([CompactStream(STATE, count, b"document", (), CHAIN)])
    await bounded.commit([put(count + 1)])
    assert unsent_numbers(await bounded.load_task(TASK)) == [count + 1]


async def test_a_full_store_opens_again_with_a_larger_bound(bounded: SqliteStore, tmp_path: Path) -> None:
    count = await fill(bounded)
    await bounded.close()
    larger = await SqliteStore.open(tmp_path / "acme.db", subject="acme", store_bytes_max=2 * BOUND)
    await larger.commit([put(count + 1)])
    assert unsent_numbers(await larger.load_task(TASK)) == list(range(1, count + 2))
    await larger.close()


async def test_a_bound_too_small_for_an_empty_store_is_a_full_store(tmp_path: Path) -> None:
    with pytest.raises(StoreFull):
        await SqliteStore.open(tmp_path / "acme.db", subject="acme", store_bytes_max=20_000)
    await (await SqliteStore.open(tmp_path / "acme.db", subject="acme")).close()


# --- the disk's -------------------------------------------------------------------------------------------------------


@contextmanager
def file_bytes_max(limit: int) -> Iterator[None]:
    """No file of this process may grow beyond a size (Python ignores the signal, so the write fails)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_disk_that_takes_no_more_is_a_full_store_and_recovers_in_place(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    log = tmp_path / "acme.db-wal"
    refused = 0
    for seq in range(1, 16):
        # Every page of the commit's log in turn is the first that does not fit.
        for spare in range(0, 6 * 4096, 2048):
            with file_bytes_max(log.stat().st_size + spare):
                try:
                    await store.commit([put(seq)])
                except StoreFull:
                    refused += 1
                else:
                    break
        else:
            await store.commit([put(seq)])
    assert refused >= 15
    image = await store.load_task(TASK)
    assert unsent_numbers(image) == list(range(1, 16))
    assert image.streams[0].damaged == ()
    await store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_file_system_is_a_full_store_and_recovers_in_place(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    store = await SqliteStore.open(small_disk / "acme.db", subject="acme")
    count = await fill(store)
    assert unsent_numbers(await store.load_task(TASK)) == list(range(1, count + 1))
    ballast.unlink()
    await store.commit([put(count + 1)])
    assert unsent_numbers(await store.load_task(TASK)) == list(range(1, count + 2))
    await store.close()
    reopened = await SqliteStore.open(small_disk / "acme.db", subject="acme")
    assert unsent_numbers(await reopened.load_task(TASK)) == list(range(1, count + 2))
    await reopened.close()
