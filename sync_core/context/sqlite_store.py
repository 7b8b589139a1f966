"""`SqliteStore`: the store in one SQLite file for one subject, through one connection on one thread (rule G)."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar, cast

import aiosqlite

from sync_core.context.apply import commit_writes
from sync_core.context.blobs import load_base, load_blob
from sync_core.context.connection import connect
from sync_core.context.faults import store_errors
from sync_core.context.ownership import Ownership
from sync_core.context.reads import followed_tasks, known_tasks, load_task, store_stats, task_sizes
from sync_core.context.tombstones import tombstones
from sync_core.errors import Closed
from sync_core.ids import check_name
from sync_core.replica.writes import (
    CompactStream,
    DropTask,
    EmptyStream,
    FollowedTask,
    StoreStats,
    TaskImage,
    TaskSize,
    Tombstone,
    Write,
)

__all__ = ["SqliteStore"]

T = TypeVar("T")


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection with one more call: a whole function on its thread.

    A transaction of several awaited statements would cost a hand-over to the thread and back for each, and a
    cancelled caller would leave it open half-way. As one function it is committed whole or not at all.
    """

    def __init__(self, opened: sqlite3.Connection) -> None:
        super().__init__(lambda: opened, iter_chunk_size=64)
        # A program that ends without closing must not hang on this thread; what is committed is safe without it.
        # (Up to aiosqlite 0.21 the connection is the thread, later it has one.)
        thread = cast(Thread, getattr(self, "_thread", self))
        thread.daemon = True

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
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
        device: str | None = None,
        store_bytes_max: int | None = None,
        compress: bool = True,
    ) -> "SqliteStore":
        """Open a subject's store file, or make it; with `device`, it belongs to that one from the first time on.

        `store_bytes_max` bounds database and log together, in bytes; a commit larger than a quarter of it may exceed
        it for a moment. `compress` zips the documents of compacted streams.

        Raises `StoreInUse` with the owner's pid if a process has it open, `StoreUnusable` if the file is of another
        subject or device, of a newer version or no store, `StoreDamaged` if it cannot be read, `StoreFull` if it cannot
        be made.
        """
        check_name(subject, "subject")
        owner, opened = await asyncio.to_thread(_claim, path, subject, device, store_bytes_max)
        connection = _Connection(opened)
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

    async def tombstones(self) -> tuple[Tombstone, ...]:
        """Return what is remembered of deleted tasks, in key order."""
        return await self._run(tombstones)

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

    async def task_sizes(self, task: str | None = None) -> tuple[TaskSize, ...]:
        """Return the sizes of a task, or of every task that holds something, in key order."""
        return await self._run(lambda connection: task_sizes(connection, task))

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

        return await self._connection.call(guarded)


def _claim(
    path: str | os.PathLike[str], subject: str, device: str | None, store_bytes_max: int | None
) -> tuple[Ownership, sqlite3.Connection]:
    owner = Ownership.claim(path)
    try:
        with store_errors():
            connection = connect(owner.path, subject, store_bytes_max, device)
            owner.tighten()
            return owner, connection
    except BaseException:
        owner.release()
        raise


def _commit(connection: sqlite3.Connection, writes: Sequence[Write], compress: bool) -> None:
    commit_writes(connection, writes, compress)
    if any(isinstance(write, CompactStream | DropTask | EmptyStream) for write in writes):
        # The file shrinks only here. The commit stands if it fails; a later checkpoint makes up for it.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _bytes_on_disk(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return sum(file.stat().st_size for file in (path, log) if file.exists())
