"""Every public way to write a task, by name, and every public method that is awaited and writes nothing.

A method that is in neither list fails a test: whoever adds one says here which it is, and then it is tried on a handle
that may only read, and with every role that may not do it.
"""

import inspect
from collections.abc import Awaitable, Callable

from sync_core.document.calls import CallState, PlannedCall
from sync_core.document.slots import Candidate, CandidateStatus
from sync_core.endpoint.history import History
from sync_core.endpoint.notes import Notes
from sync_core.endpoint.recorded import RecordedCall, RecordedCalls
from sync_core.endpoint.slots import Slots
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect

HASH = "0" * 64
RUNS: list[int] = []


@tool(effect=Effect.READ)
def look(number: int) -> int:
    """Count that it ran."""
    RUNS.append(number)
    return number


@tool(effect=Effect.IRREVERSIBLE, approval=True)
def pay(amount: int, *, idempotency_key: str) -> int:
    """Never runs here: nobody approves it, or it is approved by another device than the one that asks."""
    RUNS.append(amount)
    return amount


_ASKED = PlannedCall("i/0", 1, "note_write", '{"name": "worklog", "text": "x"}', (), CallState.PLANNED, "t1")
_CANDIDATE = Candidate("w" * 16, "1", CandidateStatus.PROPOSED, 1, "phone", None, 0)

WRITES: dict[str, Callable[[Task], Awaitable[object]]] = {
    "Task.call": lambda task: task.call("step", look, 1),
    "Task.plan": lambda task: task.plan("later", look, number=1),
    "Task.run": lambda task: task.run(_ASKED),
    "Task.complete": lambda task: task.complete(),
    "Task.hand_over": lambda task: task.hand_over("All is done."),
    "Task.settle": lambda task: task.settle("step", happened=True),
    "Task.approve": lambda task: task.approve(HASH[:16]),
    "Task.reject": lambda task: task.reject(HASH[:16], "no"),
    "Task.restore": lambda task: task.restore(0),
    "Slots.declare": lambda task: task.slots.declare("new", ask="What?"),
    "Slots.propose": lambda task: task.slots.propose("amount", 2),
    "Slots.confirm": lambda task: task.slots.confirm("amount", 3),
    "Slots.resolve": lambda task: task.slots.resolve("amount", _CANDIDATE),
    "Slots.clear": lambda task: task.slots.clear("amount", read=frozenset()),
    "Notes.write": lambda task: task.notes.write("worklog", "x", content_sha256=HASH),
    "Notes.merge": lambda task: task.notes.merge("worklog", "x", base=HASH),
    "Notes.append": lambda task: task.notes.append("worklog", "x"),
    "Notes.edit": lambda task: task.notes.edit("worklog", "a", "b"),
    "Notes.delete": lambda task: task.notes.delete("worklog", content_sha256=HASH),
    "History.append": lambda task: task.history.append({"role": "user", "content": "hello"}),
    "History.append_turn": lambda task: task.history.append_turn({"role": "assistant", "content": "hello"}),
    "History.pop": lambda task: task.history.pop(),
}
READS = frozenset(
    {
        "Task.pending_calls",
        "Task.replay",
        "Task.aclose",
        "Notes.read",
        "History.items",
        "History.message",
        "History.unanswered",
        "RecordedCall.result",
    }
)


def awaited_methods() -> set[str]:
    """Return the public coroutine methods of everything that a task's handle gives out."""
    return {
        f"{part.__name__}.{name}"
        for part in (Task, Slots, Notes, History, RecordedCalls, RecordedCall)
        for name, method in vars(part).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }
