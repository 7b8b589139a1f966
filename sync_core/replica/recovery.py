"""What a device does when its file, its writer or the relay's log is not what it was (rules D, E, F, J).

Each function is called with the task's image freshly read, returns whether it wrote something that makes the image
stale, and leaves the reading anew to its caller.
"""

import hashlib

from msgspec import structs

from sync_core.document.rewrite import rewrite_updates
from sync_core.entry import CHAIN_START, Entry, EntryKind, WriterRow, chain_next, decode_snapshot, entry_hash
from sync_core.errors import EntryRefused, SegueError, StoreDamaged
from sync_core.guard import Scan, check_entry, scan_document, scan_update
from sync_core.ids import StreamName, new_writer, split_stream
from sync_core.replica.changes import LogChanged
from sync_core.replica.core import Core
from sync_core.replica.loaded import Rewrite
from sync_core.replica.outbox import key_of
from sync_core.replica.snapshots import encode_snapshot, make_snapshot, numbered_document, recovery_snapshot
from sync_core.replica.stream import StreamReplica, is_covered
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import (
    CompactStream,
    DiscardEntries,
    PutBlob,
    StartEpoch,
    StreamImage,
    TaskImage,
    TruncateStream,
)

__all__ = [
    "bring_back_when_due",
    "compact",
    "compaction_due",
    "find_stranded",
    "offer_snapshot",
    "redo_rewrites",
    "repair",
    "start_epoch",
    "table_at",
]

_NOTHING = Scan((), (), (), (), ())


def start_epoch(task: TaskReplica, stream: StreamReplica, epoch: bytes) -> None:
    """The relay's log is another one: everything held is to be sent back (rule J)."""
    task.core.write(StartEpoch(stream.id, epoch))
    stream.enter(epoch)
    stream.head = 0
    stream.offer = stream.snapshot = None
    task.tell((LogChanged(task.key, stream.id),))
    task.reload()


# --- a damaged file ---------------------------------------------------------------------------------------------------


def repair(task: TaskReplica, image: TaskImage) -> bool:
    """Fetch again what is damaged or missing here; raises `StoreDamaged` for own work that exists nowhere else."""
    own_lost = [
        stream.stream for stream in image.streams if any(relay_seq is None for _, _, relay_seq in stream.damaged)
    ]
    if own_lost:
        raise StoreDamaged(f"{len(own_lost)} stream(s) of {task.key} lost entries that were never sent.")
    wrote = False
    for stream in image.streams:
        hole = _first_hole(stream)
        if hole is not None:
            _truncate(task.core, stream, hole - 1)
            wrote = True
    return wrote


def _first_hole(stream: StreamImage) -> int | None:
    """Return the first place up to the cursor that is not held. Several entries may lie at one place."""
    if stream.document_damaged:
        return 1
    places = {entry.relay_seq for entry in stream.entries}
    places |= {aside.entry.relay_seq for aside in stream.quarantined}
    for place in range(stream.covers_seq + 1, stream.cursor + 1):
        if place not in places:
            return place
    return None


def _truncate(core: Core, stream: StreamImage, upto: int) -> None:
    """Go back to a place: what lies above it is asked for again. The table and the chain are computed anew."""
    replayed = _replay(stream, upto)
    if replayed is None:
        # A recovered snapshot raised the table; only the log itself can repeat that.
        upto = stream.covers_seq
        replayed = _base(stream)
    writers, chain = replayed
    core.write(TruncateStream(stream.stream, upto, chain, tuple(sorted(writers.values(), key=lambda row: row.writer))))


def table_at(stream: StreamImage, upto: int) -> dict[int, WriterRow] | None:
    """Return the writer table at an earlier place, or None if this device cannot tell."""
    replayed = _replay(stream, upto)
    return None if replayed is None else replayed[0]


def _base(stream: StreamImage) -> tuple[dict[int, WriterRow], bytes]:
    if not stream.covers_seq:
        return {}, CHAIN_START
    return {row.writer: row for row in stream.snapshot_writers}, stream.snapshot_chain


def _replay(stream: StreamImage, upto: int) -> tuple[dict[int, WriterRow], bytes] | None:
    """Return table and chain at a place, from the compacted row and the entries above it."""
    writers, chain = _base(stream)
    base = stream.covers_seq
    log = [(entry, False) for entry in stream.entries if _within(entry, base, upto)]
    log += [(aside.entry, True) for aside in stream.quarantined if _within(aside.entry, base, upto)]
    if any(entry.kind is EntryKind.SNAPSHOT for entry, _ in log) or not _is_in_log(stream):
        return None
    for entry, refused in sorted(log, key=lambda item: item[0].relay_seq or 0):
        if refused:
            row = writers.get(entry.writer) or WriterRow(entry.writer, entry.device)
            writers[entry.writer] = structs.replace(row, closed=True)
        else:
            row, _ = check_entry(entry, writers)
            writers[row.writer] = row
        chain = chain_next(chain, entry_hash(entry))
    return writers, chain


def _within(entry: Entry, base: int, upto: int) -> bool:
    return entry.relay_seq is not None and base < entry.relay_seq <= upto


