"""Reads: a task's image, the places of followed tasks, and sizes. Every row that is read is verified."""

from collections import defaultdict

from msgspec.structs import replace

from sync_core.context.rows import (
    ENTRY_COLUMNS,
    KEPT_COLUMNS,
    Compacted,
    KeptEntry,
    Position,
    SqlConnection,
    SqlRow,
    SqlValue,
    compacted_of,
    entry_of,
    kept_entry,
    position_of,
    task_span,
    writer_of,
)
from sync_core.entry import WriterRow
from sync_core.replica.writes import (
    AsideEntry,
    FollowedStream,
    FollowedTask,
    StoreStats,
    StreamImage,
    StreamSize,
    TaskImage,
    TaskSize,
)

__all__ = ["followed_tasks", "known_tasks", "load_task", "store_stats", "task_sizes"]

_IN_TASK = "stream >= ? AND stream < ?"
_POSITIONS = f"SELECT stream, epoch, cursor, chain, checksum FROM positions WHERE {_IN_TASK}"
_WRITERS = f"""SELECT stream, writer, device, next_clock, next_seq, closed, checksum FROM writers
    WHERE {_IN_TASK} ORDER BY stream, writer"""
_DOCUMENTS = f"""SELECT stream, covers_seq, document, zipped, writers, chain, checksum FROM documents
    WHERE {_IN_TASK}"""
_ENTRIES = f"""SELECT {KEPT_COLUMNS} FROM entries WHERE {_IN_TASK}
    ORDER BY relay_seq IS NULL, relay_seq, rank IS NULL, rank, local"""
_SET_ASIDE = f"SELECT {ENTRY_COLUMNS}, relay_seq, code FROM set_aside WHERE {_IN_TASK} ORDER BY id"
_OWN_WRITERS = f"SELECT writer FROM own_writers WHERE {_IN_TASK}"


class _Parts:
    """What was read of one stream, table by table."""

    def __init__(self) -> None:
        self.position = Position()
        self.writers: list[WriterRow] = []
        self.covers_seq = 0
        self.compacted: Compacted | None = Compacted()
        self.entries: list[KeptEntry] = []
        self.set_aside: list[AsideEntry] = []

    def image(self, stream: str) -> StreamImage:
        compacted = self.compacted or Compacted()
        intact = [(kept, kept.entry) for kept in self.entries if kept.entry is not None]
        return StreamImage(
            stream=stream,
            epoch=self.position.epoch,
            cursor=self.position.cursor,
            chain=self.position.chain,
            document=compacted.document,
            covers_seq=0 if self.compacted is None else self.covers_seq,
            snapshot_writers=compacted.writers,
            snapshot_chain=compacted.chain,
            entries=tuple(entry for kept, entry in intact if kept.code is None),
            ranks={
                (kept.writer, kept.writer_seq): kept.rank
                for kept, _ in intact
                if kept.rank is not None and kept.relay_seq is None
            },
            writers=tuple(self.writers),
            set_aside=tuple(self.set_aside),
            quarantined=tuple(AsideEntry(entry, kept.code) for kept, entry in intact if kept.code is not None),
            damaged=tuple((k.writer, k.writer_seq, k.relay_seq) for k in self.entries if k.entry is None),
            document_damaged=self.compacted is None,
        )


def load_task(connection: SqlConnection, task: str) -> TaskImage:
    """Return what is kept of a task; raises `StoreDamaged` if a position or writer table fails its checksum."""
    parts = _read_parts(connection, task_span(task))
    kept = [entry for part in parts.values() for entry in part.entries]
    waiting = [entry for entry in kept if entry.own and entry.relay_seq is None and entry.rank is None]
    unsent = [entry for entry in waiting if entry.code is None and entry.entry is not None]
    own_writers = {_int(row[0]) for row in connection.execute(_OWN_WRITERS, task_span(task))}
    uploads = connection.execute("SELECT sha256 FROM blobs WHERE task = ? AND upload", (task,))
    return TaskImage(
        task=task,
        followed=next(connection.execute("SELECT 1 FROM followed WHERE task = ?", (task,)), None) is not None,
        streams=tuple(parts[stream].image(stream) for stream in sorted(parts)),
        unsent=tuple((e.stream, e.writer, e.writer_seq) for e in sorted(unsent, key=lambda entry: entry.local)),
        own_writers=frozenset(own_writers.union(entry.writer for entry in kept if entry.own)),
        uploads=frozenset(str(row[0]) for row in uploads),
    )


