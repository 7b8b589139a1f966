"""Devices over a relay, and a task that is overwritten many times, through the public interface."""

import asyncio
from pathlib import Path

from sync_core import Endpoint
from sync_core.context.sqlite_store import SqliteStore
from sync_core.endpoint.opening import Opening
from sync_core.endpoint.task import Task
from sync_core.endpoint.transport import Transport
from sync_core.replica.writes import StreamImage
from tests.benchmarks.stores import SUBJECT, key_of

__all__ = ["CREATION_ENTRIES", "SYNC_S", "TASK", "open_device", "overwrite", "stored_state"]

TASK = key_of(118)
SYNC_S = 300.0
CREATION_ENTRIES = 1
"""What creating a task writes: its business version."""

_SLOTS = 32


def open_device(folder: Path, device: str, relay: str | None, transport: Transport | None = None) -> Opening[Endpoint]:
    """Open a device on its file in a folder."""
    path = folder / f"{device}.db"
    return Endpoint.open(path, subject=SUBJECT, device=device, relay=relay, transport=transport, open_timeout_s=SYNC_S)


async def overwrite(task: Task, count: int) -> None:
    """Confirm a value so many times, in turn over the slots, which are written side by side."""

    async def write(slot: int) -> None:
        for place in range(slot, count, _SLOTS):
            await task.slots.confirm(f"slot_{slot}", f"CC-{place}")

    await asyncio.gather(*(write(slot) for slot in range(_SLOTS)))


async def stored_state(path: Path) -> StreamImage:
    """Return the stream `state` of the task as a device's file holds it; the device is closed."""
    store = await SqliteStore.open(path, subject=SUBJECT)
    try:
        image = await store.load_task(TASK)
    finally:
        await store.close()
    return next(stream for stream in image.streams if stream.stream == f"{TASK}:state")
