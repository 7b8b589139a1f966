"""What ends in a mailbox: a stream that is emptied, a task that is purged, tombstones that are old enough; and what is
due to end."""

import sqlite3
from zlib import crc32

import msgspec

from server_relay.effects import DueRead, NamedRead, ReadDue, ReadNamed
from server_relay.mailbox.key_rows import forget_keys
from server_relay.mailbox.schema import entry_place, stream_key
from server_relay.records import EmptyStream, PassTime, PurgeTask, PutTombstone, TaskSummary, Tombstone
from sync_core.completion import GivenCompletion
from sync_core.entry import CHAIN_START, Completion, Entry
from sync_core.errors import StoreDamaged

__all__ = [
    "completion_row",
    "completions_of",
    "due",
    "empty_stream",
    "named",
    "pass_time",
    "purge_task",
    "put_tombstone",
    "summary_row",
    "tombstone_of",
]

_OF_STREAM = ("entries", "writers", "covers")
_OF_TASK = ("steps", "completions", "blobs", "pieces", "grants", "approvals")
_PURGED = """FROM tombstones WHERE at_ms < ? AND NOT EXISTS (
    SELECT 1 FROM streams WHERE id BETWEEN task << 2 AND task << 2 | 3)
    AND NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.task = tombstones.task)"""

_encoder = msgspec.msgpack.Encoder()
_decode_completion = msgspec.msgpack.Decoder(Completion).decode
_decode_epochs = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode
_decode_entry = msgspec.msgpack.Decoder(Entry).decode

_Row = tuple[object, ...]


# --- writes -----------------------------------------------------------------------------------------------------------


def empty_stream(connection: sqlite3.Connection, task: int, write: EmptyStream) -> None:
    """Delete what a stream holds, and begin it anew."""
    stream = stream_key(task, write.name)
    for table in _OF_STREAM:
        connection.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
    connection.execute(
        "INSERT OR REPLACE INTO streams VALUES (?, ?, 0, ?, 1, NULL, NULL)", (stream, write.epoch, CHAIN_START)
    )
    connection.execute(
        "UPDATE tasks SET version = ?, calls_done = ?, calls_in_doubt = ?, completed = ?, stored_at_ms = ?,"
        " edited = ?, cleaned = ? WHERE id = ?",
        (*summary_row(write.summary), task),
    )


def purge_task(connection: sqlite3.Connection, task: int, write: PurgeTask) -> None:
    """Delete all of a task but its tombstone, and the keys, which are the subject's."""
    span = (task << 2, task << 2 | 3)
    connection.execute(
        "DELETE FROM entries WHERE place >= ? AND place < ?", (entry_place(task, 0), entry_place(task + 1, 0))
    )
    for table in ("writers", "covers"):
        connection.execute(f"DELETE FROM {table} WHERE stream BETWEEN ? AND ?", span)
    connection.execute("DELETE FROM streams WHERE id BETWEEN ? AND ?", span)
    for table in _OF_TASK:
        connection.execute(f"DELETE FROM {table} WHERE task = ?", (task,))
    connection.execute(
        "UPDATE tasks SET stored_no = 0, version = ?, calls_done = ?, calls_in_doubt = ?, completed = ?,"
        " stored_at_ms = ?, edited = ?, cleaned = ?, opened_version = 0, lost = 0, lists = NULL WHERE id = ?",
        (*summary_row(TaskSummary(stored_at_ms=write.tombstone.at_ms)), task),
    )
    _put_tombstone(connection, task, write.tombstone)


def put_tombstone(connection: sqlite3.Connection, task: int, write: PutTombstone) -> None:
    """Put a tombstone in place of the one that stands."""
    _put_tombstone(connection, task, write.tombstone)


def _put_tombstone(connection: sqlite3.Connection, task: int, tombstone: Tombstone) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?, ?, ?)",
        (
            task,
            tombstone.version,
            tombstone.reason,
            tombstone.at_ms,
            _encoder.encode(tombstone.epochs),
            tombstone.begun_anew,
        ),
    )


