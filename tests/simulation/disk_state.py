"""What stands on the simulator's disk, and what each `Write` does to it."""

import hashlib
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from sync_core.entry import Entry
from sync_core.limits import BASE_PIN_KEEP_MS, BASE_PINS_PER_NOTE_MAX
from sync_core.replica import writes as w
from tests.simulation.disk_stream import DiskStream, Position

__all__ = ["DiskState"]

_StreamWrite = (
    w.NumberEntries
    | w.SetPosition
    | w.SetWriter
    | w.SetAside
    | w.DiscardEntries
    | w.StartEpoch
    | w.TruncateStream
    | w.CompactStream
    | w.EmptyStream
)
_TaskWrite = w.PutBlob | w.SetBlobState | w.PinBase | w.FollowTask | w.DropTask | w.PutTombstone | w.DropTombstone


class _Blob(msgspec.Struct, frozen=True):
    data: bytes
    upload: bool


class _Pin(msgspec.Struct, frozen=True):
    state: bytes
    relay_time_ms: int


class DiskState:
    """All that stands on one disk."""

    def __init__(self) -> None:
        self._streams: dict[str, dict[str, DiskStream]] = {}
        self._followed: set[str] = set()
        self._blobs: dict[tuple[str, str], _Blob] = {}
        self._pins: dict[tuple[str, str, str], _Pin] = {}
        self._tombstones: dict[str, w.Tombstone] = {}
        self._next_local = 1

    def copy(self) -> "DiskState":
        """Return a copy that shares only values."""
        other = DiskState()
        other._streams = {
            task: {name: stream.copy() for name, stream in streams.items()} for task, streams in self._streams.items()
        }
        other._followed = set(self._followed)
        other._blobs = dict(self._blobs)
        other._pins = dict(self._pins)
        other._tombstones = dict(self._tombstones)
        other._next_local = self._next_local
        return other

    # --- writes ------------------------------------------------------------------------------------------------------

    def apply(self, writes: Iterable[w.Write]) -> None:
        """Carry out writes in order."""
        for write in writes:
            match write:
                case w.PutEntry(entry, own):
                    self._put(entry, own, None)
                case w.QuarantineEntry(entry, code):
                    self._put(entry, False, code)
                case (
                    w.PutBlob()
                    | w.SetBlobState()
                    | w.PinBase()
                    | w.FollowTask()
                    | w.DropTask()
                    | w.PutTombstone()
                    | w.DropTombstone()
                ):
                    self._apply_to_task(write)
                case _:
                    self._apply_to_stream(write)

    def _put(self, entry: Entry, own: bool, code: str | None) -> None:
        self._stream(entry.stream).put(entry, own, code, self._next_local)
        self._next_local += 1

    def _apply_to_stream(self, write: _StreamWrite) -> None:
        stream = self._stream(write.stream)
        match write:
            case w.NumberEntries():
                stream.number(write)
            case w.SetPosition():
                stream.position = Position(write.epoch, write.cursor, write.chain)
            case w.SetWriter():
                stream.writers[write.row.writer] = write.row
            case w.SetAside():
                stream.set_aside(write)
            case w.DiscardEntries():
                stream.discard(write)
            case w.StartEpoch():
                stream.start_epoch(write)
                self._upload_again(_task_of(write.stream))
            case w.TruncateStream():
                stream.truncate(write)
            case w.CompactStream():
                stream.compact(write)
            case w.EmptyStream():
                stream.empty_log(write)
                self._drop_unnamed_blobs(_task_of(write.stream))

    def _apply_to_task(self, write: _TaskWrite) -> None:
        match write:
            case w.PutBlob():
                self._blobs[write.task, write.sha256] = _Blob(write.data, write.upload)
            case w.SetBlobState():
                blob = self._blobs.get((write.task, write.sha256))
                if blob is not None:
                    self._blobs[write.task, write.sha256] = replace(blob, upload=write.upload)
            case w.PinBase():
                self._pin(write)
            case w.FollowTask():
                self._followed.add(write.task)
            case w.DropTask():
                self._drop(write.task)
            case w.PutTombstone(tombstone):
                self._tombstones[tombstone.task] = tombstone
            case w.DropTombstone(task):
                self._tombstones.pop(task, None)

    def _upload_again(self, task: str) -> None:
        for key, blob in self._blobs.items():
            if key[0] == task:
                self._blobs[key] = replace(blob, upload=True)

    def _pin(self, write: w.PinBase) -> None:
        now_ms = write.relay_time_ms
        if now_ms:
            for key, pin in list(self._pins.items()):
                if pin.relay_time_ms == 0:
                    self._pins[key] = replace(pin, relay_time_ms=now_ms)
                elif pin.relay_time_ms < now_ms - BASE_PIN_KEEP_MS:
                    del self._pins[key]
        key = (write.task, write.note, write.sha256)
        self._pins.pop(key, None)
        self._pins[key] = _Pin(write.state, now_ms)
        of_note = [key for key in self._pins if key[:2] == (write.task, write.note)]
        for key in of_note[:-BASE_PINS_PER_NOTE_MAX]:
            del self._pins[key]

    def _drop(self, task: str) -> None:
        kept: dict[str, DiskStream] = {}
        for name, stream in self._streams.pop(task, {}).items():
            if stream.aside:
                kept[name] = DiskStream()
                kept[name].aside = stream.aside
        if kept:
            self._streams[task] = kept
        self._followed.discard(task)
        self._drop_unnamed_blobs(task)
        self._pins = {key: pin for key, pin in self._pins.items() if key[0] != task}

    def _drop_unnamed_blobs(self, task: str) -> None:
        streams = self._streams.get(task, {}).values()
        entries = [row.entry for stream in streams for row in stream.rows.values()]
        entries += [aside.entry for stream in streams for aside in stream.aside]
        named = {entry.blob for entry in entries}
        self._blobs = {key: blob for key, blob in self._blobs.items() if key[0] != task or key[1] in named}

    def damage_entry(self, stream: str, writer: int, writer_seq: int) -> None:
        """Let the checksum of an entry fail."""
        rows = self._stream(stream).rows
        rows[writer, writer_seq] = replace(rows[writer, writer_seq], damaged=True)

    def damage_document(self, stream: str) -> None:
        """Let the checksum of a compacted row fail."""
        kept = self._stream(stream)
        assert kept.document is not None
        kept.document = replace(kept.document, damaged=True)

    # --- reads -------------------------------------------------------------------------------------------------------

    def image_of(self, task: str) -> w.TaskImage:
        """Return what is kept of a task."""
        streams = self._streams_of(task)
        unsent = sorted(
            (row.local, name, row.entry.writer, row.entry.writer_seq)
            for name, stream in streams
            for row in stream.rows.values()
            if row.own and row.entry.relay_seq is None and row.rank is None and not (row.code or row.damaged)
        )
        own_writers = {row.entry.writer for _, stream in streams for row in stream.rows.values() if row.own}
        return w.TaskImage(
            task=task,
            followed=task in self._followed,
            streams=tuple(stream.image(name) for name, stream in streams if not stream.empty),
            unsent=tuple(place[1:] for place in unsent),
            own_writers=frozenset(own_writers.union(*(stream.own_writers for _, stream in streams))),
            uploads=frozenset(key[1] for key, blob in self._blobs.items() if key[0] == task and blob.upload),
        )

    def followed_tasks(self) -> tuple[w.FollowedTask, ...]:
        """Return every followed task, in key order."""
        return tuple(self._followed_task(task) for task in sorted(self._followed))

    def _followed_task(self, task: str) -> w.FollowedTask:
        found = []
        streams = self._streams_of(task)
        for name, stream in streams:
            own = stream.outstanding()
            if own or stream.position is not None:
                position = stream.position or Position()
                found.append(w.FollowedStream(name, position.epoch, position.cursor, position.chain, own))
        return w.FollowedTask(task, tuple(found), sum(stream.waiting for _, stream in streams))

    def load_blob(self, task: str, sha256: str) -> bytes | None:
        """Return a blob that is what its name says, or None."""
        blob = self._blobs.get((task, sha256))
        return blob.data if blob is not None and hashlib.sha256(blob.data).hexdigest() == sha256 else None

    def tombstones(self) -> tuple[w.Tombstone, ...]:
        """Return what is remembered of deleted tasks, in key order."""
        return tuple(tombstone for _, tombstone in sorted(self._tombstones.items()))

    def load_base(self, task: str, note: str, sha256: str) -> bytes | None:
        """Return a pinned state, or None."""
        pin = self._pins.get((task, note, sha256))
        return None if pin is None else pin.state

    def known_tasks(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of all tasks of which something is kept, in order."""
        known = self._followed | {key[0] for key in self._blobs} | {key[0] for key in self._pins}
        known |= {task for task in self._streams if any(not stream.empty for _, stream in self._streams_of(task))}
        return tuple(sorted(task for task in known if task.startswith(prefix)))

    def stats(self) -> w.StoreStats:
        """Return counts of rows; bytes are those of payloads, documents and blobs."""
        streams = [stream for task in self._streams for _, stream in self._streams_of(task)]
        rows = [row for stream in streams for row in stream.rows.values()]
        blob_bytes = sum(len(blob.data) for blob in self._blobs.values())
        documents = sum(len(stream.document.document) for stream in streams if stream.document is not None)
        return w.StoreStats(
            store_bytes=sum(len(row.entry.payload) for row in rows) + documents + blob_bytes,
            tasks=len(self.known_tasks("")),
            entries=sum(row.code is None for row in rows),
            waiting=sum(stream.waiting for stream in streams),
            blobs=len(self._blobs),
            blob_bytes=blob_bytes,
            set_aside=sum(len(stream.aside) for stream in streams),
            quarantined=sum(row.code is not None for row in rows),
        )

    def task_sizes(self, task: str | None) -> tuple[w.TaskSize, ...]:
        """Return the sizes of a task, or of every task that holds something."""
        holding = {name for name in self._streams if any(stream.sized for _, stream in self._streams_of(name))}
        holding |= {key[0] for key in self._blobs}
        found = []
        for name in sorted(holding if task is None else holding & {task}):
            sizes = [stream.size(key) for key, stream in self._streams_of(name) if stream.sized]
            blobs = [blob.data for key, blob in self._blobs.items() if key[0] == name]
            found.append(w.TaskSize(name, tuple(sizes), len(blobs), sum(map(len, blobs))))
        return tuple(found)

    def _stream(self, name: str) -> DiskStream:
        return self._streams.setdefault(_task_of(name), {}).setdefault(name, DiskStream())

    def _streams_of(self, task: str) -> list[tuple[str, DiskStream]]:
        return sorted(self._streams.get(task, {}).items())


def _task_of(stream: str) -> str:
    return stream.rpartition(":")[0]
