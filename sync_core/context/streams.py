"""Writes that reach over a whole stream: an entry set aside, a new epoch, a truncation, a compaction, a dropped task.

Each is a few statements inside the commit's transaction; none depends on the time.
"""

from sync_core.context.rows import (
    ENTRY_COLUMNS,
    KEPT_COLUMNS,
    Compacted,
    Position,
    SqlConnection,
    SqlRow,
    compacted_of,
    compacted_values,
    kept_entry,
    position_of,
    position_values,
    task_span,
    writer_values,
)
from sync_core.replica.writes import CompactStream, DropTask, EmptyStream, SetAside, StartEpoch, TruncateStream

__all__ = [
    "DISCARD_ENTRY",
    "PUT_POSITION",
    "PUT_WRITER",
    "compact",
    "drop_task",
    "empty_stream",
    "keep_own_writers",
    "set_aside",
    "start_epoch",
    "truncate",
]

PUT_POSITION = "INSERT OR REPLACE INTO positions (stream, epoch, cursor, chain, checksum) VALUES (?, ?, ?, ?, ?)"
PUT_WRITER = """INSERT OR REPLACE INTO writers (stream, writer, device, next_clock, next_seq, closed, checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
DISCARD_ENTRY = "DELETE FROM entries WHERE stream = ? AND writer = ? AND writer_seq = ? AND own AND relay_seq IS NULL"

_FREED_PAGES_MAX = 8_192
"""Pages given back by one commit, so that a huge task does not hold up the next commit; later writes use the rest."""

_RANK = """UPDATE entries SET rank = old.place, relay_seq = NULL FROM (
        SELECT local, row_number() OVER (ORDER BY relay_seq IS NULL, relay_seq, rank IS NULL, rank, local) AS place
        FROM entries WHERE stream = ? AND (relay_seq IS NOT NULL OR rank IS NOT NULL)) AS old
    WHERE entries.local = old.local"""


def keep_own_writers(connection: SqlConnection, stream: str) -> None:
    """Remember which writers of a stream are this device's, before rows of theirs go."""
    connection.execute(
        """INSERT OR IGNORE INTO own_writers (stream, writer)
            SELECT stream, writer FROM entries WHERE stream = ? AND own""",
        (stream,),
    )


def set_aside(connection: SqlConnection, write: SetAside) -> None:
    """Move an entry out of the stream, with the reason."""
    name = (write.stream, write.writer, write.writer_seq)
    keep_own_writers(connection, write.stream)
    connection.execute(
        f"""INSERT INTO set_aside ({ENTRY_COLUMNS}, relay_seq, code, sentence)
            SELECT {ENTRY_COLUMNS}, relay_seq, ?, ? FROM entries WHERE stream = ? AND writer = ? AND writer_seq = ?""",
        (write.code, write.sentence, *name),
    )
    connection.execute("DELETE FROM entries WHERE stream = ? AND writer = ? AND writer_seq = ?", name)


def start_epoch(connection: SqlConnection, write: StartEpoch) -> None:
    """Turn places of the old log into ranks."""
    connection.execute(_RANK, (write.stream,))
    connection.execute(PUT_POSITION, position_values(write.stream, Position(epoch=write.epoch)))
    connection.execute("DELETE FROM writers WHERE stream = ?", (write.stream,))
    connection.execute("UPDATE documents SET covers_seq = 0 WHERE stream = ?", (write.stream,))
    connection.execute("UPDATE blobs SET upload = 1 WHERE task = ?", (write.stream.rpartition(":")[0],))


def truncate(connection: SqlConnection, write: TruncateStream) -> None:
    """Forget what lies above a place; the relay sends it again."""
    above = (write.stream, write.after_seq)
    keep_own_writers(connection, write.stream)
    # A damaged row has to go before its number does: without one it would look like work that was never sent.
    damaged = _damaged_above(connection, above)
    connection.executemany("DELETE FROM entries WHERE local = ?", damaged)
    connection.execute(
        "DELETE FROM entries WHERE stream = ? AND relay_seq > ? AND (NOT own OR code IS NOT NULL)", above
    )
    connection.execute("UPDATE entries SET relay_seq = NULL, rank = NULL WHERE stream = ? AND relay_seq > ?", above)
    position = _position(connection, write.stream)._replace(cursor=write.after_seq, chain=write.chain)
    connection.execute(PUT_POSITION, position_values(write.stream, position))
    connection.execute("DELETE FROM writers WHERE stream = ?", (write.stream,))
    connection.executemany(PUT_WRITER, [writer_values(write.stream, row) for row in write.writers])
    if _covers_more(connection, write):
        connection.execute("DELETE FROM documents WHERE stream = ?", (write.stream,))


