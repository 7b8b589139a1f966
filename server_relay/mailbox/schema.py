"""The mailbox's file: its tables, who may open it, and what SQLite's errors mean to a relay (rule G).

Ids are computed, so that nothing is looked up for them: a stream's id is its task's and its name's number, an entry's
row id is its task's and its stored_no; a task's entries lie in stored order.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sync_core.errors import SegueError, StoreDamaged, StoreFull, StoreInUse, StoreUnusable
from sync_core.ids import StreamName

__all__ = [
    "NAMES",
    "STORED_NO_BITS",
    "connect",
    "connect_read_only",
    "entry_place",
    "mailbox_errors",
    "stream_key",
    "transaction",
]

_APPLICATION_ID = 0x53654752
_BUSY_TIMEOUT_S = 0.5
_LOG_BYTES = 16 * 1024 * 1024
_CACHE_KIB = 16 * 1024

STORED_NO_BITS = 32
NAMES = (StreamName.STATE, StreamName.HISTORY, StreamName.HANDOVER, StreamName.AUTHORITY)
_NUMBER_OF_NAME = {name: number for number, name in enumerate(NAMES)}

_TABLES = """
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY, subject TEXT NOT NULL, task TEXT NOT NULL, stored_no INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1, calls_done INTEGER NOT NULL DEFAULT 0,
    calls_in_doubt INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0,
    stored_at_ms INTEGER NOT NULL DEFAULT 0, UNIQUE (subject, task));
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, epoch BLOB NOT NULL, head INTEGER NOT NULL, chain BLOB NOT NULL,
    tail_from INTEGER NOT NULL, usable BLOB, offered BLOB);
CREATE TABLE entries (
    place INTEGER PRIMARY KEY, stream INTEGER NOT NULL, relay_seq INTEGER NOT NULL, writer INTEGER NOT NULL,
    writer_seq INTEGER NOT NULL, content_hash BLOB NOT NULL, chain BLOB NOT NULL, checksum INTEGER NOT NULL,
    wire BLOB NOT NULL);
CREATE UNIQUE INDEX entries_by_relay_seq ON entries (stream, relay_seq);
CREATE UNIQUE INDEX entries_by_writer_seq ON entries (stream, writer, writer_seq);
CREATE TABLE writers (
    stream INTEGER NOT NULL, writer INTEGER NOT NULL, device TEXT NOT NULL, next_clock INTEGER NOT NULL,
    next_seq INTEGER NOT NULL, closed INTEGER NOT NULL, principal TEXT NOT NULL, PRIMARY KEY (stream, writer)
) WITHOUT ROWID;
CREATE TABLE covers (
    stream INTEGER NOT NULL, writer INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    relay_seq INTEGER NOT NULL, PRIMARY KEY (stream, writer, first_seq)) WITHOUT ROWID;
CREATE TABLE steps (
    task INTEGER NOT NULL, version INTEGER NOT NULL, step TEXT NOT NULL, planned INTEGER NOT NULL, tool TEXT NOT NULL,
    requires TEXT NOT NULL, done INTEGER NOT NULL, open TEXT NOT NULL, PRIMARY KEY (task, version, step)) WITHOUT ROWID;
CREATE INDEX steps_waiting ON steps (task, version, step) WHERE planned AND NOT done;
CREATE TABLE blobs (
    task INTEGER NOT NULL, sha256 TEXT NOT NULL, size_bytes INTEGER NOT NULL, held_bytes INTEGER NOT NULL,
    complete INTEGER NOT NULL, absent INTEGER NOT NULL, PRIMARY KEY (task, sha256)) WITHOUT ROWID;
CREATE TABLE pieces (
    id INTEGER PRIMARY KEY, task INTEGER NOT NULL, sha256 TEXT NOT NULL, offset INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (task, sha256, offset));
"""

_LIFECYCLE = """
ALTER TABLE tasks ADD COLUMN edited INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN cleaned INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tasks_by_age ON tasks (stored_at_ms) WHERE stored_no > 0;
CREATE INDEX tasks_to_clean ON tasks (stored_at_ms) WHERE stored_no > 0 AND completed AND NOT edited AND NOT cleaned;
CREATE TABLE completions (
    task INTEGER NOT NULL, writer INTEGER NOT NULL, writer_seq INTEGER NOT NULL, device TEXT NOT NULL,
    record BLOB NOT NULL, PRIMARY KEY (task, writer, writer_seq)) WITHOUT ROWID;
CREATE TABLE tombstones (
    task INTEGER PRIMARY KEY, version INTEGER NOT NULL, reason TEXT NOT NULL, at_ms INTEGER NOT NULL,
    epochs BLOB NOT NULL, begun_anew INTEGER NOT NULL);
