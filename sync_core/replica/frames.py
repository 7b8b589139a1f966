"""What the relay says of a task, frame by frame.

Frames of another epoch than the stream's are ignored: they belong to a log that is gone.
"""

from collections.abc import Mapping

from sync_core.entry import Entry, WriterRow, decode_snapshot
from sync_core.errors import EntryRefused, ResultUnavailable
from sync_core.guard import scan_document
from sync_core.ids import StreamName
from sync_core.replica.changes import EntrySetAside
from sync_core.replica.effects import Fail, Reply
from sync_core.replica.log import advance
from sync_core.replica.outbox import Key, key_of
from sync_core.replica.recovery import start_epoch, table_at
from sync_core.replica.snapshots import numbered_document
from sync_core.replica.stream import OwnPlace, StreamReplica, is_covered
from sync_core.replica.task import Rewrite, TaskReplica
from sync_core.replica.transfers import Download
from sync_core.replica.writes import (
    CompactStream,
    NumberEntries,
    PutEntry,
    QuarantineEntry,
    SetAside,
    SetPosition,
    SetWriter,
    TaskImage,
)
from sync_core.wire import (
    Entries,
    Heads,
    Push,
    Receipt,
    Refusal,
    RefusalCode,
    SnapshotConfirmed,
    SnapshotOffer,
    StreamHead,
)

__all__ = [
    "check_offer",
    "check_offers",
    "on_download",
    "on_entries",
    "on_heads",
    "on_lost",
    "on_news",
    "on_receipt",
    "on_refusal",
    "on_snapshot_bytes",
    "on_snapshot_stored",
]

_REDO = (RefusalCode.WRITER_REUSED, RefusalCode.WRITER_CLOSED)
_RESEND = (RefusalCode.GAP, RefusalCode.STORE)
_RECEIPT_ENTRIES_MAX = 65_536


def on_heads(task: TaskReplica, frame: Heads) -> None:
    """Take the heads; a changed epoch starts recovery. Without one, sending may (re)start."""
    first = task.known is None
    task.known = frame.known
    new_epoch = False
    for told in frame.streams:
        new_epoch = _on_head(task, task.stream(told.name), told) or new_epoch
    for name in task.streams.keys() - {told.name for told in frame.streams}:
        # The relay has nothing of the stream: the epoch that it once told is over with that log.
        if not task.streams[name].cursor:
            task.streams[name].enter(b"")
    if first or new_epoch:
        task.outbox.restart()
    if new_epoch:
        task.hello_again = True
    advance(task)


def on_news(task: TaskReplica, frame: Heads) -> None:
    """Heads that nobody asked for: a snapshot, or a new epoch, after which the relay waits for a Hello."""
    if any(task.stream(told.name).epoch != told.epoch for told in frame.streams):
        task.hello_again = True
        return
    for told in frame.streams:
        _on_head(task, task.stream(told.name), told)


def _on_head(task: TaskReplica, stream: StreamReplica, told: StreamHead) -> bool:
    if stream.epoch != told.epoch and stream.cursor:
        start_epoch(task, stream, told.epoch)
        return True
    stream.enter(told.epoch)
    stream.head = max(stream.head, told.head)
    ref = told.snapshot
    stream.snapshot = ref if ref is not None and ref.usable else None
    stream.offer = ref if ref is not None and not ref.usable else None
    if stream.snapshot is not None and stream.cursor + 1 < told.tail_from:
        task.transfers.fetch(stream.snapshot.sha256).snapshot = True
    elif stream.snapshot is not None and stream.hello_cursor + 1 < told.tail_from:
        # The relay waits for the place of a snapshot that this device has passed meanwhile.
        task.hello_again = True
    elif stream.offer is not None and stream.offer.covers_seq <= stream.cursor:
        _check_offer(task, stream)
    return False


def _check_offer(task: TaskReplica, stream: StreamReplica) -> None:
    """Somebody offered a snapshot: another device checks it against its own log, its maker by a fresh download."""
    offer = stream.offer
    if offer is None or stream.offer_checked == offer.sha256:
        return
    if offer.device == task.core.device:
        if offer.sha256 not in task.offers:
            stream.offer_checked = offer.sha256
            task.transfers.fetch(offer.sha256).snapshot = True
    else:
        stream.offer_checked = offer.sha256
        task.offer_to_check = stream.name
        task.reload()


def check_offers(task: TaskReplica) -> None:
    """Look again at offers that came while this device was behind them."""
    for stream in task.streams.values():
        if stream.offer is not None and stream.cursor >= stream.offer.covers_seq and not task.loading:
            _check_offer(task, stream)


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
            task.hello_again = True
        task.resend = True
        return
    if entry is None:
        return
    if frame.code is RefusalCode.GUARD and not task.outbox.is_first(key):
        # What it stands on may have been lost on the way: the verdict counts once that is there.
        task.resend = True
    elif frame.code is RefusalCode.BLOB_MISSING:
        if entry.blob is not None:
            task.transfers.uploads.add(entry.blob)
        task.resend = True
    elif key in task.outbox.recovered:
        _give_up_recovered(task, entry, frame)
    elif frame.code in _REDO and key not in task.rewritten:
        task.outbox.pause()
        task.rewrites.append(Rewrite(frame.stream, frame.writer, frame.writer_seq))
        task.reload()
    else:
        task.outbox.pause()
        task.core.write(SetAside(frame.stream, frame.writer, frame.writer_seq, frame.code.value, frame.sentence))
        task.tell((EntrySetAside(task.key, frame.stream, frame.writer_seq, frame.code.value),))
        task.rewrites.append(Rewrite(frame.stream, frame.writer, frame.writer_seq + 1, refused=entry))
        task.reload()


