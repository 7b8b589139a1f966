"""How a mailbox carries out writes: one transaction, rows of all tasks together."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from zlib import crc32

import msgspec

from server_relay.mailbox.key_rows import end_keys, lower_barrier, put_guard, put_keys
from server_relay.mailbox.lifetimes import (
    completion_row,
    empty_stream,
    pass_time,
    purge_task,
    put_tombstone,
    summary_row,
)
from server_relay.mailbox.schema import entry_place, stream_key, transaction
from server_relay.records import (
    AppendStored,
    DropBlob,
    EmptyStream,
    EndKeys,
    LowerBarrier,
    MailboxWrite,
    PassTime,
    PurgeTask,
    PutGuard,
    PutKeys,
    PutPiece,
    PutTombstone,
    SetBlobAbsent,
    SetSnapshots,
    StartStream,
)
from sync_core.entry import CHAIN_START
from sync_core.frames import SnapshotRef

__all__ = ["TaskIds", "commit"]

_APPEND_ENTRY = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MOVE_HEAD = "UPDATE streams SET head = ?, chain = ? WHERE id = ?"
_PUT_WRITER = "INSERT OR REPLACE INTO writers VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_COVER = "INSERT OR REPLACE INTO covers VALUES (?, ?, ?, ?, ?)"
_PUT_STEP = "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_SUMMARY = (
    "UPDATE tasks SET stored_no = max(stored_no, ?), version = ?, calls_done = ?, calls_in_doubt = ?, completed = ?,"
    " stored_at_ms = ?, edited = ?, cleaned = ? WHERE id = ?"
)
_PUT_COMPLETION = "INSERT OR REPLACE INTO completions VALUES (?, ?, ?, ?, ?)"
_START_STREAM = (
    "INSERT INTO streams VALUES (?, ?, 0, ?, 1, NULL, NULL) ON CONFLICT (id) DO UPDATE"
    " SET epoch = excluded.epoch, tail_from = 1, usable = NULL, offered = NULL"
)
_PUT_BLOB = (
    "INSERT INTO blobs VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (task, sha256) DO UPDATE SET size_bytes ="
    " excluded.size_bytes, held_bytes = excluded.held_bytes, complete = excluded.complete,"
    " absent = absent AND NOT excluded.complete"
)
_SET_ABSENT = "INSERT INTO blobs VALUES (?, ?, 0, 0, 0, 1) ON CONFLICT (task, sha256) DO UPDATE SET absent = 1"
_IDS_MAX = 100_000

_Row = tuple[object, ...]


class TaskIds:
    """The ids of tasks, remembered as long as no commit failed."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], int] = {}

    def find(self, connection: sqlite3.Connection, subject: str, task: str) -> int | None:
        """Return a task's id, None if nothing of it is kept."""
        found = self._ids.get((subject, task))
        if found is None:
            row = connection.execute("SELECT id FROM tasks WHERE subject = ? AND task = ?", (subject, task)).fetchone()
            if row is None:
                return None
            found = self._remember(subject, task, row[0])
        return found

    def get(self, connection: sqlite3.Connection, subject: str, task: str) -> int:
        """Return a task's id, making its row if there is none."""
        found = self.find(connection, subject, task)
        if found is None:
            cursor = connection.execute("INSERT INTO tasks (subject, task) VALUES (?, ?)", (subject, task))
            found = self._remember(subject, task, cursor.lastrowid or 0)
        return found

    def forget(self) -> None:
        """Forget all: a commit was rolled back, and with it perhaps new rows."""
        self._ids.clear()

    def _remember(self, subject: str, task: str, number: int) -> int:
        if len(self._ids) >= _IDS_MAX:
            self._ids.clear()
        self._ids[subject, task] = number
        return number