def _read_parts(connection: SqlConnection, span: SqlRow) -> dict[str, _Parts]:
    parts: dict[str, _Parts] = defaultdict(_Parts)
    for row in connection.execute(_POSITIONS, span):
        stream, position = position_of(row)
        parts[stream].position = position
    for row in connection.execute(_WRITERS, span):
        stream, writer = writer_of(row)
        parts[stream].writers.append(writer)
    for row in connection.execute(_DOCUMENTS, span):
        part = parts[str(row[0])]
        part.covers_seq, part.compacted = _int(row[1]), compacted_of(row[2:])
    for row in connection.execute(_ENTRIES, span):
        kept = kept_entry(row)
        parts[kept.stream].entries.append(kept)
    for row in connection.execute(_SET_ASIDE, span):
        entry = entry_of(row, row[10])
        if entry is not None:
            parts[entry.stream].set_aside.append(AsideEntry(entry, str(row[11])))
    return parts


# --- followed tasks ---------------------------------------------------------------------------------------------------

_FOLLOWED = """SELECT task, p.stream, epoch, cursor, chain, checksum FROM followed
    LEFT JOIN positions AS p ON p.stream >= task || ':' AND p.stream < task || ';' ORDER BY task, p.stream"""
# CROSS JOIN keeps the order: a look-up for each position, not a walk through all own entries.
_OUTSTANDING = f"""SELECT {KEPT_COLUMNS}, (SELECT next_seq FROM writers AS w
        WHERE w.stream = e.stream AND w.writer = e.writer) FROM entries AS e
    WHERE code IS NULL AND local IN (
        SELECT local FROM entries WHERE relay_seq IS NULL
        UNION ALL
        SELECT local FROM positions AS p CROSS JOIN entries AS n
        WHERE n.stream = p.stream AND n.relay_seq > p.cursor AND n.own AND n.relay_seq IS NOT NULL)
    ORDER BY stream, writer, writer_seq"""


class _Outstanding:
    """What of one stream stands above the cursor or has no number."""

    def __init__(self) -> None:
        self.waiting = 0
        self.own: dict[int, int] = {}

    def add(self, kept: KeptEntry, next_seq: int) -> None:
        """Count a row; rows come by writer and number. An own writer is named only as far as nothing is missing."""
        self.waiting += kept.relay_seq is None
        last = self.own.get(kept.writer, next_seq - 1)
        if kept.own and kept.entry is not None and kept.writer_seq == last + 1:
            self.own[kept.writer] = kept.writer_seq


def followed_tasks(connection: SqlConnection) -> tuple[FollowedTask, ...]:
    """Return every followed task, in key order, in two queries whatever their number."""
    positions: dict[str, dict[str, Position]] = {}
    for task, *row in connection.execute(_FOLLOWED):
        streams = positions.setdefault(str(task), {})
        if row[0] is not None:
            stream, position = position_of(row)
            streams[stream] = position
    outstanding: dict[str, dict[str, _Outstanding]] = {}
    for values in connection.execute(_OUTSTANDING):
        kept = kept_entry(values[:-1])
        of_task = outstanding.setdefault(kept.stream.rpartition(":")[0], {})
        next_seq = values[-1]
        of_task.setdefault(kept.stream, _Outstanding()).add(kept, next_seq if isinstance(next_seq, int) else 1)
    return tuple(_followed_task(task, streams, outstanding.get(task, {})) for task, streams in positions.items())


def _followed_task(task: str, positions: dict[str, Position], outstanding: dict[str, _Outstanding]) -> FollowedTask:
    streams = []
    for stream in sorted({*positions, *outstanding}):
        own = outstanding[stream].own if stream in outstanding else {}
        if own or stream in positions:
            position = positions.get(stream, Position())
            streams.append(FollowedStream(stream, *position, own=tuple(sorted(own.items()))))
    return FollowedTask(task, tuple(streams), sum(part.waiting for part in outstanding.values()))


