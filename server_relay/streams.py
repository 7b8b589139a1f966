"""What a relay holds in memory of a task that somebody follows: its logs' heads, writer tables, blobs and waiting work.

A task is loaded at its first frame and forgotten some time after its last follower left. While something must be read
from the mailbox, the task is *busy*: its frames wait in line, in order.
"""

from collections import deque

from msgspec.structs import replace

from server_relay.effects import FoundEntry, FoundPlace, LookedUp, RelayRead
from server_relay.records import (
    AppendStored,
    BlobRow,
    Cover,
    StoredEntry,
    StoredWriter,
    StreamImage,
    TaskImage,
    Tombstone,
)
from server_relay.sessions import Follow, Session
from server_relay.summary import TaskSteps
from sync_core.entry import CHAIN_START, WriterRow
from sync_core.frames import SnapshotRef, StreamHead
from sync_core.ids import StreamName, stream_id
from sync_core.wire import ClientFrame

__all__ = ["DIGEST_BYTES", "EPOCH_BYTES", "Job", "Known", "Run", "StreamLog", "Sweep", "TaskLog"]

DIGEST_BYTES = 32
EPOCH_BYTES = 8


class StreamLog:
    """One stream: its epoch, head, chain at the head, writer table and snapshots."""

    __slots__ = (
        "asked_ms",
        "chain",
        "epoch",
        "head",
        "id",
        "name",
        "offered",
        "offered_conn",
        "principals",
        "tail_from",
        "usable",
        "writers",
    )

    def __init__(self, task: str, image: StreamImage) -> None:
        self.name = image.name
        self.id = stream_id(task, image.name)
        self.epoch = image.epoch
        self.head = image.head
        self.chain = image.chain
        self.tail_from = image.tail_from
        self.usable = image.usable
        self.offered = image.offered
        self.offered_conn = 0
        self.asked_ms: int | None = None
        self.writers: dict[int, WriterRow] = {stored.row.writer: stored.row for stored in image.writers}
        self.principals = {stored.row.writer: stored.principal for stored in image.writers if stored.principal}

    @property
    def latest(self) -> SnapshotRef | None:
        """The snapshot that a new offer must name as its previous one."""
        return self.offered or self.usable

    def start_epoch(self, epoch: bytes) -> None:
        """The log was lost or restored: its entries keep their places under a new epoch (rule J)."""
        self.epoch = epoch
        self.tail_from = 1
        self.usable = self.offered = None

    def needs_snapshot(self, cursor: int) -> bool:
        """Whether a reader at this cursor is to fetch the usable snapshot instead of entries."""
        return self.usable is not None and cursor + 1 < self.tail_from

    def head_for(self, cursor: int) -> StreamHead:
        """Return what Heads says of the stream to a reader at this cursor: the usable snapshot if it needs one, else
        the latest, which it may confirm."""
        snapshot = self.usable if self.needs_snapshot(cursor) else self.latest
        return StreamHead(self.name, self.epoch, self.head, self.tail_from, snapshot)


class Run:
    """Fresh entries [start:end] of one stream that one connection pushed."""

    __slots__ = ("device", "end", "name", "session", "start")

    def __init__(self, name: StreamName, session: Session, device: str, start: int) -> None:
        self.name = name
        self.session = session
        self.device = device
        self.start = start
        self.end = start


class Known:
    """What was read for a waiting frame; None stands for what is not there. `digest` is of the blob that a piece ends,
    `named` are the blobs that entries name.

    A blob's bytes are taken out by whoever uses them, so that a frame holds one at a time.
    """

    __slots__ = ("blobs", "digest", "entries", "named", "places")

    def __init__(self) -> None:
        self.entries: dict[tuple[StreamName, int, int], FoundEntry | None] = {}
        self.places: dict[tuple[StreamName, int], FoundPlace] = {}
        self.blobs: dict[str, bytes | None] = {}
        self.digest: str | None = None
        self.named: frozenset[str] | None = None

    def take(self, answer: LookedUp) -> None:
        """Take over what was found; what was looked for and is nowhere counts as known to be nowhere."""
        for key in answer.missing:
            self.entries[key] = None
        for entry in answer.entries:
            self.entries[entry.name, entry.writer, entry.writer_seq] = entry
        for place in answer.places:
            self.places[place.name, place.relay_seq] = place