def _give_up_recovered(task: TaskReplica, entry: Entry, frame: Refusal) -> None:
    """The new log holds other content under this number, or cannot take it: what the log says stands."""
    if frame.code is RefusalCode.WRITER_REUSED:
        task.outbox.on_receipt(key_of(entry), task.core.now_ms)
    else:
        task.core.write(QuarantineEntry(entry, frame.code.value))
        task.reload()


# --- snapshots --------------------------------------------------------------------------------------------------------


def on_snapshot_stored(task: TaskReplica, sha256: str) -> None:
    """The bytes of an own snapshot lie at the relay: offer it in place of the one that is there."""
    snapshot = task.offers.get(sha256)
    if snapshot is None:
        return
    stream = task.stream_of(snapshot.stream)
    there = stream.offer or stream.snapshot
    previous = there.sha256 if there is not None else ""
    if snapshot.epoch == stream.epoch:
        task.core.send(
            SnapshotOffer(snapshot.stream, snapshot.epoch, snapshot.covers_seq, snapshot.digest, sha256, previous)
        )


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
    task.snapshots_asked.discard(download.sha256)


def _use_snapshot(task: TaskReplica, download: Download) -> None:
    sha256 = download.sha256
    if sha256 in task.snapshots_asked:
        task.snapshots_asked.discard(sha256)
        task.snapshots[sha256] = task.transfers.keep(download)
        advance(task)
        return
    for stream in task.streams.values():
        if stream.snapshot is not None and stream.snapshot.sha256 == sha256:
            _adopt(task, stream, bytes(download.data))
        elif stream.offer is not None and stream.offer.sha256 == sha256:
            _confirm_own(task, stream, bytes(download.data))


def on_snapshot_bytes(task: TaskReplica, sha256: str, data: bytes | None) -> None:
    """The store answered for a recovered snapshot: go on with it, or ask the relay."""
    if sha256 not in task.snapshots_asked:
        return
    if data is None:
        task.transfers.fetch(sha256).snapshot = True
        return
    task.snapshots_asked.discard(sha256)
    task.snapshots[sha256] = data
    advance(task)


def check_offer(task: TaskReplica, image: TaskImage) -> None:
    """Compute the digest at the place of another device's offer from this device's own log; confirm it if equal."""
    name, task.offer_to_check = task.offer_to_check, None
    if name is None:
        return
    offer = task.stream(name).offer
    kept = next((stream for stream in image.streams if stream.stream == task.stream(name).id), None)
    if offer is None or kept is None or kept.covers_seq > offer.covers_seq or kept.ranks:
        return
    writers = table_at(kept, offer.covers_seq)
    if writers is None:
        return
    scratch = numbered_document(task, kept.document, kept.entries, offer.covers_seq)
    if scratch.digest(name, writers) == offer.digest:
        task.core.send(SnapshotConfirmed(kept.stream, kept.epoch, offer.sha256, offer.digest))


def _adopt(task: TaskReplica, stream: StreamReplica, data: bytes) -> None:
    """Take a confirmed snapshot instead of the entries that it covers; its digest is computed anew here."""
    snapshot = decode_snapshot(data)
    ref = stream.snapshot
    if ref is None or snapshot.stream != stream.id or snapshot.epoch != stream.epoch:
        return
    if snapshot.covers_seq != ref.covers_seq or snapshot.covers_seq <= stream.cursor:
        return
    table = {row.writer: row for row in snapshot.writers}
    if task.must_bring_back and not is_covered(stream.snapshot_writers, table):
        # What only this device holds, in merged form, goes into the outbox before the row gives way to the snapshot.
        task.bring_back = True
        task.hello_again = True
        task.reload()
        return
    unproven = [key for key in task.outbox.unsent if _is_unproven(task, key, stream, table)]
    if unproven:
        # Own numbers that the snapshot passes may be somebody else's there: the relay's answer to them tells, before
        # anything is replaced. The snapshot is fetched again with the next Hello.
        for portion in task.outbox.portions(unproven):
            task.core.send(Push(task.key, portion))
        return
    if snapshot.document:
        scan_document(snapshot.document)
    scratch = numbered_document(task, snapshot.document, snapshot.records, snapshot.covers_seq)
    if scratch.digest(stream.name, table) != snapshot.digest:
        raise EntryRefused("The snapshot does not hold what its digest says.")
    for entry in snapshot.records:
        task.core.write(PutEntry(entry, own=entry.writer in task.own_writers))
    if stream.name is StreamName.STATE:
        task.core.write(
            CompactStream(stream.id, snapshot.covers_seq, snapshot.document, snapshot.writers, snapshot.chain)
        )
    for row in snapshot.writers:
        task.core.write(SetWriter(stream.id, row))
    task.core.write(SetPosition(stream.id, stream.epoch, snapshot.covers_seq, snapshot.chain))
    task.hello_again = True
    task.jumped = True
    task.reload()


def _is_unproven(task: TaskReplica, key: Key, stream: StreamReplica, table: Mapping[int, WriterRow]) -> bool:
    passed = key[0] == stream.id and key[1] in table and key[2] < table[key[1]].next_seq
    return passed and key not in task.outbox.receipted


def _confirm_own(task: TaskReplica, stream: StreamReplica, data: bytes) -> None:
    """A fresh download of the own offer: what lies at the relay is what was made (rule F)."""
    snapshot = decode_snapshot(data)
    scratch = numbered_document(task, snapshot.document, snapshot.records, snapshot.covers_seq)
    writers = {row.writer: row for row in snapshot.writers}
    offer = stream.offer
    if offer is not None and scratch.digest(stream.name, writers) == offer.digest:
        task.core.send(SnapshotConfirmed(stream.id, stream.epoch, offer.sha256, offer.digest))
