"""What a Relay returns, and what it is told: effects and events.

Order is the contract. The driver takes the effects of one or more events and carries out

1. all `Written`s, in order, in one commit, fsynced; if that fails, none of the effects below is carried out and the
   Relay is told with `CommitFailed(effects, error)`;
2. every `Send` and `Close`, in the order in which they were returned;
3. every read (`LoadTask` and those after it below), which sees all
   writes that were returned before it, and is answered by its event before any other event is handled. A read that
   fails is reported like a commit that failed, with the reads that were not answered.
"""

from collections.abc import Callable

import msgspec

from server_relay.admission import Admit, Grant
from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, SubjectRow
from server_relay.records import MailboxWrite, StoredEntry, TaskImage
from sync_core.errors import SegueError
from sync_core.frames import TaskListing
from sync_core.ids import StreamName
from sync_core.wire import ClientFrame

__all__ = [
    "AccessChanged",
    "BlobHashed",
    "BlobRead",
    "Close",
    "CommitFailed",
    "Connected",
    "Disconnected",
    "Drained",
    "DueRead",
    "FoundEntry",
    "FoundPlace",
    "HashBlob",
    "KeysRead",
    "ListingRead",
    "LoadTask",
    "LookUp",
    "LookedUp",
    "Malformed",
    "NamedRead",
    "PieceRead",
    "PurgeOrdered",
    "ReadBlob",
    "ReadDue",
    "ReadKeys",
    "ReadListing",
    "ReadNamed",
    "ReadPiece",
    "ReadTail",
    "Received",
    "RelayAnswer",
    "RelayEffect",
    "RelayEvent",
    "RelayRead",
    "Send",
    "TailRead",
    "TaskLoaded",
    "Tick",
    "Written",
]


class _Value(msgspec.Struct, frozen=True):
    pass


class _TaskRead(_Value, frozen=True):
    subject: str
    task: str


# --- effects ----------------------------------------------------------------------------------------------------------


class Written(_Value, frozen=True):
    """Make this durable: part of the next commit."""

    write: MailboxWrite


class Send(_Value, frozen=True):
    """Send these encoded frames on a connection, in order, joined into messages; dropped without harm if it is gone."""

    conn: int
    frames: tuple[bytes, ...]


class Close(_Value, frozen=True):
    """Close a connection after what was sent on it before, with a websocket close code."""

    conn: int
    code: int
    reason: str


class LoadTask(_TaskRead, frozen=True):
    """Read a task; answered with `TaskLoaded`."""


class LookUp(_TaskRead, frozen=True):
    """Find entries by (stream, writer, writer_seq) and places by (stream, relay_seq); answered with `LookedUp`."""

    entries: tuple[tuple[StreamName, int, int], ...]
    places: tuple[tuple[StreamName, int], ...]


class ReadKeys(_TaskRead, frozen=True):
    """Read the subject's row and rows of its keys: those at these places, those of these labels, by (tool, label), and
    those of the attempts; of the task, these attempts' grants, and the approvals of these calls, by (version, step,
    tool, digest of the arguments). Answered with `KeysRead`."""

    places: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    attempts: tuple[str, ...] = ()
    calls: tuple[tuple[int, str, str, str], ...] = ()


class ReadTail(_TaskRead, frozen=True):
    """Read the task's entries behind `after_no`, in stored order, without those at or below `skip` of their stream:
    as many as fit `bytes_max`, at least one if there is any; answered with `TailRead`."""

    conn: int
    after_no: int
    skip: tuple[tuple[StreamName, int], ...]
    bytes_max: int


class ReadBlob(_TaskRead, frozen=True):
    """Read all bytes of a blob that are held; answered with `BlobRead`."""

    sha256: str


class HashBlob(_TaskRead, frozen=True):
    """Hash what is held of a blob, followed by `last`; answered with `BlobHashed`."""

    sha256: str
    last: bytes


class ReadPiece(_TaskRead, frozen=True):
    """Read at most `bytes_max` bytes of a complete blob from `offset`; answered with `PieceRead`."""

    conn: int
    sha256: str
    offset: int
    bytes_max: int


class ReadListing(_Value, frozen=True):
    """Read a page of a subject's tasks in key order, only those at or below the keys `within` unless that is None;
    answered with `ListingRead`."""

    conn: int
    subject: str
    request: int
    prefix: str
    after: str
    tasks_max: int
    within: tuple[str, ...] | None = None


class ReadNamed(_TaskRead, frozen=True):
    """Read which blobs the entries of a task name, but those of this stream; answered with `NamedRead`."""

    without: StreamName


class ReadDue(_Value, frozen=True):
    """Read which tasks are due, the oldest first, at most `tasks_max`; answered with `DueRead`.

    Due are those whose last entry was stored before `expire_before_ms`, and, before `clean_before_ms`, those that are
    completed, not edited and not cleaned. Times are relay time; 0 asks for none.
    """

    expire_before_ms: int
    clean_before_ms: int
    tasks_max: int


