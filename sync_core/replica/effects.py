"""What a Replica returns, and what it is told: effects and events.

Order is the contract. The driver takes the effects of one or more events, carries out all `Write`s in one commit, and
only then the others, in the order in which they were returned. If the commit fails, none of the others is carried out
and the Replica is told with `CommitFailed`.

A `Load…` effect reads what was written before it: the driver commits everything that it has collected so far, reads,
and hands the answer to the Replica before any other event; the answer's effects follow those of the asking event.
It is answered also after a commit that failed: the Replica then reads again what it had dropped.
"""

import msgspec

from sync_core.document.view import TaskView
from sync_core.errors import SegueError
from sync_core.replica.changes import Change, Status
from sync_core.replica.writes import TaskImage, Write
from sync_core.wire import ClientFrame, RelayFrame

__all__ = [
    "Announce",
    "BaseLoaded",
    "BlobLoaded",
    "CommitFailed",
    "Effect",
    "Event",
    "Fail",
    "FrameReceived",
    "HangUp",
    "LinkDown",
    "LinkFailed",
    "LinkUp",
    "LoadBase",
    "LoadBlob",
    "LoadTask",
    "RenewToken",
    "RenewalFailed",
    "Reply",
    "SendFrame",
    "StatusIs",
    "TaskLoaded",
    "Tick",
    "TokenRenewed",
    "Written",
]


class _Value(msgspec.Struct, frozen=True):
    pass


# --- effects ----------------------------------------------------------------------------------------------------------


class Written(_Value, frozen=True):
    """Make this durable: part of the next commit."""

    write: Write


class Reply(_Value, frozen=True):
    """Answer a command; the type of `value` stands behind the command."""

    ref: int
    value: object


class Fail(_Value, frozen=True):
    """Answer a command with an error."""

    ref: int
    error: SegueError


class Announce(_Value, frozen=True):
    """The durable view of a task is now this; tell its watchers what changed."""

    view: TaskView
    changes: tuple[Change, ...]


class StatusIs(_Value, frozen=True):
    """The endpoint's status changed."""

    status: Status


class SendFrame(_Value, frozen=True):
    """Send a frame on the link; dropped without harm if the link is gone."""

    frame: ClientFrame


class HangUp(_Value, frozen=True):
    """Close the link. `final`: the relay refused these credentials for good, do not connect again by yourself."""

    reason: str
    final: bool


class RenewToken(_Value, frozen=True):
    """The token ends soon: ask the source for a fresh one; answered by `TokenRenewed` or `RenewalFailed`."""


class LoadTask(_Value, frozen=True):
    """Read a task from the store and answer with `TaskLoaded`, before any other event of that task is handled."""

    task: str


class LoadBlob(_Value, frozen=True):
    """Read a blob and answer with `BlobLoaded`."""

    task: str
    sha256: str


class LoadBase(_Value, frozen=True):
    """Read a pinned base and answer with `BaseLoaded`."""

    task: str
    note: str
    sha256: str


Effect = Written | Reply | Fail | Announce | StatusIs | SendFrame | HangUp | RenewToken | LoadTask | LoadBlob | LoadBase

# --- events (besides commands) ----------------------------------------------------------------------------------------


class LinkUp(_Value, frozen=True):
    """A connection stands and nothing was sent on it; `token` is the credential for this attempt."""

    token: str


class LinkDown(_Value, frozen=True):
    """The connection is gone."""

    reason: str = ""


class LinkFailed(_Value, frozen=True):
    """No connection came about: no route, or the token source failed (`reason` starts with `credentials`)."""

    reason: str


class TokenRenewed(_Value, frozen=True):
    """A fresh token for the connection that stands."""

    token: str


class RenewalFailed(_Value, frozen=True):
    """No fresh token came (`reason` starts with `credentials`); the connection stands as it is."""

    reason: str


class FrameReceived(_Value, frozen=True):
    frame: RelayFrame


class Tick(_Value, frozen=True):
    """Time passed; sent about every 200 ms, and never needed for safety."""


class TaskLoaded(_Value, frozen=True):
    image: TaskImage


class BlobLoaded(_Value, frozen=True):
    task: str
    sha256: str
    data: bytes | None


class BaseLoaded(_Value, frozen=True):
    task: str
    note: str
    sha256: str
    state: bytes | None


class CommitFailed(_Value, frozen=True):
    """The commit of these effects failed; documents of the touched tasks are dropped and read again."""

    effects: tuple[Effect, ...]
    error: SegueError


Event = (
    LinkUp
    | LinkDown
    | LinkFailed
    | TokenRenewed
    | RenewalFailed
    | FrameReceived
    | Tick
    | TaskLoaded
    | BlobLoaded
    | BaseLoaded
    | CommitFailed
)
