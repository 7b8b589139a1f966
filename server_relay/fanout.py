"""What a connection is sent next of the tasks that it follows.

Per connection and task there is one position, `sent_no`, in the order in which the task's entries were stored, across
its streams; so a reader gets them in that order whatever happens. A follow whose position is the task's head is *live*:
what is stored in a turn goes to it from memory, encoded once for all readers, own entries as receipts, or as they are
where they are a small part of the whole. Any other follow is *behind*: it is read from the mailbox in portions,
whenever its connection's out-queue has room, its session's tasks taking turns. A reader whose queue is full simply
falls behind; nothing is dropped and nothing is kept for it.

A reader whose next place lies below `tail_from` needs the snapshot and *waits*: Heads names the usable snapshot, and
nothing of the task is sent before the device has fetched it and says Hello again with the cursor at covers_seq. The
same holds for all followers when a stream starts a new epoch, until each says Hello under it.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from server_relay.effects import ReadListing, ReadPiece, ReadTail, TailRead
from server_relay.records import StoredEntry
from server_relay.sessions import Follow, Session, Turn
from server_relay.streams import StreamLog, TaskLog
from sync_core.frames import ListTasks, Receipt
from sync_core.limits import BLOB_PIECE_BYTES, LISTING_PAGE_TASKS
from sync_core.wire import encode_frame

__all__ = ["CATCH_UP_ROOM_BYTES", "PORTION_BYTES", "catch_up", "deliver", "pump"]

PORTION_BYTES = 64 * 1024
"""Entries that are read, and sent in one frame, at a time."""
_OWN_PART = 8
"""A device's own entries come back to it as they are where they are less than this part of what it is sent: then one
encoding serves all."""
CATCH_UP_ROOM_BYTES = 128 * 1024
"""Catching up pauses while more than this waits in the out-queue, so that live entries find room."""


class _Entries(msgspec.Struct, frozen=True, array_like=True, tag="entries"):
    """The frame `Entries`, of entries that are encoded already."""

    stream: str
    epoch: bytes
    entries: list[msgspec.Raw]


_encode = msgspec.msgpack.Encoder().encode


def deliver(turn: Turn, log: TaskLog) -> None:
    """Send a task's fresh entries to its live followers, and their receipts to all who pushed them."""
    fresh = _Fresh(log)
    pushers = {run.session.conn: run.session for run in log.runs if run.session is not None}
    # Who waits for news comes before who waits for a receipt.
    for conn, (session, follow) in log.followers.items():
        if conn not in pushers:
            _tell(turn, log, fresh, session, follow)
    untold = {
        conn
        for conn, session in pushers.items()
        if conn not in log.followers or not _tell(turn, log, fresh, session, log.followers[conn][1])
    }
    for run in log.runs:
        if run.session is not None and run.session.conn in untold:
            turn.send(run.session, _receipts(log.streams[run.name], log.fresh[run.start : run.end]))


def _tell(turn: Turn, log: TaskLog, fresh: "_Fresh", session: Session, follow: Follow) -> bool:
    """Send the fresh entries to one follower, own ones as receipts; return whether it is live and has room."""
    before_no = log.fresh[0].stored_no - 1
    if follow.waits or not before_no <= follow.sent_no < log.head_no:
        return False
    if not session.has_room(fresh.size_bytes):
        session.fall_behind(log.task, follow)
        turn.pump[session.conn] = session
        return False
    if follow.sent_no > before_no:
        frames = _render(log, (one for one in log.fresh if one.stored_no > follow.sent_no), follow)
    elif session.grant is not None and fresh.of_device[session.grant.device] * _OWN_PART > fresh.size_bytes:
        frames = _own_view(log, fresh, session, follow, session.grant.device)
    else:
        frames = fresh.whole()
    turn.send(session, frames)
    follow.sent_no = log.head_no
    return True


def catch_up(turn: Turn, log: TaskLog, session: Session, follow: Follow, tail: TailRead) -> None:
    """Send a portion that was read, and get in line for the next one if that was not all."""
    turn.send(session, _render(log, tail.entries, follow))
    follow.sent_no = max(follow.sent_no, tail.through_no)
    if follow.sent_no < log.head_no:
        session.fall_behind(log.task, follow)


def pump(turn: Turn, session: Session) -> None:
    """Ask for what the session is to be sent next, if its out-queue has room: entries first, then what it asked for."""
    grant = session.grant
    if session.closed or session.gone or session.reading is not None or grant is None:
        return
    if session.out_bytes > CATCH_UP_ROOM_BYTES:
        return
    while session.behind:
        task = session.behind.popleft()
        follow = session.follows.get(task)
        if follow is None or not follow.queued:
            continue
        follow.queued = False
        if follow.waits:
            continue
        session.reading = follow
        skip = tuple(follow.skip.items())
        turn.reads.append(ReadTail(grant.subject, task, session.conn, follow.sent_no, skip, PORTION_BYTES))
        return
    if not session.requests:
        return
    request = session.requests.popleft()
    session.reading = request
    if isinstance(request, ListTasks):
        page = (request.request, request.prefix, request.after, LISTING_PAGE_TASKS)
        turn.reads.append(ReadListing(session.conn, grant.subject, *page, grant.tasks))
    else:
        turn.reads.append(
            ReadPiece(grant.subject, request.task, session.conn, request.sha256, request.offset, BLOB_PIECE_BYTES)
        )