class Sweep:
    """Stands in a task's line for a frame: see whether its time has come."""


class Job:
    """A frame in line, with what has been read for it."""

    __slots__ = ("frame", "known", "session")

    def __init__(self, session: Session, frame: ClientFrame | Sweep) -> None:
        self.session = session
        self.frame = frame
        self.known = Known()


class TaskLog:
    """One task. `fresh` are the entries stored in this turn, `runs` who pushed them; `tombstone` is what an earlier
    purge or clean-up left."""

    def __init__(self, subject: str, task: str, now_ms: int) -> None:
        self.subject = subject
        self.task = task
        self.names = {stream_id(task, name): name for name in StreamName}
        self.used_ms = now_ms
        self.waiting: deque[Job] = deque()
        self.awaited = 0
        self.followers: dict[int, tuple[Session, Follow]] = {}
        self.fresh: list[StoredEntry] = []
        self.runs: list[Run] = []
        self.covers: list[Cover] = []
        self.raised: dict[tuple[StreamName, int], StoredWriter] = {}
        self.load(TaskImage(subject, task))

    def load(self, image: TaskImage) -> None:
        """Take over what the mailbox keeps."""
        self.head_no = image.stored_no
        self.streams = {stream.name: StreamLog(self.task, stream) for stream in image.streams}
        self.blobs: dict[str, BlobRow] = {blob.sha256: blob for blob in image.blobs}
        self.steps = TaskSteps(image.summary, image.steps, image.completions)
        self.tombstone: Tombstone | None = image.tombstone

    @property
    def key(self) -> tuple[str, str]:
        """Its key in the relay."""
        return self.subject, self.task

    @property
    def purged(self) -> Tombstone | None:
        """The tombstone of a task that was purged and not begun anew."""
        return self.tombstone if self.tombstone is not None and self.tombstone.version else None

    @property
    def known(self) -> bool:
        """Whether anything was ever stored."""
        return self.head_no > 0

    def stream(self, name: StreamName) -> StreamLog:
        """Return a stream, a new one without an epoch if there is none; it joins the task with its first entry."""
        return self.streams.get(name) or StreamLog(self.task, StreamImage(name, b"", 0, CHAIN_START, 1, None, None, ()))

    def raise_writer(self, stream: StreamLog, row: WriterRow, principal: str) -> None:
        """Put a row of a stream's writer table."""
        stream.writers[row.writer] = row
        if principal:
            stream.principals.setdefault(row.writer, principal)
        stored = StoredWriter(stream.name, row, stream.principals.get(row.writer, ""))
        self.raised[stream.name, row.writer] = stored

    def await_reads(self, reads: tuple[RelayRead, ...]) -> tuple[RelayRead, ...]:
        """Keep the line waiting until these reads are answered; returns them."""
        self.awaited += len(reads)
        return reads

    def take_fresh(self, now_ms: int) -> AppendStored:
        """Return this turn's write and begin a new turn; the caller has delivered `fresh` before."""
        said = any(entry.name is StreamName.HISTORY for entry in self.fresh)
        self.steps.judge({name: stream.writers.values() for name, stream in self.streams.items()})
        summary = self.steps.summary
        self.steps.summary = replace(summary, stored_at_ms=now_ms, cleaned=summary.cleaned and not said)
        write = AppendStored(
            self.subject,
            self.task,
            tuple(self.fresh),
            tuple(self.raised.values()),
            tuple(self.covers),
            tuple(self.steps.changed.values()),
            self.steps.summary,
            tuple(self.steps.given),
        )
        self.fresh, self.runs, self.covers = [], [], []
        self.raised.clear()
        self.steps.changed.clear()
        self.steps.given.clear()
        return write
