"""What is watched of tasks that end: nothing of a purged log comes back, and what was handed over stands.

A purge takes what was promised along. So from the first one on nothing of its task is owed any more; what is demanded
instead is that it stays away.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from server_relay.records import MailboxWrite, PurgeTask
from sync_core.document.view import CompletionState, TaskView
from sync_core.entry import Entry, entry_hash
from tests.simulation import peek
from tests.simulation.driver import Violation

if TYPE_CHECKING:
    from tests.simulation.device import Device
    from tests.simulation.world import World

__all__ = ["EndingChecks", "check_endings"]

_Entry = tuple[str, int, int, bytes]
"""Stream, writer, number and content: in a log that is begun anew the relay goes on under its writer id, from 1."""


class EndingChecks:
    """The watcher of one world's purges. `purged` are the tasks of which somebody asked for one."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.purged: set[str] = set()
        self._dead: dict[str, set[_Entry]] = {}
        self._dying: dict[str, set[_Entry]] = {}

    def purge_asked(self, task: str) -> None:
        """Somebody is about to delete a task everywhere."""
        self.purged.add(task)

    def relay_commits(self, writes: Sequence[MailboxWrite]) -> None:
        """Before a commit: what a purge takes away."""
        for write in writes:
            if isinstance(write, PurgeTask):
                log = peek.mailbox_entries(self.world.relay.mailbox, write.subject, write.task)
                self._dying.setdefault(write.task, set()).update(map(_named, log))

    def relay_synced(self) -> None:
        """What was committed is durable: it is gone for good."""
        for task, dying in self._dying.items():
            self._dead.setdefault(task, set()).update(dying)
        self._dying.clear()

    def disk_replaced(self) -> None:
        """A disk was thrown away, and a tombstone may have been on it."""
        self._dead.clear()
        self._dying.clear()

    def final(self) -> None:
        """Nothing of a purged log is anywhere, but what its device keeps aside."""
        for op in self.world.journal.ops:
            if op.task in self.purged:
                op.lost = True
        world = self.world
        for task, dead in self._dead.items():
            log = peek.mailbox_entries(world.relay.mailbox, world.subject, task)
            back = [entry for entry in log if _named(entry) in dead]
            if any(entry.vouched_by is not None for entry in back):
                raise Violation(f"{len(back)} entries of {task} were brought back, though it was purged")
            # What a device sent, and never heard that it was stored, is its unsent work: it is sent once more.
            gone = dead - {_named(entry) for entry in back}
            # What was read of a task that a device does not follow is judged when it is opened there again.
            for device in world.devices:
                rows = peek.entries_of(device.disk, task) if self._follows(device, task) else ()
                held = next((entry for entry in rows if _named(entry) in gone), None)
                if held is not None:
                    raise Violation(f"{device.label} still holds {held.stream} {held.writer_seq}, though it was purged")

    def _follows(self, device: "Device", task: str) -> bool:
        return any(followed.task == task for followed in device.disk.followed_tasks())


def _named(entry: Entry) -> _Entry:
    return entry.stream, entry.writer, entry.writer_seq, entry_hash(entry)


def check_endings(world: "World", task: str, view: TaskView) -> None:
    """Whoever handed over is heard, if only as a conflict; what was completed is not open."""
    shown = {version: (text, *text.conflicts) for version, text in view.handovers.items()}
    for op in world.journal.handovers:
        if op.task == task and op.owed and not any(op.tag in text.text for text in shown.get(op.version, ())):
            raise Violation(f"the hand-over {op.tag} of v{op.version} is gone")
    for version, texts in shown.items():
        if not all(text.stored for text in texts):
            raise Violation(f"a hand-over of v{version} is shown as not stored, when all is stored")
    for done in world.journal.completions:
        is_open = view.completion.state in (CompletionState.OPEN, CompletionState.COMPLETING)
        # Who completes it once more writes nothing; the entry that says it may have been set aside.
        owed = done.owed and not world.faults.plan.demotions
        if done.task == task and owed and done.version == view.version and is_open:
            raise Violation(f"version {done.version} of {task} was completed and is {view.completion.state.value}")
