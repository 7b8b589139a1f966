"""Snapshots at the relay (rule F): offered by one device, confirmed by another or from a fresh download, then adopted.

What decides is always a digest that this device computed itself, from its own log or from the bytes that it downloaded.
"""

from collections.abc import Mapping

from sync_core.document.document import DocumentBroken
from sync_core.entry import EntryKind, Snapshot, WriterRow, decode_snapshot
from sync_core.errors import EntryRefused
from sync_core.frames import Push, SnapshotConfirmed, SnapshotOffer, SnapshotRef
from sync_core.guard import scan_document
from sync_core.ids import StreamName
from sync_core.replica.changes import TaskDiverged
from sync_core.replica.outbox import Key
from sync_core.replica.recovery import table_at
from sync_core.replica.snapshots import numbered_document
from sync_core.replica.stream import StreamReplica, is_covered
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import CompactStream, PutEntry, SetPosition, SetWriter, StreamImage, TaskImage

__all__ = ["check_offers", "confirm_offers", "on_snapshot_stored", "use_snapshot"]


def on_snapshot_stored(task: TaskReplica, sha256: str) -> None:
    """The bytes of an own snapshot lie at the relay: offer it in place of the one that is there."""
    snapshot = task.loaded.offers.pop(sha256, None)
    if snapshot is None:
        return
    stream = task.stream_of(snapshot.stream)
    there = stream.offer or stream.snapshot
    previous = there.sha256 if there is not None else ""
    if snapshot.epoch == stream.epoch:
        # Only another session may confirm it.
        stream.offer_checked = sha256
        task.core.send(
            SnapshotOffer(snapshot.stream, snapshot.epoch, snapshot.covers_seq, snapshot.digest, sha256, previous)
        )


# --- confirming -------------------------------------------------------------------------------------------------------


def check_offers(task: TaskReplica) -> None:
    """Check what was offered up to the cursors, each offer once a session: another device's against this device's own
    log, its own one by a fresh download."""
    for stream in task.streams.values():
        offer = stream.offer
        if offer is None or offer.covers_seq > stream.cursor or stream.offer_checked == offer.sha256 or task.loading:
            continue
        stream.offer_checked = offer.sha256
        if offer.device == task.core.device:
            task.transfers.fetch(offer.sha256).snapshot = True
        else:
            task.agenda.offers_to_check.append(stream.name)
    if task.agenda.offers_to_check and not task.loading:
        task.reload()


def confirm_offers(task: TaskReplica, image: TaskImage) -> None:
    """Compute the digest at the place of another device's offer from this device's own log; confirm it if equal."""
    names, task.agenda.offers_to_check = task.agenda.offers_to_check, []
    for kept in image.streams:
        stream = task.stream_of(kept.stream)
        if stream.name in names and stream.offer is not None:
            digest = _digest_at(task, kept, stream.name, stream.offer.covers_seq)
            if digest == stream.offer.digest:
                task.core.send(SnapshotConfirmed(kept.stream, kept.epoch, stream.offer.sha256, digest))


def _digest_at(task: TaskReplica, kept: StreamImage, name: StreamName, place: int) -> bytes | None:
    """The digest at an earlier place, None if this device cannot tell."""
    if kept.covers_seq > place or kept.ranks:
        return None
    writers = table_at(kept, place)
    if writers is None:
        return None
    return numbered_document(task, kept.document, kept.entries, place).digest(name, writers)


# --- using ------------------------------------------------------------------------------------------------------------


def use_snapshot(task: TaskReplica, sha256: str, data: bytes) -> None:
    """A snapshot was downloaded: adopt the usable one, confirm the own offer."""
    for stream in task.streams.values():
        ref = next((ref for ref in (stream.snapshot, stream.offer) if ref is not None and ref.sha256 == sha256), None)
        snapshot = _verified(task, stream, ref, data) if ref is not None else None
        if ref is None or snapshot is None:
            continue
        if ref.usable:
            _adopt(task, stream, snapshot)
        else:
            task.core.send(SnapshotConfirmed(stream.id, stream.epoch, sha256, ref.digest))


def _verified(task: TaskReplica, stream: StreamReplica, ref: SnapshotRef, data: bytes) -> Snapshot | None:
    """Return the snapshot if it holds what the confirmed digest says; if not, its maker is shown as diverged."""
    try:
        snapshot = decode_snapshot(data)
        _check_form(snapshot, stream, ref)
        scratch = numbered_document(task, snapshot.document, snapshot.records, snapshot.covers_seq)
        if scratch.digest(stream.name, {row.writer: row for row in snapshot.writers}) != ref.digest:
            raise EntryRefused("The snapshot does not hold what its digest says.")
    except (EntryRefused, DocumentBroken):
        stream.bad_snapshot = ref.sha256
        task.diverged_from |= {ref.device}
        task.tell((TaskDiverged(task.key, stream.id, ref.device),))
        return None
    return snapshot


def _check_form(snapshot: Snapshot, stream: StreamReplica, ref: SnapshotRef) -> None:
    if (snapshot.stream, snapshot.epoch, snapshot.covers_seq) != (stream.id, stream.epoch, ref.covers_seq):
        raise EntryRefused("The snapshot is of another place.")
    for record in snapshot.records:
        if record.stream != stream.id or record.kind in (EntryKind.UPDATE, EntryKind.SNAPSHOT):
            raise EntryRefused("The snapshot holds an entry that is no record of its stream.")
        if record.relay_seq is None or not 0 < record.relay_seq <= snapshot.covers_seq:
            raise EntryRefused("The snapshot holds an entry of another place.")
    if snapshot.document:
        scan_document(snapshot.document)


def _adopt(task: TaskReplica, stream: StreamReplica, snapshot: Snapshot) -> None:
    """Take a confirmed snapshot instead of the entries that it covers."""
    if task.document is None or snapshot.covers_seq <= stream.cursor:
        return
    table = {row.writer: row for row in snapshot.writers}
    if task.must_bring_back and not is_covered(stream.snapshot_writers, table):
        # What only this device holds, in merged form, goes into the outbox before the row gives way to the snapshot.
        task.agenda.bring_back = True
        task.follow.hello_again = True
        task.reload()
        return
    unproven = [key for key in task.outbox.unsent if _is_unproven(task, key, stream, table)]
    if unproven:
        # Own numbers that the snapshot passes may be somebody else's there: the relay's answer to them tells, before
        # anything is replaced. The snapshot is fetched again with the next Hello.
        for portion in task.outbox.portions(unproven):
            task.core.send(Push(task.key, portion))
        return
    for entry in snapshot.records:
        task.core.write(PutEntry(entry, own=entry.writer in task.loaded.own_writers))
    if stream.name is StreamName.STATE:
        task.core.write(
            CompactStream(stream.id, snapshot.covers_seq, snapshot.document, snapshot.writers, snapshot.chain)
        )
    for row in snapshot.writers:
        task.core.write(SetWriter(stream.id, row))
    task.core.write(SetPosition(stream.id, stream.epoch, snapshot.covers_seq, snapshot.chain))
    task.follow.hello_again = True
    task.loaded.jumped = True
    task.reload()


def _is_unproven(task: TaskReplica, key: Key, stream: StreamReplica, table: Mapping[int, WriterRow]) -> bool:
    passed = key[0] == stream.id and key[1] in table and key[2] < table[key[1]].next_seq
    return passed and key not in task.outbox.receipted
