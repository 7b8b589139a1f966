"""What a mailbox keeps, and the writes that change it: plain values, no storage.

Every key starts with (subject, task): a byte of one subject cannot be reached through the key of another. The writes
of one commit are carried out in order, all of them or none.
"""

import msgspec

from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, SubjectRow, TaskGuard
from sync_core.completion import GivenCompletion
from sync_core.entry import WriterRow
from sync_core.frames import SnapshotRef
from sync_core.ids import StreamName

__all__ = [
    "AppendStored",
    "BlobRow",
    "Cover",
    "DropBlob",
    "EmptyStream",
    "EndKeys",
    "LowerBarrier",
    "MailboxStats",
    "MailboxWrite",
    "PassTime",
    "PurgeTask",
    "PutGuard",
    "PutKeys",
    "PutPiece",
    "PutTombstone",
    "SetBlobAbsent",
    "SetSnapshots",
    "StartStream",
    "StepRow",
    "StoredEntry",
    "StoredWriter",
    "StreamImage",
    "TaskImage",
    "TaskSummary",
    "Tombstone",
]

# --- rows -------------------------------------------------------------------------------------------------------------


class StoredEntry(msgspec.Struct, frozen=True):
    """An entry in the log.

    `stored_no` is its place in the order in which the task's entries were stored, across streams; `relay_seq` its place
    in the stream. `wire` is the whole entry with its relay_seq, encoded: readers are sent these bytes as they are.
    """

    stored_no: int
    name: StreamName
    relay_seq: int
    writer: int
    writer_seq: int
    content_hash: bytes
    chain: bytes
    wire: bytes


class StoredWriter(msgspec.Struct, frozen=True):
    """A row of a stream's writer table, and who signed in when the id was first used ('' if that is not known)."""

    name: StreamName
    row: WriterRow
    principal: str


class Cover(msgspec.Struct, frozen=True):
    """Entries first_seq..last_seq of a writer have no place of their own: a recovered snapshot at `relay_seq` holds
    them (rule J)."""

    name: StreamName
    writer: int
    first_seq: int
    last_seq: int
    relay_seq: int


class StepRow(msgspec.Struct, frozen=True):
    """What the relay knows of a step, for the listing. `open` are attempts without an outcome."""

    version: int
    step: str
    planned: bool = False
    tool: str = ""
    requires: tuple[str, ...] = ()
    done: bool = False
    open: tuple[str, ...] = ()


class TaskSummary(msgspec.Struct, frozen=True):
    """What a listing says of a task besides its planned steps. `stored_at_ms` is relay time.

    `completed` is about the standing version; `edited`: another device wrote what its author had not read. `cleaned`:
    history and what only it named are gone, and nothing was said since.
    """

    version: int = 1
    calls_done: int = 0
    calls_in_doubt: int = 0
    completed: bool = False
    stored_at_ms: int = 0
    edited: bool = False
    cleaned: bool = False


class BlobRow(msgspec.Struct, frozen=True):
    """A blob of a task: `held_bytes` from its start are kept; `complete` once all are there and match the hash.

    `absent`: a device declared that it cannot deliver it.
    """

    sha256: str
    size_bytes: int = 0
    held_bytes: int = 0
    complete: bool = False
    absent: bool = False


class Tombstone(msgspec.Struct, frozen=True):
    """What a purge or a clean-up leaves: the `epochs` of the logs that are gone, the newest last.

    `version` is the one that a purged task had, 0 for a task that was only cleaned up; `begun_anew`: since then, with a
    higher one. `at_ms` is relay time.
    """

    version: int = 0
    reason: str = ""
    at_ms: int = 0
    epochs: tuple[bytes, ...] = ()
    begun_anew: bool = False


class StreamImage(msgspec.Struct, frozen=True):
    """All that is kept of one stream, except its entries. `usable` was confirmed, `offered` waits for that (rule F)."""

    name: StreamName
    epoch: bytes
    head: int
    chain: bytes
    tail_from: int
    usable: SnapshotRef | None
    offered: SnapshotRef | None
    writers: tuple[StoredWriter, ...]


class TaskImage(msgspec.Struct, frozen=True):
    """All that is kept of one task, except entries and the bytes of blobs; `stored_no` 0 if nothing was stored."""

    subject: str
    task: str
    stored_no: int = 0
    summary: TaskSummary = TaskSummary()
    streams: tuple[StreamImage, ...] = ()
    steps: tuple[StepRow, ...] = ()
    blobs: tuple[BlobRow, ...] = ()
    completions: tuple[GivenCompletion, ...] = ()
    tombstone: Tombstone | None = None
    guard: TaskGuard = TaskGuard()


