"""Calls, plans, versions and the history in the end: nothing recorded is gone, outputs follow their calls."""

import hashlib
from typing import TYPE_CHECKING

from sync_core.document.calls import Attempt, Call, CallState
from sync_core.document.view import TaskView
from sync_core.entry import EntryKind, HistoryPop, decode_record
from tests.simulation import peek
from tests.simulation.driver import Violation
from tests.simulation.journal import CallOp
from tests.simulation.work_guarded import GUARDED_TOOLS

if TYPE_CHECKING:
    from tests.simulation.device import Device
    from tests.simulation.world import World

__all__ = ["check_calls", "check_history"]


def check_calls(world: "World", task: str, view: TaskView) -> None:
    """Every recorded outcome stands with its result, and a step's state follows from its attempts."""
    ops = {op.attempt: op for op in world.journal.calls if op.task == task}
    for (version, step), call in view.calls.items():
        if call.tool in GUARDED_TOOLS:
            continue
        for attempt in call.attempts:
            op = ops.get(attempt.attempt)
            if op is not None:
                _check_attempt(op, attempt, version, step)
            elif attempt.ok is not None and not world.faults.plan.hostile:
                raise Violation(f"step {step} has an outcome of an attempt that nobody ran")
        _check_state(call)
    for op in ops.values():
        if op.owed:
            known = view.calls.get((op.version, op.step))
            attempts = () if known is None else known.attempts
            mine = next((attempt for attempt in attempts if attempt.attempt == op.attempt), None)
            if mine is None or mine.ok is not op.ok:
                raise Violation(f"the outcome of {op.step} v{op.version} by {op.device} ({op.tag}) is gone")
    for plan in world.journal.plans:
        if plan.task == task and plan.owed and (plan.version, plan.step) not in view.calls:
            raise Violation(f"the plan of {plan.step} v{plan.version} ({plan.tag}) is gone")
    for decided in world.journal.versions:
        if decided.task == task and decided.owed and view.version < decided.version:
            raise Violation(f"version {decided.version} was decided, {view.version} stands")


def _check_attempt(op: CallOp, attempt: Attempt, version: int, step: str) -> None:
    if (op.version, op.step) != (version, step):
        raise Violation(f"the attempt of {op.step} v{op.version} stands at {step} v{version}")
    if attempt.ok is None:
        return
    if not op.asked_to_record or attempt.ok is not op.ok:
        raise Violation(f"{op.step}: an outcome that was never recorded like that ({op.tag})")
    if attempt.ok and attempt.result is not None and attempt.result != op.result:
        raise Violation(f"{op.step}: the recorded result of {op.tag} changed")
    if attempt.blob is not None and attempt.blob != hashlib.sha256(op.result.encode()).hexdigest():
        raise Violation(f"{op.step}: the recorded result of {op.tag} names another blob")


def _check_state(call: Call) -> None:
    """One success is shown everywhere; successes with other arguments are a conflict."""
    successes = [attempt for attempt in call.attempts if attempt.ok]
    if not successes:
        if call.state is CallState.DONE:
            raise Violation(f"step {call.step} is done without a success")
        return
    if len({attempt.arguments_digest for attempt in successes}) > 1:
        if call.state is not CallState.KEY_CONFLICT:
            raise Violation(f"step {call.step} ran with other arguments and is {call.state.value}")
        return
    if call.state is CallState.KEY_CONFLICT and len({attempt.arguments_digest for attempt in call.attempts}) > 1:
        return
    first = min(successes, key=lambda attempt: (attempt.n, attempt.attempt))
    if call.state not in (CallState.DONE, CallState.RESULT_UNAVAILABLE) or call.shown != first:
        raise Violation(f"step {call.step} has a success and is {call.state.value}")
    if call.recorded_twice != (len(successes) > 1):
        raise Violation(f"step {call.step} has {len(successes)} successes, recorded_twice is {call.recorded_twice}")


def check_history(world: "World", task: str, view: TaskView, holders: list["Device"]) -> None:
    """Every message stands unless a pop took it; runs do not interleave; an output follows what it answers."""
    pops: set[str] = set()
    popped: set[str] = set()
    for device in holders:
        for entry in peek.entries_of(device.disk, task):
            if entry.kind is EntryKind.HISTORY:
                record = decode_record(entry.kind, entry.payload)
                if isinstance(record, HistoryPop):
                    pops.add(record.item)
                    popped |= {record.item, *record.also}
    if len(pops) > sum(1 for op in world.journal.pops if op.task == task and not op.refused):
        raise Violation(f"more messages of {task} were popped than anybody asked for")
    shown = {item.item: item for item in view.history}
    answered = {item.answers for item in view.history if item.answers}
    answered |= {op.answers for op in world.journal.history if op.answers and op.item in popped}
    for op in world.journal.history:
        if op.task != task:
            continue
        item = shown.get(op.item)
        if item is None and op.answers in answered:
            continue  # Of several outputs of one call one is shown, and a pop takes all of them.
        if op.owed and holders and op.item not in popped and (item is None or item.message != op.message):
            raise Violation(f"the message {op.tag} is gone from the history, and no pop took it")
    messages = [item.message for item in view.history]
    if len(set(messages)) != len(messages):
        raise Violation(f"a message of {task} stands twice in the history")
    _check_runs(view)


def _check_runs(view: TaskView) -> None:
    seen: set[str] = set()
    items: set[str] = set()
    run, index = "", -1
    for item in view.history:
        if item.run != run:
            if item.run in seen:
                raise Violation(f"the run {item.run} is cut in two by another one")
            seen.add(item.run)
            run, index = item.run, -1
        if item.answers is None:
            if item.index <= index:
                raise Violation(f"the run {item.run} is out of order")
            index = item.index
        asked = item.answers.partition("/")[0] if item.answers else ""
        if asked and asked not in items and any(other.item == asked for other in view.history):
            raise Violation(f"an output stands before the message {asked} that it answers")
        items.add(item.item)