# --- names and sizes --------------------------------------------------------------------------------------------------

_KNOWN = """SELECT task FROM followed UNION SELECT task FROM blobs UNION SELECT task FROM pins UNION
    SELECT substr(stream, 1, instr(stream, ':') - 1) FROM (
        SELECT stream FROM positions UNION SELECT stream FROM writers UNION SELECT stream FROM documents UNION
        SELECT stream FROM set_aside UNION SELECT stream FROM streams WHERE stream IS NOT NULL)
    ORDER BY 1"""
# The streams that have entries, found by one look-up each.
_STREAMS = """WITH RECURSIVE streams(stream) AS (
        SELECT min(stream) FROM entries
        UNION ALL
        SELECT (SELECT min(stream) FROM entries WHERE entries.stream > streams.stream) FROM streams
        WHERE stream IS NOT NULL) """
_SIZES = """SELECT (SELECT count(*) FROM entries WHERE code IS NULL),
    (SELECT count(*) FROM entries WHERE code IS NOT NULL),
    (SELECT count(*) FROM entries WHERE relay_seq IS NULL AND code IS NULL), (SELECT count(*) FROM set_aside),
    (SELECT count(*) FROM blobs), (SELECT coalesce(sum(size_bytes), 0) FROM blobs)"""


def known_tasks(connection: SqlConnection, prefix: str) -> tuple[str, ...]:
    """Return the keys of all tasks of which something is kept, in order."""
    names = (str(row[0]) for row in connection.execute(_STREAMS + _KNOWN))
    return tuple(name for name in names if name.startswith(prefix))


def store_stats(connection: SqlConnection, store_bytes: int) -> StoreStats:
    """Return counts of rows beside the given size of the files."""
    entries, quarantined, waiting, aside, blobs, blob_bytes = map(_int, next(connection.execute(_SIZES)))
    return StoreStats(
        store_bytes=store_bytes,
        tasks=len(known_tasks(connection, "")),
        entries=entries,
        waiting=waiting,
        blobs=blobs,
        blob_bytes=blob_bytes,
        set_aside=aside,
        quarantined=quarantined,
    )


# A blob counts for its task, under a stream without a name. `length` reads no payload, only how long it is.
_TASK_SIZES = """SELECT stream, sum(entries), sum(entry_bytes), sum(document_bytes), min(oldest), sum(blobs),
        sum(blob_bytes) FROM (
        SELECT stream, sum(code IS NULL) AS entries, sum(length(payload)) AS entry_bytes, 0 AS document_bytes,
            min(nullif(at_ms, 0)) AS oldest, 0 AS blobs, 0 AS blob_bytes FROM entries GROUP BY stream
        UNION ALL SELECT stream, 0, 0, max(length(document), zipped), NULL, 0, 0 FROM documents
        UNION ALL SELECT task || ':', 0, 0, 0, NULL, count(*), sum(size_bytes) FROM blobs GROUP BY task)
    WHERE stream >= ? AND stream < ? GROUP BY stream ORDER BY stream"""
_EVERY_TASK = ("", "\x7f")


def task_sizes(connection: SqlConnection, task: str | None) -> tuple[TaskSize, ...]:
    """Return the sizes of a task, or of every task that holds something, in key order; in one query."""
    found: dict[str, TaskSize] = {}
    span = _EVERY_TASK if task is None else task_span(task)
    for stream, *counts in connection.execute(_TASK_SIZES, span):
        key, _, name = str(stream).rpartition(":")
        size = found.get(key, TaskSize(key, (), 0, 0))
        entries, entry_bytes, document_bytes, oldest, blobs, blob_bytes = (_int(count or 0) for count in counts)
        if name:
            of_stream = StreamSize(str(stream), entries, entry_bytes, document_bytes, oldest)
            found[key] = replace(size, streams=(*size.streams, of_stream))
        else:
            found[key] = replace(size, blobs=blobs, blob_bytes=blob_bytes)
    return tuple(found[key] for key in sorted(found))


def _int(value: SqlValue) -> int:
    assert isinstance(value, int)
    return value
