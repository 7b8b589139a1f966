"""What waits for the conductor, in the order in which it came, to be taken in turns of a bounded size.

A turn that took all that waits would be as long as the load is heavy: what it stores goes to each live reader in one
go, and once that is more than an out-queue holds, every reader falls behind and reads it from the mailbox instead.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from server_relay.effects import RelayEvent
from server_relay.peers import Peer
from sync_core.limits import OUT_QUEUE_BYTES_MAX

__all__ = ["TURN_BYTES_MAX", "Batch", "Inbox"]

TURN_BYTES_MAX = OUT_QUEUE_BYTES_MAX // 2
"""Received bytes that one turn takes; its last batch may go beyond."""


class Batch(msgspec.Struct, frozen=True):
    """Events that came together. `size_bytes` were received from `peer` at `arrived_s`, with `pushes` among them;
    `handled` is set once their turn is over."""

    events: Sequence[RelayEvent]
    peer: Peer | None = None
    size_bytes: int = 0
    arrived_s: float = 0.0
    pushes: int = 0
    handled: asyncio.Event | None = None


class Inbox:
    """A line of batches. `wake` is set while any waits."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._batches: deque[Batch] = deque()

    def __len__(self) -> int:
        """How many batches wait."""
        return len(self._batches)

    @property
    def events(self) -> int:
        """How many events wait."""
        return sum(len(batch.events) for batch in self._batches)

    def put(self, batch: Batch) -> None:
        """Put a batch at the end of the line."""
        self._batches.append(batch)
        self.wake.set()

    def take(self) -> list[Batch]:
        """Take the next turn's batches; the peers that they came from may be read again."""
        self.wake.clear()
        taken: list[Batch] = []
        size_bytes = 0
        while self._batches and size_bytes < TURN_BYTES_MAX:
            batch = self._batches.popleft()
            size_bytes += batch.size_bytes
            taken.append(batch)
        if self._batches:
            self.wake.set()
        for batch in taken:
            if batch.peer is not None:
                batch.peer.taken(batch.size_bytes)
        return taken
