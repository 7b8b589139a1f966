"""Reads what the SQLite files of a finished run hold of the task, without changing a byte of them."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from clients.demo.story import SUBJECT, TASK
from server_relay.mailbox.schema import NAMES, stream_key
from sync_core.context.rows import ENTRY_COLUMNS, compacted_of, entry_of, task_span, writer_of
from sync_core.entry import CHAIN_START, Entry, WriterRow, chain_next, entry_hash
from sync_core.errors import StoreDamaged
from sync_core.ids import StreamName, stream_id

__all__ = ["StoredTask", "read_device", "read_relay"]


class StoredTask(msgspec.Struct, frozen=True):
    """The task as one file holds it: the compacted document of its state, if any, all entries, the writer tables.

    Entries are in the order of the relay's log, stream by stream; those without a place in it come last.
    """

    document: bytes
    entries: tuple[Entry, ...]
    writers: dict[str, tuple[WriterRow, ...]]

    def numbered(self) -> tuple[Entry, ...]:
        """Return the entries that have a place in the relay's log."""
        return tuple(entry for entry in self.entries if entry.relay_seq is not None)

    def writers_of(self, name: StreamName) -> dict[int, WriterRow]:
        """Return the writer table of a stream."""
        return {row.writer: row for row in self.writers.get(stream_id(TASK, name), ())}


def read_device(path: Path) -> StoredTask:
    """Return what a device's file holds; raises `StoreDamaged` if a row fails its checksum."""
    span = task_span(TASK)
    with _read_only(path) as connection:
        entries = [
            entry_of(row, row[-1])
            for row in connection.execute(
                f"SELECT {ENTRY_COLUMNS}, relay_seq FROM entries WHERE stream >= ? AND stream < ? AND code IS NULL "
                "ORDER BY stream, relay_seq IS NULL, relay_seq, local",
                span,
            )
        ]
        writers: dict[str, tuple[WriterRow, ...]] = {}
        rows = connection.execute(
            "SELECT stream, writer, device, next_clock, next_seq, closed, checksum FROM writers "
            "WHERE stream >= ? AND stream < ?",
            span,
        )
        for stream, writer in map(writer_of, rows):
            writers[stream] = (*writers.get(stream, ()), writer)
        compacted = connection.execute(
            "SELECT document, zipped, writers, chain, checksum FROM documents WHERE stream = ?",
            (stream_id(TASK, StreamName.STATE),),
        ).fetchone()
    content = compacted_of(compacted) if compacted else None
    intact = tuple(entry for entry in entries if entry is not None)
    if len(intact) < len(entries) or (compacted and content is None):
        raise StoreDamaged(f"Rows of {path.name} fail their checksum.")
    return StoredTask(content.document if content else b"", intact, writers)


def read_relay(path: Path) -> StoredTask:
    """Return what the relay's file holds; raises `StoreDamaged` if the log's chain does not fit its entries."""
    with _read_only(path) as connection:
        (task,) = connection.execute("SELECT id FROM tasks WHERE subject = ? AND task = ?", (SUBJECT, TASK)).fetchone()
        rows = connection.execute(
            "SELECT wire, chain FROM entries WHERE stream BETWEEN ? AND ? ORDER BY place", _streams(task)
        ).fetchall()
        writer_rows = connection.execute(
            "SELECT stream, writer, device, next_clock, next_seq, closed FROM writers WHERE stream BETWEEN ? AND ?",
            _streams(task),
        ).fetchall()
    entries = tuple(msgspec.msgpack.decode(wire, type=Entry) for wire, _ in rows)
    _check_chain(entries, [chain for _, chain in rows], path)
    writers: dict[str, tuple[WriterRow, ...]] = {}
    for key, writer, device, next_clock, next_seq, closed in writer_rows:
        stream = next(stream_id(TASK, name) for name in NAMES if stream_key(task, name) == key)
        row = WriterRow(writer, device, next_clock, next_seq, bool(closed))
        writers[stream] = (*writers.get(stream, ()), row)
    return StoredTask(b"", entries, writers)


def _streams(task: int) -> tuple[int, int]:
    return stream_key(task, NAMES[0]), stream_key(task, NAMES[-1])


def _check_chain(entries: tuple[Entry, ...], chains: list[bytes], path: Path) -> None:
    """Each entry's chain follows from the one before it in its stream and from its content (rule J)."""
    last: dict[str, bytes] = {}
    for entry, chain in zip(entries, chains, strict=True):
        last[entry.stream] = chain_next(last.get(entry.stream, CHAIN_START), entry_hash(entry))
        if last[entry.stream] != chain:
            raise StoreDamaged(f"The log in {path.name} does not fit its chain.")


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        yield connection
    finally:
        connection.close()
