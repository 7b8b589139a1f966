"""What a relay holds of each connection, and of the turn that it is in."""

from collections import deque

import msgspec

from server_relay.admission import Grant
from server_relay.allowance import Allowance
from server_relay.effects import Close, RelayEffect, RelayRead, Send, Written
from server_relay.records import MailboxWrite
from sync_core.frames import BlobWanted, ListTasks, StreamPosition
from sync_core.ids import StreamName
from sync_core.limits import FRAME_BYTES_MAX, OUT_QUEUE_BYTES_MAX
from sync_core.wire import ClientFrame, RelayFrame, encode_frame

__all__ = [
    "CLOSE_POLICY",
    "CLOSE_TRY_LATER",
    "REQUESTS_MAX",
    "Errand",
    "Follow",
    "LeaseOver",
    "Request",
    "Session",
    "Turn",
]

CLOSE_POLICY = 1008
"""Websocket close code: this connection broke a rule; a `Refused` frame before it says which."""
CLOSE_TRY_LATER = 1013
"""Websocket close code: connect again later, with the same credentials."""

REQUESTS_MAX = 512
"""Listings and blob pieces that may wait on one connection."""

_REPLIES_BYTES_MAX = OUT_QUEUE_BYTES_MAX + 2 * FRAME_BYTES_MAX

Request = ListTasks | BlobWanted


class Follow:
    """Where one connection is in one task.

    `sent_no`: it was sent everything up to this stored_no. `skip`: entries at or below this place of their stream are
    on the device already. `own`: for (stream, own writer), the highest writer_seq whose payload is on the device.
    `waits`: nothing is sent before it says Hello again. `queued`: it is in its session's line of tasks to catch up.
    """

    __slots__ = ("own", "queued", "sent_no", "skip", "waits")

    def __init__(
        self, sent_no: int, skip: dict[StreamName, int], own: dict[tuple[StreamName, int], int], waits: bool
    ) -> None:
        self.sent_no = sent_no
        self.skip = skip
        self.own = own
        self.waits = waits
        self.queued = False


class Session:
    """One connection. `grant` is None before login; `closed` once the relay gave it up, `gone` once it is no more.

    `out_bytes` wait to be written to it, as far as the relay knows; `progress_ms` is when they last became fewer.
    `reused` are the (stream, writer) of which a number was refused as used for something else: what follows was written
    on top of that, and is refused for the same reason; the device writes it again under another id.
    `allowance` is what its device may still send, shared with the device's other connections.
    `behind` is the line of tasks to catch up, `reading` the follow (or request) whose read is under way.
    """

    __slots__ = (
        "address",
        "allowance",
        "behind",
        "closed",
        "conn",
        "follows",
        "frames",
        "gone",
        "grant",
        "out_bytes",
        "pages",
        "progress_ms",
        "reading",
        "requests",
        "reused",
        "since_ms",
    )

    def __init__(self, conn: int, address: str, now_ms: int) -> None:
        self.conn = conn
        self.address = address
        self.since_ms = now_ms
        self.grant: Grant | None = None
        self.allowance = Allowance(now_ms)
        self.closed = False
        self.gone = False
        self.out_bytes = 0
        self.progress_ms = now_ms
        self.frames: list[bytes] = []
        self.follows: dict[str, Follow] = {}
        self.pages: dict[str, list[StreamPosition]] = {}
        self.behind: deque[str] = deque()
        self.requests: deque[Request] = deque()
        self.reused: set[tuple[str, int]] = set()
        self.reading: Follow | Request | None = None

    def has_room(self, size: int) -> bool:
        """Whether entries of this size may join the out-queue; replies and receipts are not asked."""
        return self.out_bytes + size <= OUT_QUEUE_BYTES_MAX

    def drained(self, out_bytes: int, now_ms: int) -> None:
        """Take note of what still waits in the driver's out-queue."""
        if out_bytes < self.out_bytes:
            self.progress_ms = now_ms
        self.out_bytes = out_bytes

    def fall_behind(self, task: str, follow: Follow) -> None:
        """Put a task at the end of the line to catch up, once."""
        if not follow.queued:
            follow.queued = True
            self.behind.append(task)


class LeaseOver(msgspec.Struct, frozen=True):
    """The relay's own frame: the lease of the key at this place is over, which is ruled on in its holder's task."""

    place: str


class Errand(msgspec.Struct, frozen=True):
    """A frame for the line of a task, from the line of another one or from the relay itself (then without session)."""

    subject: str
    task: str
    session: Session | None
    frame: ClientFrame | LeaseOver


class Turn:
    """What the events of one turn come to: writes, what each connection is sent, who is closed, what is to be read.

    `errands` are still to be put into the lines of other tasks.
    """

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.writes: list[MailboxWrite] = []
        self.reads: list[RelayRead] = []
        self.closes: list[Close] = []
        self.errands: list[Errand] = []
        self.speaking: dict[int, Session] = {}
        self.pump: dict[int, Session] = {}

    def reply(self, session: Session, frame: RelayFrame) -> None:
        """Send one frame."""
        self.send(session, [encode_frame(frame)])

    def send(self, session: Session, frames: list[bytes]) -> None:
        """Send encoded frames; a session that asks and does not read the answers is closed."""
        if session.closed or session.gone:
            return
        if not session.out_bytes:
            session.progress_ms = self.now_ms
        session.frames += frames
        session.out_bytes += sum(map(len, frames))
        self.speaking[session.conn] = session
        if session.out_bytes > _REPLIES_BYTES_MAX:
            self.close(session, CLOSE_TRY_LATER, "too much waits to be read")

    def close(self, session: Session, code: int, reason: str) -> None:
        """Close a connection behind what it was sent; nothing more is taken from it."""
        if not session.closed:
            session.closed = True
            self.closes.append(Close(session.conn, code, reason))

    def effects(self) -> list[RelayEffect]:
        """Return the effects: all writes, then what is sent and closed, then the reads."""
        effects: list[RelayEffect] = [Written(write) for write in self.writes]
        for conn, session in self.speaking.items():
            effects.append(Send(conn, tuple(session.frames)))
            session.frames.clear()
        effects += self.closes
        effects += self.reads
        return effects
