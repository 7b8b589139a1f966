"""Compaction: what is left of a much overwritten task, against a fresh document with the same view.

A deleted write leaves its key for good, and a session its writer id. This cost is stated, so the bound is three times
the fresh document plus the stated cost of each write and session.
"""

from pathlib import Path

from tests.benchmarks.devices import SYNC_S, TASK, open_device, overwrite, stored_state
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.growth import OVERWRITE_BYTES, SESSION_BYTES
from tests.benchmarks.servers import relay_server
from tests.benchmarks.stores import fresh_bytes

__all__ = ["run"]

_FRESH_TIMES = 3


async def run(scale: Scale, folder: Path) -> list[Figure]:
    """Return what compaction leaves, and what the file shrinks to, by number of overwrites."""
    return [figure for size in scale.sizes for figure in await _compacted(folder / str(size), size)]


async def _compacted(folder: Path, size: int) -> list[Figure]:
    folder.mkdir()
    async with (
        relay_server(folder / "relay.db") as relay,
        open_device(folder, "phone", relay) as phone,
        phone.task(TASK, create=True) as task,
    ):
        await overwrite(task, size)
        # Only what has its number is compacted.
        await phone.synced(timeout_s=SYNC_S)
        before = (await phone.stats()).store.store_bytes
        await phone.compact(TASK)
        after = (await phone.stats()).store.store_bytes
        view = task.view
    left = len((await stored_state(folder / "phone.db")).document)
    allowed = _FRESH_TIMES * fresh_bytes(view) + OVERWRITE_BYTES * size + SESSION_BYTES
    return [
        Figure("merged document, of what is allowed", size, "overwrites", "KB", left / 1e3, allowed / 1e3, 1),
        Figure("store file, of before", size, "overwrites", "KB", after / 1e3, before / 1e3),
    ]
