"""The file's schema: named migrations in order, each in one transaction together with its own record.

A name, once released, never changes and is never removed. A file that records a name which is not in this list was
written by a newer version: it is refused and left as it is.
"""

from typing import NamedTuple

from sync_core.context.rows import SqlConnection, SqlValue
from sync_core.context.transaction import transaction
from sync_core.errors import StoreUnusable

__all__ = ["APPLICATION_ID", "MIGRATIONS", "Migration", "identify", "migrate", "record_device"]

APPLICATION_ID = 0x53454755
"""Stands in the file's header: «SEGU»."""


class Migration(NamedTuple):
    """One step of the schema. A statement may use `?` once, for the subject."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS = (
    Migration(
        "0001 tasks",
        (
            f"PRAGMA application_id = {APPLICATION_ID}",
            "CREATE TABLE migrations (name TEXT PRIMARY KEY) WITHOUT ROWID",
            "CREATE TABLE store (subject TEXT NOT NULL, device TEXT NOT NULL DEFAULT '')",
            "INSERT INTO store (subject) VALUES (?)",
            "CREATE TABLE followed (task TEXT PRIMARY KEY) WITHOUT ROWID",
            """CREATE TABLE positions (
                stream TEXT PRIMARY KEY, epoch BLOB NOT NULL, cursor INTEGER NOT NULL, chain BLOB NOT NULL,
                checksum INTEGER NOT NULL) WITHOUT ROWID""",
            """CREATE TABLE writers (
                stream TEXT NOT NULL, writer INTEGER NOT NULL, device TEXT NOT NULL, next_clock INTEGER NOT NULL,
                next_seq INTEGER NOT NULL, closed INTEGER NOT NULL, checksum INTEGER NOT NULL,
                PRIMARY KEY (stream, writer)) WITHOUT ROWID""",
            # `local` is the order of commits. `code` is set on quarantined entries.
            """CREATE TABLE entries (
                local INTEGER PRIMARY KEY, stream TEXT NOT NULL, writer INTEGER NOT NULL, writer_seq INTEGER NOT NULL,
                kind TEXT NOT NULL, device TEXT NOT NULL, at_ms INTEGER NOT NULL, blob TEXT, vouched_by TEXT,
                checksum INTEGER NOT NULL, relay_seq INTEGER, rank INTEGER, own INTEGER NOT NULL, code TEXT,
                payload BLOB NOT NULL)""",
            "CREATE UNIQUE INDEX entries_by_name ON entries (stream, writer, writer_seq)",
            # The two partial indexes are what a restart reads, however long the streams are.
            "CREATE INDEX entries_without_number ON entries (stream) WHERE relay_seq IS NULL",
            "CREATE INDEX own_entries_by_place ON entries (stream, relay_seq) WHERE own AND relay_seq IS NOT NULL",
            # Own writers whose rows were compacted, set aside or discarded.
            """CREATE TABLE own_writers (
                stream TEXT NOT NULL, writer INTEGER NOT NULL, PRIMARY KEY (stream, writer)) WITHOUT ROWID""",
            """CREATE TABLE set_aside (
                id INTEGER PRIMARY KEY, stream TEXT NOT NULL, writer INTEGER NOT NULL, writer_seq INTEGER NOT NULL,
                kind TEXT NOT NULL, device TEXT NOT NULL, at_ms INTEGER NOT NULL, blob TEXT, vouched_by TEXT,
                checksum INTEGER NOT NULL, relay_seq INTEGER, code TEXT NOT NULL, sentence TEXT NOT NULL,
                payload BLOB NOT NULL)""",
            "CREATE INDEX set_aside_by_stream ON set_aside (stream)",
            # `zipped` is the size of the document before it was zipped, 0 if it is not (1 in files of early versions).
            """CREATE TABLE documents (
                stream TEXT PRIMARY KEY, covers_seq INTEGER NOT NULL, zipped INTEGER NOT NULL, writers BLOB NOT NULL,
                chain BLOB NOT NULL, checksum INTEGER NOT NULL, document BLOB NOT NULL)""",
            # A blob's bytes stand apart, so that its state changes without their being written again.
            """CREATE TABLE blobs (
                id INTEGER PRIMARY KEY, task TEXT NOT NULL, sha256 TEXT NOT NULL, size_bytes INTEGER NOT NULL,
                upload INTEGER NOT NULL)""",
            "CREATE UNIQUE INDEX blobs_by_name ON blobs (task, sha256)",
            "CREATE TABLE blob_bytes (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
            """CREATE TABLE pins (
                id INTEGER PRIMARY KEY, task TEXT NOT NULL, note TEXT NOT NULL, sha256 TEXT NOT NULL,
                relay_time_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, state BLOB NOT NULL)""",
            "CREATE UNIQUE INDEX pins_by_name ON pins (task, note, sha256)",
            "CREATE INDEX pins_by_age ON pins (relay_time_ms)",
        ),
    ),
    Migration(
        "0002 tombstones",
        (
            """CREATE TABLE tombstones (
                task TEXT PRIMARY KEY, version INTEGER NOT NULL, reason TEXT NOT NULL, epochs BLOB NOT NULL,
                set_aside INTEGER NOT NULL, told INTEGER NOT NULL, relay_time_ms INTEGER NOT NULL,
                checksum INTEGER NOT NULL) WITHOUT ROWID""",
        ),
    ),
)


def identify(connection: SqlConnection, subject: str, device: str | None = None) -> bool:
    """Return whether the file is new. Raises `StoreUnusable`, before anything is written, if it is not ours to use.

    The relay takes a writer's entries from its device alone, so a file goes on under the device that it began with.
    """
    if _one(connection, "SELECT count(*) FROM sqlite_master") == 0:
        return True
    if _one(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise StoreUnusable("The file is a database, but not a store of Segue.")
    known = {migration.name for migration in MIGRATIONS}
    if not _applied(connection) <= known:
        raise StoreUnusable(
            "The store was written by a newer version of Segue.",
            hint="Use that version; nothing in the file was changed.",
        )
    if _one(connection, "SELECT subject FROM store") != subject:
        raise StoreUnusable(
            "The store belongs to another subject.", hint="Use one file for each subject; name the right one."
        )
    owner = str(_one(connection, "SELECT device FROM store"))
    if device is not None and owner not in ("", device):
        raise StoreUnusable(
            f"The store belongs to the device {owner}.", hint="Open it under that name, or start a new file."
        )
    return False


def record_device(connection: SqlConnection, device: str) -> None:
    """Let the file belong to this device from now on, if it belongs to none."""
    if _one(connection, "SELECT device FROM store") == "":
        connection.execute("UPDATE store SET device = ?", (device,))


def migrate(connection: SqlConnection, subject: str, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Apply what the file does not record yet; each migration is there whole, or not at all."""
    new = _one(connection, "SELECT count(*) FROM sqlite_master") == 0
    applied = frozenset() if new else _applied(connection)
    for migration in migrations:
        if migration.name not in applied:
            with transaction(connection):
                _apply(connection, migration, subject)


def _apply(connection: SqlConnection, migration: Migration, subject: str) -> None:
    for statement in migration.statements:
        connection.execute(statement, (subject,) if "?" in statement else ())
    connection.execute("INSERT INTO migrations (name) VALUES (?)", (migration.name,))


def _applied(connection: SqlConnection) -> frozenset[SqlValue]:
    return frozenset(row[0] for row in connection.execute("SELECT name FROM migrations"))


def _one(connection: SqlConnection, sql: str) -> SqlValue:
    return next(connection.execute(sql))[0]
