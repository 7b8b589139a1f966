"""Reading a task's log for audit: between two turns, so that the file and the live task stand at the same place."""

from collections.abc import AsyncIterator

from sync_core.context.store import Store
from sync_core.endpoint.export import export_entries
from sync_core.endpoint.replay import Kept, ReplayReport, replay
from sync_core.endpoint.restore import Lost, find_lost
from sync_core.endpoint.runner import Runner
from sync_core.endpoint.stored import read_kept
from sync_core.replica.replica import Replica
from sync_core.values import JsonValue

__all__ = ["Audit"]


class Audit:
    """What an endpoint can say of the log of its tasks."""

    def __init__(self, subject: str, device: str, runner: Runner, replica: Replica) -> None:
        self._subject = subject
        self._device = device
        self._runner = runner
        self._replica = replica

    async def replay(self, task: str, at: int | None) -> ReplayReport:
        """Build a task anew from its file and compare it with the live one."""

        async def read(store: Store) -> ReplayReport:
            kept = await read_kept(store, task)
            return replay(self._subject, self._device, kept, self._replica.live_digests(task), at)

        return await self._runner.read(read, ReplayReport)

    async def find_lost(self, task: str, at: int) -> Lost:
        """Return what was deleted from a task since a place."""
        return find_lost(self._subject, self._device, await self._kept(task), at)

    async def export(self, task: str) -> AsyncIterator[dict[str, JsonValue]]:
        """Iterate over a task's entries as JSON-able objects."""
        for line in export_entries(self._subject, await self._kept(task)):
            yield line

    async def _kept(self, task: str) -> Kept:
        return await self._runner.read(lambda store: read_kept(store, task), Kept)
