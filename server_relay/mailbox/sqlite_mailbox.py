"""`SqliteMailbox`: what a relay keeps, in one SQLite file, through one connection on one thread (rule G).

A commit, or a turn's reads, are one function on that thread: one hand-over for all their statements, and a cancelled
caller leaves no transaction open half-way. A backup takes the thread for long, and lets what waits be done in between.
"""

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from server_relay.effects import RelayAnswer, RelayRead
from server_relay.mailbox.copying import compact_file, copy_file
from server_relay.mailbox.reading import answer, mailbox_stats
from server_relay.mailbox.restoring import mark_restored
from server_relay.mailbox.schema import connect, mailbox_errors
from server_relay.mailbox.writing import TaskIds, commit
from server_relay.records import MailboxStats, MailboxWrite
from sync_core.errors import Closed
from sync_core.ids import Entropy

__all__ = ["SqliteMailbox"]

T = TypeVar("T")


class SqliteMailbox:
    """A relay's file; see `mailbox.Mailbox` for its methods."""

    durable = True

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor, path: Path) -> None:
        self._connection = connection
        self._thread = thread
        self._path = path
        self._ids = TaskIds()
        self._closed = False
        self._waiting: deque[Callable[[], None]] = deque()

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, store_bytes_max: int | None = None) -> "SqliteMailbox":
        """Open a mailbox's file, or make it; `store_bytes_max` bounds the database, in bytes.

        Raises `StoreInUse` if another process has it open, `StoreUnusable` if it is no mailbox of this version,
        `StoreDamaged` if it cannot be read, `StoreFull` if it cannot be made.
        """
        where = Path(path)
        thread = ThreadPoolExecutor(1, "mailbox")
        try:
            connection = await _on(thread, lambda: connect(where, store_bytes_max))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(connection, thread, where)

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        """Carry out all writes in one transaction, fsynced when it returns; or raise and keep none."""
        if writes:
            await self._run(lambda: commit(self._connection, self._ids, writes))

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        """Return the answer to each read, in order."""
        return await self._run(lambda: [answer(self._connection, self._ids, read) for read in reads])

    async def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        """Give every stream a new epoch and raise every barrier, in one transaction."""
        await self._run(lambda: mark_restored(self._connection, entropy, now_ms))

    async def stats(self) -> MailboxStats:
        """Return the mailbox's sizes; bytes are those of database and log."""
        return await self._run(lambda: mailbox_stats(self._connection, self._bytes_on_disk()))

    async def back_up(self, to: Path) -> int:
        """Copy the file as it is at the end of the copy; commits and reads go on meanwhile. Return its bytes.

        Raises `StoreUnusable` if there is a file already or it cannot be written, `Closed` if the mailbox was closed.
        """
        return await self._run(lambda: copy_file(self._connection, to, self._do_what_waits))

    async def compact(self) -> tuple[int, int]:
        """Give back the room that deleted rows have left; return the bytes before and after. Nothing else is done
        meanwhile."""

        def compacted() -> tuple[int, int]:
            before = self._bytes_on_disk()
            compact_file(self._connection)
            return before, self._bytes_on_disk()

        return await self._run(compacted)

    async def close(self) -> None:
        """Close the file and free its lock; idempotent."""
        if not self._closed:
            self._closed = True
            await _on(self._thread, self._connection.close)
            self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[[], T]) -> T:
        if self._closed:
            raise Closed("The mailbox was closed.")
        done: Future[T] = Future()
        self._waiting.append(lambda: _carry_out(function, done))
        self._thread.submit(self._do_next)
        return await asyncio.wrap_future(done)

    def _do_next(self) -> None:
        """On the thread: do what waits longest, if it was not done in between already."""
        with suppress(IndexError):
            self._waiting.popleft()()

    def _do_what_waits(self) -> bool:
        """On the thread, between two portions of a backup: do all that waits; return whether to go on."""
        while self._waiting:
            self._do_next()
        return not self._closed

    def _bytes_on_disk(self) -> int:
        log = self._path.with_name(f"{self._path.name}-wal")
        return sum(file.stat().st_size for file in (self._path, log) if file.exists())


def _carry_out(function: Callable[[], T], done: "Future[T]") -> None:
    if done.set_running_or_notify_cancel():
        try:
            with mailbox_errors():
                done.set_result(function())
        except BaseException as error:
            done.set_exception(error)


async def _on(thread: ThreadPoolExecutor, function: Callable[[], T]) -> T:
    """Run a function on the thread to its end; what SQLite raises about the file becomes a `SegueError`."""

    def guarded() -> T:
        with mailbox_errors():
            return function()

    return await asyncio.get_running_loop().run_in_executor(thread, guarded)
