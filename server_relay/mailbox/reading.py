"""How a mailbox answers reads."""

import hashlib
import json
import sqlite3
from zlib import crc32

import msgspec

from server_relay.effects import (
    BlobHashed,
    BlobRead,
    FoundEntry,
    FoundPlace,
    HashBlob,
    ListingRead,
    LoadTask,
    LookedUp,
    LookUp,
    PieceRead,
    ReadBlob,
    ReadDue,
    ReadKeys,
    ReadListing,
    ReadNamed,
    ReadPiece,
    ReadTail,
    RelayAnswer,
    RelayRead,
    TailRead,
    TaskLoaded,
)
from server_relay.key_records import TaskGuard
from server_relay.mailbox.key_rows import barrier_is_up, guard_of, read_keys
from server_relay.mailbox.lifetimes import completions_of, due, named, tombstone_of
from server_relay.mailbox.schema import NAMES, STORED_NO_BITS, entry_place, stream_key
from server_relay.mailbox.writing import TaskIds
from server_relay.records import (
    BlobRow,
    MailboxStats,
    StepRow,
    StoredEntry,
    StoredWriter,
    StreamImage,
    TaskImage,
    TaskSummary,
)
from sync_core.entry import WriterRow
from sync_core.errors import StoreDamaged
from sync_core.frames import PlannedStep, SnapshotRef, TaskListing
from sync_core.ids import StreamName

__all__ = ["answer", "mailbox_stats"]

_TAIL = (
    "SELECT place, stream, relay_seq, writer, writer_seq, content_hash, chain, checksum, wire FROM entries"
    " WHERE place > ? AND place < ?"
)
_STORED_NO_MASK = (1 << STORED_NO_BITS) - 1
_LAST_CHARACTER = "\U0010ffff"

_decode_ref = msgspec.msgpack.Decoder(SnapshotRef).decode


def answer(connection: sqlite3.Connection, ids: TaskIds, read: RelayRead) -> RelayAnswer:
    """Return the answer to a read; raises `StoreDamaged` for an entry whose checksum fails."""
    if isinstance(read, ReadListing):
        return _listing(connection, read)
    if isinstance(read, ReadDue):
        return due(connection, read)
    task = ids.find(connection, read.subject, read.task)
    match read:
        case LoadTask():
            return TaskLoaded(_unknown(connection, read) if task is None else _image(connection, task, read))
        case LookUp():
            return _look_up(connection, task, read)
        case ReadKeys():
            return read_keys(connection, task, read)
        case ReadTail():
            return _tail(connection, task, read)
        case ReadBlob():
            return BlobRead(read.subject, read.task, read.sha256, _blob(connection, task, read.sha256))
        case HashBlob():
            return BlobHashed(read.subject, read.task, read.sha256, _hash(connection, task, read))
        case ReadPiece():
            return _piece(connection, task, read)
        case ReadNamed():
            return named(connection, task, read)


# --- a task -----------------------------------------------------------------------------------------------------------


def _unknown(connection: sqlite3.Connection, read: LoadTask) -> TaskImage:
    """A task of which nothing is kept; behind its subject's barrier it may be one that was lost with the log."""
    return TaskImage(read.subject, read.task, guard=TaskGuard(lost=barrier_is_up(connection, read.subject)))


def _image(connection: sqlite3.Connection, task: int, read: LoadTask) -> TaskImage:
    row = connection.execute(
        "SELECT stored_no, version, calls_done, calls_in_doubt, completed, stored_at_ms, edited, cleaned,"
        " opened_version, lost, lists FROM tasks WHERE id = ?",
        (task,),
    ).fetchone()
    streams = connection.execute(
        "SELECT id, epoch, head, chain, tail_from, usable, offered FROM streams WHERE id BETWEEN ? AND ? ORDER BY id",
        (task << 2, task << 2 | 3),
    ).fetchall()
    steps = connection.execute(
        "SELECT version, step, planned, tool, requires, done, open FROM steps WHERE task = ? ORDER BY version, step",
        (task,),
    )
    blobs = connection.execute(
        "SELECT sha256, size_bytes, held_bytes, complete, absent FROM blobs WHERE task = ? ORDER BY sha256", (task,)
    )
    images = (_stream_image(connection, stream) for stream in streams)
    return TaskImage(
        read.subject,
        read.task,
        row[0],
        TaskSummary(row[1], row[2], row[3], bool(row[4]), row[5], bool(row[6]), bool(row[7])),
        tuple(sorted(images, key=lambda image: image.name)),
        tuple(
            StepRow(version, step, bool(planned), tool, tuple(json.loads(needs)), bool(done), tuple(json.loads(open_)))
            for version, step, planned, tool, needs, done, open_ in steps
        ),
        tuple(BlobRow(sha, size, held, bool(complete), bool(absent)) for sha, size, held, complete, absent in blobs),
        completions_of(connection, task),
        tombstone_of(connection, task),
        guard_of(*row[8:]),
    )


