"""The frames of the wire: what endpoint and relay say to each other; what is asked of the authority is in `petitions`.

A session: the endpoint sends `Login`, the relay answers `Welcome` or `Refused`. For each task that it follows the
endpoint sends `Hello` (again to resume, or to ask for the heads); the relay answers `Heads`, then whatever is stored
above the cursors, in the order in which it stored it, then what arrives. Own entries up to the highest writer_seq that
Hello named come as `Receipt` (their payload is on the device), any other own entry in full.

Every frame that speaks of places of a log carries the log's epoch; a frame of another epoch is ignored.
"""

from enum import StrEnum

import msgspec

from sync_core.entry import Entry
from sync_core.ids import StreamName

__all__ = [
    "WIRE_VERSION",
    "BlobAbsent",
    "BlobMissing",
    "BlobPiece",
    "BlobStored",
    "BlobWanted",
    "DigestAt",
    "Entries",
    "Heads",
    "Hello",
    "ListTasks",
    "Listing",
    "Login",
    "PlannedStep",
    "Purge",
    "Push",
    "Receipt",
    "Refusal",
    "RefusalCode",
    "Refused",
    "SnapshotConfirmed",
    "SnapshotOffer",
    "SnapshotRef",
    "SnapshotWanted",
    "StreamHead",
    "StreamPosition",
    "TaskListing",
    "Unfollow",
    "Welcome",
]

WIRE_VERSION = 1


class RefusalCode(StrEnum):
    """Why an entry was not stored.

    `GAP` asks for a resend from `expected_seq`; `BLOB_MISSING` for the blob first; `STORE` for the same again later.
    `WRITER_REUSED` and `WRITER_CLOSED` ask that the operations be written again, once, under a new id.
    All others set the entry aside (rule E).
    """

    GAP = "gap"
    BLOB_MISSING = "blob_missing"
    STORE = "store"
    WRITER_REUSED = "writer_reused"
    WRITER_CLOSED = "writer_closed"
    GUARD = "guard"
    ROLE = "role"
    TOMBSTONE = "tombstone"
    TOO_LARGE = "too_large"
    LIMIT = "limit"
    HELD_BY_AUTHORITY = "held_by_authority"


class _Frame(msgspec.Struct, frozen=True, array_like=True): ...


# --- endpoint to relay ------------------------------------------------------------------------------------------------


class Login(_Frame, frozen=True, tag="login"):
    """First frame of a session; `token` is empty only for an open loopback relay."""

    wire_version: int
    subject: str
    device: str
    token: str = ""


class StreamPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a device is in a stream. `own`: (own writer, highest writer_seq in this file), only writers with an entry
    above the cursor or without a number. `epoch` is empty and `cursor` 0 if it never read the stream."""

    name: StreamName
    epoch: bytes
    cursor: int
    chain: bytes
    own: tuple[tuple[int, int], ...] = ()


class Hello(_Frame, frozen=True, tag="hello"):
    """Follow a task from these places. `more` says that another page with further `own` writers comes.

    `number` counts the endpoint's Hellos of a task; the answer carries it.
    """

    task: str
    streams: tuple[StreamPosition, ...] = ()
    more: bool = False
    number: int = 0


class Unfollow(_Frame, frozen=True, tag="unfollow"):
    """Stop sending a task."""

    task: str


class Push(_Frame, frozen=True, tag="push"):
    """Store these entries of one task, in this order. `recovered`: rule J, `relay_seq` is then the place in the old
    epoch's log, and the entries may be of any writer."""

    task: str
    entries: tuple[Entry, ...]
    recovered: bool = False


class BlobPiece(_Frame, frozen=True, tag="piece"):
    """Bytes of a blob from `offset`; used in both directions. `size_bytes` is the whole blob's."""

    task: str
    sha256: str
    offset: int
    size_bytes: int
    data: bytes


class BlobWanted(_Frame, frozen=True, tag="want"):
    """Send the blob from `offset`; one piece is sent per request."""

    task: str
    sha256: str
    offset: int = 0


class BlobAbsent(_Frame, frozen=True, tag="absent"):
    """The sender declares that it cannot deliver this blob (lost, damaged, refused)."""

    task: str
    sha256: str


class ListTasks(_Frame, frozen=True, tag="list"):
    """List the subject's tasks with this prefix, in key order, after a key; answered by one `Listing`."""

    request: int
    prefix: str = ""
    after: str = ""


class Purge(_Frame, frozen=True, tag="purge"):
    """Delete a task everywhere and leave a tombstone. `epochs` are those of the logs that go.

    `recovered`: the tombstone of an earlier purge is brought back to a relay that may have lost it (rule J); it is then
    of that version and changes nothing of a task that has a higher one. Answered by `Heads`.
    """

    task: str
    version: int
    epochs: tuple[bytes, ...] = ()
    reason: str = "purged"
    recovered: bool = False


class DigestAt(_Frame, frozen=True, tag="digest"):
    """A device's digest of a stream at one place; the relay passes it to the other followers (rule B)."""

    stream: str
    epoch: bytes
    relay_seq: int
    digest: bytes
    device: str = ""


