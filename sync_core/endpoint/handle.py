"""What the parts of one task handle share: the runner, the last durable view, and what this handle may do."""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

from sync_core.document.view import TaskView
from sync_core.endpoint.changes import Changes
from sync_core.endpoint.runner import Runner
from sync_core.errors import Closed, Purged, ReadOnly, Refused, SegueError
from sync_core.replica.changes import Change, LinkState, Status, TaskPurged
from sync_core.replica.commands import Command

__all__ = ["Execution", "Handle", "OpenedTask", "refusal_of"]

T = TypeVar("T")


class Execution:
    """A call that runs now, and how many coroutines wait for it."""

    def __init__(self, task: asyncio.Task[str], tool: str, digest: str) -> None:
        self.task = task
        self.tool = tool
        self.digest = digest
        self.waiting = 0
        self.closing = False

    def end(self) -> None:
        """Cancel it because the endpoint closes: whoever waits for it did not ask for that, and is told so."""
        self.closing = True
        self.task.cancel()


class OpenedTask:
    """A task that has at least one handle here; it goes with the last one."""

    def __init__(self, key: str, failure: SegueError | None) -> None:
        self.key = key
        self.handles = 0
        self.view: TaskView | None = None
        # A watcher that its program dropped is dropped here too.
        self.watchers: WeakSet[Changes] = WeakSet()
        self.executions: dict[tuple[int, str], Execution] = {}
        # What the authority answered in doubt, by tool and entity: of a lost log nothing else may be left here.
        self.doubted: dict[tuple[int, str], tuple[str, str]] = {}
        self._failure = failure
        self.purged: Purged | None = None

    def announced(self, view: TaskView, changes: tuple[Change, ...]) -> None:
        """Take the task's new view and tell the watchers; after a purge there will be no other one."""
        self.view = view
        for watcher in self.watchers if changes else ():
            watcher.put(changes)
        for change in changes:
            if isinstance(change, TaskPurged):
                kept = f" {change.set_aside} entries that were never sent are kept aside." if change.set_aside else ""
                self.purged = Purged(
                    f"The task {self.key} is gone ({change.reason}), at version {change.version}.{kept}"
                )
                self.fail(self.purged)

    def watch(self, changes: Changes) -> None:
        """Tell a watcher what changes from now on; after a failure it is told that."""
        self.watchers.add(changes)
        if self._failure is not None:
            changes.end(self._failure)

    def fail(self, failure: SegueError) -> None:
        """Tell every watcher that the relay refused this endpoint for good, or that the endpoint stopped."""
        self._failure = failure
        for changes in self.watchers:
            changes.end(failure)


class Handle:
    """One opening of a task. Access and business version were fixed when it was opened."""

    def __init__(
        self, runner: Runner, opened: OpenedTask, version: int, writable: bool, status: Callable[[], Status]
    ) -> None:
        self.runner = runner
        self.status = status
        self.opened = opened
        self.key = opened.key
        self.version = version
        self.writable = writable
        self.closed = False

    @property
    def view(self) -> TaskView:
        """The last announced view: everything in it is durable. Raises `Closed` on a closed handle."""
        if self.closed or self.opened.view is None:
            raise Closed("This handle of the task is closed.")
        return self.opened.view

    def check_open(self) -> None:
        """Raise `Closed` on a closed handle, `Purged` once the task was: what was shown last can still be read."""
        if self.closed:
            raise Closed("This handle of the task is closed.")
        if self.opened.purged is not None:
            raise self.opened.purged

    def check_writable(self) -> None:
        """Raise `Closed` or `ReadOnly` before anything is sent."""
        self.check_open()
        if not self.writable:
            raise ReadOnly("This handle was opened to read only.")

    def ref(self) -> int:
        """Return a fresh reference for a command."""
        return self.runner.ref()

    async def ask(self, command: Command, answer: type[T]) -> T:
        """Carry out a command that reads; raises its error."""
        self.check_open()
        return await self.runner.ask(command, answer)


def refusal_of(status: Status) -> Refused | None:
    """Return why the relay refused this endpoint for good, None if it did not."""
    if status.link is not LinkState.REFUSED:
        return None
    reason = status.reason.rstrip(".")
    return Refused(f"The relay refused this device: {reason}.", hint="Renew the token, then open it again.")