def _stream_image(connection: sqlite3.Connection, row: tuple[int, bytes, int, bytes, int, bytes, bytes]) -> StreamImage:
    stream, epoch, head, chain, tail_from, usable, offered = row
    name = _name(stream)
    writers = connection.execute(
        "SELECT writer, device, next_clock, next_seq, closed, principal FROM writers WHERE stream = ? ORDER BY writer",
        (stream,),
    )
    rows = tuple(
        StoredWriter(name, WriterRow(writer, device, clock, number, bool(closed)), principal)
        for writer, device, clock, number, closed, principal in writers
    )
    return StreamImage(name, epoch, head, chain, tail_from, _ref(usable), _ref(offered), rows)


def _ref(packed: bytes | None) -> SnapshotRef | None:
    return None if packed is None else _decode_ref(packed)


def _name(stream: int) -> StreamName:
    return NAMES[stream & 3]


# --- entries ----------------------------------------------------------------------------------------------------------


def _look_up(connection: sqlite3.Connection, task: int | None, read: LookUp) -> LookedUp:
    if task is None:
        nowhere = tuple(FoundPlace(name, place, b"", 0) for name, place in read.places)
        return LookedUp(read.subject, read.task, (), read.entries, nowhere)
    found, missing = [], []
    for key in read.entries:
        entry = _find(connection, task, *key)
        if entry is None:
            missing.append(key)
        else:
            found.append(entry)
    places = tuple(_place(connection, task, name, place) for name, place in read.places)
    return LookedUp(read.subject, read.task, tuple(found), tuple(missing), places)


def _find(
    connection: sqlite3.Connection, task: int, name: StreamName, writer: int, writer_seq: int
) -> FoundEntry | None:
    stream = stream_key(task, name)
    row = connection.execute(
        "SELECT relay_seq, content_hash FROM entries WHERE stream = ? AND writer = ? AND writer_seq = ?",
        (stream, writer, writer_seq),
    ).fetchone()
    if row is None:
        row = connection.execute(
            "SELECT relay_seq, x'' FROM covers WHERE stream = ? AND writer = ? AND first_seq <= ? AND last_seq >= ?",
            (stream, writer, writer_seq, writer_seq),
        ).fetchone()
    return None if row is None else FoundEntry(name, writer, writer_seq, *row)


def _place(connection: sqlite3.Connection, task: int, name: StreamName, relay_seq: int) -> FoundPlace:
    rows = connection.execute(
        "SELECT relay_seq, place, chain FROM entries WHERE stream = ? AND relay_seq >= ? ORDER BY relay_seq LIMIT 2",
        (stream_key(task, name), relay_seq),
    ).fetchall()
    chain = b""
    if rows and rows[0][0] == relay_seq:
        chain = rows.pop(0)[2]
    return FoundPlace(name, relay_seq, chain, rows[0][1] & _STORED_NO_MASK if rows else 0)


def _tail(connection: sqlite3.Connection, task: int | None, read: ReadTail) -> TailRead:
    if task is None:
        return TailRead(read.conn, read.subject, read.task, (), 0)
    query, values = _TAIL, [entry_place(task, read.after_no), entry_place(task + 1, 0)]
    for name, relay_seq in read.skip:
        query += " AND NOT (stream = ? AND relay_seq <= ?)"
        values += [stream_key(task, name), relay_seq]
    chosen: list[StoredEntry] = []
    size = 0
    for row in connection.execute(query + " ORDER BY place", values):
        place, stream, relay_seq, writer, writer_seq, content_hash, chain, checksum, wire = row
        size += len(wire)
        if chosen and size > read.bytes_max:
            return TailRead(read.conn, read.subject, read.task, tuple(chosen), chosen[-1].stored_no)
        if crc32(wire) != checksum:
            raise StoreDamaged("An entry of the relay's log is damaged.", hint="Stop the relay and restore a backup.")
        stored_no = place & _STORED_NO_MASK
        chosen.append(StoredEntry(stored_no, _name(stream), relay_seq, writer, writer_seq, content_hash, chain, wire))
    head_no = connection.execute("SELECT stored_no FROM tasks WHERE id = ?", (task,)).fetchone()[0]
    return TailRead(read.conn, read.subject, read.task, tuple(chosen), head_no)


