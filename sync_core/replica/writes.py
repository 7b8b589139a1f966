"""What a Replica has its store keep, and what it reads back: plain values, no storage.

`Write`s of one commit are carried out in order, all of them or none (the seam is `context.store.Store`).
"""

import msgspec

from sync_core.entry import Entry, WriterRow
from sync_core.ids import split_stream

__all__ = [
    "AsideEntry",
    "CompactStream",
    "DiscardEntries",
    "DropTask",
    "DropTombstone",
    "EmptyStream",
    "FollowTask",
    "FollowedStream",
    "FollowedTask",
    "NumberEntries",
    "PinBase",
    "PutBlob",
    "PutEntry",
    "PutTombstone",
    "QuarantineEntry",
    "SetAside",
    "SetBlobState",
    "SetPosition",
    "SetWriter",
    "StartEpoch",
    "StoreStats",
    "StreamImage",
    "StreamSize",
    "TaskImage",
    "TaskSize",
    "Tombstone",
    "TruncateStream",
    "Write",
    "task_of",
]

# --- writes -----------------------------------------------------------------------------------------------------------


class PutEntry(msgspec.Struct, frozen=True):
    """Insert an entry, in local order behind all others of the task. `own`: this device wrote it.

    If (stream, writer, writer_seq) is there already with equal content, only its relay_seq and vouched_by are set; with
    other content it is replaced, keeping its place in local order. Either way it keeps its rank, stays own once it was,
    and counts again if it was quarantined.
    """

    entry: Entry
    own: bool


class NumberEntries(msgspec.Struct, frozen=True):
    """Set the relay_seq of a writer's entries first_seq..last_seq to first_relay_seq.. ; with `same_place` to that one
    place (a recovered snapshot covers them). What is not there is passed over; ranks stay, to order one place."""

    stream: str
    writer: int
    first_seq: int
    last_seq: int
    first_relay_seq: int
    same_place: bool = False


class SetPosition(msgspec.Struct, frozen=True):
    """Where this device is in the stream: epoch, cursor (last merged place), chain at the cursor."""

    stream: str
    epoch: bytes
    cursor: int
    chain: bytes


class SetWriter(msgspec.Struct, frozen=True):
    """Insert or replace a row of the stream's writer table."""

    stream: str
    row: WriterRow


class SetAside(msgspec.Struct, frozen=True):
    """Take an own entry out of outbox and document, keep it in the file with the reason. Its name is free again;
    nothing happens if it is not there."""

    stream: str
    writer: int
    writer_seq: int
    code: str
    sentence: str


class DiscardEntries(msgspec.Struct, frozen=True):
    """Delete own entries that have no relay_seq: their operations are written again under a new writer id in the same
    commit (rule E)."""

    stream: str
    writer: int
    writer_seqs: tuple[int, ...]


class QuarantineEntry(msgspec.Struct, frozen=True):
    """Keep an entry of the log out of the document; its place counts as consumed. Inserted if it is not there, as an
    entry that is not own."""

    entry: Entry
    code: str


class StartEpoch(msgspec.Struct, frozen=True):
    """The log was lost or restored (rule J). Every numbered or ranked entry of the stream loses its relay_seq and gets
    a `rank`: its place in the old order (numbered ones by relay_seq first, then the earlier ranks); quarantined entries
    get one too. Cursor becomes 0, chain the start, the writer table empty: it grows anew with the new log. A compacted
    row stays, its covers_seq becomes 0. Every blob of the task is to be uploaded again."""

    stream: str
    epoch: bytes


class TruncateStream(msgspec.Struct, frozen=True):
    """Forget what lies above a place: foreign, quarantined and damaged entries above it are deleted, other own ones
    lose their relay_seq and rank; the cursor becomes that place with this chain and the writer table becomes `writers`.
    A compacted row that covers more, or is damaged, goes too."""

    stream: str
    after_seq: int
    chain: bytes
    writers: tuple[WriterRow, ...]


class CompactStream(msgspec.Struct, frozen=True):
    """Replace the entries of kind update (and recovered snapshots) with relay_seq ≤ covers_seq by one row holding the
    merged `document`, the writer table and the chain at that place. Quarantined and set-aside entries stay."""

    stream: str
    covers_seq: int
    document: bytes
    writers: tuple[WriterRow, ...]
    chain: bytes


class PutBlob(msgspec.Struct, frozen=True):
    """Keep a blob. `upload`: the relay does not have it yet."""

    task: str
    sha256: str
    data: bytes
    upload: bool


class SetBlobState(msgspec.Struct, frozen=True):
    """The relay now holds the blob (`upload=False`), or it must be sent again after a lost log (`upload=True`)."""

    task: str
    sha256: str
    upload: bool


class PinBase(msgspec.Struct, frozen=True):
    """Keep a document state as base of later merges of a note; at most 100 a note (the last pinned stay), 7 days of
    relay time. `relay_time_ms` is the relay's time as last received; 0 if it is not known yet: such a pin starts to age
    with the next pin that knows it. Older ones go when something is pinned, never by a clock of this device (rule
    K)."""

    task: str
    note: str
    sha256: str
    state: bytes
    relay_time_ms: int


class FollowTask(msgspec.Struct, frozen=True):
    """The device follows this task from now on, also after a restart."""

    task: str


class DropTask(msgspec.Struct, frozen=True):
    """Forget the task: entries, positions, writer tables, blobs, pins, and that it is followed. What was set aside
    stays, with the blobs that it names."""

    task: str


