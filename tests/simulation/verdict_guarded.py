"""Calls that cannot be undone in the end: what happened, or may have, is shown as that; nothing unknown is decided."""

from typing import TYPE_CHECKING

from sync_core.document.calls import Attempt, Call, CallState
from sync_core.document.view import TaskView
from sync_core.rulings import SettledBy
from tests.simulation.driver import Violation
from tests.simulation.journal import Ending, GuardedOp
from tests.simulation.work_guarded import GUARDED_TOOLS

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["check_guarded"]

_MAY_HAVE_HAPPENED = frozenset(CallState) - {CallState.PLANNED, CallState.FAILED}


def check_guarded(world: "World", task: str, view: TaskView) -> None:
    """Each attempt stands as it ended, or as a person said; what has an effect outside is never shown as undone."""
    ops = [op for op in world.journal.guarded if op.task == task]
    known = {op.attempt: op for op in ops}
    for call in view.calls.values():
        if call.tool in GUARDED_TOOLS:
            for attempt in call.attempts:
                _check_attempt(call, attempt, known.get(attempt.attempt))
    for op in ops:
        call = view.calls.get((op.version, op.step))
        attempt = None if call is None else next((a for a in call.attempts if a.attempt == op.attempt), None)
        if call is None or attempt is None:
            if op.owed:
                raise Violation(f"the attempt of {op.step} v{op.version} by {op.device} ({op.tag}) is gone")
        else:
            _check_op(world, op, call, attempt)


def _check_attempt(call: Call, attempt: Attempt, op: GuardedOp | None) -> None:
    """Nobody but its tool, or a person, says how an attempt ended."""
    if attempt.ok is None or attempt.settled_by in (SettledBy.PERSON, SettledBy.PROBE):
        return
    if op is None and not attempt.ok:
        return  # A grant that nobody was told of was not started.
    due = None if op is None or not op.asked_to_record else op.ending
    if due is not (Ending.RETURNED if attempt.ok else Ending.DID_NOT_HAPPEN):
        ended = "never" if due is None else due.value
        raise Violation(f"an attempt of {call.step} ended: {ended}; it is shown as ok={attempt.ok}")


def _check_op(world: "World", op: GuardedOp, call: Call, attempt: Attempt) -> None:
    if op.owed and attempt.settled_by not in (SettledBy.PERSON, SettledBy.PROBE):
        due = {Ending.RETURNED: True, Ending.DID_NOT_HAPPEN: False}.get(op.ending or Ending.RAISED)
        if attempt.ok is not due:
            raise Violation(
                f"{op.step} by {op.device} ({op.tag}) was recorded as {op.ending}, and shows ok={attempt.ok}"
            )
    happened = world.outside.of_attempt(op.attempt) is not None
    denied = attempt.settled_by is not None and attempt.ok is False
    if happened and not denied and call.state not in _MAY_HAVE_HAPPENED:
        raise Violation(f"{op.step} by {op.device} took place outside, and the step is shown as {call.state.value}")
