"""Calls: what a step's record says, and what may be done with it; a recorded success is returned, never run again."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from sync_core.entry import Effect, Plan
from sync_core.errors import InDoubt, KeyReused, NeedsAuthority, ResultUnavailable
from sync_core.rulings import Contradicted, SettledBy

__all__ = [
    "AUTHORITY_NEED",
    "Attempt",
    "Call",
    "CallBegun",
    "CallRecorded",
    "CallState",
    "PlannedCall",
    "check_arguments",
    "check_begin",
    "derive_call",
]


AUTHORITY_NEED = "authority"
"""What a planned step needs, besides capabilities, while it waits for the authority to be reachable."""


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
    """One execution of a step. `ok` is None while nobody knows how it ended. `result` is canonical JSON or None (in
    `blob`).

    Of a guarded attempt `token` is the fencing token (0 for any other), `entity` the business entity whose key it had
    (canonical JSON, empty for the call's own key), `label` what the outside system calls what it made, `doubt` why the
    authority does not know how it ended, `settled_by` who said it, `retired` that its key will not be granted again.
    """

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
    token: int = 0
    entity: str = ""
    label: str = ""
    doubt: str = ""
    settled_by: SettledBy | None = None
    retired: bool = False

    @property
    def did_not_happen(self) -> bool:
        """Whether it is known that a call which cannot be undone was not made: it blocks nothing any more."""
        return self.effect is Effect.IRREVERSIBLE and self.ok is False


class Call(msgspec.Struct, frozen=True):
    """A step's record.

    `shown` is the attempt whose outcome stands, the same one everywhere: the success with the lowest (n, attempt);
    without a success the last attempt that is not known to have had no effect, else the last. `recorded_twice`: more
    than one success, with equal arguments. `contradictions`: what a stale holder said against a verdict that stands.
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
    contradictions: tuple[Contradicted, ...] = ()

    @property
    def device(self) -> str:
        """The device of the attempt that stands; empty for a step that never ran."""
        return self.shown.device if self.shown else ""


class CallBegun(msgspec.Struct, frozen=True):
    """The intent is durable: run the tool now, then report the outcome of this attempt.

    `token` is the fencing token of a guarded call, 0 for any other.
    """

    attempt: str
    idempotency_key: str
    token: int = 0


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


def derive_call(
    step: str,
    version: int,
    attempts: Iterable[Attempt],
    plan: Plan | None,
    running: frozenset[str] = frozenset(),
    contradictions: tuple[Contradicted, ...] = (),
) -> Call:
    """Return the record of a step; a pure function of its attempts and plan. `running` are attempts executing here."""
    ordered = tuple(sorted(attempts, key=_rank))
    counting = _counting(ordered)
    successes = sorted((attempt for attempt in counting if attempt.ok), key=lambda a: (a.lost, *_rank(a)))
    shown = successes[0] if successes else counting[-1] if counting else ordered[-1] if ordered else None
    return Call(
        step,
        version,
        _state(counting, shown, running),
        ordered,
        shown,
        recorded_twice=len(successes) > 1,
        tool=shown.tool if shown else plan.tool if plan else "",
        requires=plan.requires if plan else (),
        planned_arguments=plan.arguments if plan else None,
        contradictions=contradictions,
    )


def _counting(attempts: tuple[Attempt, ...]) -> list[Attempt]:
    """The attempts that decide how a step stands.

    What cannot be undone is made under a grant, so beside one that succeeded nothing counts that no ruling knows. Alone
    it does: rulings may have been lost with their log, and what may have happened is never taken for undone.
    """
    counting = [attempt for attempt in attempts if not attempt.did_not_happen]
    if any(attempt.ok and attempt.token for attempt in counting):
        return [attempt for attempt in counting if attempt.token or attempt.effect is not Effect.IRREVERSIBLE]
    return counting


def _rank(attempt: Attempt) -> tuple[int, int, str]:
    # A grant whose intent never became durable has no number of its own; its token still orders it.
    return attempt.token, attempt.n, attempt.attempt


def _state(counting: list[Attempt], shown: Attempt | None, running: frozenset[str]) -> CallState:
    if shown is None:
        return CallState.PLANNED
    if any(attempt.arguments_digest != shown.arguments_digest for attempt in counting):
        return CallState.KEY_CONFLICT
    if shown.ok:
        return CallState.RESULT_UNAVAILABLE if shown.lost else CallState.DONE
    open_attempts = [attempt for attempt in counting if attempt.ok is None]
    if any(attempt.attempt in running for attempt in open_attempts):
        return CallState.RUNNING
    if shown.ok is None or any(attempt.effect is Effect.IRREVERSIBLE for attempt in open_attempts):
        return CallState.IN_DOUBT
    return CallState.FAILED


def check_arguments(call: Call | None, step: str, arguments_digest: str) -> None:
    """Raise `KeyReused` if a step has an attempt with other arguments that happened, or may have."""
    for attempt in _counting(call.attempts) if call else ():
        if attempt.arguments_digest != arguments_digest:
            raise KeyReused(
                f"The step {step} is recorded with other arguments.",
                recorded_digest=attempt.arguments_digest,
                given_digest=arguments_digest,
            )


def check_begin(
    call: Call | None,
    step: str,
    effect: Effect,
    arguments_digest: str,
    running: frozenset[str],
    granted: str = "",
) -> bool:
    """Decide whether a step may start: True for a new attempt, False if its record is to be returned.

    `granted` is the attempt to which the authority gave the key, empty without one. Raises `KeyReused` (other arguments
    on any attempt that happened or may have), `ResultUnavailable` (it succeeded, the result is lost), `InDoubt` (it was
    started, cannot be undone, and nobody knows; or it executes here right now), `NeedsAuthority` (it cannot be undone
    and was not granted). Nothing was written before any of these.
    """
    check_arguments(call, step, arguments_digest)
    if call is not None and call.state is CallState.DONE:
        return False
    if call is not None and call.state is CallState.RESULT_UNAVAILABLE:
        raise ResultUnavailable(f"The step {step} was done, but its result was not recorded.")
    if granted and effect is Effect.IRREVERSIBLE:
        # Whether an open attempt stands in the way was the authority's to judge, and it granted the key.
        return True
    for attempt in call.attempts if call else ():
        if attempt.ok is None and (attempt.effect is Effect.IRREVERSIBLE or attempt.attempt in running):
            raise InDoubt(f"The step {step} was started and has no outcome.")
    if effect is Effect.IRREVERSIBLE:
        raise NeedsAuthority(f"The step {step} cannot be undone, and no authority is connected.")
    return True
