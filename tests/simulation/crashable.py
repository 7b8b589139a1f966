"""A disk that may lose its last commits: what the device's disk and the relay's have in common."""

from collections.abc import Sequence
from random import Random
from typing import Any, Generic, Protocol, Self, TypeVar

from sync_core.errors import SegueError

__all__ = ["Crashable", "DiskContent"]


class DiskContent(Protocol):
    """What lies on a disk."""

    def apply(self, writes: Sequence[Any], /) -> None:
        """Carry out writes in order."""

    def copy(self) -> Self:
        """Return an independent copy."""


ContentT = TypeVar("ContentT", bound=DiskContent)
WriteT = TypeVar("WriteT")


class Crashable(Generic[ContentT, WriteT]):
    """A disk. A commit is visible at once and survives a crash for sure only after `sync`."""

    def __init__(self, empty: ContentT) -> None:
        self._log: list[tuple[WriteT, ...]] = []
        self._errors: list[SegueError] = []
        self._adopt(empty)

    def commit(self, writes: Sequence[WriteT]) -> None:
        """Carry out all writes, or none and raise: if an error was planned, or the writes cannot be."""
        if self._errors:
            raise self._errors.pop(0)
        self._check(writes)
        self._log.append(tuple(writes))
        self._current.apply(writes)

    def _check(self, writes: Sequence[WriteT]) -> None:
        """Raise, before anything is changed, if the content cannot take the writes."""

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

    def image(self) -> ContentT:
        """Return a copy of the whole disk as it is now: an old backup, or the disk of a live clone."""
        return self._current.copy()

    def restore(self, image: ContentT) -> None:
        """Put an image in place of everything; it counts as synced, and stays usable for other disks."""
        self._adopt(image.copy())

    def fail_next(self, error: SegueError) -> None:
        """Let one more commit fail with this error and keep nothing; called twice, the next two."""
        self._errors.append(error)

    def _adopt(self, content: ContentT) -> None:
        self._base = content
        self._current = content.copy()
        self._log.clear()
        self._synced = 0
