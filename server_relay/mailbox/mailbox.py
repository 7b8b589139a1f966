"""The seam to what a relay keeps.

Implementations: `sqlite_mailbox.SqliteMailbox`, and the simulator's model. `tests/contracts` holds the suite that each
must pass.
"""

from collections.abc import Sequence
from typing import Protocol

from server_relay.effects import RelayAnswer, RelayRead
from server_relay.records import MailboxStats, MailboxWrite
from sync_core.ids import Entropy

__all__ = ["Mailbox"]


class Mailbox(Protocol):
    """What a relay needs of its disk. One owner at a time; methods are called one after the other.

    Errors: `StoreFull` (disk full: nothing of the commit was kept), `StoreDamaged`, `StoreInUse` at open.
    """

    durable: bool
    """Whether what was committed survives the process; if not, the relay rules on no call that cannot be undone."""

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        """Carry out all writes in one transaction, fsynced when it returns; or raise and keep none."""

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        """Return the answer to each read, in order; they see every commit that has returned."""

    async def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        """Say that an old state of the file was put in place of a later one, before a relay is started on it.

        Every stream gets a new epoch and forgets its snapshots, so that devices bring back what they hold; every task
        counts as lost, and every subject begins a new era behind its barrier, no lower than this relay time makes it.
        """

    async def stats(self) -> MailboxStats:
        """Return the mailbox's sizes."""

    async def close(self) -> None:
        """Close the file and free its lock; idempotent."""