CREATE INDEX tombstones_by_age ON tombstones (at_ms);
CREATE TABLE clock (relay_ms INTEGER NOT NULL);
INSERT INTO clock VALUES (0);
"""

# `lists` holds what else guards a task, packed, NULL where there is nothing; `row` is the packed row.
_GUARD = """
ALTER TABLE tasks ADD COLUMN opened_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN lists BLOB;
UPDATE tasks SET opened_version = version;
CREATE TABLE subjects (
    subject TEXT PRIMARY KEY, era INTEGER NOT NULL, barrier INTEGER NOT NULL, opened INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE keys (
    subject TEXT NOT NULL, place TEXT NOT NULL, tool TEXT NOT NULL, label TEXT NOT NULL, state TEXT NOT NULL,
    task TEXT NOT NULL, entity INTEGER NOT NULL, ended_ms INTEGER, row BLOB NOT NULL, PRIMARY KEY (subject, place)
) WITHOUT ROWID;
CREATE INDEX keys_by_task ON keys (subject, task);
CREATE INDEX keys_by_end ON keys (ended_ms) WHERE ended_ms IS NOT NULL;
CREATE INDEX keys_by_label ON keys (subject, tool, label) WHERE label != '';
CREATE TABLE grants (
    task INTEGER NOT NULL, attempt TEXT NOT NULL, place TEXT NOT NULL, row BLOB NOT NULL, PRIMARY KEY (task, attempt)
) WITHOUT ROWID;
CREATE TABLE approvals (
    task INTEGER NOT NULL, version INTEGER NOT NULL, step TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT NOT NULL,
    principal TEXT NOT NULL, approved INTEGER NOT NULL, relay_seq INTEGER NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (task, version, step, tool, digest, principal)) WITHOUT ROWID;
"""

_STEPS = (_TABLES, _LIFECYCLE, _GUARD)
"""The schema, version by version: a file of an earlier one is brought up to date when it is opened."""


def stream_key(task: int, name: StreamName) -> int:
    """Return the id of a task's stream."""
    return task << 2 | _NUMBER_OF_NAME[name]


def entry_place(task: int, stored_no: int) -> int:
    """Return the row id of a task's entry."""
    return task << STORED_NO_BITS | stored_no


def connect(path: Path, store_bytes_max: int | None) -> sqlite3.Connection:
    """Open a mailbox's file, or make it, mode 0600; nobody else can open it before the connection is closed.

    Raises `StoreInUse` if another process has it, `StoreUnusable` if it is no mailbox of ours.
    """
    _make_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        # One connection per process, and no second process: the lock ends with this one, however that ends.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        _identify(connection)
        # Only now is it known to be ours.
        os.chmod(path, 0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # Many tasks' pages are written again and again: the longer the log, the fewer of them are copied twice.
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // page_bytes}")
        if store_bytes_max is not None:
            connection.execute(f"PRAGMA max_page_count = {max(1, store_bytes_max // page_bytes)}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Make what is done inside one transaction: all of it is kept, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a mailbox's file to be looked at: nothing in it is changed, not even its version.

    Raises `StoreInUse` if a relay has it, `StoreUnusable` if it is no mailbox of ours, `StoreDamaged` if it cannot be
    read.
    """
    if not path.is_file():
        raise StoreUnusable("There is no such file.", hint="Name a relay's store, or a backup of one.")
    # Without a log nobody has it open and all of it is in the one file; else SQLite would put an empty log beside it.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    with mailbox_errors():
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if application != _APPLICATION_ID or not 0 < version <= len(_STEPS):
                raise StoreUnusable("The file is not a relay's store of this version.", hint="Name another file.")
        except BaseException:
            connection.close()
            raise
    return connection


def _make_private(path: Path) -> None:
    """Make a missing file and its folder for this user alone; a symbolic link is refused.

    An existing file is never opened here: closing it again would free the locks that SQLite holds on it.
    """
    if path.is_symlink():
        raise StoreUnusable("The relay's store is a symbolic link.", hint="Name the file itself.")
    try:
        folder = path.absolute().parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode
        if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise StoreUnusable("Anybody may replace files in the store's folder.", hint="Take others' right to write.")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.chmod(path, 0o600)
        if not path.is_file():
            raise StoreUnusable("The relay's store is not a regular file.")
    except OSError as error:
        raise StoreUnusable(f"The relay's store cannot be opened: {os.strerror(error.errno or 0)}.") from None


def _identify(connection: sqlite3.Connection) -> None:
    """Make the tables of a new file, or what an earlier version lacks; refuse a file that is no mailbox of ours."""
    connection.execute("BEGIN EXCLUSIVE")
    application, version, tables = (
        connection.execute(question).fetchone()[0]
        for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if (application, version, tables) == (0, 0, 0):
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    elif application != _APPLICATION_ID:
        raise StoreUnusable("The file is not a relay's store.", hint="Name another file with --db.")
    elif not 0 < version <= len(_STEPS):
        raise StoreUnusable("The relay's store is of another version.", hint="Use the version that wrote it.")
    for step in _STEPS[version:]:
        for statement in step.split(";"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(_STEPS)}")
    connection.execute("COMMIT")


@contextmanager
def mailbox_errors() -> Iterator[None]:
    """Raise a `SegueError` for what SQLite raises about the file; an error in this program passes as it is."""
    try:
        yield
    except sqlite3.Error as error:
        translated = _translate(error)
        if translated is None:
            raise
        raise translated from error


def _translate(error: sqlite3.Error) -> SegueError | None:
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged("The relay's store cannot be read.", hint="Stop the relay and restore a backup.")
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return StoreDamaged("Two entries claim one place of the log.", hint="Report it; nothing was stored.")
    if primary == sqlite3.SQLITE_FULL:
        return StoreFull("The relay's store has reached its bound, or the disk is full.")
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
        return StoreFull("The disk did not take the write.", hint="Free or repair the disk; no restart is needed.")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreInUse(
            "Another process has the relay's store open.", owner_pid=None, hint="Stop it, or name another --db."
        )
    if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreUnusable("The relay's store cannot be opened.")
    return None
