"""Consuming the log: the contiguous prefix of each stream is judged and merged, place by place.

Rules:
1. An entry is merged, its writer row, its number and the cursor are written in one commit.
2. What cannot be merged is quarantined by rule E: it counts as consumed and closes its writer in that stream.
3. A document that may have been harmed is dropped and read again from the store before anything else is merged.
"""

import msgspec

from sync_core.document.document import DocumentBroken, Touched
from sync_core.entry import Entry, EntryKind, WriterRow, chain_next, entry_hash
from sync_core.errors import EntryRefused
from sync_core.guard import Standing, check_entry, standing
from sync_core.ids import new_writer
from sync_core.replica.changes import EntryQuarantined
from sync_core.replica.effects import LoadBlob
from sync_core.replica.loaded import Rewrite
from sync_core.replica.outbox import key_of
from sync_core.replica.snapshots import checked_snapshot
from sync_core.replica.stream import OwnPlace, StreamReplica
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import NumberEntries, PutEntry, QuarantineEntry, SetWriter

__all__ = ["advance", "ask_snapshot", "quarantine"]


def advance(task: TaskReplica) -> None:
    """Consume what arrived, as far as each stream's prefix has no hole, then announce what changed.

    The order of arrival is kept across streams. Where one must wait for the bytes of a snapshot, all of them wait.
    """
    touched: list[Touched] = []
    for stream in task.streams.values():
        if task.document is not None and _reaches_early(stream):
            _consume_next(task, stream, touched)
    while task.document is not None and task.loaded.arrived:
        name, place = task.loaded.arrived[0]
        stream = task.stream(name)
        if place != stream.cursor + 1 or place not in stream.held:
            if place in stream.held:
                stream.early |= {place}
        elif not _consume_next(task, stream, touched):
            break
        task.loaded.arrived.popleft()
    task.write_positions()
    if (touched or task.loaded.jumped or task.is_judged_anew) and task.document is not None:
        task.announce(touched, local=False)
    task.follow.note_gap(task.has_gap, task.core.now_ms)


def _consume_next(task: TaskReplica, stream: StreamReplica, touched: list[Touched]) -> bool:
    """Consume the next place, and those behind it that had arrived too early. False: it must wait."""
    while True:
        taken = stream.take_next()
        if taken is None or not _consume(task, stream, taken[0], taken[1], touched):
            return False
        stream.early -= {taken[0]}
        if task.document is None or not _reaches_early(stream):
            return True


def _reaches_early(stream: StreamReplica) -> bool:
    return stream.cursor + 1 in stream.early and stream.cursor + 1 in stream.held


def _consume(
    task: TaskReplica, stream: StreamReplica, place: int, item: Entry | OwnPlace, touched: list[Touched]
) -> bool:
    """Consume one place. False: it could not be consumed yet and is held again."""
    key = (stream.id, item.writer, item.writer_seq)
    waiting = task.outbox.find(key)
    if isinstance(item, Entry):
        entry = item
        if waiting is not None and entry_hash(waiting) != entry_hash(entry):
            if key in task.outbox.unsent:
                _writer_reused(task, stream, place, entry)
                return False
            # Brought back from an earlier log with other content than the new log has: the log stands.
            task.outbox.drop([key])
            waiting, task.document = None, None
    elif waiting is None or not _is_proven(task, stream, place, item):
        # The relay left out a payload that is not here, or is another one: ask for all that the writer wrote. What else
        # is on its way belongs behind that, so nothing is taken before the heads of the new Hello.
        stream.distrusted |= {item.writer}
        task.start_over()
        return False
    else:
        # What was brought back from a lost log stands in the new one with who brought it, here as everywhere.
        vouched_by = task.core.device if key in task.outbox.recovered else waiting.vouched_by
        entry = msgspec.structs.replace(waiting, relay_seq=place, vouched_by=vouched_by)
    if entry.kind is EntryKind.SNAPSHOT and not _snapshot_here(task, stream, place, entry):
        return False
    _judge(task, stream, place, entry, waiting is not None, touched)
    stream.cursor = place
    stream.chain = chain_next(stream.chain, entry_hash(entry))
    stream.digest_due_at_ms = task.core.now_ms + task.core.settings.digest_after_ms
    task.loaded.moved.add(stream.name)
    task.follow.moved(task.core.now_ms)
    if task.agenda.rewrites or task.document is None:
        task.reload()
    return True


def _is_proven(task: TaskReplica, stream: StreamReplica, place: int, item: OwnPlace) -> bool:
    """Whether what is here under the numbers of a receipt leads to the chain that the relay has after them."""
    if not item.chain or place <= stream.proven_to:
        return True
    chain = stream.chain
    for seq in range(item.writer_seq, item.last_seq + 1):
        entry = task.outbox.find((stream.id, item.writer, seq))
        if entry is None:
            return False
        chain = chain_next(chain, entry_hash(entry))
    stream.proven_to = place + item.last_seq - item.writer_seq
    return chain == item.chain


def _judge(
    task: TaskReplica, stream: StreamReplica, place: int, entry: Entry, waiting: bool, touched: list[Touched]
) -> None:
    row = stream.writers.get(entry.writer)
    verdict = standing(entry, row)
    if verdict is Standing.NEXT:
        try:
            _merge(task, stream, entry, waiting, touched)
        except EntryRefused as error:
            quarantine(task, stream, place, entry, error.code, waiting)
        except DocumentBroken:
            task.document = None
            quarantine(task, stream, place, entry, "document_broken", waiting)
    elif verdict is Standing.KNOWN:
        _number(task, entry, waiting)
    else:
        quarantine(task, stream, place, entry, verdict.value, waiting)


