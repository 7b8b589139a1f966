"""A task as the file holds it, read anew and apart from what is in memory: for audit, and to compare two devices."""

import hashlib
import os

import msgspec

from sync_core.context.store import Store
from sync_core.document.document import TaskDocument
from sync_core.document.view import TaskView
from sync_core.entry import Entry, EntryKind
from sync_core.ids import StreamName, new_writer, stream_id
from sync_core.replica.snapshots import fill

__all__ = ["StoredTask", "read_stored"]


class StoredTask(msgspec.Struct, frozen=True):
    """What the entries of a file say. `digest` (hex) is equal on any two devices that hold the same entries."""

    view: TaskView
    digest: str


async def read_stored(store: Store, subject: str, task: str, device: str) -> StoredTask:
    """Build a task from its stored entries; raises `StoreDamaged` if what it needs is gone."""
    image = await store.load_task(task)
    streams = {kept.stream: kept for kept in image.streams}
    entries: list[Entry] = [entry for kept in image.streams for entry in kept.entries]
    snapshots: dict[str, bytes] = {}
    for entry in entries:
        if entry.kind is EntryKind.SNAPSHOT and entry.blob is not None:
            data = await store.load_blob(task, entry.blob)
            if data is not None:
                snapshots[entry.blob] = data
    document = TaskDocument(subject, task, device, new_writer(os.urandom), os.urandom)
    compacted = b"".join(kept.document for kept in image.streams)
    fill(document, compacted, entries, snapshots)
    whole = hashlib.sha256()
    for name in (StreamName.STATE, StreamName.HISTORY, StreamName.HANDOVER):
        kept = streams.get(stream_id(task, name))
        whole.update(document.digest(name, {row.writer: row for row in kept.writers} if kept else {}))
    return StoredTask(document.view(), whole.hexdigest())
