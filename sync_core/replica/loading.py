"""Building a task's state from what the store holds of it."""

from sync_core.document.document import DocumentBroken, TaskDocument
from sync_core.entry import Entry, EntryKind
from sync_core.errors import EntryRefused, StoreDamaged
from sync_core.ids import split_stream
from sync_core.replica.log import quarantine
from sync_core.replica.outbox import Key, Outbox, key_of
from sync_core.replica.snapshots import fill
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import StreamImage, TaskImage

__all__ = ["install", "snapshots_missing"]


def install(task: TaskReplica, image: TaskImage) -> None:
    """Build everything from what the store holds; arrived places that are still ahead stay."""
    task.loading = False
    task.followed = image.followed
    task.loaded.outbox = Outbox()
    task.loaded.own_writers = set(image.own_writers)
    task.transfers.uploads = set(image.uploads)
    task.set_aside = task.quarantined = 0
    entries: list[Entry] = []
    document = b""
    by_key: dict[Key, Entry] = {}
    for name in set(task.streams) - {split_stream(kept.stream)[1] for kept in image.streams}:
        # What was in memory of a stream that the store does not have was never durable.
        task.streams[name].reset()
    for kept in image.streams:
        stream = task.stream_of(kept.stream)
        stream.cursor, stream.chain = kept.cursor, kept.chain
        if kept.cursor:
            # Without a place in it an epoch means nothing; the relay may have said since that there is another log.
            stream.enter(kept.epoch)
        stream.writers = {row.writer: row for row in kept.writers}
        stream.compacted = bool(kept.document)
        stream.covers_seq = kept.covers_seq
        stream.snapshot_writers = kept.snapshot_writers
        stream.next_seq = _next_numbers(task, kept)
        stream.held = {place: item for place, item in stream.held.items() if place > kept.cursor}
        document = kept.document or document
        entries.extend(kept.entries)
        task.set_aside += len(kept.set_aside)
        task.quarantined += len(kept.quarantined)
        by_key.update({key_of(entry): entry for entry in kept.entries if entry.relay_seq is None})
        _install_outbox(task, kept.ranks, kept.stream, by_key)
    _install_unsent(task, image.unsent, by_key)
    task.waiting = len(task.outbox)
    task.document = _loaded(task, document, entries)
    if task.document is None:
        task.reload()
    else:
        task.document.set_running(frozenset(task.loaded.running))


def _next_numbers(task: TaskReplica, kept: StreamImage) -> dict[int, int]:
    """Return, for each own writer, a number above every one that it ever used in this file, whatever became of it."""
    entries = [*kept.entries, *(aside.entry for aside in (*kept.set_aside, *kept.quarantined))]
    used = [(entry.writer, entry.writer_seq + 1) for entry in entries]
    used += [(row.writer, row.next_seq) for row in (*kept.writers, *kept.snapshot_writers)]
    numbers: dict[int, int] = {}
    for writer, number in used:
        if writer in task.loaded.own_writers:
            numbers[writer] = max(number, numbers.get(writer, 1))
    return numbers


def snapshots_missing(task: TaskReplica, image: TaskImage) -> list[str]:
    """Return the recovered snapshots of an image whose bytes must be read before it can be installed."""
    return [
        entry.blob
        for stream in image.streams
        for entry in stream.entries
        if entry.kind is EntryKind.SNAPSHOT and entry.blob is not None and entry.blob not in task.loaded.snapshots
    ]


def _loaded(task: TaskReplica, compacted: bytes, entries: list[Entry]) -> TaskDocument | None:
    """Return the document of what the store holds; None if an entry had to be quarantined (scenario SE-24)."""
    document = _new_document(task)
    try:
        in_log = all(stream.compacted_is_in_log for stream in task.streams.values())
        fill(document, compacted, entries, task.loaded.snapshots, in_log=in_log)
    except (DocumentBroken, EntryRefused):
        _quarantine_culprit(task, compacted, entries)
        return None
    return document


def _new_document(task: TaskReplica) -> TaskDocument:
    return TaskDocument(task.core.subject, task.key, task.core.device, task.writer, task.core.entropy)


def _quarantine_culprit(task: TaskReplica, compacted: bytes, entries: list[Entry]) -> None:
    """Find the first stored entry that cannot be loaded and take it out of the document for good."""
    scratch = _new_document(task)
    try:
        snapshots = [entry for entry in entries if entry.kind is EntryKind.SNAPSHOT]
        fill(scratch, compacted, snapshots, task.loaded.snapshots)
    except (DocumentBroken, EntryRefused):
        raise StoreDamaged(f"The merged row of {task.key} cannot be read.") from None
    for entry in entries:
        try:
            scratch.load(b"", (entry,))
        except (DocumentBroken, EntryRefused) as error:
            stream = task.stream_of(entry.stream)
            code = error.code if isinstance(error, EntryRefused) else "document_broken"
            quarantine(task, stream, entry.relay_seq or 0, entry, code, waiting=False)
            return
    raise StoreDamaged(f"What is stored of {task.key} cannot be read, though each entry of it can.")


def _install_outbox(
    task: TaskReplica, ranks: dict[tuple[int, int], int], stream: str, by_key: dict[Key, Entry]
) -> None:
    for (writer, seq), _rank in sorted(ranks.items(), key=lambda item: item[1]):
        entry = by_key.get((stream, writer, seq))
        if entry is not None:
            task.outbox.recovered[key_of(entry)] = entry


def _install_unsent(task: TaskReplica, unsent: tuple[tuple[str, int, int], ...], by_key: dict[Key, Entry]) -> None:
    snapshots: dict[Key, Entry] = {}
    for key in unsent:
        entry = by_key.get(key)
        if entry is None:
            continue
        if entry.kind is EntryKind.SNAPSHOT:
            snapshots[key] = entry
        else:
            task.outbox.unsent[key] = entry
    task.outbox.recovered = {**snapshots, **task.outbox.recovered}
