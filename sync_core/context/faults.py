"""SQLite's errors become Segue's: what the caller can do about it decides which."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sync_core.errors import SegueError, StoreDamaged, StoreFull, StoreInUse, StoreUnusable

__all__ = ["store_errors"]

_UNREADABLE = frozenset(
    {
        sqlite3.SQLITE_IOERR_READ,
        sqlite3.SQLITE_IOERR_SHORT_READ,
        sqlite3.SQLITE_IOERR_CORRUPTFS,
    }
)


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise `StoreFull`, `StoreDamaged`, `StoreInUse` or `StoreUnusable` for what SQLite raises about the file.

    Anything else is an error in this program and passes as it is.
    """
    try:
        yield
    except sqlite3.Error as error:
        translated = _translate(error)
        if translated is None:
            raise
        raise translated from error


def _translate(error: sqlite3.Error) -> SegueError | None:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    primary = code & 0xFF
    if code in _UNREADABLE or primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged("The store's file cannot be read.")
    if primary == sqlite3.SQLITE_FULL:
        return StoreFull("The store has reached its bound, or the disk is full.")
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
        return StoreFull("The disk did not take the write.", hint="Free or repair the disk, then try again.")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreInUse("Another program holds the store's file.", owner_pid=None)
    if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreUnusable("The store's file cannot be opened.")
    return None
