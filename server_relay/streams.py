"""What a relay holds in memory of a task that somebody follows: its logs' heads, writer tables, blobs and waiting work.

A task is loaded at its first frame and forgotten some time after its last follower left. While something must be read
from the mailbox, the task is *busy*: its frames wait in line, in order.
"""

from collections import deque

from msgspec.structs import replace

from server_relay.effects import FoundEntry, FoundPlace, KeysRead, LookedUp, RelayRead
from server_relay.key_records import ApprovalRow, TaskGuard
from server_relay.records import (
    AppendStored,
    BlobRow,
    Cover,
    PutGuard,
    StartStream,
    StoredEntry,
    StoredWriter,
    StreamImage,
    TaskImage,
    Tombstone,
)
from server_relay.sessions import Follow, LeaseOver, Session
from server_relay.summary import TaskSteps
from sync_core.entry import CHAIN_START, Entry, WriterRow, chain_next, stored_form
from sync_core.frames import SnapshotRef, StreamHead
from sync_core.ids import StreamName, stream_id
from sync_core.wire import ClientFrame

__all__ = ["DIGEST_BYTES", "Job", "Known", "Order", "Run", "StreamLog", "Sweep", "TaskLog"]

DIGEST_BYTES = 32


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
    """Fresh entries [start:end] of one stream that one connection pushed; `session` is None for the relay's own."""

    __slots__ = ("device", "end", "name", "session", "start")

    def __init__(self, name: StreamName, session: Session | None, device: str, start: int) -> None:
        self.name = name
        self.session = session
        self.device = device
        self.start = start
        self.end = start


class Known:
    """What was read for a waiting frame; None stands for what is not there. `digest` is of the blob that a piece ends,
    `named` are the blobs that entries name.

    A blob's bytes are taken out by whoever uses them, so that a frame holds one at a time. `approvals` are by call,
    `labels` those whose rows are in the keyring now.
    """

    __slots__ = ("approvals", "blobs", "digest", "entries", "labels", "named", "places")

    def __init__(self) -> None:
        self.entries: dict[tuple[StreamName, int, int], FoundEntry | None] = {}
        self.places: dict[tuple[StreamName, int], FoundPlace] = {}
        self.blobs: dict[str, bytes | None] = {}
        self.digest: str | None = None
        self.named: frozenset[str] | None = None
        self.approvals: dict[tuple[int, str, str, str], tuple[ApprovalRow, ...]] = {}
        self.labels: set[tuple[str, str]] = set()

    def take_keys(self, answer: KeysRead) -> None:
        """Take over what was found of this frame's task alone."""
        self.labels.update(answer.asked.labels)
        for call in answer.asked.calls:
            self.approvals[call] = tuple(
                row for row in answer.approvals if (row.version, row.step, row.tool, row.digest) == call
            )

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


class Order:
    """Stands in a task's line for a frame: the operator orders that the task be purged."""


class Job:
    """A frame in line, with what has been read for it; `session` is None for the relay's own frames."""

    __slots__ = ("_known", "frame", "session")

    def __init__(self, session: Session | None, frame: ClientFrame | LeaseOver | Sweep | Order) -> None:
        self.session = session
        self.frame = frame
        self._known: Known | None = None

    @property
    def known(self) -> Known:
        """What has been read for the frame; most frames wait for nothing."""
        if self._known is None:
            self._known = Known()
        return self._known


