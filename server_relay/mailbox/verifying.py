"""Whether a mailbox's file holds together: every entry, every chain, every writer table, every blob."""

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import msgspec

from server_relay.mailbox.schema import NAMES, STORED_NO_BITS, connect_read_only, mailbox_errors
from sync_core.entry import CHAIN_START, Entry, chain_next, entry_hash
from sync_core.ids import stream_id

__all__ = ["PROBLEMS_MAX", "Verdict", "verify_file"]

PROBLEMS_MAX = 100
"""Problems that are told; a file with more is damaged beyond counting."""

_ENTRIES = (
    "SELECT place, relay_seq, writer, writer_seq, content_hash, chain, checksum, wire FROM entries WHERE stream = ?"
    " ORDER BY relay_seq"
)
_WRITERS = "SELECT writer, next_seq FROM writers WHERE stream = ?"
_COVERS = "SELECT writer, sum(last_seq - first_seq + 1), max(last_seq) FROM covers WHERE stream = ? GROUP BY writer"
_BLOBS = (
    "SELECT subject, tasks.task, blobs.task, sha256, size_bytes FROM blobs JOIN tasks ON tasks.id = blobs.task"
    " WHERE complete ORDER BY blobs.task, sha256"
)

_COUNTS = (
    "SELECT (SELECT count(DISTINCT subject) FROM tasks WHERE stored_no > 0), (SELECT count(*) FROM tasks"
    " WHERE stored_no > 0), (SELECT count(*) FROM streams), (SELECT count(*) FROM entries),"
    " (SELECT count(*) FROM blobs WHERE complete)"
)

_decode = msgspec.msgpack.Decoder(Entry).decode


class Verdict(msgspec.Struct, frozen=True):
    """What was looked at, and what is wrong with it, in words; nothing is wrong if `problems` is empty."""

    subjects: int
    tasks: int
    streams: int
    entries: int
    blobs: int
    problems: tuple[str, ...]


def verify_file(path: Path) -> Verdict:
    """Look at every row of a mailbox's file; nothing in it is changed.

    Raises `StoreInUse` if a relay has it, `StoreUnusable` if it is no mailbox of ours, `StoreDamaged` if it cannot be
    read at all.
    """
    connection = connect_read_only(path)
    try:
        with mailbox_errors():
            problems: list[str] = []
            subjects = tasks = streams = entries = blobs = 0
            try:
                for problem in _problems(connection):
                    problems.append(problem)
                    if len(problems) == PROBLEMS_MAX:
                        break
                subjects, tasks, streams, entries, blobs = connection.execute(_COUNTS).fetchone()
            except sqlite3.Error as error:
                problems.append(f"SQLite: {error}")
            return Verdict(subjects, tasks, streams, entries, blobs, tuple(problems))
    finally:
        connection.close()


def _problems(connection: sqlite3.Connection) -> Iterator[str]:
    for (text,) in connection.execute("PRAGMA integrity_check(10)"):
        if text != "ok":
            yield f"SQLite: {text}"
    streams = connection.execute(
        "SELECT streams.id, subject, task, stored_no, head, chain FROM streams"
        " LEFT JOIN tasks ON tasks.id = streams.id >> 2 ORDER BY streams.id"
    ).fetchall()
    for stream, subject, task, stored_no, head, chain in streams:
        if task is None:
            yield f"Stream {stream} is of no task."
            continue
        where = f"{subject} {stream_id(task, NAMES[stream & 3])}"
        for problem in _of_stream(connection, stream, stream_id(task, NAMES[stream & 3]), stored_no, head, chain):
            yield f"{where}: {problem}"
    (strays,) = connection.execute(
        "SELECT count(*) FROM entries WHERE stream NOT IN (SELECT id FROM streams)"
    ).fetchone()
    if strays:
        yield f"{strays} entries are of no stream."
    yield from _of_blobs(connection)


def _of_stream(
    connection: sqlite3.Connection, stream: int, name: str, stored_no: int, head: int, head_chain: bytes
) -> Iterator[str]:
    """Follow a log from its first place to its head."""
    chain = CHAIN_START
    last = 0
    stored: dict[int, tuple[int, int]] = {}
    for place, relay_seq, writer, writer_seq, content_hash, kept_chain, checksum, wire in connection.execute(
        _ENTRIES, (stream,)
    ):
        if relay_seq != last + 1:
            yield f"place {last + 1} is missing."
        last = relay_seq
        chain = chain_next(chain, content_hash)
        if kept_chain != chain:
            yield f"the chain breaks at place {relay_seq}."
            chain = kept_chain
        problem = _of_entry(name, (relay_seq, writer, writer_seq), content_hash, checksum, wire)
        if problem:
            yield f"{problem} at place {relay_seq}."
        if place >> STORED_NO_BITS != stream >> 2 or place & (1 << STORED_NO_BITS) - 1 > stored_no:
            yield f"place {relay_seq} lies outside its task."
        count, highest = stored.get(writer, (0, 0))
        stored[writer] = (count + 1, max(highest, writer_seq))
    if (last, chain) != (head, head_chain):
        yield f"the head says place {head}, the log ends at {last}, or the chain there is another."
    yield from _of_writers(connection, stream, stored)


def _of_entry(name: str, place: tuple[int, int, int], content_hash: bytes, checksum: int, wire: bytes) -> str:
    if crc32(wire) != checksum:
        return "the entry's bytes are damaged"
    try:
        entry = _decode(wire)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return "the entry cannot be decoded"
    if (entry.relay_seq, entry.writer, entry.writer_seq) != place or entry.stream != name:
        return "the entry is another than its row says"
    return "" if entry_hash(entry) == content_hash else "the entry's content is not what was hashed"


def _of_writers(connection: sqlite3.Connection, stream: int, stored: dict[int, tuple[int, int]]) -> Iterator[str]:
    """A writer's numbers are 1 to next_seq - 1, each stored once or covered once."""
    covered = {writer: (count, last) for writer, count, last in connection.execute(_COVERS, (stream,))}
    table = dict(connection.execute(_WRITERS, (stream,)).fetchall())
    for writer in sorted(stored.keys() | covered.keys()):
        count = stored.get(writer, (0, 0))[0] + covered.get(writer, (0, 0))[0]
        highest = max(stored.get(writer, (0, 0))[1], covered.get(writer, (0, 0))[1])
        if not count == highest == table.get(writer, 1) - 1:
            yield f"writer {writer:x} has {count} entries up to {highest}, its row says {table.get(writer, 1) - 1}."


def _of_blobs(connection: sqlite3.Connection) -> Iterator[str]:
    for subject, task, task_id, sha256, size_bytes in connection.execute(_BLOBS).fetchall():
        digest = hashlib.sha256()
        held = 0
        for offset, data in connection.execute(
            "SELECT offset, data FROM pieces WHERE task = ? AND sha256 = ? ORDER BY offset", (task_id, sha256)
        ):
            held = held + len(data) if offset == held else -1
            digest.update(data)
        if held != size_bytes or digest.hexdigest() != sha256:
            yield f"{subject} {task}: blob {sha256} is not whole."
