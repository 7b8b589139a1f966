"""The floors: the bare libraries doing the one thing that cannot be left out, with nothing of Segue around it."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast

import aiosqlite
import msgspec
from pycrdt import Doc

from sync_core.entry import Entry, EntryKind, WriterRow
from sync_core.guard import check_entry

__all__ = ["BareWriter", "GroupWriter", "bare_ingest", "fsync_ms"]

PAYLOAD_BYTES = 180
"""About the update of one slot write."""

_BATCH_ENTRIES = 256
_FSYNC_SAMPLES = 200
_SCHEMA = "CREATE TABLE rows (id INTEGER PRIMARY KEY, stream INTEGER, payload BLOB)"
_INSERT = "INSERT INTO rows (stream, payload) VALUES (1, ?)"
_ENTRIES_SCHEMA = """CREATE TABLE entries (stream TEXT, writer INTEGER, writer_seq INTEGER, kind TEXT, payload BLOB,
    device TEXT, at_ms INTEGER, blob TEXT, relay_seq INTEGER, vouched_by TEXT)"""
_INSERT_ENTRY = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")


class BareWriter:
    """aiosqlite: an insert that is its own transaction, WAL and FULL."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self.connection = connection
        self._payload = os.urandom(PAYLOAD_BYTES)

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator["BareWriter"]:
        """Make the file."""
        async with aiosqlite.connect(path, isolation_level=None) as connection:
            for statement in (*_PRAGMAS, _SCHEMA):
                await connection.execute(statement)
            yield cls(connection)

    async def write(self) -> None:
        """Insert and commit one row."""
        await self.connection.execute_insert(_INSERT, (self._payload,))


class GroupWriter:
    """One conductor over aiosqlite: rows that wait share a transaction, and each writer is told after its commit."""

    def __init__(self, bare: BareWriter) -> None:
        self._connection = bare.connection
        self._rows: list[tuple[bytes]] = []
        self._told: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def over(cls, bare: BareWriter) -> AsyncIterator["GroupWriter"]:
        """Start a conductor over a bare writer's file."""
        writer = cls(bare)
        conductor = asyncio.create_task(writer._conduct())
        try:
            yield writer
        finally:
            conductor.cancel()

    async def write(self, payload: bytes) -> None:
        """Return once the row is committed."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rows.append((payload,))
        self._told.append(told)
        self._wake.set()
        await told

    async def _conduct(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            rows, told = self._rows, self._told
            self._rows, self._told = [], []
            # aiosqlite has no call for a whole function on its thread: one hand-over for the whole transaction.
            execute = cast(Callable[..., Awaitable[None]], self._connection._execute)
            await execute(_commit, self._connection._conn, _INSERT, rows)
            for future in told:
                future.set_result(None)


def _commit(connection: sqlite3.Connection, insert: str, rows: Sequence[tuple[object, ...]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(insert, rows)
    connection.execute("COMMIT")


def bare_ingest(path: Path, entries: Sequence[Entry]) -> None:
    """Guard and apply entries and insert all their fields, a frame's worth a transaction: what no device can leave out.

    No table has an index or a checksum, nothing is derived from the document, and no place or writer is kept.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (*_PRAGMAS, _ENTRIES_SCHEMA):
        connection.execute(statement)
    writers: dict[int, WriterRow] = {}
    document: Doc[Any] = Doc()
    for start in range(0, len(entries), _BATCH_ENTRIES):
        batch = entries[start : start + _BATCH_ENTRIES]
        for entry in batch:
            row, _ = check_entry(entry, writers)
            writers[row.writer] = row
            if entry.kind is EntryKind.UPDATE:
                document.apply_update(entry.payload)
        _commit(connection, _INSERT_ENTRY, [msgspec.structs.astuple(entry) for entry in batch])
    connection.close()


def fsync_ms(folder: Path) -> float:
    """Return the median time in milliseconds to make 4 KiB at the end of a file durable."""
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(_FSYNC_SAMPLES):
            file.write(bytes(4096))
            started = perf_counter()
            os.fsync(file.fileno())
            times.append((perf_counter() - started) * 1e3)
    return median(times)