class TaskLog:
    """One task, `key` in the relay. `fresh` are the entries stored in this turn, `runs` who pushed them, `raised` whose
    rows rose; `tombstone` is what an earlier purge or clean-up left; `guard_changed` says that the mailbox does not
    have `guard` yet."""

    def __init__(self, subject: str, task: str, now_ms: int) -> None:
        self.subject = subject
        self.task = task
        self.key = (subject, task)
        self.names = {stream_id(task, name): name for name in StreamName}
        self.used_ms = now_ms
        self.waiting: deque[Job] = deque()
        self.awaited = 0
        self.followers: dict[int, tuple[Session, Follow]] = {}
        self.fresh: list[StoredEntry] = []
        self.runs: list[Run] = []
        self.covers: list[Cover] = []
        self.raised: dict[tuple[StreamLog, int], None] = {}
        self.load(TaskImage(subject, task))

    def load(self, image: TaskImage) -> None:
        """Take over what the mailbox keeps."""
        self.head_no = image.stored_no
        self.streams = {stream.name: StreamLog(self.task, stream) for stream in image.streams}
        self.blobs: dict[str, BlobRow] = {blob.sha256: blob for blob in image.blobs}
        self.steps = TaskSteps(image.summary, image.steps, image.completions)
        self.tombstone: Tombstone | None = image.tombstone
        self.guard = image.guard
        self.guard_changed = False

    @property
    def purged(self) -> Tombstone | None:
        """The tombstone of a task that was purged and not begun anew."""
        tombstone = self.tombstone
        return tombstone if tombstone is not None and tombstone.version and not tombstone.begun_anew else None

    @property
    def known(self) -> bool:
        """Whether anything was ever stored."""
        return self.head_no > 0

    def stream(self, name: StreamName) -> StreamLog:
        """Return a stream, a new one without an epoch if there is none; it joins the task with its first entry."""
        return self.streams.get(name) or StreamLog(self.task, StreamImage(name, b"", 0, CHAIN_START, 1, None, None, ()))

    def put_guard(self, guard: TaskGuard) -> None:
        """Replace what guards the task."""
        self.guard_changed = self.guard_changed or guard != self.guard
        self.guard = guard

    def take_guard(self) -> PutGuard:
        """Return the write of what guards the task."""
        self.guard_changed = False
        return PutGuard(self.subject, self.task, self.guard)

    def start(self, stream: StreamLog, epoch: bytes) -> StartStream:
        """Let a stream begin, under its first epoch; returns the write, which precedes that of its first entry."""
        stream.epoch = epoch
        self.streams[stream.name] = stream
        # A task that begins behind its subject's barrier was loaded as lost, and had no row to say so.
        self.guard_changed = self.guard_changed or (self.guard.lost and not self.known)
        return StartStream(self.subject, self.task, stream.name, epoch)

    def append(
        self, entry: Entry, stream: StreamLog, session: Session | None, device: str, vouched_by: str | None = None
    ) -> StoredEntry:
        """Give an entry the next place of its stream, which has begun; `device` is that of the session."""
        stream.head += 1
        self.head_no += 1
        content_hash, wire = stored_form(entry, stream.head, vouched_by)
        stream.chain = chain_next(stream.chain, content_hash)
        stored = StoredEntry(
            self.head_no, stream.name, stream.head, entry.writer, entry.writer_seq, content_hash, stream.chain, wire
        )
        self.steps.apply(entry)
        last = self.runs[-1] if self.runs else None
        if last is None or last.session is not session or last.name is not stream.name:
            last = Run(stream.name, session, device, len(self.fresh))
            self.runs.append(last)
        last.end += 1
        self.fresh.append(stored)
        return stored

    def raise_writer(self, stream: StreamLog, row: WriterRow, principal: str) -> None:
        """Put a row of a stream's writer table."""
        stream.writers[row.writer] = row
        if principal:
            stream.principals.setdefault(row.writer, principal)
        self.raised[stream, row.writer] = None

    def await_reads(self, reads: tuple[RelayRead, ...]) -> tuple[RelayRead, ...]:
        """Keep the line waiting until these reads are answered; returns them."""
        self.awaited += len(reads)
        return reads

    def take_fresh(self, now_ms: int) -> AppendStored:
        """Return this turn's write and begin a new turn; the caller has delivered `fresh` before."""
        said = any(entry.name is StreamName.HISTORY for entry in self.fresh)
        if self.steps.has_completions:
            self.steps.judge({name: stream.writers.values() for name, stream in self.streams.items()})
        summary = self.steps.summary
        self.steps.summary = replace(summary, stored_at_ms=now_ms, cleaned=summary.cleaned and not said)
        write = AppendStored(
            self.subject,
            self.task,
            tuple(self.fresh),
            tuple(
                StoredWriter(stream.name, stream.writers[writer], stream.principals.get(writer, ""))
                for stream, writer in self.raised
            ),
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