# --- a writer that may not go on --------------------------------------------------------------------------------------


def find_stranded(task: TaskReplica, image: TaskImage) -> None:
    """Ask for a rewrite of unsent own entries that stand behind a hole: what was before them was set aside, and the
    process ended before they were written again."""
    unsent = frozenset(image.unsent)
    for stream in image.streams:
        begun: dict[int, int] = {}
        for row in (*stream.snapshot_writers, *stream.writers):
            begun[row.writer] = max(row.next_seq, begun.get(row.writer, 1))
        waiting: dict[int, set[int]] = {}
        for entry in stream.entries:
            if entry.relay_seq is None and entry.writer in task.loaded.own_writers:
                waiting.setdefault(entry.writer, set()).add(entry.writer_seq)
        for writer, seqs in waiting.items():
            reached = begun.get(writer, 1)
            while reached in seqs:
                reached += 1
            if any(seq >= reached and (stream.stream, writer, seq) in unsent for seq in seqs):
                refused = next((a.entry for a in stream.set_aside if a.entry.writer == writer), None)
                task.agenda.rewrites.append(Rewrite(stream.stream, writer, reached, refused=refused))


def redo_rewrites(task: TaskReplica, image: TaskImage) -> bool:
    """Write again, under a new writer id, the own operations that can no longer be sent as they are (rule E)."""
    if not task.agenda.rewrites:
        return False
    rewrites, task.agenda.rewrites = task.agenda.rewrites, []
    entries = {key_of(entry): entry for stream in image.streams for entry in stream.entries}
    lost = [entry for rewrite in rewrites for entry in rewrite.lost]
    refused = [rewrite.refused for rewrite in rewrites if rewrite.refused is not None]
    unsent = [entries[key] for key in image.unsent if key in entries]
    affected = _affected(unsent, rewrites, [*refused, *lost])
    updates = _rewritten_updates(task, image, affected, lost, refused)
    _discard(task.core, affected)
    for entry in [*lost, *affected]:
        payload = updates.get(key_of(entry), b"") if entry.kind is EntryKind.UPDATE else entry.payload
        if payload:
            again = task.append(split_stream(entry.stream)[1], entry.kind, payload, blob=entry.blob)
            task.rewritten |= {key_of(again)}
    return True


def _affected(unsent: list[Entry], rewrites: list[Rewrite], gone: list[Entry]) -> list[Entry]:
    """Return the entries that cannot go on as they are: those of the rewrites, whatever stands on them or on what is
    `gone`, and what is numbered behind any of these. The relay may have all others already: they stay."""
    numbers: dict[tuple[str, int], int] = {}
    for rewrite in rewrites:
        log = (rewrite.stream, rewrite.writer)
        numbers[log] = min(rewrite.from_seq, numbers.get(log, rewrite.from_seq))
    clocks: dict[int, int] = {}
    for entry in gone:
        _note_run(entry, clocks)
    affected = []
    for entry in unsent:
        log = (entry.stream, entry.writer)
        if entry.writer_seq >= numbers.get(log, entry.writer_seq + 1) or _stands_on(entry, clocks):
            numbers.setdefault(log, entry.writer_seq)
            _note_run(entry, clocks)
            if entry.kind is not EntryKind.SNAPSHOT:
                affected.append(entry)
    return affected


def _note_run(entry: Entry, clocks: dict[int, int]) -> None:
    """Note from which clock on what the writer wrote is not what the log has."""
    for writer, first, _ in _scanned(entry).structs:
        clocks[writer] = min(first, clocks.get(writer, first))


def _stands_on(entry: Entry, clocks: dict[int, int]) -> bool:
    scan = _scanned(entry)
    named = [*scan.origins, *((writer, clock + length - 1) for writer, clock, length in scan.deletes)]
    return any(writer in clocks and clock >= clocks[writer] for writer, clock in named)


def _scanned(entry: Entry) -> Scan:
    """Return what an update does; nothing for any other entry, or for bytes that no document ever took."""
    try:
        return scan_update(entry.payload) if entry.kind is EntryKind.UPDATE else _NOTHING
    except EntryRefused:
        return _NOTHING


def _rewritten_updates(
    task: TaskReplica, image: TaskImage, affected: list[Entry], lost: list[Entry], refused: list[Entry]
) -> dict[tuple[str, int, int], bytes]:
    """Return the new update of each affected entry; the task's writer is a fresh one from here on."""
    task.writer = new_writer(task.core.entropy)
    redo = [entry for entry in [*refused, *lost, *affected] if entry.kind is EntryKind.UPDATE]
    if not redo:
        return {}
    gone = {key_of(entry) for entry in redo}
    document = next((s.document for s in image.streams if split_stream(s.stream)[1] is StreamName.STATE), b"")
    kept = [entry for stream in image.streams for entry in stream.entries if key_of(entry) not in gone]
    # The merged bytes of recovered snapshots are as much a part of what was read as entries are.
    merged = [_merged(task, entry) for entry in kept if entry.kind is EntryKind.SNAPSHOT]
    base = [
        *(entry for entry in merged if entry.payload),
        *(entry for entry in kept if entry.kind is not EntryKind.SNAPSHOT),
    ]
    skip = frozenset(index for index, entry in enumerate(redo) if entry in refused)
    updates = rewrite_updates(task.core.subject, task.key, task.writer, document, base, redo, skip)
    return {key_of(entry): update for entry, update in zip(redo, updates, strict=True)}


