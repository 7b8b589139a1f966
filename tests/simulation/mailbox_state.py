"""What `MailboxModel` holds: tasks, their logs, writer tables, steps and blobs, as plain dicts."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from server_relay.effects import (
    BlobHashed,
    BlobRead,
    DueRead,
    FoundEntry,
    FoundPlace,
    HashBlob,
    ListingRead,
    LoadTask,
    LookedUp,
    LookUp,
    NamedRead,
    PieceRead,
    ReadBlob,
    ReadDue,
    ReadKeys,
    ReadListing,
    ReadNamed,
    ReadPiece,
    ReadTail,
    RelayAnswer,
    RelayRead,
    TailRead,
    TaskLoaded,
)
from server_relay.key_records import EPOCH_BYTES, TaskGuard, lost_guard
from server_relay.records import (
    AppendStored,
    BlobRow,
    DropBlob,
    EmptyStream,
    EndKeys,
    LowerBarrier,
    MailboxStats,
    MailboxWrite,
    PassTime,
    PurgeTask,
    PutGuard,
    PutKeys,
    PutPiece,
    PutTombstone,
    SetBlobAbsent,
    SetSnapshots,
    StartStream,
    StoredEntry,
    StreamImage,
    TaskImage,
    TaskSummary,
)
from sync_core.entry import CHAIN_START, Entry
from sync_core.errors import StoreDamaged
from sync_core.frames import PlannedStep, TaskListing
from sync_core.ids import Entropy, StreamName
from tests.simulation.mailbox_keys import MailboxKeys
from tests.simulation.mailbox_task import StreamState, TaskState

__all__ = ["MailboxState"]

Key = tuple[str, str]


class MailboxState:
    """The content of a mailbox, with every write and read of the seam."""

    def __init__(self) -> None:
        self._tasks: dict[Key, TaskState] = {}
        self._relay_ms = 0
        self._keys = MailboxKeys()

    def copy(self) -> "MailboxState":
        """Return an independent copy; rows themselves are immutable and shared."""
        other = MailboxState()
        other._tasks = {key: task.copy() for key, task in self._tasks.items()}
        other._relay_ms = self._relay_ms
        other._keys = self._keys.copy()
        return other

    # --- writes ------------------------------------------------------------------------------------------------------

    def check(self, writes: Sequence[MailboxWrite]) -> None:
        """Raise `StoreDamaged` if an entry's key or place is taken, before anything is changed."""
        taken: set[tuple[object, ...]] = set()
        ended: dict[Key, TaskState] = {}
        for write in writes:
            if isinstance(write, (EmptyStream, PurgeTask)):
                # What comes after it in this commit finds the places free.
                key = (write.subject, write.task)
                before = ended.get(key) or self._tasks.get(key, TaskState())
                name = write.name if isinstance(write, EmptyStream) else None
                kept = {other: stream for other, stream in before.streams.items() if name not in (None, other)}
                ended[key] = TaskState(streams=kept, head_no=before.head_no if name is not None else 0)
                taken = {row for row in taken if row[:2] != key or name not in (None, row[2])}
            if not isinstance(write, AppendStored):
                continue
            task = ended.get((write.subject, write.task)) or self._tasks.get((write.subject, write.task), TaskState())
            for entry in write.entries:
                stream = task.streams.get(entry.name)
                number = (write.subject, write.task, entry.name, entry.writer, entry.writer_seq)
                place = (write.subject, write.task, entry.name, entry.relay_seq)
                known = stream is not None and (
                    (entry.writer, entry.writer_seq) in stream.numbers or entry.relay_seq <= len(stream.places)
                )
                if known or number in taken or place in taken or entry.stored_no <= task.head_no:
                    raise StoreDamaged("Two entries claim one place of the log.")
                taken |= {number, place}

    def apply(self, writes: Sequence[MailboxWrite]) -> None:
        """Carry out writes that passed `check`."""
        for write in writes:
            if isinstance(write, PassTime):
                self._pass_time(write)
                continue
            task = self._tasks.setdefault((write.subject, write.task), TaskState())
            match write:
                case EmptyStream():
                    task.log = [entry for entry in task.log if entry.name is not write.name]
                    image = StreamImage(write.name, write.epoch, 0, CHAIN_START, 1, None, None, ())
                    task.streams[write.name] = StreamState(image)
                    task.summary = write.summary
                case PurgeTask():
                    self._keys.purge((write.subject, write.task))
                    summary = TaskSummary(stored_at_ms=write.tombstone.at_ms)
                    self._tasks[write.subject, write.task] = TaskState(summary=summary, tombstone=write.tombstone)
                case PutTombstone():
                    task.tombstone = write.tombstone
                case StartStream():
                    self._start(task, write)
                case AppendStored():
                    self._append(task, write)
                case SetSnapshots():
                    stream = task.streams[write.name]
                    stream.image = replace(
                        stream.image, usable=write.usable, offered=write.offered, tail_from=write.tail_from
                    )
                case PutPiece():
                    data = task.bytes_of.get(write.sha256, b"")[: write.offset] + write.data
                    task.bytes_of[write.sha256] = data
                    absent = task.blobs.get(write.sha256, BlobRow(write.sha256)).absent and not write.complete
                    task.blobs[write.sha256] = BlobRow(
                        write.sha256, write.size_bytes, len(data), write.complete, absent
                    )
                case DropBlob():
                    task.blobs.pop(write.sha256, None)
                    task.bytes_of.pop(write.sha256, None)
                case SetBlobAbsent():
                    row = task.blobs.get(write.sha256, BlobRow(write.sha256))
                    task.blobs[write.sha256] = replace(row, absent=True)
                case PutGuard():
                    task.guard = write.guard
                case PutKeys():
                    self._keys.put(write)
                case EndKeys():
                    self._keys.end(write)
                case LowerBarrier():
                    self._lower(write.subject)

    def _lower(self, subject: str) -> None:
        self._keys.lower(subject)
        for (owner, _), task in self._tasks.items():
            if owner == subject:
                task.guard = replace(task.guard, lost=False, opened_version=task.summary.version)

    def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        """Give every stream a new epoch and raise every barrier."""
        for task in self._tasks.values():
            streams = [task.streams[name] for name in StreamName if name in task.streams]
            task.guard = lost_guard(task.guard, [stream.image.epoch for stream in streams])
            for stream in streams:
                epoch = entropy(EPOCH_BYTES)
                stream.image = replace(stream.image, epoch=epoch, tail_from=1, usable=None, offered=None)
        self._keys.raise_all({subject for subject, _ in self._tasks}, now_ms)

    def _pass_time(self, write: PassTime) -> None:
        self._relay_ms = write.now_ms
        for key, task in list(self._tasks.items()):
            if task.tombstone is not None and task.tombstone.at_ms < write.tombstones_before_ms:
                task.tombstone = None
                if not (task.streams or task.blobs):
                    del self._tasks[key]
        cleaned = {key: task.summary.cleaned for key, task in self._tasks.items() if task.head_no > 0}
        self._keys.pass_time(write.keys_before_ms, cleaned)

    def _start(self, task: TaskState, write: StartStream) -> None:
        stream = task.streams.get(write.name)
        if stream is None:
            image = StreamImage(write.name, write.epoch, 0, CHAIN_START, 1, None, None, ())
            task.streams[write.name] = StreamState(image)
        else:
            stream.image = replace(stream.image, epoch=write.epoch, tail_from=1, usable=None, offered=None)

    def _append(self, task: TaskState, write: AppendStored) -> None:
        for entry in write.entries:
            stream = task.streams[entry.name]
            task.log.append(entry)
            task.head_no = entry.stored_no
            stream.places.append(entry)
            stream.numbers[entry.writer, entry.writer_seq] = entry.relay_seq
            stream.image = replace(stream.image, head=entry.relay_seq, chain=entry.chain)
        for writer in write.writers:
            task.streams[writer.name].writers[writer.row.writer] = writer
        for cover in write.covers:
            task.streams[cover.name].covers.append(cover)
        for step in write.steps:
            task.steps[step.version, step.step] = step
        for given in write.completions:
            task.completions[given.writer, given.writer_seq] = given
        task.summary = write.summary

    # --- reads -------------------------------------------------------------------------------------------------------

    def read(self, read: RelayRead) -> RelayAnswer:
        """Return the answer to a read."""
        if isinstance(read, ReadListing):
            return self._listing(read)
        if isinstance(read, ReadDue):
            return self._due(read)
        # A task of which nothing is kept may have been lost, as long as its subject's barrier is up.
        unknown = TaskState(guard=TaskGuard(lost=self._keys.barrier_is_up(read.subject)))
        task = self._tasks.get((read.subject, read.task), unknown)
        match read:
            case LoadTask():
                return TaskLoaded(self._image(read, task))
            case LookUp():
                return self._look_up(read, task)
            case ReadKeys():
                return self._keys.read(read)
            case ReadTail():
                return self._tail(read, task)
            case ReadBlob():
                return BlobRead(read.subject, read.task, read.sha256, task.bytes_of.get(read.sha256))
            case HashBlob():
                whole = task.bytes_of.get(read.sha256, b"") + read.last
                return BlobHashed(read.subject, read.task, read.sha256, hashlib.sha256(whole).hexdigest())
            case ReadPiece():
                data = task.bytes_of.get(read.sha256, b"")
                piece = data[read.offset : read.offset + read.bytes_max]
                return PieceRead(read.conn, read.task, read.sha256, read.offset, len(data), piece)
            case ReadNamed():
                return self._named(read, task)

    def _due(self, read: ReadDue) -> DueRead:
        def is_due(task: TaskState) -> bool:
            summary = task.summary
            to_clean = summary.completed and not summary.edited and not summary.cleaned
            before_ms = max(read.expire_before_ms, read.clean_before_ms if to_clean else 0)
            return bool(task.head_no) and summary.stored_at_ms < before_ms

        keys = [key for key, task in self._tasks.items() if is_due(task)]
        keys.sort(key=lambda key: self._tasks[key].summary.stored_at_ms)
        return DueRead(tuple(keys[: read.tasks_max]), len(keys) > read.tasks_max)

    def _named(self, read: ReadNamed, task: TaskState) -> NamedRead:
        wires = [entry.wire for entry in task.log if entry.name is not read.without]
        blobs = (msgspec.msgpack.decode(wire, type=Entry).blob for wire in wires)
        return NamedRead(read.subject, read.task, frozenset(blob for blob in blobs if blob is not None))

    def _image(self, read: LoadTask, task: TaskState) -> TaskImage:
        streams = tuple(
            replace(stream.image, writers=tuple(writer for _, writer in sorted(stream.writers.items())))
            for _, stream in sorted(task.streams.items())
        )
        steps = tuple(step for _, step in sorted(task.steps.items()))
        blobs = tuple(blob for _, blob in sorted(task.blobs.items()))
        completions = tuple(given for _, given in sorted(task.completions.items()))
        return TaskImage(
            read.subject,
            read.task,
            task.head_no,
            task.summary,
            streams,
            steps,
            blobs,
            completions,
            task.tombstone,
            task.guard,
        )

    def _look_up(self, read: LookUp, task: TaskState) -> LookedUp:
        found, missing = [], []
        for key in read.entries:
            entry = self._find(task, *key)
            if entry is None:
                missing.append(key)
            else:
                found.append(entry)
        places = []
        for name, place in read.places:
            stream = task.streams.get(name)
            entries = stream.places if stream is not None else []
            chain = entries[place - 1].chain if 0 < place <= len(entries) else b""
            next_no = entries[place].stored_no if place < len(entries) else 0
            places.append(FoundPlace(name, place, chain, next_no))
        return LookedUp(read.subject, read.task, tuple(found), tuple(missing), tuple(places))

    def _find(self, task: TaskState, name: StreamName, writer: int, number: int) -> FoundEntry | None:
        stream = task.streams.get(name)
        if stream is None:
            return None
        place = stream.numbers.get((writer, number))
        if place is not None:
            return FoundEntry(name, writer, number, place, stream.places[place - 1].content_hash)
        for cover in stream.covers:
            if cover.writer == writer and cover.first_seq <= number <= cover.last_seq:
                return FoundEntry(name, writer, number, cover.relay_seq, b"")
        return None

    def _tail(self, read: ReadTail, task: TaskState) -> TailRead:
        skip = dict(read.skip)
        chosen: list[StoredEntry] = []
        size = 0
        for entry in task.log:
            if entry.stored_no <= read.after_no or entry.relay_seq <= skip.get(entry.name, 0):
                continue
            size += len(entry.wire)
            if chosen and size > read.bytes_max:
                return TailRead(read.conn, read.subject, read.task, tuple(chosen), chosen[-1].stored_no)
            chosen.append(entry)
        return TailRead(read.conn, read.subject, read.task, tuple(chosen), task.head_no)

    def _listing(self, read: ReadListing) -> ListingRead:
        keys = sorted(
            task
            for subject, task in self._tasks
            if subject == read.subject
            and task.startswith(read.prefix)
            and task > read.after
            and (read.within is None or any(f"{task}/".startswith(f"{key}/") for key in read.within))
            and self._tasks[subject, task].head_no
        )
        tasks = tuple(self._listed(read.subject, task) for task in keys[: read.tasks_max])
        return ListingRead(read.conn, read.request, tasks, len(keys) > read.tasks_max)

    def _listed(self, subject: str, key: str) -> TaskListing:
        task = self._tasks[subject, key]
        planned = tuple(
            PlannedStep(step.step, step.tool, step.requires)
            for _, step in sorted(task.steps.items())
            if step.planned and not step.done
        )
        summary = task.summary
        return TaskListing(
            key,
            summary.version,
            planned,
            summary.calls_done,
            summary.calls_in_doubt,
            summary.completed,
            summary.stored_at_ms,
        )

    def stats(self) -> MailboxStats:
        """Return the sizes; the store's bytes are those of entries and blobs."""
        tasks = self._tasks.values()
        entry_bytes = sum(len(entry.wire) for task in tasks for entry in task.log)
        blob_bytes = sum(len(data) for task in tasks for data in task.bytes_of.values())
        return MailboxStats(
            entry_bytes + blob_bytes,
            len({subject for subject, _ in self._tasks}),
            len(self._tasks),
            sum(len(task.streams) for task in tasks),
            sum(len(task.log) for task in tasks),
            sum(len(task.blobs) for task in tasks),
            blob_bytes,
            max([self._relay_ms, *(task.summary.stored_at_ms for task in tasks)]),
        )
