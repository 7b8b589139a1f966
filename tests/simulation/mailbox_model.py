"""The simulator's mailbox: the relay's disk in memory, with commits that a crash may lose.

`MailboxModel` is synchronous and pure; `AsyncMailbox` puts the seam's async methods around it, so that the contract
suite runs it beside `SqliteMailbox`.
"""

from collections.abc import Sequence
from random import Random

from server_relay.effects import RelayAnswer, RelayRead
from server_relay.records import MailboxStats, MailboxWrite
from sync_core.errors import SegueError
from tests.simulation.mailbox_state import MailboxState

__all__ = ["AsyncMailbox", "MailboxModel"]


class MailboxModel:
    """One relay's disk. A commit is visible at once and survives a crash for sure only after `sync`."""

    def __init__(self) -> None:
        self._base = MailboxState()
        self._current = MailboxState()
        self._log: list[tuple[MailboxWrite, ...]] = []
        self._synced = 0
        self._errors: list[SegueError] = []

    # --- the mailbox -------------------------------------------------------------------------------------------------

    def commit(self, writes: Sequence[MailboxWrite]) -> None:
        """Carry out all writes, or none and raise: if an error was planned, or an entry's key is taken."""
        if self._errors:
            raise self._errors.pop(0)
        self._current.check(writes)
        self._log.append(tuple(writes))
        self._current.apply(writes)

    def read(self, read: RelayRead) -> RelayAnswer:
        """Return the answer to a read."""
        return self._current.read(read)

    def stats(self) -> MailboxStats:
        """Return the mailbox's sizes."""
        return self._current.stats()

    # --- what happens to a disk --------------------------------------------------------------------------------------

    @property
    def unsynced(self) -> int:
        """How many commits a crash may lose now."""
        return len(self._log) - self._synced

    def sync(self) -> None:
        """Everything committed so far survives any crash."""
        self._synced = len(self._log)

    def crash(self, rng: Random) -> int:
        """Keep a random prefix of the unsynced commits; return how many were lost."""
        kept = self._synced + rng.randint(0, self.unsynced)
        lost = len(self._log) - kept
        for writes in self._log[:kept]:
            self._base.apply(writes)
        self._adopt(self._base)
        return lost

    def image(self) -> MailboxState:
        """Return a copy of the whole disk as it is now: an old backup."""
        return self._current.copy()

    def restore(self, image: MailboxState) -> None:
        """Put an image in place of everything; it counts as synced. The image stays usable."""
        self._adopt(image.copy())

    def fail_next(self, error: SegueError) -> None:
        """Let the next commit that has no planned error yet fail with this one and keep nothing."""
        self._errors.append(error)

    def _adopt(self, state: MailboxState) -> None:
        self._base = state
        self._current = state.copy()
        self._log.clear()
        self._synced = 0


class AsyncMailbox:
    """The seam's methods around a model; every commit is synced when it returns."""

    def __init__(self, model: MailboxModel) -> None:
        self.model = model

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        """Commit and sync."""
        self.model.commit(writes)
        self.model.sync()

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        """Return the answer to each read."""
        return [self.model.read(read) for read in reads]

    async def stats(self) -> MailboxStats:
        """Return the mailbox's sizes."""
        return self.model.stats()

    async def close(self) -> None:
        """Nothing is held."""