def pass_time(connection: sqlite3.Connection, write: PassTime) -> None:
    """Remember the time, and forget old tombstones together with the tasks of which nothing else was left, and old
    keys."""
    connection.execute("UPDATE clock SET relay_ms = ?", (write.now_ms,))
    before = (write.tombstones_before_ms,)
    connection.execute(f"DELETE FROM tasks WHERE stored_no = 0 AND id IN (SELECT task {_PURGED})", before)
    connection.execute("DELETE FROM tombstones WHERE at_ms < ?", before)
    forget_keys(connection, write.keys_before_ms)


def completion_row(task: int, given: GivenCompletion) -> _Row:
    """Return a row of `completions`."""
    return (task, given.writer, given.writer_seq, given.device, _encoder.encode(given.record))


def summary_row(summary: TaskSummary) -> _Row:
    """Return a summary's columns: version, calls_done, calls_in_doubt, completed, stored_at_ms, edited, cleaned."""
    return (
        summary.version,
        summary.calls_done,
        summary.calls_in_doubt,
        summary.completed,
        summary.stored_at_ms,
        summary.edited,
        summary.cleaned,
    )


# --- reads ------------------------------------------------------------------------------------------------------------


def completions_of(connection: sqlite3.Connection, task: int) -> tuple[GivenCompletion, ...]:
    """Return the completions of a task."""
    rows = connection.execute(
        "SELECT record, device, writer, writer_seq FROM completions WHERE task = ? ORDER BY writer, writer_seq", (task,)
    )
    return tuple(GivenCompletion(_decode_completion(record), *name) for record, *name in rows)


def tombstone_of(connection: sqlite3.Connection, task: int) -> Tombstone | None:
    """Return the tombstone that stands beside a task."""
    row = connection.execute(
        "SELECT version, reason, at_ms, epochs, begun_anew FROM tombstones WHERE task = ?", (task,)
    ).fetchone()
    return None if row is None else Tombstone(row[0], row[1], row[2], _decode_epochs(row[3]), bool(row[4]))


def named(connection: sqlite3.Connection, task: int | None, read: ReadNamed) -> NamedRead:
    """Return the blobs that a task's entries name; raises `StoreDamaged` for an entry whose checksum fails."""
    found: set[str] = set()
    if task is not None:
        rows = connection.execute(
            "SELECT checksum, wire FROM entries WHERE place >= ? AND place < ? AND stream != ?",
            (entry_place(task, 0), entry_place(task + 1, 0), stream_key(task, read.without)),
        )
        for checksum, wire in rows:
            if crc32(wire) != checksum:
                raise StoreDamaged("An entry of the relay's log is damaged.", hint="Stop the relay, restore a backup.")
            if (blob := _decode_entry(wire).blob) is not None:
                found.add(blob)
    return NamedRead(read.subject, read.task, frozenset(found))


def due(connection: sqlite3.Connection, read: ReadDue) -> DueRead:
    """Return the tasks that are due, the oldest first."""
    rows = connection.execute(
        "SELECT subject, task FROM ("
        "SELECT * FROM (SELECT subject, task, stored_at_ms, id FROM tasks WHERE stored_no > 0 AND stored_at_ms < ?1"
        " ORDER BY stored_at_ms LIMIT ?3) UNION "
        "SELECT * FROM (SELECT subject, task, stored_at_ms, id FROM tasks WHERE stored_no > 0 AND completed"
        " AND NOT edited AND NOT cleaned AND stored_at_ms < ?2 ORDER BY stored_at_ms LIMIT ?3)"
        ") ORDER BY stored_at_ms, id LIMIT ?3",
        (read.expire_before_ms, read.clean_before_ms, read.tasks_max + 1),
    ).fetchall()
    return DueRead(tuple(rows[: read.tasks_max]), len(rows) > read.tasks_max)
