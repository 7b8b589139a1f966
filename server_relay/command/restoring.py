"""How a backup takes a store's place (rule J): checked, copied, marked as restored, and only then under its name."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from server_relay.mailbox.copying import copy_file, sync_folder
from server_relay.mailbox.schema import connect_read_only
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.mailbox.verifying import verify_file
from sync_core.errors import StoreDamaged, StoreInUse, StoreUnusable

__all__ = ["restore"]

_REPLACED_MAX = 1_000
_LOCK_FROM, _LOCK_BYTES = 0x4000_0000, 512
"""Where SQLite locks a file. A relay's lock covers all of it as long as it runs."""


def restore(db: Path, backup: Path) -> Path | None:
    """Put a backup in the place of a store; return where the store that was there is kept now, None if there was none.

    Every stream gets a new epoch and every barrier is raised, so that devices bring back what the backup lacks and no
    key is granted twice: a task that begins behind its subject's barrier may have been lost with the log. The store
    that is there need not be readable. Raises `StoreInUse` if a relay has it, `StoreDamaged` if the backup is not
    sound, `StoreUnusable` if a file cannot be written.
    """
    if db.is_symlink() or (db.exists() and backup.exists() and db.samefile(backup)):
        raise StoreUnusable("The backup and the store are one file.", hint="Name the store with --db.")
    with _held(db):
        problems = verify_file(backup).problems
        if problems:
            raise StoreDamaged(f"The backup is not sound: {problems[0]}", hint="segue relay verify tells more.")
        fresh = db.with_name(f"{db.name}.restoring")
        _remove(fresh)
        try:
            _copy(backup, fresh)
            asyncio.run(_mark(fresh))
            return _take_the_place(fresh, db)
        except OSError as error:
            raise StoreUnusable(f"The store cannot be restored: {os.strerror(error.errno or 0)}.") from None
        finally:
            _remove(fresh)


@contextmanager
def _held(db: Path) -> Iterator[None]:
    """Hold the lock of a store, so that no relay opens it; raises `StoreInUse` if one has it."""
    try:
        import fcntl
    except ImportError:
        # Where there are no such locks, a file that is open cannot be renamed either.
        yield
        return
    if not db.exists():
        yield
        return
    try:
        with open(db, "rb+") as locked:
            fcntl.lockf(locked, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_FROM)
            yield
    except BlockingIOError:
        raise StoreInUse("A relay has the store open.", owner_pid=None, hint="Stop it first.") from None
    except OSError as error:
        raise StoreUnusable(f"The store cannot be opened: {os.strerror(error.errno or 0)}.") from None


def _copy(backup: Path, fresh: Path) -> None:
    original = connect_read_only(backup)
    try:
        copy_file(original, fresh, lambda: True)
    finally:
        original.close()


async def _mark(fresh: Path) -> None:
    mailbox = await SqliteMailbox.open(fresh)
    try:
        await mailbox.mark_restored(os.urandom, time.time_ns() // 1_000_000)
    finally:
        await mailbox.close()


def _take_the_place(fresh: Path, db: Path) -> Path | None:
    """Give the new store its name; the one that has it is kept under another, with its log."""
    # A log that lies here alone would be taken for the new store's own.
    replaced = _set_aside(db) if db.exists() or _log_of(db).exists() else None
    try:
        # Unlike a rename it takes the place of nothing: not even of what a relay would make here just now.
        os.link(fresh, db)
    except OSError:
        if replaced is not None and not db.exists():
            _rename(replaced, db)
        raise
    sync_folder(db.absolute().parent)
    return replaced


def _set_aside(db: Path) -> Path:
    for number in range(1, _REPLACED_MAX):
        replaced = db.with_name(f"{db.name}.replaced-{number}")
        if not replaced.exists() and not _log_of(replaced).exists():
            _rename(db, replaced)
            return replaced
    raise StoreUnusable("Too many replaced stores lie beside this one.", hint="Remove those that are not needed.")


def _rename(db: Path, to: Path) -> None:
    for before, after in ((db, to), (_log_of(db), _log_of(to))):
        with suppress(FileNotFoundError):
            os.rename(before, after)


def _remove(fresh: Path) -> None:
    for leftover in (fresh, _log_of(fresh)):
        with suppress(FileNotFoundError):
            leftover.unlink()


def _log_of(db: Path) -> Path:
    return db.with_name(f"{db.name}-wal")