def _merged(task: TaskReplica, snapshot: Entry) -> Entry:
    """Return a recovered snapshot's document as an update; its bytes were read before anything is rewritten."""
    document = decode_snapshot(task.loaded.snapshots[snapshot.blob or ""]).document
    return structs.replace(snapshot, kind=EntryKind.UPDATE, payload=document)


def _discard(core: Core, entries: list[Entry]) -> None:
    by_writer: dict[tuple[str, int], list[int]] = {}
    for entry in entries:
        by_writer.setdefault((entry.stream, entry.writer), []).append(entry.writer_seq)
    for (stream, writer), seqs in by_writer.items():
        core.write(DiscardEntries(stream, writer, tuple(seqs)))


# --- merged content ---------------------------------------------------------------------------------------------------


def bring_back_when_due(task: TaskReplica, image: TaskImage) -> bool:
    """In a new epoch: put the merged row, whose entries are gone here, into the outbox as one recovered entry."""
    if not task.agenda.bring_back:
        return False
    task.agenda.bring_back = False
    wrote = False
    for stream in image.streams:
        if not stream.document or _is_in_log(stream):
            continue
        try:
            data = encode_snapshot(recovery_snapshot(stream))
        except SegueError:
            # More than the relay takes: it stays here alone.
            task.cannot_bring_back = True
            continue
        sha256 = hashlib.sha256(data).hexdigest()
        task.core.write(PutBlob(task.key, sha256, data, upload=True))
        name = split_stream(stream.stream)[1]
        task.append(name, EntryKind.SNAPSHOT, b"", writer=new_writer(task.core.entropy), blob=sha256)
        wrote = True
    return wrote


def _is_in_log(stream: StreamImage) -> bool:
    """Whether the log holds all that this device has only in merged form."""
    if not stream.document or stream.covers_seq:
        return True
    return is_covered(stream.snapshot_writers, {row.writer: row for row in stream.writers})


def compaction_due(core: Core, image: TaskImage) -> bool:
    """Whether stored updates have piled up, by number or size, or a recovered snapshot waits to be merged."""
    numbered = [entry for stream in image.streams for entry in stream.entries if entry.relay_seq is not None]
    sizes = [len(entry.payload) for entry in numbered if entry.kind is EntryKind.UPDATE]
    return (
        len(sizes) >= core.settings.compact_entries
        or sum(sizes) >= core.settings.compact_bytes
        or any(entry.kind is EntryKind.SNAPSHOT for entry in numbered)
    )


def compact(task: TaskReplica, image: TaskImage) -> bool:
    """Merge the stored updates up to the cursor into one row, after checking that the content stays equal.

    Returns whether a row was written. Skipped while the stream has anything that the log does not hold yet.
    Raises `EntryRefused` for more than a merged row may hold, `StoreDamaged` if the content would change.
    """
    stream = next((s for s in image.streams if split_stream(s.stream)[1] is StreamName.STATE), None)
    if stream is None or stream.ranks or stream.damaged or stream.cursor <= stream.covers_seq:
        return False
    if not _is_in_log(stream):
        return False
    writers = {row.writer: row for row in stream.writers}
    before = numbered_document(task, stream.document, stream.entries, stream.cursor)
    merged = before.state_bytes()
    scan_document(merged)
    records = [entry for entry in stream.entries if entry.kind not in (EntryKind.UPDATE, EntryKind.SNAPSHOT)]
    after = numbered_document(task, merged, records, stream.cursor)
    name = StreamName.STATE
    if after.digest(name, writers) != before.digest(name, writers):
        raise StoreDamaged(f"Compacting {task.key} would change its content; nothing was deleted.")
    task.core.write(CompactStream(stream.stream, stream.cursor, merged, stream.writers, stream.chain))
    replica = task.stream(name)
    replica.compacted, replica.covers_seq, replica.snapshot_writers = True, stream.cursor, stream.writers
    return True


def offer_snapshot(task: TaskReplica, image: TaskImage, name: StreamName) -> None:
    """Make a snapshot of a stream for the relay, which serves it once another device confirmed its digest (rule F)."""
    stream = next((s for s in image.streams if split_stream(s.stream)[1] is name), None)
    if stream is None or stream.ranks or not stream.cursor or not _is_in_log(stream):
        return
    try:
        snapshot = make_snapshot(task, stream)
        data = encode_snapshot(snapshot)
    except SegueError:
        return
    sha256 = hashlib.sha256(data).hexdigest()
    task.core.write(PutBlob(task.key, sha256, data, upload=True))
    task.transfers.uploads.add(sha256)
    task.loaded.offers[sha256] = snapshot
