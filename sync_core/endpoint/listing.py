"""`endpoint.tasks()`: the subject's tasks, also those that this device never opened, merged in key order."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import msgspec

from sync_core.document.calls import CallState
from sync_core.document.slots import SlotState
from sync_core.document.view import TaskView
from sync_core.endpoint.runner import Runner
from sync_core.errors import Purged
from sync_core.frames import Listing, PlannedStep, TaskListing
from sync_core.replica.commands import QueryTasks

__all__ = ["TaskInfo", "TaskState", "listed_tasks", "tasks_of"]

TaskState = Literal["open", "completed"]


class TaskInfo(msgspec.Struct, frozen=True):
    """What is known of a task. `slots` (name → state) only of a task that is kept on this device, else None.

    `known_here`: this device keeps the task; all others are told as the relay lists them.
    """

    key: str
    version: int
    state: TaskState
    planned: tuple[PlannedStep, ...]
    calls_done: int
    calls_in_doubt: int
    known_here: bool
    slots: dict[str, SlotState] | None

    def waits_for(self, capability: str) -> bool:
        """Whether a planned step needs this capability."""
        return any(capability in step.requires for step in self.planned)


async def tasks_of(runner: Runner, prefix: str, look: Callable[[str], Awaitable[TaskView]]) -> AsyncIterator[TaskInfo]:
    """Yield the tasks of this prefix, as `listed_tasks` does, but those that were purged; `look` raises for them."""

    async def page(after: str) -> Listing | None:
        reply = await runner.ask(QueryTasks(runner.ref(), prefix, after), object)
        return reply if isinstance(reply, Listing) else None

    async def look_if_there(key: str) -> TaskView | None:
        try:
            return await look(key)
        except Purged:
            return None

    local: tuple[str, ...] = await runner.read(lambda store: store.known_tasks(prefix), tuple)
    async for info in listed_tasks(local, page, look_if_there):
        yield info


async def listed_tasks(
    local: tuple[str, ...],
    page: Callable[[str], Awaitable[Listing | None]],
    look: Callable[[str], Awaitable[TaskView | None]],
) -> AsyncIterator[TaskInfo]:
    """Yield the tasks kept here (`local`, sorted keys) and those that the relay lists, each once, by key.

    `page(after)` asks the relay for its next page, None without a link; `look(key)` gives the view of a local task,
    None for one that was purged.
    """
    waiting = list(reversed(local))
    after, more, seen = "", True, ""
    while more:
        listing = await page(after)
        if listing is None:
            break
        more = listing.more
        for task in listing.tasks:
            after = task.task
            while waiting and waiting[-1] <= task.task:
                if (view := await look(key := waiting.pop())) is not None:
                    yield _of_view(view)
                    seen = key
            if seen != task.task:
                yield _of_listing(task)
    while waiting:
        if (view := await look(waiting.pop())) is not None:
            yield _of_view(view)


def _of_listing(task: TaskListing) -> TaskInfo:
    return TaskInfo(
        key=task.task,
        version=task.version,
        state="completed" if task.completed else "open",
        planned=task.planned,
        calls_done=task.calls_done,
        calls_in_doubt=task.calls_in_doubt,
        known_here=False,
        slots=None,
    )


def _of_view(view: TaskView) -> TaskInfo:
    calls = [call for (version, _), call in sorted(view.calls.items()) if version == view.version]
    return TaskInfo(
        key=view.task,
        version=view.version,
        state="completed" if view.completed else "open",
        planned=tuple(
            PlannedStep(call.step, call.tool, call.requires)
            for call in calls
            if call.planned_arguments is not None and call.state is not CallState.DONE
        ),
        calls_done=sum(call.state is CallState.DONE for call in calls),
        calls_in_doubt=sum(call.state is CallState.IN_DOUBT for call in calls),
        known_here=True,
        slots={name: view.slots[name].state for name in sorted(view.slots)},
    )
