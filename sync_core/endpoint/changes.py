"""Watching a task: what changed, each merged or local change once, from the call of `changes()` on."""

import asyncio
from collections import deque

from sync_core.errors import SegueError
from sync_core.replica.changes import Change, Resync

__all__ = ["CHANGES_WAITING_MAX", "Changes"]

CHANGES_WAITING_MAX = 256
"""Changes that may wait for a slow watcher; past it they are dropped for one `Resync`."""


class Changes:
    """An async iterator of changes. It ends when the handle or the endpoint closes, and raises what ended the link."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._waiting: deque[Change] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._error: SegueError | None = None

    def put(self, changes: tuple[Change, ...]) -> None:
        """Hand changes over; a watcher that is too slow gets `Resync` instead of all that wait."""
        if self._ended:
            return
        self._waiting.extend(changes)
        if len(self._waiting) > CHANGES_WAITING_MAX:
            self._waiting.clear()
            self._waiting.append(Resync(self._task))
        self._arrived.set()

    def end(self, error: SegueError | None = None) -> None:
        """Let the iteration end, or raise, once what waits was taken; later changes are not taken."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._arrived.set()

    @property
    def ended(self) -> bool:
        """Whether no further change will come."""
        return self._ended

    def __aiter__(self) -> "Changes":
        return self

    async def __anext__(self) -> Change:
        # Of several who wait, one takes what arrived and the others wait on.
        while not self._waiting and not self._ended:
            self._arrived.clear()
            await self._arrived.wait()
        if self._waiting:
            return self._waiting.popleft()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration
