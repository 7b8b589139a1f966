"""What the relay says of a task, frame by frame.

Frames of another epoch than the stream's are ignored: they belong to a log that is gone.
"""

from sync_core.entry import Entry, EntryKind
from sync_core.errors import ResultUnavailable
from sync_core.frames import Entries, Heads, Receipt, Refusal, RefusalCode, StreamHead
from sync_core.replica.adoption import check_offers, use_snapshot
from sync_core.replica.changes import EntrySetAside
from sync_core.replica.effects import Fail, Reply
from sync_core.replica.endings import empty_log
from sync_core.replica.loaded import Rewrite
from sync_core.replica.log import advance
from sync_core.replica.outbox import key_of
from sync_core.replica.recovery import start_epoch
from sync_core.replica.stream import OwnPlace, StreamReplica
from sync_core.replica.task import TaskReplica
from sync_core.replica.transfers import Download
from sync_core.replica.writes import (
    NumberEntries,
    QuarantineEntry,
    SetAside,
)

__all__ = [
    "on_download",
    "on_entries",
    "on_heads",
    "on_lost",
    "on_news",
    "on_receipt",
    "on_refusal",
    "on_snapshot_bytes",
]

_REDO = (RefusalCode.WRITER_REUSED, RefusalCode.WRITER_CLOSED)
_RESEND = (RefusalCode.GAP, RefusalCode.STORE)
_RECEIPT_ENTRIES_MAX = 65_536


def on_heads(task: TaskReplica, frame: Heads) -> None:
    """Take the heads; a changed epoch starts recovery. Without one, sending may (re)start."""
    first = task.follow.known is None
    task.follow.known = frame.known
    new_epoch = False
    for told in frame.streams:
        new_epoch = _on_head(task, task.stream(told.name), told) or new_epoch
    for name in task.streams.keys() - {told.name for told in frame.streams}:
        # The relay has nothing of the stream: the epoch that it once told is over with that log.
        if not task.streams[name].cursor:
            task.streams[name].enter(b"")
    if task.document is not None and (first or new_epoch):
        task.outbox.restart()
    if new_epoch:
        # Nothing is pushed before the new log's heads are told: they may show what is to be merged first.
        task.follow.pushed = False
        task.follow.hello_again = True
    check_offers(task)
    advance(task)


def on_news(task: TaskReplica, frame: Heads) -> None:
    """Heads that nobody asked for: a snapshot, or a new epoch, after which the relay waits for a Hello."""
    if any(task.stream(told.name).epoch != told.epoch for told in frame.streams):
        task.follow.hello_again = True
        return
    for told in frame.streams:
        _on_head(task, task.stream(told.name), told)
    check_offers(task)


def _on_head(task: TaskReplica, stream: StreamReplica, told: StreamHead) -> bool:
    if told.emptied:
        empty_log(task, stream, told.epoch)
        return False
    if stream.epoch != told.epoch and stream.cursor:
        start_epoch(task, stream, told.epoch)
        return True
    stream.enter(told.epoch)
    stream.head = max(stream.head, told.head)
    ref = told.snapshot
    stream.snapshot = ref if ref is not None and ref.usable else None
    stream.offer = ref if ref is not None and not ref.usable else None
    if stream.snapshot is not None and stream.cursor + 1 < told.tail_from:
        _fetch_snapshot(task, stream, stream.snapshot.sha256)
    elif stream.snapshot is not None and stream.hello_cursor + 1 < told.tail_from:
        # The relay waits for the place of a snapshot that this device has passed meanwhile.
        task.follow.hello_again = True
    return False


def _fetch_snapshot(task: TaskReplica, stream: StreamReplica, sha256: str) -> None:
    if sha256 != stream.bad_snapshot:
        task.transfers.fetch(sha256).snapshot = True
        if task.document is None:
            # Whether it may replace what this device holds can only be told with that at hand.
            task.reload()


def on_entries(task: TaskReplica, frame: Entries) -> None:
    """Hold the places, then consume what the contiguous prefix reaches."""
    stream = task.stream_of(frame.stream)
    if stream.epoch and frame.epoch != stream.epoch:
        return
    stream.enter(frame.epoch)
    for entry in frame.entries:
        if entry.relay_seq is not None and entry.stream == stream.id:
            task.arrive(stream, entry.relay_seq, entry)
    advance(task)


def on_receipt(task: TaskReplica, frame: Receipt) -> None:
    """Stored entries fill their places; the cursor moves only along the contiguous prefix."""
    stream = task.stream_of(frame.stream)
    if (stream.epoch and frame.epoch != stream.epoch) or frame.last_seq - frame.first_seq > _RECEIPT_ENTRIES_MAX:
        return
    stream.enter(frame.epoch)
    for offset, seq in enumerate(range(frame.first_seq, frame.last_seq + 1)):
        key = (stream.id, frame.writer, seq)
        place = frame.first_relay_seq + (0 if frame.covered else offset)
        task.outbox.on_receipt(key, task.core.now_ms)
        if not frame.covered and place > stream.cursor:
            task.arrive(stream, place, OwnPlace(frame.writer, seq, frame.last_seq, frame.chain))
        elif place <= stream.cursor and task.outbox.find(key) is not None:
            task.core.write(NumberEntries(stream.id, frame.writer, seq, seq, place, same_place=True))
            task.outbox.on_numbered(key, task.core.now_ms)
    advance(task)


def on_refusal(task: TaskReplica, frame: Refusal) -> None:
    """Rule E: send again, write again under a new id, or set aside; nothing is sent for ever, nothing is blocked."""
    key = (frame.stream, frame.writer, frame.writer_seq)
    entry = task.outbox.find(key)
    if frame.code in _RESEND:
        lowest = min((k[2] for k in task.outbox.unsent if k[:2] == key[:2]), default=frame.writer_seq)
        if frame.code is RefusalCode.GAP and frame.expected_seq < lowest:
            task.follow.hello_again = True
        task.follow.resend = True
        return
    if entry is None:
        return
    if frame.code is RefusalCode.ROLE and task.stream_of(frame.stream).behind:
        # Perhaps the log has it, from before this file was restored: the verdict counts once what is there was read.
        task.follow.resend = True
    elif frame.code is RefusalCode.GUARD and not task.outbox.is_first(key):
        # What it stands on may have been lost on the way: the verdict counts once that is there.
        task.follow.resend = True
    elif frame.code is RefusalCode.BLOB_MISSING and entry.kind is EntryKind.SNAPSHOT and _is_absent(task, entry):
        # Without its bytes a snapshot brings nothing back; what it held is put into another one, if it is here.
        _give_up_recovered(task, entry, frame)
    elif frame.code is RefusalCode.BLOB_MISSING:
        if entry.blob is not None:
            task.transfers.uploads.add(entry.blob)
        task.follow.resend = True
    elif key in task.outbox.recovered:
        _give_up_recovered(task, entry, frame)
    elif frame.code in _REDO and key not in task.rewritten:
        task.outbox.pause()
        task.agenda.rewrites.append(Rewrite(frame.stream, frame.writer, frame.writer_seq))
        task.reload()
    else:
        task.outbox.pause()
        task.core.write(SetAside(frame.stream, frame.writer, frame.writer_seq, frame.code.value, frame.sentence))
        task.tell((EntrySetAside(task.key, frame.stream, frame.writer_seq, frame.code.value),))
        task.agenda.rewrites.append(Rewrite(frame.stream, frame.writer, frame.writer_seq + 1, refused=entry))
        task.reload()


def _is_absent(task: TaskReplica, entry: Entry) -> bool:
    return entry.blob in task.transfers.absent


def _give_up_recovered(task: TaskReplica, entry: Entry, frame: Refusal) -> None:
    """The new log holds other content under this number, or cannot take it: what the log says stands.

    What its writer wrote behind it would be refused for the gap, for ever: it is given up with it.
    """
    if frame.code is RefusalCode.WRITER_REUSED:
        task.outbox.on_receipt(key_of(entry), task.core.now_ms)
        return
    for later in list(task.outbox.recovered.values()):
        if (later.stream, later.writer) == (entry.stream, entry.writer) and later.writer_seq >= entry.writer_seq:
            task.core.write(QuarantineEntry(later, frame.code.value))
    task.reload()


# --- snapshots --------------------------------------------------------------------------------------------------------


def on_download(task: TaskReplica, download: Download) -> None:
    """A blob came from the relay: keep it, answer who asked, or use it as a snapshot."""
    if not download.data:
        on_lost(task, download)
        return
    if download.refs:
        data = task.transfers.keep(download)
        for ref in download.refs:
            task.core.emit(Reply(ref, data))
    if download.snapshot:
        _use_snapshot(task, download)


def on_lost(task: TaskReplica, download: Download) -> None:
    """Nobody can deliver this blob now."""
    for ref in download.refs:
        task.core.emit(Fail(ref, ResultUnavailable("The relay does not have the result.")))
    # Missing bytes are no verdict on the snapshot that they belong to: it is asked for again with the next tick.
    task.loaded.snapshots_asked.discard(download.sha256)


def _use_snapshot(task: TaskReplica, download: Download) -> None:
    sha256 = download.sha256
    if sha256 in task.loaded.snapshots_asked:
        task.loaded.snapshots_asked.discard(sha256)
        task.loaded.snapshots[sha256] = task.transfers.keep(download)
        advance(task)
        return
    use_snapshot(task, sha256, bytes(download.data))


def on_snapshot_bytes(task: TaskReplica, sha256: str, data: bytes | None) -> None:
    """The store answered for a recovered snapshot: go on with it, or ask the relay."""
    if sha256 not in task.loaded.snapshots_asked:
        return
    if data is None:
        task.transfers.fetch(sha256).snapshot = True
        return
    task.loaded.snapshots_asked.discard(sha256)
    task.loaded.snapshots[sha256] = data
    advance(task)