class _Rows:
    """The rows of all tasks' appends, collected so that each table is written in one go."""

    def __init__(self) -> None:
        self.entries: list[_Row] = []
        self.heads: dict[int, _Row] = {}
        self.writers: list[_Row] = []
        self.covers: list[_Row] = []
        self.steps: list[_Row] = []
        self.summaries: list[_Row] = []
        self.completions: list[_Row] = []

    def add(self, task: int, write: AppendStored) -> None:
        """Collect the rows of one task."""
        last_no = 0
        for entry in write.entries:
            stream = stream_key(task, entry.name)
            last_no = entry.stored_no
            self.entries.append(
                (
                    entry_place(task, last_no),
                    stream,
                    entry.relay_seq,
                    entry.writer,
                    entry.writer_seq,
                    entry.content_hash,
                    entry.chain,
                    crc32(entry.wire),
                    entry.wire,
                )
            )
            self.heads[stream] = (entry.relay_seq, entry.chain, stream)
        for stored in write.writers:
            row = stored.row
            self.writers.append(
                (
                    stream_key(task, stored.name),
                    row.writer,
                    row.device,
                    row.next_clock,
                    row.next_seq,
                    row.closed,
                    stored.principal,
                )
            )
        for cover in write.covers:
            stream = stream_key(task, cover.name)
            self.covers.append((stream, cover.writer, cover.first_seq, cover.last_seq, cover.relay_seq))
        for step in write.steps:
            requires, attempts = json.dumps(step.requires), json.dumps(step.open)
            self.steps.append((task, step.version, step.step, step.planned, step.tool, requires, step.done, attempts))
        self.completions += (completion_row(task, given) for given in write.completions)
        self.summaries.append((last_no, *summary_row(write.summary), task))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all rows."""
        batches: tuple[tuple[str, Iterable[_Row]], ...] = (
            (_APPEND_ENTRY, self.entries),
            (_MOVE_HEAD, self.heads.values()),
            (_PUT_WRITER, self.writers),
            (_PUT_COVER, self.covers),
            (_PUT_STEP, self.steps),
            (_PUT_SUMMARY, self.summaries),
            (_PUT_COMPLETION, self.completions),
        )
        for statement, rows in batches:
            connection.executemany(statement, rows)


def commit(connection: sqlite3.Connection, ids: TaskIds, writes: Sequence[MailboxWrite]) -> None:
    """Carry out all writes in one transaction, or none and raise."""
    try:
        with transaction(connection):
            rows = _Rows()
            for write in writes:
                if isinstance(write, PassTime):
                    pass_time(connection, write)
                    ids.forget()
                    continue
                task = ids.get(connection, write.subject, write.task)
                if isinstance(write, AppendStored):
                    rows.add(task, write)
                elif isinstance(write, (EmptyStream, PurgeTask, LowerBarrier)):
                    # They are about what was appended before, too.
                    rows.write(connection)
                    rows = _Rows()
                    _apply_to_all(connection, task, write)
                else:
                    _apply(connection, task, write)
            rows.write(connection)
    except BaseException:
        ids.forget()
        raise


def _apply_to_all(connection: sqlite3.Connection, task: int, write: EmptyStream | PurgeTask | LowerBarrier) -> None:
    match write:
        case EmptyStream():
            empty_stream(connection, task, write)
        case PurgeTask():
            purge_task(connection, task, write)
        case LowerBarrier():
            lower_barrier(connection, write.subject)


_Single = StartStream | SetSnapshots | PutPiece | DropBlob | SetBlobAbsent | PutTombstone | PutGuard | PutKeys | EndKeys


def _apply(connection: sqlite3.Connection, task: int, write: _Single) -> None:
    match write:
        case PutTombstone():
            put_tombstone(connection, task, write)
        case StartStream():
            connection.execute(_START_STREAM, (stream_key(task, write.name), write.epoch, CHAIN_START))
        case SetSnapshots():
            connection.execute(
                "UPDATE streams SET usable = ?, offered = ?, tail_from = ? WHERE id = ?",
                (_packed(write.usable), _packed(write.offered), write.tail_from, stream_key(task, write.name)),
            )
        case PutPiece():
            if write.data:
                connection.execute(
                    "INSERT INTO pieces (task, sha256, offset, data) VALUES (?, ?, ?, ?)",
                    (task, write.sha256, write.offset, write.data),
                )
            held = write.offset + len(write.data)
            connection.execute(_PUT_BLOB, (task, write.sha256, write.size_bytes, held, write.complete))
        case DropBlob():
            connection.execute("DELETE FROM pieces WHERE task = ? AND sha256 = ?", (task, write.sha256))
            connection.execute("DELETE FROM blobs WHERE task = ? AND sha256 = ?", (task, write.sha256))
        case SetBlobAbsent():
            connection.execute(_SET_ABSENT, (task, write.sha256))
        case PutGuard():
            put_guard(connection, task, write.guard)
        case PutKeys():
            put_keys(connection, task, write)
        case EndKeys():
            end_keys(connection, write)


def _packed(ref: SnapshotRef | None) -> bytes | None:
    return None if ref is None else msgspec.msgpack.encode(ref)
