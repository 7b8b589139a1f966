"""The simulator's disk: the store's semantics in memory, with commits that a crash may lose.

`DiskModel` is synchronous and pure; `AsyncDisk` puts the seam's async methods around it, so that the contract suite
runs it beside `SqliteStore`.
"""

from collections.abc import Sequence
from random import Random

from sync_core.errors import SegueError
from sync_core.replica.writes import FollowedTask, StoreStats, TaskImage, Write
from tests.simulation.disk_state import DiskState

__all__ = ["AsyncDisk", "DiskModel"]


class DiskModel:
    """One device's disk. A commit is visible at once and survives a crash for sure only after `sync`."""

    def __init__(self) -> None:
        self._base = DiskState()
        self._current = DiskState()
        self._log: list[tuple[Write, ...]] = []
        self._synced = 0
        self._errors: list[SegueError] = []

    # --- the store ---------------------------------------------------------------------------------------------------

    def commit(self, writes: Sequence[Write]) -> None:
        """Carry out all writes, or none and raise if an error was planned."""
        if self._errors:
            raise self._errors.pop(0)
        self._log.append(tuple(writes))
        self._current.apply(writes)

    def load_task(self, task: str) -> TaskImage:
        """Return what is kept of a task."""
        return self._current.image_of(task)

    def followed_tasks(self) -> tuple[FollowedTask, ...]:
        """Return every followed task, in key order."""
        return self._current.followed_tasks()

    def load_blob(self, task: str, sha256: str) -> bytes | None:
        """Return a blob, or None."""
        return self._current.load_blob(task, sha256)

    def load_base(self, task: str, note: str, sha256: str) -> bytes | None:
        """Return a pinned state, or None."""
        return self._current.load_base(task, note, sha256)

    def known_tasks(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of all tasks of which something is kept, in order."""
        return self._current.known_tasks(prefix)

    def stats(self) -> StoreStats:
        """Return the store's sizes."""
        return self._current.stats()

    # --- what happens to a disk --------------------------------------------------------------------------------------

    @property
    def unsynced(self) -> int:
        """How many commits a crash may lose now."""
        return len(self._log) - self._synced

    def sync(self) -> None:
        """Let everything committed so far survive any crash."""
        self._synced = len(self._log)

    def crash(self, rng: Random) -> int:
        """Keep a random prefix of the unsynced commits; return how many were lost."""
        kept = self._synced + rng.randint(0, self.unsynced)
        lost = len(self._log) - kept
        for writes in self._log[:kept]:
            self._base.apply(writes)
        self._adopt(self._base)
        return lost

    def image(self) -> DiskState:
        """Return a copy of the whole disk as it is now: an old backup, or the disk of a live clone."""
        return self._current.copy()

    def restore(self, image: DiskState) -> None:
        """Put an image in place of everything; it counts as synced, and stays usable for other disks."""
        self._adopt(image.copy())

    def fail_next(self, error: SegueError) -> None:
        """Let one more commit fail with this error and keep nothing; called twice, the next two."""
        self._errors.append(error)

    def damage_entry(self, stream: str, writer: int, writer_seq: int) -> None:
        """Spoil an entry's row: its checksum fails at every read until it is put again. Counts as a sync."""
        self._current.damage_entry(stream, writer, writer_seq)
        self._adopt(self._current)

    def damage_document(self, stream: str) -> None:
        """Spoil the compacted row of a stream. Counts as a sync."""
        self._current.damage_document(stream)
        self._adopt(self._current)

    def _adopt(self, state: DiskState) -> None:
        self._base = state
        self._current = state.copy()
        self._log.clear()
        self._synced = 0


class AsyncDisk:
    """`DiskModel` behind the seam `context.store.Store`; every commit is synced."""

    durable = True

    def __init__(self, disk: DiskModel) -> None:
        self.disk = disk

    async def commit(self, writes: Sequence[Write]) -> None:
        self.disk.commit(writes)
        self.disk.sync()

    async def load_task(self, task: str) -> TaskImage:
        return self.disk.load_task(task)

    async def followed_tasks(self) -> tuple[FollowedTask, ...]:
        return self.disk.followed_tasks()

    async def load_blob(self, task: str, sha256: str) -> bytes | None:
        return self.disk.load_blob(task, sha256)

    async def load_base(self, task: str, note: str, sha256: str) -> bytes | None:
        return self.disk.load_base(task, note, sha256)

    async def known_tasks(self, prefix: str) -> tuple[str, ...]:
        return self.disk.known_tasks(prefix)

    async def stats(self) -> StoreStats:
        return self.disk.stats()

    async def close(self) -> None:
        """Nothing to close: the disk outlives its process."""