# --- frames -----------------------------------------------------------------------------------------------------------


class _Wires:
    """Encoded entries, to be cut into frames of about `PORTION_BYTES`, for many readers without a look at each one."""

    def __init__(self, entries: Sequence[StoredEntry]) -> None:
        self._wires = [msgspec.Raw(entry.wire) for entry in entries]
        self._ends = [0, *accumulate(len(entry.wire) for entry in entries)]

    def size_bytes(self, start: int, end: int) -> int:
        """Return how large the entries [start:end] are."""
        return self._ends[end] - self._ends[start]

    def frames(self, stream: StreamLog, start: int, end: int) -> list[bytes]:
        """Return the frames of the entries [start:end], all of one stream."""
        frames: list[bytes] = []
        while start < end:
            fits = bisect_right(self._ends, self._ends[start] + PORTION_BYTES) - 1
            to = min(end, max(start + 1, fits))
            frames.append(_encode(_Entries(stream.id, stream.epoch, self._wires[start:to])))
            start = to
        return frames


class _Fresh:
    """A turn's fresh entries: their size, all together and by the device that pushed them.

    Its stretches are (stream, start, end): the runs of one stream behind each other are one, whoever pushed them.
    """

    def __init__(self, log: TaskLog) -> None:
        self.size_bytes = 0
        self.of_device: Counter[str] = Counter()
        self._wires = _Wires(log.fresh)
        self._stretches: list[tuple[StreamLog, int, int]] = []
        self._whole: list[bytes] = []
        for run in log.runs:
            size_bytes = self._wires.size_bytes(run.start, run.end)
            self.size_bytes += size_bytes
            self.of_device[run.device] += size_bytes
            start = run.start
            if self._stretches and self._stretches[-1][0].name is run.name:
                start = self._stretches.pop()[1]
            self._stretches.append((log.streams[run.name], start, run.end))

    def whole(self) -> list[bytes]:
        """Return the frames of all entries, built once for all readers."""
        if not self._whole:
            self._whole = self.between(0, self._stretches[-1][2])
        return self._whole

    def between(self, start: int, end: int) -> list[bytes]:
        """Return the frames of the entries [start:end], each of one stream."""
        frames: list[bytes] = []
        if start < end:
            for stream, first, last in self._stretches:
                frames += self._wires.frames(stream, max(start, first), min(end, last))
        return frames


def _own_view(log: TaskLog, fresh: _Fresh, session: Session, follow: Follow, device: str) -> list[bytes]:
    """The fresh entries as one of their pushers, or another connection of its device, gets them."""
    frames: list[bytes] = []
    told = 0
    for run in log.runs:
        if run.device != device:
            continue
        frames += fresh.between(told, run.start)
        entries = log.fresh[run.start : run.end]
        if run.session is session:
            frames += _receipts(log.streams[run.name], entries)
        else:
            frames += _render(log, entries, follow)
        told = run.end
    return frames + fresh.between(told, len(log.fresh))


def _render(log: TaskLog, entries: Iterable[StoredEntry], follow: Follow) -> list[bytes]:
    """Entries in stored order as one reader gets them: what it holds as receipts, the rest in full."""
    frames: list[bytes] = []
    group: list[StoredEntry] = []
    group_own = False
    for entry in entries:
        own = entry.writer_seq <= follow.own.get((entry.name, entry.writer), 0)
        if group and (own is not group_own or entry.name is not group[0].name):
            frames += _group(log, group, group_own)
            group = []
        group.append(entry)
        group_own = own
    if group:
        frames += _group(log, group, group_own)
    return frames


def _group(log: TaskLog, entries: Sequence[StoredEntry], own: bool) -> list[bytes]:
    stream = log.streams[entries[0].name]
    return _receipts(stream, entries) if own else _Wires(entries).frames(stream, 0, len(entries))


def _receipts(stream: StreamLog, entries: Sequence[StoredEntry]) -> list[bytes]:
    """Receipts of entries of one stream in order; consecutive numbers at consecutive places are one receipt."""
    frames: list[bytes] = []
    first = last = entries[0]
    for entry in entries[1:]:
        step = (entry.writer - last.writer, entry.writer_seq - last.writer_seq, entry.relay_seq - last.relay_seq)
        if step != (0, 1, 1):
            frames.append(_receipt(stream, first, last))
            first = entry
        last = entry
    frames.append(_receipt(stream, first, last))
    return frames


def _receipt(stream: StreamLog, first: StoredEntry, last: StoredEntry) -> bytes:
    return encode_frame(
        Receipt(
            stream.id,
            stream.epoch,
            first.writer,
            first.writer_seq,
            last.writer_seq,
            first.relay_seq,
            chain=last.chain,
        )
    )