# --- blobs, listing, sizes --------------------------------------------------------------------------------------------


_PIECES = "SELECT data FROM pieces WHERE task = ? AND sha256 = ? ORDER BY offset"


def _blob(connection: sqlite3.Connection, task: int | None, sha256: str) -> bytes | None:
    rows = connection.execute(_PIECES, (task, sha256)).fetchall()
    return b"".join(row[0] for row in rows) if rows else None


def _hash(connection: sqlite3.Connection, task: int | None, read: HashBlob) -> str:
    """Piece by piece: many blobs may be finished at the same time, and each may be large."""
    digest = hashlib.sha256()
    for (data,) in connection.execute(_PIECES, (task, read.sha256)):
        digest.update(data)
    digest.update(read.last)
    return digest.hexdigest()


def _piece(connection: sqlite3.Connection, task: int | None, read: ReadPiece) -> PieceRead:
    """One stored piece from the offset on: the reader asks for the next one from where this ends."""
    size = connection.execute(
        "SELECT size_bytes FROM blobs WHERE task = ? AND sha256 = ?", (task, read.sha256)
    ).fetchone()
    row = connection.execute(
        "SELECT offset, data FROM pieces WHERE task = ? AND sha256 = ? AND offset <= ? ORDER BY offset DESC LIMIT 1",
        (task, read.sha256, read.offset),
    ).fetchone()
    first, data = row or (0, b"")
    piece = data[read.offset - first : read.offset - first + read.bytes_max]
    return PieceRead(read.conn, read.task, read.sha256, read.offset, size[0] if size else 0, piece)


def _listing(connection: sqlite3.Connection, read: ReadListing) -> ListingRead:
    query = (
        "SELECT id, task, version, calls_done, calls_in_doubt, completed, stored_at_ms FROM tasks"
        " WHERE subject = ? AND task > ? AND task >= ? AND task < ? AND stored_no > 0"
    )
    values: list[str | int] = [read.subject, read.after, read.prefix, read.prefix + _LAST_CHARACTER]
    if read.within is not None:
        # `0` follows `/` in the order of characters: what lies between is below the key.
        query += f" AND ({' OR '.join(['task = ? OR task > ? AND task < ?'] * len(read.within)) or '0'})"
        values += [bound for key in read.within for bound in (key, f"{key}/", f"{key}0")]
    rows = connection.execute(query + " ORDER BY task LIMIT ?", [*values, read.tasks_max + 1]).fetchall()
    tasks = tuple(
        TaskListing(key, version, _planned(connection, task), done, in_doubt, bool(completed), at_ms)
        for task, key, version, done, in_doubt, completed, at_ms in rows[: read.tasks_max]
    )
    return ListingRead(read.conn, read.request, tasks, len(rows) > read.tasks_max)


def _planned(connection: sqlite3.Connection, task: int) -> tuple[PlannedStep, ...]:
    rows = connection.execute(
        "SELECT step, tool, requires FROM steps WHERE task = ? AND planned AND NOT done ORDER BY version, step", (task,)
    )
    return tuple(PlannedStep(step, tool, tuple(json.loads(requires))) for step, tool, requires in rows)


def mailbox_stats(connection: sqlite3.Connection, store_bytes: int) -> MailboxStats:
    """Return the sizes; the bytes of the file set are the caller's to measure."""
    row = connection.execute(
        "SELECT (SELECT count(DISTINCT subject) FROM tasks), (SELECT count(*) FROM tasks),"
        " (SELECT count(*) FROM streams), (SELECT count(*) FROM entries), (SELECT count(*) FROM blobs),"
        " (SELECT coalesce(sum(held_bytes), 0) FROM blobs),"
        " (SELECT max((SELECT coalesce(max(stored_at_ms), 0) FROM tasks), (SELECT relay_ms FROM clock)))"
    ).fetchone()
    return MailboxStats(store_bytes, *row)