class SnapshotOffer(_Frame, frozen=True, tag="offer"):
    """A snapshot lies at the relay as a blob of the task; compare-and-swap against `previous` ('' for none)."""

    stream: str
    epoch: bytes
    covers_seq: int
    digest: bytes
    sha256: str
    previous: str = ""


class SnapshotConfirmed(_Frame, frozen=True, tag="confirm"):
    """A device computed the same digest at that place, or downloaded the snapshot afresh and checked it."""

    stream: str
    epoch: bytes
    sha256: str
    digest: bytes


# --- relay to endpoint ------------------------------------------------------------------------------------------------


class Welcome(_Frame, frozen=True, tag="welcome"):
    """The session is open. `role` is read, write, … ; `relay_time_ms` is the relay's clock (rule K).

    `authority`: the relay rules on guarded calls, which a volatile one does not. `lives_ms` is how much longer the
    token lives, 0 if it never ends; another `Login` of the same device with a fresh token renews it, and is welcomed
    again.
    """

    wire_version: int
    relay_time_ms: int
    role: str
    principal: str
    authority: bool = False
    lives_ms: int = 0


class Refused(_Frame, frozen=True, tag="refused"):
    """The session is not open, or ends. `final` says that trying again with the same credentials is useless."""

    code: str
    sentence: str
    hint: str
    final: bool = False


class SnapshotRef(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot that lies at the relay. `usable` once its digest was confirmed (rule F)."""

    covers_seq: int
    sha256: str
    digest: bytes
    device: str
    usable: bool


class StreamHead(msgspec.Struct, frozen=True, array_like=True):
    """A stream's identity and head at the relay. `tail_from` is the lowest place still served as an entry.

    `emptied`: the log that this device named was emptied on purpose (clean-up or purge) and is not to be brought back.
    """

    name: StreamName
    epoch: bytes
    head: int
    tail_from: int = 1
    snapshot: SnapshotRef | None = None
    emptied: bool = False


class Heads(_Frame, frozen=True, tag="heads"):
    """Answer to Hello. `known` is false if the relay has nothing of the task. Streams without an entry are left out.

    `answers` is the Hello's number, 0 if nobody asked: a snapshot was offered, or the log has a new epoch; then the
    relay sends nothing of the task before the next Hello. `purged_version` is not 0 for a task that was purged and not
    opened again, or of which the asker named a log of before that: the business version that it had; `purged_for` says
    why (purged, expired, completed).
    """

    task: str
    known: bool
    streams: tuple[StreamHead, ...]
    relay_time_ms: int
    answers: int = 0
    purged_version: int = 0
    purged_for: str = ""


class Entries(_Frame, frozen=True, tag="entries"):
    """Stored entries of one stream, consecutive places, each with its `relay_seq`."""

    stream: str
    epoch: bytes
    entries: tuple[Entry, ...]


class Receipt(_Frame, frozen=True, tag="receipt"):
    """A writer's entries first_seq..last_seq are fsynced at places first_relay_seq.. without a hole (promise P2).

    `covered`: they have no places of their own, all of them lie within the recovered snapshot at first_relay_seq.
    `chain` is the chain at the last place: with it the device proves that what it holds under these numbers is what
    the log holds (rule D). It is empty where the relay has compared the content itself.
    """

    stream: str
    epoch: bytes
    writer: int
    first_seq: int
    last_seq: int
    first_relay_seq: int
    covered: bool = False
    chain: bytes = b""


class Refusal(_Frame, frozen=True, tag="refusal"):
    """An entry was not stored; `expected_seq` is the writer's next number at the relay."""

    stream: str
    writer: int
    writer_seq: int
    code: RefusalCode
    sentence: str
    expected_seq: int = 0


class BlobStored(_Frame, frozen=True, tag="stored"):
    """The relay holds the blob up to `offset`; complete, verified and fsynced if `offset` is its size."""

    task: str
    sha256: str
    offset: int
    complete: bool


class BlobMissing(_Frame, frozen=True, tag="missing"):
    """The relay does not have the blob; `absent` if a device declared that it cannot be delivered."""

    task: str
    sha256: str
    absent: bool = False


class PlannedStep(msgspec.Struct, frozen=True, array_like=True):
    """A step that has a plan and no success yet."""

    step: str
    tool: str
    requires: tuple[str, ...]


class TaskListing(msgspec.Struct, frozen=True, array_like=True):
    """What the relay can say of a task without the document."""

    task: str
    version: int
    planned: tuple[PlannedStep, ...]
    calls_done: int
    calls_in_doubt: int
    completed: bool
    stored_at_ms: int


class Listing(_Frame, frozen=True, tag="listing"):
    """Answer to `ListTasks`; `more` says that further tasks follow the last one."""

    request: int
    tasks: tuple[TaskListing, ...]
    more: bool


class SnapshotWanted(_Frame, frozen=True, tag="snapshot"):
    """The tail is long: this device is asked to offer a snapshot of the stream."""

    stream: str
