"""The simulator's mailbox: the relay's disk in memory, with commits that a crash may lose.

`MailboxModel` is synchronous and pure; `AsyncMailbox` puts the seam's async methods around it, so that the contract
suite runs it beside `SqliteMailbox`.
"""

from collections.abc import Sequence

from server_relay.effects import RelayAnswer, RelayRead
from server_relay.records import MailboxStats, MailboxWrite
from sync_core.ids import Entropy
from tests.simulation.crashable import Crashable
from tests.simulation.mailbox_state import MailboxState

__all__ = ["AsyncMailbox", "MailboxModel"]


class MailboxModel(Crashable[MailboxState, MailboxWrite]):
    """One relay's disk."""

    def __init__(self) -> None:
        super().__init__(MailboxState())

    def _check(self, writes: Sequence[MailboxWrite]) -> None:
        """Raise `StoreDamaged` if an entry's key is taken."""
        self._current.check(writes)

    def read(self, read: RelayRead) -> RelayAnswer:
        """Return the answer to a read."""
        return self._current.read(read)

    def stats(self) -> MailboxStats:
        """Return the mailbox's sizes."""
        return self._current.stats()

    def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        """Make of what is there a restored mailbox; it counts as synced."""
        restored = self.image()
        restored.mark_restored(entropy, now_ms)
        self.restore(restored)


class AsyncMailbox:
    """The seam's methods around a model; every commit is synced when it returns."""

    durable = True

    def __init__(self, model: MailboxModel) -> None:
        self.model = model

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        """Commit and sync."""
        self.model.commit(writes)
        self.model.sync()

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        """Return the answer to each read."""
        return [self.model.read(read) for read in reads]

    async def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        """Mark and sync."""
        self.model.mark_restored(entropy, now_ms)

    async def stats(self) -> MailboxStats:
        """Return the mailbox's sizes."""
        return self.model.stats()

    async def close(self) -> None:
        """Nothing is held."""