class MailboxStats(msgspec.Struct, frozen=True):
    """Sizes of a mailbox. Bytes are of the whole file set; counts are rows; `stored_at_ms` is the latest relay time
    that is known: of the last entry, or of the last `PassTime`."""

    store_bytes: int
    subjects: int
    tasks: int
    streams: int
    entries: int
    blobs: int
    blob_bytes: int
    stored_at_ms: int


# --- writes -----------------------------------------------------------------------------------------------------------


class _TaskWrite(msgspec.Struct, frozen=True):
    subject: str
    task: str


class StartStream(_TaskWrite, frozen=True):
    """Create the stream, or give it a new epoch: its entries keep their places, `tail_from` becomes 1 and no snapshot
    is known any more."""

    name: StreamName
    epoch: bytes


class AppendStored(_TaskWrite, frozen=True):
    """Append entries to the logs of a task, with all that follows from them: heads and chains (those of the last entry
    of each stream), raised writer rows, places covered by a recovered snapshot, changed steps, the summary, and the
    completions among the entries.

    (stream, writer, writer_seq) and (stream, relay_seq) are unique: a second one fails the commit.
    """

    entries: tuple[StoredEntry, ...]
    writers: tuple[StoredWriter, ...]
    covers: tuple[Cover, ...]
    steps: tuple[StepRow, ...]
    summary: TaskSummary
    completions: tuple[GivenCompletion, ...] = ()


class SetSnapshots(_TaskWrite, frozen=True):
    """Replace what is known of a stream's snapshots. Entries below `tail_from` leave the catch-up path, not the log."""

    name: StreamName
    usable: SnapshotRef | None
    offered: SnapshotRef | None
    tail_from: int


class PutPiece(_TaskWrite, frozen=True):
    """Keep the next bytes of a blob, at `offset`, the bytes held so far. `complete`: these are its last, and the whole
    matches its hash; it is absent no more."""

    sha256: str
    offset: int
    size_bytes: int
    data: bytes
    complete: bool


class DropBlob(_TaskWrite, frozen=True):
    """Forget the bytes of a blob that does not match its hash."""

    sha256: str


class SetBlobAbsent(_TaskWrite, frozen=True):
    """Remember that a device declared a blob absent."""

    sha256: str


class EmptyStream(_TaskWrite, frozen=True):
    """Delete what the log of a stream holds: entries, writer table, covers, snapshots. It begins anew, empty, under
    this epoch; what `stored_no` the task has reached stays."""

    name: StreamName
    epoch: bytes
    summary: TaskSummary


class PurgeTask(_TaskWrite, frozen=True):
    """Delete a task: streams, entries, writer tables, steps, completions, blobs. Only the tombstone stays, and its
    `at_ms` as the time of the last entry; `stored_no` begins anew."""

    tombstone: Tombstone


class PutTombstone(_TaskWrite, frozen=True):
    """Replace the tombstone that stands beside a task."""

    tombstone: Tombstone


class PassTime(msgspec.Struct, frozen=True):
    """Remember that relay time has come to `now_ms`, and forget the tombstones from before `tombstones_before_ms` and
    the keys of tasks that ended before `keys_before_ms`."""

    now_ms: int
    tombstones_before_ms: int
    keys_before_ms: int = 0


class PutGuard(_TaskWrite, frozen=True):
    """Replace what guards a task."""

    guard: TaskGuard


class PutKeys(_TaskWrite, frozen=True):
    """Put rows of the subject's keys, and the grants and approvals of the task; None leaves the subject's row alone."""

    subject_row: SubjectRow | None = None
    rows: tuple[KeyRow, ...] = ()
    grants: tuple[GrantRow, ...] = ()
    approvals: tuple[ApprovalRow, ...] = ()


class EndKeys(_TaskWrite, frozen=True):
    """The task ended at `at_ms`: from then on its keys are kept for their time, of a task whose log stays only those of
    entities. A key that is granted anew is kept again until its task ends."""

    at_ms: int
    entities_only: bool = False


class LowerBarrier(_TaskWrite, frozen=True):
    """Nothing is missing any more, in the whole subject: its barrier is 0, no task is lost, and each task's standing
    version is its opened one."""


_LogWrite = StartStream | AppendStored | SetSnapshots
_BlobWrite = PutPiece | DropBlob | SetBlobAbsent
_EndWrite = EmptyStream | PurgeTask | PutTombstone | PassTime
_GuardWrite = PutGuard | PutKeys | EndKeys | LowerBarrier
MailboxWrite = _LogWrite | _BlobWrite | _EndWrite | _GuardWrite
