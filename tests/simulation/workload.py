"""Seeded users: what programs on a device ask of a Replica, one after the other, with honest read tokens.

A user knows only what it was shown: tokens, hashes and items come from views that it saw, possibly long ago. It dies
with its device and comes back with the device, knowing nothing, or (a person before a terminal) what it saw before.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import msgspec

from sync_core.document.view import TaskView
from sync_core.errors import NotSyncedYet, SegueError, TaskNotFound, VersionMismatch
from sync_core.replica.commands import (
    AwaitSynced,
    CloseTask,
    Command,
    CompactTask,
    EvictTask,
    OpenTask,
    QueryTasks,
    TaskCommand,
)
from tests.simulation.journal import Op, VersionOp
from tests.simulation.work_calls import CallWork
from tests.simulation.work_endings import EndingWork
from tests.simulation.work_guarded import GuardedWork
from tests.simulation.work_history import HistoryWork
from tests.simulation.work_notes import NoteWork
from tests.simulation.work_slots import SlotWork

if TYPE_CHECKING:
    from tests.simulation.device import Device

__all__ = ["TASKS", "User", "WorkMix"]

TASKS = ("expense/TRIP-118", "claim/77", "order_9")


class WorkMix(msgspec.Struct):
    """How often each kind of work is chosen, and how long a user thinks between two commands (ms).

    The chances from `kills` on are of guarded calls: the device dies, or stands still, between two of their steps; a
    person looks wrongly. `checked`: their tools say that the outside system checks keys and tokens.
    """

    slots: float = 4.0
    notes: float = 3.0
    calls: float = 3.0
    history: float = 2.0
    handles: float = 1.0
    upkeep: float = 0.7
    think_ms: tuple[int, int] = (0, 600)
    stale: float = 0.3
    versions: float = 0.0
    conflicts: float = 0.0
    blobs: float = 0.05
    guarded: float = 0.0
    checked: bool = True
    kills: float = 0.0
    pauses: float = 0.0
    lies: float = 0.0
    endings: float = 0.0
    purges: float = 0.0


class User:
    """One program on one device."""

    def __init__(self, device: "Device", rng: Random, tasks: tuple[str, ...], mix: WorkMix, budget: int) -> None:
        self.device = device
        self.world = device.world
        self.rng = rng
        self.tasks = tasks
        self.mix = mix
        self.budget = budget
        self.open: dict[str, int] = {}
        self.seen: dict[str, TaskView] = {}
        self._kinds: list[Callable[[str], None]] = [
            SlotWork(self).step,
            NoteWork(self).step,
            CallWork(self).step,
            HistoryWork(self).step,
            GuardedWork(self).step,
            EndingWork(self).step,
            self._handles,
            self._upkeep,
        ]
        self._weights = [
            mix.slots,
            mix.notes,
            mix.calls,
            mix.history,
            mix.guarded,
            mix.endings,
            mix.handles,
            mix.upkeep,
        ]

    # --- the loop -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Come to life with the device: no handle is open, and mostly nothing is remembered."""
        self.open = {}
        if self.rng.random() < 0.7:
            self.seen = {}
        self.next()

    def next(self) -> None:
        """Think, then do one more thing, until the budget is used up or the world wants quiet."""
        if self.budget > 0 and not self.world.quiet:
            self.device.later(self.rng.randint(*self.mix.think_ms), self._step)

    def _step(self) -> None:
        if self.world.quiet:
            return
        self.budget -= 1
        task = self.rng.choice(self.tasks)
        if task not in self.open:
            self._open(task)
            return
        if self.rng.random() >= self.mix.stale or task not in self.seen:
            self.look(task)
        self.rng.choices(self._kinds, self._weights)[0](task)

    def ask(
        self,
        command: Command,
        done: Callable[[object], None],
        failed: Callable[[SegueError], None] | None = None,
    ) -> None:
        """Send a command; exactly one of the two is called, unless the device dies first."""

        def on_fail(error: SegueError) -> None:
            if isinstance(error, VersionMismatch) and isinstance(command, TaskCommand):
                self.open.pop(command.task, None)
            if failed is not None:
                failed(error)
            else:
                self.next()

        self.device.command(command, done, on_fail)

    def write(self, op: Op, command: Command, done: Callable[[object], None] | None = None) -> None:
        """Ask for a write and note in the journal what became of it."""
        self.world.journal.add(op)

        def promised(value: object) -> None:
            op.promised = True
            if done is not None:
                done(value)
            self.world.checks.promised(self.device, op)
            self.next()

        def refused(error: SegueError) -> None:
            op.refused = True
            self.world.tolerate(error)
            self.next()

        self.device.tag(command.ref, op)
        self.ask(command, promised, refused)

    def look(self, task: str) -> None:
        """See the newest view that the device has announced."""
        view = self.device.views.get(task)
        if view is not None:
            self.seen[task] = view

    # --- handles ------------------------------------------------------------------------------------------------------

    def _open(self, task: str) -> None:
        create = self.rng.random() < 0.8
        version = None
        op: VersionOp | None = None
        if self.mix.versions and self.rng.random() < self.mix.versions:
            known = self.device.views.get(task)
            version = self.rng.randint(1, 2) + (known.version if known else 0)
            number, tag = self.world.journal.next_tag("o")
            op = VersionOp(number=number, device=self.device.label, task=task, tag=tag, version=version)
            self.world.journal.add(op)

        def opened(view: object) -> None:
            assert isinstance(view, TaskView)
            if op is not None:
                op.promised = True
            self.open[task] = view.version
            self.seen[task] = view
            self.next()

        def failed(error: SegueError) -> None:
            if not isinstance(error, NotSyncedYet | TaskNotFound | VersionMismatch):
                self.world.tolerate(error)
            if op is not None:
                op.refused = True
            self.next()

        command = OpenTask(self.device.next_ref(), task, create=create, version=version)
        if op is not None:
            self.device.tag(command.ref, op)
        self.ask(command, opened, failed)

    def _handles(self, task: str) -> None:
        """Close a handle; sometimes forget the task on this device."""
        del self.open[task]
        evict = self.rng.random() < 0.3

        def closed(_: object) -> None:
            if evict:
                self.ask(EvictTask(self.device.next_ref(), task), lambda _: self.next())
            else:
                self.next()

        self.ask(CloseTask(self.device.next_ref(), task), closed)

    def _upkeep(self, task: str) -> None:
        """Compact, wait for the relay, or ask it for the list of tasks."""
        ref = self.device.next_ref()
        choice = self.rng.random()
        if choice < 0.4:
            self.ask(CompactTask(ref, task), lambda _: self.next())
        elif choice < 0.8:
            self._ask_for_a_while(AwaitSynced(ref))
        else:
            self._ask_for_a_while(QueryTasks(ref, prefix=""))

    def _ask_for_a_while(self, command: AwaitSynced | QueryTasks) -> None:
        """Wait for what only the relay can answer, but not for ever."""
        waiting = True

        def done(_: object) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                self.next()

        def give_up() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                self.device.cancel(command.ref)
                self.next()

        self.ask(command, done, done)
        self.device.later(8_000, give_up)