RelayRead = (
    LoadTask | LookUp | ReadKeys | ReadTail | ReadBlob | HashBlob | ReadPiece | ReadListing | ReadNamed | ReadDue
)
RelayEffect = Written | Send | Close | RelayRead

# --- events -----------------------------------------------------------------------------------------------------------


class Connected(_Value, frozen=True):
    """A connection was opened; `conn` is never used again for another one."""

    conn: int
    address: str


class Received(_Value, frozen=True):
    """A frame came; `size_bytes` is that of the message if this is its first frame, else 0."""

    conn: int
    frame: ClientFrame
    size_bytes: int = 0


class Malformed(_Value, frozen=True):
    """A message came that holds no frames, or is too large to be looked at; `reason` is what it counts as."""

    conn: int
    sentence: str
    reason: str = "protocol"


class Disconnected(_Value, frozen=True):
    """The connection is gone."""

    conn: int


class Drained(_Value, frozen=True):
    """`out_bytes` of what the Relay had sent on the connection now wait in the driver's out-queue.

    Handed over when no effects are outstanding, so that the figure holds for all that was sent before.
    """

    conn: int
    out_bytes: int


class AccessChanged(_Value, frozen=True):
    """Keys or the revocation list changed: logins are judged by `admit` from now on, and a connection whose grant no
    longer `stands` ends."""

    admit: Admit
    stands: Callable[[Grant], bool]


class PurgeOrdered(_Value, frozen=True):
    """The operator orders that a task be purged, whatever its version."""

    subject: str
    task: str


class Tick(_Value, frozen=True):
    """Time passed; sent about every second. `suspended`: relay time may not be trusted, so nothing expires (rule K)."""

    suspended: bool = False


class TaskLoaded(_Value, frozen=True):
    image: TaskImage


class FoundEntry(_Value, frozen=True):
    """Where an entry is. `content_hash` is empty if a recovered snapshot at that place covers it."""

    name: StreamName
    writer: int
    writer_seq: int
    relay_seq: int
    content_hash: bytes


class FoundPlace(_Value, frozen=True):
    """The chain at a place, empty if there is none, and the stored_no of the stream's next entry, 0 without one."""

    name: StreamName
    relay_seq: int
    chain: bytes
    next_no: int


class LookedUp(_Value, frozen=True):
    """What was found; `missing` are the entries that are nowhere."""

    subject: str
    task: str
    entries: tuple[FoundEntry, ...]
    missing: tuple[tuple[StreamName, int, int], ...]
    places: tuple[FoundPlace, ...]


class KeysRead(_Value, frozen=True):
    """What was asked for by `asked`, as far as it is there, each row once."""

    asked: ReadKeys
    subject_row: SubjectRow
    rows: tuple[KeyRow, ...]
    grants: tuple[GrantRow, ...]
    approvals: tuple[ApprovalRow, ...]


class TailRead(_Value, frozen=True):
    """Entries in stored order; nothing else that was asked for lies at or below `through_no`."""

    conn: int
    subject: str
    task: str
    entries: tuple[StoredEntry, ...]
    through_no: int


class BlobRead(_Value, frozen=True):
    """The held bytes of a blob; None if there are none."""

    subject: str
    task: str
    sha256: str
    data: bytes | None


class BlobHashed(_Value, frozen=True):
    """The SHA-256, in hex, of what was asked for."""

    subject: str
    task: str
    sha256: str
    digest: str


class PieceRead(_Value, frozen=True):
    conn: int
    task: str
    sha256: str
    offset: int
    size_bytes: int
    data: bytes


class ListingRead(_Value, frozen=True):
    conn: int
    request: int
    tasks: tuple[TaskListing, ...]
    more: bool


class NamedRead(_Value, frozen=True):
    """The SHA-256 of each blob that is named, once."""

    subject: str
    task: str
    sha256s: frozenset[str]


class DueRead(_Value, frozen=True):
    """(subject, task) of each task that is due; `more`: there are others."""

    tasks: tuple[tuple[str, str], ...]
    more: bool


class CommitFailed(_Value, frozen=True):
    """The store failed at these effects; none of them took place."""

    effects: tuple[RelayEffect, ...]
    error: SegueError


_LogAnswer = TaskLoaded | LookedUp | KeysRead | TailRead
RelayAnswer = _LogAnswer | BlobRead | BlobHashed | PieceRead | ListingRead | NamedRead | DueRead
RelayEvent = (
    Connected
    | Received
    | Malformed
    | Disconnected
    | Drained
    | AccessChanged
    | PurgeOrdered
    | Tick
    | RelayAnswer
    | CommitFailed
)
