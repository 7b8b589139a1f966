"""`SqliteStore`: the store in one SQLite file for one subject, through one connection on one thread (rule G)."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import aiosqlite

from sync_core.context.apply import commit_writes
from sync_core.context.blobs import load_base, load_blob
from sync_core.context.faults import store_errors
from sync_core.context.migrations import identify, migrate
from sync_core.context.ownership import Ownership
from sync_core.context.reads import followed_tasks, known_tasks, load_task, store_stats
from sync_core.errors import Closed
from sync_core.ids import check_name
from sync_core.replica.writes import CompactStream, DropTask, FollowedTask, StoreStats, TaskImage, Write

__all__ = ["PRAGMAS", "SqliteStore"]

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)
"""Set at every open. `fullfsync` matters on macOS only, where a plain fsync does not reach the disk."""

_LOG_BYTES_MAX = 8 * 1024 * 1024
_BUSY_TIMEOUT_S = 0.5

T = TypeVar("T")


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection with one more call: a whole function on its thread.

    A transaction of several awaited statements would cost a hand-over to the thread and back for each, and a
    cancelled caller would leave it open half-way. As one function it is committed whole or not at all.
    """

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Return what the function returns; it runs to its end even if the caller is cancelled."""
        execute = cast(Callable[..., Any], self._execute)
        return cast(T, await execute(function, self._conn))


class SqliteStore:
    """What a device keeps for one subject; see `context.store.Store` for its methods."""

    durable = True

    def __init__(self, connection: _Connection, owner: Ownership, compress: bool) -> None:
        self._connection = connection
        self._owner = owner
        self._compress = compress
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        subject: str,
        store_bytes_max: int | None = None,
        compress: bool = True,
    ) -> "SqliteStore":
        """Open a subject's store file, or make it.

        `store_bytes_max` bounds database and log together, in bytes; a commit larger than a quarter of it may exceed
        it for a moment. `compress` zips the documents of compacted streams.

        Raises `StoreInUse` with the owner's pid if a process has it open, `StoreUnusable` if the file is of another
        subject, of a newer version or no store, `StoreDamaged` if it cannot be read, `StoreFull` if it cannot be made.
        """
        check_name(subject, "subject")
        owner, opened = await asyncio.to_thread(_claim, path, subject, store_bytes_max)
        connection = _Connection(lambda: opened, iter_chunk_size=64)
        try:
            await connection
        except BaseException:
            opened.close()
            owner.release()
            raise
        return cls(connection, owner, compress)

    async def commit(self, writes: Sequence[Write]) -> None:
        """Carry out all writes in one transaction, fsynced when it returns; or raise and keep none.

        A cancelled commit is carried out whole or not at all. Raises `StoreFull` if bound or disk are full; the next
        commit may succeed.
        """
        if writes:
            await self._run(lambda connection: _commit(connection, writes, self._compress))

    async def load_task(self, task: str) -> TaskImage:
        """Return what is kept of a task; raises `StoreDamaged` if a position or writer table fails its checksum."""
        return await self._run(lambda connection: load_task(connection, task))

    async def followed_tasks(self) -> tuple[FollowedTask, ...]:
        """Return every followed task, in key order; raises `StoreDamaged` if a position fails its checksum."""
        return await self._run(followed_tasks)

    async def load_blob(self, task: str, sha256: str) -> bytes | None:
        """Return a blob of this task, verified against its hash, or None."""
        return await self._run(lambda connection: load_blob(connection, task, sha256))

    async def load_base(self, task: str, note: str, sha256: str) -> bytes | None:
        """Return the pinned state of a note, or None if it is unknown, expired or damaged."""
        return await self._run(lambda connection: load_base(connection, task, note, sha256))

    async def known_tasks(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of all tasks of which something is kept, in order."""
        return await self._run(lambda connection: known_tasks(connection, prefix))

    async def stats(self) -> StoreStats:
        """Return the store's sizes; bytes are those of database and log."""
        return await self._run(lambda connection: store_stats(connection, _bytes_on_disk(self._owner.path)))

    async def close(self) -> None:
        """Close the file and free its lock; idempotent."""
        if not self._closed:
            self._closed = True
            try:
                await self._connection.close()
            finally:
                self._owner.release()

    async def _run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise Closed("The store was closed.")

        def guarded(connection: sqlite3.Connection) -> T:
            with store_errors():
                return function(connection)

        return await self._connection.run(guarded)


def _claim(
    path: str | os.PathLike[str], subject: str, store_bytes_max: int | None
) -> tuple[Ownership, sqlite3.Connection]:
    owner = Ownership.claim(path)
    try:
        with store_errors():
            return owner, _connect(owner.path, subject, store_bytes_max)
    except BaseException:
        owner.release()
        raise


def _connect(path: Path, subject: str, store_bytes_max: int | None) -> sqlite3.Connection:
    # Made on one thread, then used on aiosqlite's alone.
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        # Damaged text must reach the checksum instead of failing the whole query.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        if identify(connection, subject):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for pragma in PRAGMAS:
            connection.execute(pragma)
        _bound(connection, store_bytes_max)
        migrate(connection, subject)
    except BaseException:
        connection.close()
        raise
    return connection


def _bound(connection: sqlite3.Connection, store_bytes_max: int | None) -> None:
    """Bound the log, and with `store_bytes_max` the database, so that both together stay below it."""
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    log_bytes = _LOG_BYTES_MAX if store_bytes_max is None else min(_LOG_BYTES_MAX, store_bytes_max // 4)
    connection.execute(f"PRAGMA wal_autocheckpoint = {max(1, log_bytes // (2 * page_bytes))}")
    connection.execute(f"PRAGMA journal_size_limit = {log_bytes}")
    if store_bytes_max is not None:
        connection.execute(f"PRAGMA max_page_count = {max(1, (store_bytes_max - log_bytes) // page_bytes)}")


def _commit(connection: sqlite3.Connection, writes: Sequence[Write], compress: bool) -> None:
    commit_writes(connection, writes, compress)
    if any(isinstance(write, CompactStream | DropTask) for write in writes):
        # The file shrinks only here. The commit stands if it fails; a later checkpoint makes up for it.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _bytes_on_disk(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return sum(file.stat().st_size for file in (path, log) if file.exists())
