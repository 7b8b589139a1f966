"""Snapshots (rule F): a stream's content at exactly one place, made in a scratch document, never from the live one."""

import hashlib
from collections.abc import Iterable, Mapping

from msgspec import structs

from sync_core.document.document import TaskDocument
from sync_core.entry import (
    Entry,
    EntryKind,
    Snapshot,
    WriterRow,
    decode_snapshot,
    encode_record,
)
from sync_core.errors import EntryRefused, StoreDamaged, TooLarge
from sync_core.guard import check_snapshot, scan_document
from sync_core.ids import StreamName, new_writer, split_stream
from sync_core.limits import SNAPSHOT_BYTES_MAX, SNAPSHOT_IDS_MAX
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import StreamImage

__all__ = ["checked_snapshot", "encode_snapshot", "fill", "make_snapshot", "numbered_document", "recovery_snapshot"]


def checked_snapshot(
    data: bytes | None, stream: str, writers: Mapping[int, WriterRow]
) -> tuple[Snapshot, tuple[WriterRow, ...]]:
    """Return a recovered snapshot and the writer rows that it raises; raises `EntryRefused` for a bad or lost one."""
    if data is None:
        raise EntryRefused("The bytes of the snapshot cannot be delivered.")
    snapshot = decode_snapshot(data)
    if snapshot.stream != stream:
        raise EntryRefused("The snapshot is of another stream.")
    return snapshot, check_snapshot(snapshot, writers)


def fill(
    document: TaskDocument,
    compacted: bytes,
    entries: Iterable[Entry],
    snapshots: Mapping[str, bytes],
    *,
    in_log: bool = True,
) -> None:
    """Load a document from a compacted row (is it in this log?), recovered snapshots (by their hash) and entries.

    Merged content goes first: it depends on nothing, and entries may depend on it. Raises `EntryRefused`,
    `DocumentBroken`, `StoreDamaged` if the bytes of a snapshot are not here.
    """
    entries = tuple(entries)
    document.load(compacted, (), in_log=in_log)
    for entry in entries:
        if entry.kind is EntryKind.SNAPSHOT:
            data = snapshots.get(entry.blob or "")
            if data is None:
                raise StoreDamaged("The bytes of a recovered snapshot are gone from the store.")
            document.merge_document(decode_snapshot(data).document, ())
    document.load(b"", entries)


def numbered_document(task: TaskReplica, compacted: bytes, entries: Iterable[Entry], upto: int) -> TaskDocument:
    """Return a scratch document of exactly the entries with a number up to a place."""
    core = task.core
    scratch = TaskDocument(core.subject, task.key, core.device, new_writer(core.entropy), core.entropy)
    numbered = [entry for entry in entries if entry.relay_seq is not None and entry.relay_seq <= upto]
    fill(scratch, compacted, numbered, task.loaded.snapshots)
    return scratch


def make_snapshot(task: TaskReplica, image: StreamImage) -> Snapshot:
    """Return the snapshot of a stream at its cursor; `image` is what the store holds of it."""
    scratch = numbered_document(task, image.document, image.entries, image.cursor)
    writers = {row.writer: row for row in image.writers}
    name = split_stream(image.stream)[1]
    return Snapshot(
        stream=image.stream,
        epoch=image.epoch,
        covers_seq=image.cursor,
        chain=image.chain,
        document=scratch.state_bytes() if name is StreamName.STATE else b"",
        records=tuple(
            entry
            for entry in image.entries
            if entry.relay_seq is not None and entry.kind not in (EntryKind.UPDATE, EntryKind.SNAPSHOT)
        ),
        writers=tuple(sorted(image.writers, key=lambda row: row.writer)),
        digest=scratch.digest(name, writers),
    )


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot's bytes; raises `EntryRefused` or `TooLarge` for one that nobody would take (rule F)."""
    if snapshot.document:
        scan_document(snapshot.document)
    data = encode_record(snapshot)
    if len(data) > SNAPSHOT_BYTES_MAX or len(snapshot.writers) > SNAPSHOT_IDS_MAX:
        raise TooLarge(f"A snapshot holds at most {SNAPSHOT_BYTES_MAX} bytes and {SNAPSHOT_IDS_MAX} writers.")
    return data


def recovery_snapshot(image: StreamImage) -> Snapshot:
    """Return what this device holds in merged form only, to be brought back to a log that lost it (rule J).

    The entries of other kinds that the writer table passes go with it, ranked by their old places: the log would not
    take them one by one any more.
    """
    covered = {row.writer: row.next_seq for row in image.snapshot_writers}
    records = [
        entry
        for entry in image.entries
        if entry.kind not in (EntryKind.UPDATE, EntryKind.SNAPSHOT) and entry.writer_seq < covered.get(entry.writer, 0)
    ]
    return Snapshot(
        stream=image.stream,
        epoch=image.epoch,
        covers_seq=len(records),
        chain=image.chain,
        document=image.document,
        records=tuple(structs.replace(entry, relay_seq=rank) for rank, entry in enumerate(records, 1)),
        writers=tuple(sorted(image.snapshot_writers, key=lambda row: row.writer)),
        digest=hashlib.sha256(image.document).digest(),
    )
