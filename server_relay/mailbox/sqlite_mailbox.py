"""`SqliteMailbox`: what a relay keeps, in one SQLite file, through one connection on one thread (rule G)."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import aiosqlite

from server_relay.effects import RelayAnswer, RelayRead
from server_relay.mailbox.reading import answer, mailbox_stats
from server_relay.mailbox.schema import connect, mailbox_errors
from server_relay.mailbox.writing import TaskIds, commit
from server_relay.records import MailboxStats, MailboxWrite
from sync_core.errors import Closed

__all__ = ["SqliteMailbox"]

T = TypeVar("T")


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection with one more call: a whole function on its thread, one hand-over instead of many."""

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Return what the function returns; it runs to its end even if the caller is cancelled."""
        execute = cast(Callable[..., Any], self._execute)
        return cast(T, await execute(function, self._conn))


class SqliteMailbox:
    """A relay's file; see `mailbox.Mailbox` for its methods."""

    def __init__(self, connection: _Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._ids = TaskIds()
        self._closed = False

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, store_bytes_max: int | None = None) -> "SqliteMailbox":
        """Open a mailbox's file, or make it; `store_bytes_max` bounds the database, in bytes.

        Raises `StoreInUse` if another process has it open, `StoreUnusable` if it is no mailbox of this version,
        `StoreDamaged` if it cannot be read, `StoreFull` if it cannot be made.
        """
        where = Path(path)

        def opened() -> sqlite3.Connection:
            with mailbox_errors():
                return connect(where, store_bytes_max)

        connection = _Connection(opened, iter_chunk_size=64)
        await connection
        return cls(connection, where)

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        """Carry out all writes in one transaction, fsynced when it returns; or raise and keep none."""
        if writes:
            await self._run(lambda connection: commit(connection, self._ids, writes))

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        """Return the answer to each read, in order."""
        return await self._run(lambda connection: [answer(connection, self._ids, read) for read in reads])

    async def stats(self) -> MailboxStats:
        """Return the mailbox's sizes; bytes are those of database and log."""
        return await self._run(lambda connection: mailbox_stats(connection, self._bytes_on_disk()))

    async def close(self) -> None:
        """Close the file and free its lock; idempotent."""
        if not self._closed:
            self._closed = True
            await self._connection.close()

    async def _run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise Closed("The mailbox was closed.")

        def guarded(connection: sqlite3.Connection) -> T:
            with mailbox_errors():
                return function(connection)

        return await self._connection.run(guarded)

    def _bytes_on_disk(self) -> int:
        log = self._path.with_name(f"{self._path.name}-wal")
        return sum(file.stat().st_size for file in (self._path, log) if file.exists())
