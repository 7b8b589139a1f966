"""A task as the file holds it, read anew and apart from what is in memory: for audit, and to compare two devices."""

import hashlib

import msgspec

from sync_core.context.store import Store
from sync_core.document.view import TaskView
from sync_core.endpoint.replay import Kept, rebuild
from sync_core.entry import EntryKind
from sync_core.ids import StreamName, stream_id

__all__ = ["StoredTask", "read_kept", "read_stored"]


class StoredTask(msgspec.Struct, frozen=True):
    """What the entries of a file say. `digest` (hex) is equal on any two devices that hold the same entries."""

    view: TaskView
    digest: str


async def read_kept(store: Store, task: str) -> Kept:
    """Read all that a store holds of a task; of blobs only their sizes, except recovered snapshots."""
    image = await store.load_task(task)
    blob_bytes: dict[str, int] = {}
    snapshots: dict[str, bytes] = {}
    for kept in image.streams:
        for entry in (*kept.entries, *(aside.entry for aside in (*kept.set_aside, *kept.quarantined))):
            data = await store.load_blob(task, entry.blob) if entry.blob is not None else None
            if data is None or entry.blob is None:
                continue
            blob_bytes[entry.blob] = len(data)
            if entry.kind is EntryKind.SNAPSHOT:
                snapshots[entry.blob] = data
    return Kept(image, blob_bytes, snapshots)


async def read_stored(store: Store, subject: str, task: str, device: str) -> StoredTask:
    """Build a task from its stored entries; raises `StoreDamaged` if what it needs is gone."""
    kept = await read_kept(store, task)
    document = rebuild(subject, device, kept, [entry for image in kept.image.streams for entry in image.entries])
    writers = {image.stream: {row.writer: row for row in image.writers} for image in kept.image.streams}
    whole = hashlib.sha256()
    for name in (StreamName.STATE, StreamName.HISTORY, StreamName.HANDOVER):
        whole.update(document.digest(name, writers.get(stream_id(task, name), {})))
    return StoredTask(document.view(), whole.hexdigest())