def _damaged_above(connection: SqlConnection, above: tuple[str, int]) -> list[SqlRow]:
    rows = connection.execute(
        f"SELECT {KEPT_COLUMNS} FROM entries WHERE stream = ? AND relay_seq > ? AND own AND relay_seq IS NOT NULL",
        above,
    )
    return [(kept.local,) for kept in map(kept_entry, rows) if kept.entry is None]


def _position(connection: SqlConnection, stream: str) -> Position:
    rows = connection.execute(
        "SELECT stream, epoch, cursor, chain, checksum FROM positions WHERE stream = ?", (stream,)
    )
    row = next(rows, None)
    return Position() if row is None else position_of(row)[1]


def _covers_more(connection: SqlConnection, write: TruncateStream) -> bool:
    rows = connection.execute(
        "SELECT covers_seq, document, zipped, writers, chain, checksum FROM documents WHERE stream = ?", (write.stream,)
    )
    row = next(rows, None)
    if row is None:
        return False
    covers_seq = row[0]
    return not isinstance(covers_seq, int) or covers_seq > write.after_seq or compacted_of(row[1:]) is None


def compact(connection: SqlConnection, write: CompactStream, compress: bool) -> None:
    """Put one row in place of the updates that it covers, and give the room back."""
    keep_own_writers(connection, write.stream)
    connection.execute(
        """DELETE FROM entries
            WHERE stream = ? AND relay_seq <= ? AND code IS NULL AND kind IN ('update', 'snapshot')""",
        (write.stream, write.covers_seq),
    )
    content = Compacted(write.document, write.writers, write.chain)
    connection.execute(
        """INSERT OR REPLACE INTO documents (stream, covers_seq, document, zipped, writers, chain, checksum)
            VALUES (?, ?, ?, ?, ?, ?, ?)""",
        (write.stream, write.covers_seq, *compacted_values(content, compress)),
    )
    _give_room_back(connection)


def drop_task(connection: SqlConnection, write: DropTask) -> None:
    """Delete all of a task but what was set aside."""
    for table in ("entries", "positions", "writers", "documents", "own_writers"):
        connection.execute(f"DELETE FROM {table} WHERE stream >= ? AND stream < ?", task_span(write.task))
    _drop_unnamed_blobs(connection, write.task)
    for table in ("pins", "followed"):
        connection.execute(f"DELETE FROM {table} WHERE task = ?", (write.task,))
    _give_room_back(connection)


def empty_stream(connection: SqlConnection, write: EmptyStream) -> None:
    """Delete what a stream holds of a log that was emptied, and what only that named."""
    keep_own_writers(connection, write.stream)
    connection.execute(
        """DELETE FROM entries
            WHERE stream = ? AND (relay_seq IS NOT NULL OR rank IS NOT NULL OR code IS NOT NULL)""",
        (write.stream,),
    )
    for table in ("documents", "writers"):
        connection.execute(f"DELETE FROM {table} WHERE stream = ?", (write.stream,))
    connection.execute(PUT_POSITION, position_values(write.stream, Position(epoch=write.epoch)))
    _drop_unnamed_blobs(connection, write.stream.rpartition(":")[0])
    _give_room_back(connection)


def _drop_unnamed_blobs(connection: SqlConnection, task: str) -> None:
    """Delete the blobs of a task that no entry names, set aside or not."""
    unnamed = """FROM blobs WHERE task = ?1 AND sha256 NOT IN (
        SELECT blob FROM entries WHERE stream >= ?2 AND stream < ?3 AND blob IS NOT NULL
        UNION SELECT blob FROM set_aside WHERE stream >= ?2 AND stream < ?3 AND blob IS NOT NULL)"""
    names = (task, *task_span(task))
    connection.execute(f"DELETE FROM blob_bytes WHERE id IN (SELECT id {unnamed})", names)
    connection.execute(f"DELETE {unnamed}", names)


def _give_room_back(connection: SqlConnection) -> None:
    ((free_pages,),) = connection.execute("PRAGMA freelist_count")
    assert isinstance(free_pages, int)
    # Each step of this statement frees one page, and sqlite3 takes no second step where there are no columns.
    for _ in range(min(free_pages, _FREED_PAGES_MAX)):
        connection.execute("PRAGMA incremental_vacuum(1)")