def _merge(task: TaskReplica, stream: StreamReplica, entry: Entry, waiting: bool, touched: list[Touched]) -> None:
    row, scan = check_entry(entry, stream.writers)
    if task.document is None:
        pass  # It is built anew from the store, which gets this entry with the commit.
    elif entry.kind is EntryKind.SNAPSHOT:
        touched.append(_merge_snapshot(task, stream, entry))
    elif waiting:
        task.document.numbered(entry, scan)
        if (placed := task.document.place(entry)) is not None:
            touched.append(placed)
    else:
        touched.append(task.document.merge(entry, scan))
    stream.writers[row.writer] = row
    task.core.write(SetWriter(stream.id, row))
    _number(task, entry, waiting)
    if entry.writer == task.writer and not waiting:
        # Somebody else writes under the id of this opening: it goes on under a fresh one.
        task.writer = new_writer(task.core.entropy)
        task.document = None
    if entry.kind is EntryKind.SNAPSHOT:
        _cover(task, stream, entry.relay_seq or 0)


def _number(task: TaskReplica, entry: Entry, waiting: bool) -> None:
    key = key_of(entry)
    if waiting and entry.vouched_by is None and entry.relay_seq is not None:
        task.core.write(NumberEntries(entry.stream, entry.writer, entry.writer_seq, entry.writer_seq, entry.relay_seq))
    elif waiting or entry.relay_seq is not None:
        task.core.write(PutEntry(entry, own=entry.writer in task.loaded.own_writers))
    task.outbox.on_numbered(key, task.core.now_ms)


def quarantine(task: TaskReplica, stream: StreamReplica, place: int, entry: Entry, code: str, waiting: bool) -> None:
    """Rule E: consumed, kept by hash, its writer closed. An own operation that a closed id swallowed is redone."""
    entry = msgspec.structs.replace(entry, relay_seq=place)
    row = stream.writers.get(entry.writer) or WriterRow(entry.writer, entry.device)
    closed = msgspec.structs.replace(row, closed=True)
    stream.writers[entry.writer] = closed
    task.core.write(QuarantineEntry(entry, code))
    task.core.write(SetWriter(stream.id, closed))
    task.outbox.on_numbered(key_of(entry), task.core.now_ms)
    task.quarantined += 1
    task.tell((EntryQuarantined(task.key, stream.id, place, entry.device),))
    if entry.kind is EntryKind.SNAPSHOT and entry.writer in task.loaded.own_writers:
        task.cannot_bring_back = True
    if entry.device == task.core.device and entry.writer in task.loaded.own_writers:
        if code != Standing.CLOSED.value:
            rewrite = Rewrite(stream.id, entry.writer, entry.writer_seq + 1, refused=entry)
        else:
            lost = (entry,) if key_of(entry) not in task.rewritten else ()
            rewrite = Rewrite(stream.id, entry.writer, entry.writer_seq + 1, lost=lost)
        task.agenda.rewrites.append(rewrite)
    elif waiting:
        task.document = None


def _writer_reused(task: TaskReplica, stream: StreamReplica, place: int, entry: Entry) -> None:
    """The log holds other content under an own number: a live copy of this device wrote it. Redo ours."""
    stream.held[place] = entry
    task.agenda.rewrites.append(Rewrite(stream.id, entry.writer, entry.writer_seq))
    task.reload()


# --- snapshots as entries (rule J) ------------------------------------------------------------------------------------


def _snapshot_here(task: TaskReplica, stream: StreamReplica, place: int, entry: Entry) -> bool:
    sha256 = entry.blob
    if sha256 is None or sha256 in task.loaded.snapshots:
        return True
    stream.held[place] = entry
    ask_snapshot(task, sha256)
    return False


def ask_snapshot(task: TaskReplica, sha256: str) -> None:
    """Read the bytes of a recovered snapshot, once; the relay is asked if the store does not have them."""
    if sha256 not in task.loaded.snapshots_asked:
        task.loaded.snapshots_asked.add(sha256)
        task.core.emit(LoadBlob(task.key, sha256))


def _merge_snapshot(task: TaskReplica, stream: StreamReplica, entry: Entry) -> Touched:
    assert task.document is not None
    data = task.loaded.snapshots.get(entry.blob or "")
    snapshot, rows = checked_snapshot(data, stream.id, stream.writers)
    records = [msgspec.structs.replace(record, relay_seq=entry.relay_seq) for record in snapshot.records]
    touched = task.document.merge_document(snapshot.document, records)
    for at_place in records:
        row = stream.writers.get(at_place.writer)
        if row is None or at_place.writer_seq >= row.next_seq:
            task.core.write(PutEntry(at_place, own=at_place.writer in task.loaded.own_writers))
    for row in rows:
        stream.writers[row.writer] = row
        task.core.write(SetWriter(stream.id, row))
    return touched


def _cover(task: TaskReplica, stream: StreamReplica, place: int) -> None:
    """Entries that wait here and lie within a recovered snapshot are stored with it."""
    for key, entry in [*task.outbox.recovered.items(), *task.outbox.unsent.items()]:
        row = stream.writers.get(entry.writer)
        if entry.stream == stream.id and row is not None and entry.writer_seq < row.next_seq:
            task.core.write(
                NumberEntries(stream.id, entry.writer, entry.writer_seq, entry.writer_seq, place, same_place=True)
            )
            if task.document is not None:
                task.document.place(msgspec.structs.replace(entry, relay_seq=place))
            task.outbox.on_numbered(key, task.core.now_ms)
