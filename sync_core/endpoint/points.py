"""Points of a call at which a test may have the endpoint crash; free while nothing is armed.

`sync_core.testing.crash_at` arms a point for the code that runs inside its `with` block, and for the tasks started
there; the call path asks at each point whether it is due.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

__all__ = ["CallPoint", "Crashed", "armed", "due"]


class CallPoint(StrEnum):
    """Where a call may be cut off: the authority granted it, the intent is durable, the tool has run, the outcome is
    durable. Only a call that cannot be undone is granted."""

    AFTER_GRANT = "after_grant"
    AFTER_INTENT = "after_intent"
    AFTER_EFFECT = "after_effect"
    AFTER_RECORD = "after_record"


class Crashed(BaseException):
    """The endpoint was dropped as by a crash. No `except Exception` of a program catches it, as none survives one."""

    def __init__(self, point: CallPoint) -> None:
        self.point = point
        super().__init__(f"The endpoint crashed {point.value.replace('_', ' ')}, as the test asked.")


class _Trap:
    def __init__(self, point: CallPoint) -> None:
        self.point = point
        self.set = True


_trap: ContextVar[_Trap | None] = ContextVar("segue_crash_point", default=None)


@contextmanager
def armed(point: CallPoint) -> Iterator[None]:
    """Make a point due, once, for what runs inside."""
    reset = _trap.set(_Trap(point))
    try:
        yield
    finally:
        _trap.reset(reset)


def due(point: CallPoint) -> bool:
    """Whether to crash here and now; true once for each armed point."""
    trap = _trap.get()
    if trap is None or trap.point is not point or not trap.set:
        return False
    trap.set = False
    return True
