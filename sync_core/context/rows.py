"""How values stand in rows: columns, checksums, and what counts as damaged.

A checksum covers every column that says what a row *is*; it is verified at each read. Columns that only say where a row
stands (its numbers in the log, whether it is this device's) change without the row being read; chain and digest of the
stream show whether they are right.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from sync_core.entry import CHAIN_START, Entry, WriterRow
from sync_core.errors import StoreDamaged

__all__ = [
    "ENTRY_COLUMNS",
    "KEPT_COLUMNS",
    "Compacted",
    "KeptEntry",
    "Position",
    "SqlConnection",
    "SqlRow",
    "SqlValue",
    "checksum",
    "compacted_of",
    "compacted_values",
    "entry_of",
    "entry_values",
    "kept_entry",
    "position_of",
    "position_values",
    "task_span",
    "writer_of",
    "writer_values",
]

SqlValue = str | int | bytes | None
SqlRow = Sequence[SqlValue]


class SqlConnection(Protocol):
    """What this package's statements need of a connection: the part that sqlite3 and apsw have in common."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, parameters: SqlRow = ..., /) -> Iterator[SqlRow]: ...

    def executemany(self, sql: str, parameters: Sequence[SqlRow], /) -> Iterator[SqlRow]: ...


def checksum(content: bytes, *columns: SqlValue) -> int:
    """Return the CRC-32 over a row's large column and all its small ones."""
    return zlib.crc32(content, zlib.crc32(repr(columns).encode("utf-8", "backslashreplace")))


def task_span(task: str) -> tuple[str, str]:
    """Return the range of a task's stream ids: from `<task>:` to before `<task>;`, the next character after a colon."""
    return f"{task}:", f"{task};"


# --- entries ----------------------------------------------------------------------------------------------------------

ENTRY_COLUMNS = "stream, writer, writer_seq, kind, device, at_ms, blob, vouched_by, payload, checksum"
KEPT_COLUMNS = f"{ENTRY_COLUMNS}, relay_seq, rank, own, code, local"


class KeptEntry(NamedTuple):
    """A row of `entries`. `entry` is None if the checksum failed; `code` is set if it is quarantined."""

    stream: str
    writer: int
    writer_seq: int
    entry: Entry | None
    relay_seq: int | None
    rank: int | None
    own: bool
    code: str | None
    local: int


def entry_values(entry: Entry) -> tuple[SqlValue, ...]:
    """Return the values of `ENTRY_COLUMNS`."""
    small = (
        entry.stream,
        entry.writer,
        entry.writer_seq,
        entry.kind.value,
        entry.device,
        entry.at_ms,
        entry.blob,
        entry.vouched_by,
    )
    return (*small, entry.payload, checksum(entry.payload, *small))


def entry_of(row: SqlRow, relay_seq: SqlValue) -> Entry | None:
    """Return the entry of a row of `ENTRY_COLUMNS`, or None if the row is damaged."""
    stream, writer, writer_seq, kind, device, at_ms, blob, vouched_by, payload, stored = row[:10]
    if not isinstance(payload, bytes) or checksum(payload, *row[:8]) != stored:
        return None
    try:
        return msgspec.convert(
            (stream, writer, writer_seq, kind, payload, device, at_ms, blob, relay_seq, vouched_by), Entry
        )
    except msgspec.ValidationError:
        return None


def kept_entry(row: SqlRow) -> KeptEntry:
    """Return a row of `KEPT_COLUMNS`; raises `StoreDamaged` if not even its name can be read."""
    stream, writer, writer_seq = row[:3]
    relay_seq, rank, own, code, local = row[10:]
    if not (isinstance(stream, str) and isinstance(writer, int) and isinstance(writer_seq, int)):
        raise StoreDamaged("The name of a stored entry cannot be read.")
    return KeptEntry(
        stream=stream,
        writer=writer,
        writer_seq=writer_seq,
        entry=entry_of(row, relay_seq),
        relay_seq=relay_seq if isinstance(relay_seq, int) else None,
        rank=rank if isinstance(rank, int) else None,
        own=bool(own),
        code=code if isinstance(code, str) else None,
        local=local if isinstance(local, int) else 0,
    )


# --- positions and writers --------------------------------------------------------------------------------------------


class Position(NamedTuple):
    """Where this device is in a stream; the defaults are those of a stream that was never read."""

    epoch: bytes = b""
    cursor: int = 0
    chain: bytes = CHAIN_START


def position_values(stream: str, position: Position) -> tuple[SqlValue, ...]:
    """Return a row of `positions`."""
    return (stream, *position, checksum(b"", stream, *position))


def position_of(row: SqlRow) -> tuple[str, Position]:
    """Return (stream, position) of a row; raises `StoreDamaged`, for a wrong place would lose or repeat entries."""
    stream, epoch, cursor, chain, stored = row
    if checksum(b"", *row[:4]) != stored:
        raise StoreDamaged("A stored position fails its checksum.")
    return str(stream), Position(_bytes(epoch), _int(cursor), _bytes(chain))


def writer_values(stream: str, row: WriterRow) -> tuple[SqlValue, ...]:
    """Return a row of `writers`."""
    values = (stream, row.writer, row.device, row.next_clock, row.next_seq, int(row.closed))
    return (*values, checksum(b"", *values))


def writer_of(row: SqlRow) -> tuple[str, WriterRow]:
    """Return (stream, writer's row); raises `StoreDamaged`, for a wrong table would refuse honest entries."""
    stream, writer, device, next_clock, next_seq, closed, stored = row
    if checksum(b"", *row[:6]) != stored:
        raise StoreDamaged("A row of a stored writer table fails its checksum.")
    return str(stream), WriterRow(_int(writer), str(device), _int(next_clock), _int(next_seq), bool(closed))


# --- compacted rows ---------------------------------------------------------------------------------------------------


class Compacted(NamedTuple):
    """A compacted row's content; the defaults are those of a stream without one."""

    document: bytes = b""
    writers: tuple[WriterRow, ...] = ()
    chain: bytes = CHAIN_START


_encoder = msgspec.msgpack.Encoder()
_writers_decoder = msgspec.msgpack.Decoder(tuple[WriterRow, ...])


def compacted_values(content: Compacted, compress: bool) -> tuple[SqlValue, ...]:
    """Return (document, zipped, writers, chain, checksum); the document is zipped if asked for and smaller that way.

    `zipped` is its size before that, 0 if it is not zipped.
    """
    zipped = zlib.compress(content.document) if compress else content.document
    smaller = len(zipped) < len(content.document)
    document = zipped if smaller else content.document
    small = (len(content.document) if smaller else 0, _encoder.encode(content.writers), content.chain)
    return (document, *small, checksum(document, *small))


def compacted_of(row: SqlRow) -> Compacted | None:
    """Return the content of a compacted row, or None if it is damaged."""
    document, zipped, writers, chain, stored = row
    if not isinstance(document, bytes) or checksum(document, zipped, writers, chain) != stored:
        return None
    content = zlib.decompress(document) if zipped else document
    return Compacted(content, _writers_decoder.decode(_bytes(writers)), _bytes(chain))


def _int(value: SqlValue) -> int:
    assert isinstance(value, int)
    return value


def _bytes(value: SqlValue) -> bytes:
    assert isinstance(value, bytes)
    return value
