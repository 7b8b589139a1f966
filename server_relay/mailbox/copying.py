"""A copy of a mailbox's file while the mailbox goes on, and the room that deleted rows have left.

The relay's connection is the only one that the file may have (rule G), so the copy is made through it, some pages at a
time. Between two portions whatever waits is carried out; SQLite brings into the copy what is written meanwhile through
the same connection, so the copy is the file as it is when the last portion is done.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sync_core.errors import Closed, StoreUnusable

__all__ = ["PORTION_PAGES", "compact_file", "copy_file", "sync_folder"]

PORTION_PAGES = 256
"""Pages that are copied before what waits is carried out: a mebibyte."""


def copy_file(connection: sqlite3.Connection, to: Path, between: Callable[[], bool]) -> int:
    """Copy the database to a new file, mode 0600, fsynced under its name only when it is whole; return its bytes.

    `between` carries out what waits and returns whether to go on. Raises `StoreUnusable` if the file is there already
    or cannot be written, `Closed` if the mailbox is closed first.
    """
    part = to.with_name(f"{to.name}.part")
    if to.exists() or to.is_symlink():
        raise StoreUnusable("The backup's file is there already.", hint="Name a new file.")
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise StoreUnusable(
            "Another backup to this file is under way, or was broken off.", hint=f"Remove {part.name} if none is."
        ) from None
    except OSError as error:
        raise _unwritable(error) from None
    try:
        _copy(connection, part, between)
        with open(part, "rb") as whole:
            os.fsync(whole.fileno())
        os.link(part, to)
        sync_folder(to.absolute().parent)
    except OSError as error:
        raise _unwritable(error) from None
    finally:
        for leftover in (part, part.with_name(f"{part.name}-journal")):
            with suppress(OSError):
                leftover.unlink()
    return to.stat().st_size


def _copy(connection: sqlite3.Connection, part: Path, between: Callable[[], bool]) -> None:
    def progress(status: int, remaining: int, total: int) -> None:
        if not between():
            raise Closed("The relay stops; the backup was broken off.")

    try:
        target = sqlite3.connect(part, isolation_level=None)
    except sqlite3.Error:
        raise StoreUnusable("The backup cannot be written.") from None
    try:
        connection.backup(target, pages=PORTION_PAGES, progress=progress)
        # One file that can be carried about, with no log beside it.
        target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        raise StoreUnusable("The backup cannot be written.", hint="Is there room on its disk?") from None
    finally:
        target.close()


def _unwritable(error: OSError) -> StoreUnusable:
    return StoreUnusable(f"The backup cannot be written: {os.strerror(error.errno or 0)}.")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where a system lets a folder be synced."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def compact_file(connection: sqlite3.Connection) -> None:
    """Write the database anew without the room that deleted rows have left. Needs that much room once more; nothing
    else is done meanwhile."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