class EmptyStream(msgspec.Struct, frozen=True):
    """The relay emptied the log of the stream on purpose: numbered, ranked and quarantined entries go, with the merged
    row, the writer table and the blobs that no other entry of the task names; the position is at the start of this
    epoch. Which writers are this device's is remembered. Entries that wait to be sent stay."""

    stream: str
    epoch: bytes


class Tombstone(msgspec.Struct, frozen=True):
    """A task that was deleted everywhere on purpose. `version` is the business version that it had, `reason` is purged,
    expired or completed, `epochs` those of the logs that went. `set_aside` counts the unsent entries that are kept.

    `told`: the relay knows. `relay_time_ms` is the relay's time as last received when it was made, 0 if it never was.
    """

    task: str
    version: int
    reason: str
    epochs: tuple[bytes, ...] = ()
    set_aside: int = 0
    told: bool = False
    relay_time_ms: int = 0


class PutTombstone(msgspec.Struct, frozen=True):
    """Remember that a task was deleted, in place of what was remembered of it."""

    tombstone: Tombstone


class DropTombstone(msgspec.Struct, frozen=True):
    """Forget that a task was deleted."""

    task: str


Write = (
    PutEntry
    | NumberEntries
    | SetPosition
    | SetWriter
    | SetAside
    | DiscardEntries
    | QuarantineEntry
    | StartEpoch
    | TruncateStream
    | CompactStream
    | PutBlob
    | SetBlobState
    | PinBase
    | FollowTask
    | DropTask
    | EmptyStream
    | PutTombstone
    | DropTombstone
)


def task_of(write: Write) -> str:
    """Return the task that a write belongs to."""
    match write:
        case PutBlob() | SetBlobState() | PinBase() | FollowTask() | DropTask() | DropTombstone():
            return write.task
        case PutTombstone():
            return write.tombstone.task
        case PutEntry() | QuarantineEntry():
            return split_stream(write.entry.stream)[0]
        case _:
            return split_stream(write.stream)[0]


# --- reads ------------------------------------------------------------------------------------------------------------


class AsideEntry(msgspec.Struct, frozen=True):
    """An own entry that was set aside, or a quarantined one."""

    entry: Entry
    code: str


class StreamImage(msgspec.Struct, frozen=True):
    """All that is kept of one stream.

    `document`, `covers_seq`, `snapshot_writers` and `snapshot_chain` are of the compacted row (empty, 0, (), 16 zero
    bytes without one). `entries` holds every entry that counts: numbered ones by relay_seq (equal places by rank, then
    local order), then ranked ones by rank, then the rest in local order. `ranks` gives the rank of each ranked entry
    that has no relay_seq yet, by (writer, writer_seq). `damaged` are (writer, writer_seq, relay_seq) of rows whose
    checksum failed; they are not in `entries`, `quarantined`, `ranks` or the task's `unsent`. `document_damaged` says
    that about the compacted row, whose fields are then empty. Images come in the order of stream ids.
    """

    stream: str
    epoch: bytes
    cursor: int
    chain: bytes
    document: bytes
    covers_seq: int
    snapshot_writers: tuple[WriterRow, ...]
    snapshot_chain: bytes
    entries: tuple[Entry, ...]
    ranks: dict[tuple[int, int], int]
    writers: tuple[WriterRow, ...]
    set_aside: tuple[AsideEntry, ...]
    quarantined: tuple[AsideEntry, ...]
    damaged: tuple[tuple[int, int, int | None], ...]
    document_damaged: bool


class TaskImage(msgspec.Struct, frozen=True):
    """All that is kept of one task, except blobs and pins.

    `unsent` names the own entries without a relay_seq and without a rank, in the order of local commits across all
    streams and writers: (stream, writer, writer_seq). `own_writers` are all writers of this device in the task.
    `uploads` are the SHA-256 of blobs that the relay does not have.
    """

    task: str
    followed: bool
    streams: tuple[StreamImage, ...]
    unsent: tuple[tuple[str, int, int], ...]
    own_writers: frozenset[int]
    uploads: frozenset[str]


class FollowedStream(msgspec.Struct, frozen=True):
    """A followed stream's place, without its content. `own`: (own writer, highest intact writer_seq in this file) of
    each own writer with an entry above the cursor or without a relay_seq. A writer is named only as far as nothing of
    it is missing from its next number in the writer table on: what the relay leaves out must be here."""

    stream: str
    epoch: bytes
    cursor: int
    chain: bytes
    own: tuple[tuple[int, int], ...]


class FollowedTask(msgspec.Struct, frozen=True):
    """A followed task, without its content. `waiting` counts entries without a relay_seq (own and ranked)."""

    task: str
    streams: tuple[FollowedStream, ...]
    waiting: int


class StoreStats(msgspec.Struct, frozen=True):
    """Sizes of the store. Bytes are of the whole file set (database and log); counts are rows."""

    store_bytes: int
    tasks: int
    entries: int
    waiting: int
    blobs: int
    blob_bytes: int
    set_aside: int
    quarantined: int


class StreamSize(msgspec.Struct, frozen=True):
    """Sizes of one stream: its `entries`, the bytes of their payloads, and of the compacted document (not zipped).

    `oldest_at_ms` is the earliest time that one of the entries names, by its writer's own clock; 0 if none does.
    """

    stream: str
    entries: int
    entry_bytes: int
    document_bytes: int
    oldest_at_ms: int


class TaskSize(msgspec.Struct, frozen=True):
    """Sizes of one task; streams in the order of their ids. What was set aside is not counted."""

    task: str
    streams: tuple[StreamSize, ...]
    blobs: int
    blob_bytes: int
