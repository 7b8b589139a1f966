"""The seam to what a device keeps.

Implementations: `sqlite_store.SqliteStore`, and the simulator's disk. `tests/contracts` holds the suite that each must
pass.
"""

from collections.abc import Sequence
from typing import Protocol

from sync_core.replica.writes import FollowedTask, StoreStats, TaskImage, TaskSize, Tombstone, Write

__all__ = ["Store"]


class Store(Protocol):
    """What an endpoint needs of its disk. One owner at a time; methods are called one after the other.

    Errors: `StoreFull` (bound or disk full: nothing of the commit was kept), `StoreDamaged`, `StoreInUse` at open.
    """

    durable: bool

    async def commit(self, writes: Sequence[Write]) -> None:
        """Carry out all writes in one transaction, fsynced when it returns; or raise and keep none."""

    async def load_task(self, task: str) -> TaskImage:
        """Return what is kept of a task; an image without streams if nothing is."""

    async def followed_tasks(self) -> tuple[FollowedTask, ...]:
        """Return every followed task, in key order."""

    async def tombstones(self) -> tuple[Tombstone, ...]:
        """Return what is remembered of deleted tasks, in key order; a damaged row is left out."""

    async def load_blob(self, task: str, sha256: str) -> bytes | None:
        """Return a blob of this task, verified against its hash, or None."""

    async def load_base(self, task: str, note: str, sha256: str) -> bytes | None:
        """Return the pinned state of a note, or None if it is unknown or expired."""

    async def known_tasks(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of all tasks of which something is kept, in order."""

    async def stats(self) -> StoreStats:
        """Return the store's sizes."""

    async def task_sizes(self, task: str | None = None) -> tuple[TaskSize, ...]:
        """Return the sizes of a task, or of every task that holds something, in key order."""

    async def close(self) -> None:
        """Close the file and free its lock; idempotent."""
