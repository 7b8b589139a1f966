"""The simulator's disk: the store's semantics in memory, with commits that a crash may lose.

`DiskModel` is synchronous and pure; `AsyncDisk` puts the seam's async methods around it, so that the contract suite
runs it beside `SqliteStore`.
"""

from collections.abc import Sequence

from sync_core.replica.writes import FollowedTask, StoreStats, TaskImage, TaskSize, Tombstone, Write
from tests.simulation.crashable import Crashable
from tests.simulation.disk_state import DiskState

__all__ = ["AsyncDisk", "DiskModel"]


class DiskModel(Crashable[DiskState, Write]):
    """One device's disk."""

    def __init__(self) -> None:
        super().__init__(DiskState())

    def load_task(self, task: str) -> TaskImage:
        """Return what is kept of a task."""
        return self._current.image_of(task)

    def followed_tasks(self) -> tuple[FollowedTask, ...]:
        """Return every followed task, in key order."""
        return self._current.followed_tasks()

    def tombstones(self) -> tuple[Tombstone, ...]:
        """Return what is remembered of deleted tasks, in key order."""
        return self._current.tombstones()

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

    def task_sizes(self, task: str | None) -> tuple[TaskSize, ...]:
        """Return the sizes of a task, or of every task."""
        return self._current.task_sizes(task)

    # --- damage ------------------------------------------------------------------------------------------------------

    def damage_entry(self, stream: str, writer: int, writer_seq: int) -> None:
        """Spoil an entry's row: its checksum fails at every read until it is put again. Counts as a sync."""
        self._current.damage_entry(stream, writer, writer_seq)
        self._adopt(self._current)

    def damage_document(self, stream: str) -> None:
        """Spoil the compacted row of a stream. Counts as a sync."""
        self._current.damage_document(stream)
        self._adopt(self._current)


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

    async def tombstones(self) -> tuple[Tombstone, ...]:
        return self.disk.tombstones()

    async def load_blob(self, task: str, sha256: str) -> bytes | None:
        return self.disk.load_blob(task, sha256)

    async def load_base(self, task: str, note: str, sha256: str) -> bytes | None:
        return self.disk.load_base(task, note, sha256)

    async def known_tasks(self, prefix: str) -> tuple[str, ...]:
        return self.disk.known_tasks(prefix)

    async def stats(self) -> StoreStats:
        return self.disk.stats()

    async def task_sizes(self, task: str | None = None) -> tuple[TaskSize, ...]:
        return self.disk.task_sizes(task)

    async def close(self) -> None:
        """Nothing to close: the disk outlives its process."""
