"""Calls: the grow-only table of intents and outcomes; a recorded success is returned, never run again."""

from enum import StrEnum

import msgspec

from sync_core.entry import Effect

__all__ = ["Attempt", "Call", "CallBegun", "CallRecorded", "CallState", "PlannedCall"]


class CallState(StrEnum):
    """Where a step stands."""

    PLANNED = "planned"
    RUNNING = "running"
    IN_DOUBT = "in_doubt"
    DONE = "done"
    FAILED = "failed"
    KEY_CONFLICT = "key_conflict"
    RESULT_UNAVAILABLE = "result_unavailable"


class Attempt(msgspec.Struct, frozen=True):
    """One execution of a step. `ok` is None while it has no outcome. `result` is canonical JSON or None (in `blob`)."""

    attempt: str
    n: int
    device: str
    tool: str
    effect: Effect
    arguments_digest: str
    arguments: str | None
    at_ms: int
    ok: bool | None = None
    result: str | None = None
    blob: str | None = None
    error: str | None = None
    lost: bool = False


class Call(msgspec.Struct, frozen=True):
    """A step's record.

    `shown` is the attempt whose outcome stands, the same one everywhere: the success with the lowest (n, attempt);
    without a success the last attempt. `recorded_twice`: more than one success, with equal arguments.
    """

    step: str
    version: int
    state: CallState
    attempts: tuple[Attempt, ...]
    shown: Attempt | None
    recorded_twice: bool = False
    tool: str = ""
    requires: tuple[str, ...] = ()
    planned_arguments: str | None = None

    @property
    def device(self) -> str:
        """The device of the attempt that stands; empty for a step that never ran."""
        return self.shown.device if self.shown else ""


class CallBegun(msgspec.Struct, frozen=True):
    """The intent is durable: run the tool now, then report the outcome of this attempt."""

    attempt: str
    idempotency_key: str


class CallRecorded(msgspec.Struct, frozen=True):
    """The step has an outcome that stands; do not run the tool."""

    call: Call


class PlannedCall(msgspec.Struct, frozen=True):
    """A step that waits: planned, or from an assistant message of the history, without a recorded success."""

    step: str
    version: int
    tool: str
    arguments: str
    requires: tuple[str, ...]
    state: CallState
    tool_call_id: str | None = None
