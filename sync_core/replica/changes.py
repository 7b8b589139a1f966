"""What a Replica announces, after it is durable, to whoever watches a task."""

from enum import StrEnum

import msgspec

from sync_core.document.approvals import RequestedApproval
from sync_core.document.slots import Slot

__all__ = [
    "ApprovalChanged",
    "CallChanged",
    "Change",
    "Completed",
    "EntryQuarantined",
    "EntrySetAside",
    "HandOverChanged",
    "HistoryChanged",
    "LinkState",
    "LogChanged",
    "NoteChanged",
    "Resync",
    "SlotChanged",
    "Status",
    "TaskDiverged",
    "TaskPurged",
    "VersionChanged",
]


class LinkState(StrEnum):
    """Where the session with the relay stands."""

    OFFLINE = "offline"
    CONNECTING = "connecting"
    SYNCING = "syncing"
    LIVE = "live"
    REFUSED = "refused"


class Status(msgspec.Struct, frozen=True):
    """`endpoint.status`. `reason` says why it is refused or offline; counts are entries over all followed tasks.

    `role` is what the relay lets this device do, empty before it has said so; `authority` whether it rules on guarded
    calls, None while it is not connected.
    `growing` are open tasks near the bound of their writes: complete them, or go on in a new task.
    """

    link: LinkState
    reason: str = ""
    unsent: int = 0
    set_aside: int = 0
    quarantined: int = 0
    diverged: tuple[str, ...] = ()
    growing: tuple[str, ...] = ()
    role: str = ""
    authority: bool | None = None


class SlotChanged(msgspec.Struct, frozen=True, tag="slot"):
    """A slot changed; `slot` carries its own read token."""

    task: str
    slot: Slot
    local: bool


class NoteChanged(msgspec.Struct, frozen=True, tag="note"):
    task: str
    name: str
    content_sha256: str
    local: bool


class CallChanged(msgspec.Struct, frozen=True, tag="call"):
    task: str
    version: int
    step: str
    local: bool


class ApprovalChanged(msgspec.Struct, frozen=True, tag="approval"):
    """A request for approval was made, or the authority ruled on it; `request` is how it stands."""

    task: str
    request: RequestedApproval
    local: bool


class HistoryChanged(msgspec.Struct, frozen=True, tag="history"):
    task: str
    local: bool


class VersionChanged(msgspec.Struct, frozen=True, tag="version"):
    task: str
    version: int
    local: bool


class HandOverChanged(msgspec.Struct, frozen=True, tag="handover"):
    """A hand-over of this business version came, was stored at the relay, or another one came to stand."""

    task: str
    version: int
    local: bool


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    task: str
    local: bool


class LogChanged(msgspec.Struct, frozen=True, tag="log"):
    """The relay's log of a stream was lost or restored (rule J); what this device holds is being sent back."""

    task: str
    stream: str


class EntrySetAside(msgspec.Struct, frozen=True, tag="set_aside"):
    """An own entry was refused for what it is; it is kept in the file, out of document and outbox."""

    task: str
    stream: str
    writer_seq: int
    code: str


class EntryQuarantined(msgspec.Struct, frozen=True, tag="quarantined"):
    """An entry of the log could not be merged; it counts as consumed and its writer is closed."""

    task: str
    stream: str
    relay_seq: int
    device: str


class TaskDiverged(msgspec.Struct, frozen=True, tag="diverged"):
    """Another device holds other content at the same place, and a rebuild did not help."""

    task: str
    stream: str
    device: str


class TaskPurged(msgspec.Struct, frozen=True, tag="purged"):
    """The task was deleted everywhere on purpose, here or elsewhere; `reason` is purged, expired or completed.

    `set_aside` entries of this device had never been sent: they are kept in its file, out of everything else.
    """

    task: str
    version: int
    reason: str
    set_aside: int


class Resync(msgspec.Struct, frozen=True, tag="resync"):
    """The watcher was too slow: changes were dropped, read the task anew."""

    task: str


Change = (
    SlotChanged
    | NoteChanged
    | CallChanged
    | ApprovalChanged
    | HistoryChanged
    | VersionChanged
    | HandOverChanged
    | Completed
    | LogChanged
    | EntrySetAside
    | EntryQuarantined
    | TaskDiverged
    | TaskPurged
    | Resync
)
