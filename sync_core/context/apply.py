"""Writes become statements: what a commit does inside its transaction.

Rows for one statement are collected over the whole commit and handed to SQLite together, because 32 writers share a
commit. Statements on different tables do not see each other's rows, so they may change places; those on one table keep
their order.
"""

from collections.abc import Sequence

from sync_core.context.blobs import SET_BLOB_STATE, pin_base, put_blob
from sync_core.context.rows import (
    ENTRY_COLUMNS,
    Position,
    SqlConnection,
    SqlRow,
    entry_values,
    position_values,
    writer_values,
)
from sync_core.context.streams import (
    DISCARD_ENTRY,
    PUT_POSITION,
    PUT_WRITER,
    compact,
    drop_task,
    empty_stream,
    keep_own_writers,
    set_aside,
    start_epoch,
    truncate,
)
from sync_core.context.tombstones import put_tombstone
from sync_core.context.transaction import transaction
from sync_core.entry import Entry, WriterRow
from sync_core.replica import writes as w

__all__ = ["commit_writes"]

# An entry that is there already keeps its place in local order, its rank, and that it is this device's.
_PUT_ENTRY = f"""INSERT INTO entries ({ENTRY_COLUMNS}, relay_seq, own, code)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (stream, writer, writer_seq) DO UPDATE SET
        kind = excluded.kind, device = excluded.device, at_ms = excluded.at_ms, blob = excluded.blob,
        vouched_by = excluded.vouched_by, payload = excluded.payload, checksum = excluded.checksum,
        relay_seq = excluded.relay_seq, own = max(own, excluded.own), code = excluded.code"""
_NUMBER = """UPDATE entries SET relay_seq = ? + ? * (writer_seq - ?)
    WHERE stream = ? AND writer = ? AND writer_seq BETWEEN ? AND ?"""
_FOLLOW = "INSERT OR IGNORE INTO followed (task) VALUES (?)"


class _Batches:
    """Rows collected for at most one open statement a table; of rows that replace each other, only the last."""

    def __init__(self, connection: SqlConnection) -> None:
        self.positions: dict[str, Position] = {}
        self.writers: dict[tuple[str, int], WriterRow] = {}
        self._connection = connection
        self._open: dict[str, tuple[str, list[SqlRow]]] = {}

    def add(self, table: str, sql: str, row: SqlRow) -> None:
        """Collect a row; another statement on the table is carried out first."""
        open_sql, rows = self._open.get(table, ("", []))
        if open_sql == sql:
            rows.append(row)
            return
        if rows:
            self._connection.executemany(open_sql, rows)
        self._open[table] = (sql, [row])

    def flush(self) -> None:
        """Carry out what was collected."""
        for sql, rows in self._open.values():
            self._connection.executemany(sql, rows)
        self._open.clear()
        if self.positions:
            rows = [position_values(*item) for item in self.positions.items()]
            self._connection.executemany(PUT_POSITION, rows)
            self.positions.clear()
        if self.writers:
            rows = [writer_values(stream, row) for (stream, _), row in self.writers.items()]
            self._connection.executemany(PUT_WRITER, rows)
            self.writers.clear()


def commit_writes(connection: SqlConnection, writes: Sequence[w.Write], compress: bool) -> None:
    """Carry out all writes in one transaction, or none. `compress`: zip the documents of compacted rows."""
    with transaction(connection):
        _apply(connection, writes, compress)


def _apply(connection: SqlConnection, writes: Sequence[w.Write], compress: bool) -> None:
    batches = _Batches(connection)
    for write in writes:
        if not _collect(batches, write):
            batches.flush()
            _carry_out(connection, write, compress)
    batches.flush()


def _collect(batches: _Batches, write: w.Write) -> bool:
    """Collect the row of a write that touches one row of one table, or a run of them; False for any other."""
    match write:
        case w.PutEntry(entry=entry, own=own):
            batches.add("entries", _PUT_ENTRY, _put_entry_row(entry, own, None))
        case w.QuarantineEntry(entry=entry, code=code):
            batches.add("entries", _PUT_ENTRY, _put_entry_row(entry, False, code))
        case w.NumberEntries():
            batches.add("entries", _NUMBER, _number_row(write))
        case w.SetWriter(stream=stream, row=row):
            batches.writers[stream, row.writer] = row
        case w.SetPosition():
            batches.positions[write.stream] = Position(write.epoch, write.cursor, write.chain)
        case w.SetBlobState():
            batches.add("blobs", SET_BLOB_STATE, (int(write.upload), write.task, write.sha256))
        case w.FollowTask(task=task):
            batches.add("followed", _FOLLOW, (task,))
        case _:
            return False
    return True


def _put_entry_row(entry: Entry, own: bool, code: str | None) -> SqlRow:
    return (*entry_values(entry), entry.relay_seq, int(own), code)


def _number_row(write: w.NumberEntries) -> SqlRow:
    step = 0 if write.same_place else 1
    first, last = write.first_seq, write.last_seq
    return (write.first_relay_seq, step, first, write.stream, write.writer, first, last)


def _carry_out(connection: SqlConnection, write: w.Write, compress: bool) -> None:
    match write:
        case w.PutBlob():
            put_blob(connection, write)
        case w.PinBase():
            pin_base(connection, write)
        case w.DiscardEntries(stream=stream, writer=writer, writer_seqs=seqs):
            keep_own_writers(connection, stream)
            connection.executemany(DISCARD_ENTRY, [(stream, writer, seq) for seq in seqs])
        case w.SetAside():
            set_aside(connection, write)
        case w.StartEpoch():
            start_epoch(connection, write)
        case w.TruncateStream():
            truncate(connection, write)
        case w.CompactStream():
            compact(connection, write, compress)
        case w.DropTask():
            drop_task(connection, write)
        case w.EmptyStream():
            empty_stream(connection, write)
        case w.PutTombstone(tombstone=tombstone):
            put_tombstone(connection, tombstone)
        case w.DropTombstone(task=task):
            connection.execute("DELETE FROM tombstones WHERE task = ?", (task,))
