"""Work that cannot be undone: claim a key, act in the outside system, say how it ended; and what people do about it.

All devices want the same few keys, some by step and some by the seat that they book. Between any two steps a device
may die, or stand still until its grant is long stale. People look at doubts, and some of them look wrongly.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sync_core.document.approvals import ApprovalState, RequestedApproval
from sync_core.document.calls import Call, CallBegun, CallRecorded, CallState
from sync_core.document.view import TaskView
from sync_core.entry import Effect
from sync_core.errors import (
    InDoubt,
    KeyReused,
    NeedsAuthority,
    Refused,
    ResultUnavailable,
    RunningElsewhere,
    SegueError,
    ValueRefused,
)
from sync_core.keys import idempotency_key
from sync_core.parts import Role
from sync_core.petitions import ClaimVerdict
from sync_core.replica.commands import (
    BeginCall,
    ClaimCall,
    Claimed,
    EndCall,
    GiveApproval,
    LiftBarrier,
    RequestApproval,
    SettleCall,
)
from sync_core.values import digest_text
from tests.simulation.journal import ApprovalOp, Ending, GuardedOp
from tests.simulation.outside import Deed, TurnedAway

if TYPE_CHECKING:
    from tests.simulation.workload import User

__all__ = ["GUARDED_TOOLS", "GuardedWork"]

_LIVED_WITH = (InDoubt, KeyReused, NeedsAuthority, Refused, ResultUnavailable, RunningElsewhere, ValueRefused)
_THINK_MS = (0, 0, 5, 80, 600)
_RETRY_MS = 300


class _Wanted(msgspec.Struct, frozen=True):
    """A call that users want. `entity` is canonical JSON; `releases` are (tool, entity)."""

    step: str
    tool: str
    entity: str = ""
    releases: tuple[tuple[str, str], ...] = ()
    needs_approval: bool = False


_ONE, _TWO = json.dumps("seat-1"), json.dumps("seat-2")
_WANTED = (
    _Wanted("pay", "pay"),
    _Wanted("pay-rest", "pay"),
    _Wanted("wire", "wire", needs_approval=True),
    _Wanted("book", "book", _ONE),
    _Wanted("book-again", "book", _ONE),
    _Wanted("book-other", "book", _TWO),
    _Wanted("cancel", "cancel", releases=(("book", _ONE),)),
    _Wanted("cancel-again", "cancel", releases=(("book", _ONE), ("book", _TWO))),
)
GUARDED_TOOLS = frozenset(wanted.tool for wanted in _WANTED)


class GuardedWork:
    """What a user does with calls that cannot be undone."""

    def __init__(self, user: "User") -> None:
        self._user = user
        self._rng = user.rng
        self._world = user.world
        self._device = user.device

    def step(self, task: str) -> None:
        """Settle a doubt, answer a request, say that nothing is missing, or want a call."""
        view = self._user.seen.get(task)
        choice = self._rng.random()
        if view is not None and choice < 0.25 and self._settle(task, view):
            return
        if view is not None and choice < 0.55 and self._answer(task, view):
            return
        if choice < 0.6 and self._role is Role.ADMIN:
            self._lift()
            return
        self._want(task, self._rng.choice(_WANTED))

    @property
    def _role(self) -> Role:
        return self._world.relay.roles.get(self._device.name, Role.ADMIN)

    def _failed(self, error: SegueError) -> None:
        if not isinstance(error, _LIVED_WITH):
            self._world.tolerate(error)
        if isinstance(error, NeedsAuthority):
            # Nothing was asked or started: the step waits for the link.
            self._user.budget += 1
            self._device.later(_RETRY_MS, self._user.next)
        else:
            self._user.next()

    def _go_on(self, _: object) -> None:
        self._user.next()

    def _later(self, action: Callable[[], None]) -> None:
        """Go on a little later; before that the device may die, or stand still for a long while."""
        choice = self._rng.random()
        self._device.later(self._rng.choice(_THINK_MS), action)
        if self._world.healing:
            return
        if choice < self._user.mix.kills:
            self._world.crash_device(self._device)
        elif choice < self._user.mix.kills + self._user.mix.pauses:
            self._world.pause(self._device, self._rng.choice((800, 4_000, 8_000)))

    # --- a call -------------------------------------------------------------------------------------------------------

    def _want(self, task: str, wanted: _Wanted) -> None:
        """Claim a key. One endpoint runs one step once at a time, whoever asks."""
        user = self._user
        version = user.open[task]
        running = (task, version, wanted.step)
        if running in self._device.executing:
            user.next()
            return
        self._device.executing.add(running)
        other = self._rng.random() < user.mix.conflicts
        arguments = json.dumps({"amount": 200 if other else 100}, separators=(",", ":"))

        def claimed(value: object) -> None:
            if isinstance(value, Claimed) and value.answer.verdict is ClaimVerdict.GRANTED:
                self._granted(task, version, wanted, arguments, value)
                return
            self._device.executing.discard(running)
            if isinstance(value, CallRecorded):
                self._world.guarded.told_done(value)
                user.next()
            elif isinstance(value, Claimed):
                self._not_granted(task, version, wanted, arguments, value)

        def failed(error: SegueError) -> None:
            self._device.executing.discard(running)
            self._failed(error)

        claim = ClaimCall(
            self._device.next_ref(),
            task,
            version,
            wanted.step,
            wanted.tool,
            digest_text(arguments),
            wanted.entity,
            wanted.releases,
            wanted.needs_approval,
            user.mix.checked,
        )
        user.ask(claim, claimed, failed)

    def _not_granted(self, task: str, version: int, wanted: _Wanted, arguments: str, claimed: Claimed) -> None:
        answer = claimed.answer
        if answer.verdict is ClaimVerdict.DONE:
            self._world.guarded.answered_done(answer)
        if answer.verdict is ClaimVerdict.NEEDS_APPROVAL:
            ref, digest = self._device.next_ref(), digest_text(arguments)
            request = RequestApproval(ref, task, version, wanted.step, wanted.tool, digest, arguments)
            self._user.ask(request, self._go_on, self._failed)
        else:
            self._user.next()

    def _granted(self, task: str, version: int, wanted: _Wanted, arguments: str, claimed: Claimed) -> None:
        """The key is this attempt's: write the intent, a little later."""
        user, answer = self._user, claimed.answer
        op = self._op_of(task, version, wanted, arguments, claimed)
        begin = BeginCall(
            self._device.next_ref(),
            task,
            version,
            wanted.step,
            wanted.tool,
            Effect.IRREVERSIBLE,
            op.digest,
            arguments,
            claimed.attempt,
            answer.token,
            answer.key,
        )

        def begun(value: object) -> None:
            if isinstance(value, CallBegun):
                self._world.guarded.begun(self._device, op, value)
                self._later(lambda: self._act(op))
            else:
                assert isinstance(value, CallRecorded)
                self._end(op)
                self._world.guarded.told_done(value)
                user.next()

        def failed(error: SegueError) -> None:
            # The device reports it as not started, at once or when it is claimed again.
            op.ending, op.asked_to_record = Ending.DID_NOT_HAPPEN, True
            self._end(op)
            self._failed(error)

        self._later(lambda: user.ask(begin, begun, failed))

    def _op_of(self, task: str, version: int, wanted: _Wanted, arguments: str, claimed: Claimed) -> GuardedOp:
        """Return the op of a grant: a new one, or that of a grant of which no intent was written."""
        for known in self._world.journal.guarded:
            if known.attempt == claimed.attempt:
                known.ending, known.asked_to_record = None, False
                return known
        number, tag = self._world.journal.next_tag("g")
        op = GuardedOp(
            number=number,
            device=self._device.label,
            task=task,
            tag=tag,
            version=version,
            step=wanted.step,
            tool=wanted.tool,
            entity=wanted.entity,
            digest=digest_text(arguments),
            needs_approval=wanted.needs_approval,
            principal=self._device.name,
            attempt=claimed.attempt,
            key=claimed.answer.key,
            token=claimed.answer.token,
            result=json.dumps(f"{tag} of {wanted.step}"),
        )
        self._world.guarded.granted(op)
        self._world.journal.add(op)
        return op

    def _end(self, op: GuardedOp) -> None:
        self._device.executing.discard((op.task, op.version, op.step))

    def _act(self, op: GuardedOp) -> None:
        """Run the tool: it may raise before the effect, after it, or instead of it."""
        choice = self._rng.random()
        if choice < 0.1:
            op.ending = Ending.DID_NOT_HAPPEN
        elif choice < 0.15:
            op.ending = Ending.RAISED
        else:
            deed = Deed(op.key, op.token, op.attempt, op.device, op.result, self._world.scheduler.now_ms)
            try:
                op.result = self._world.outside.act(deed)
                op.ending = Ending.RAISED if choice < 0.22 else Ending.RETURNED
            except TurnedAway:
                op.ending = Ending.DID_NOT_HAPPEN
            self._world.guarded.acted(op)
        self._later(lambda: self._record(op))

    def _record(self, op: GuardedOp) -> None:
        user = self._user
        ok = op.ending is Ending.RETURNED
        end = EndCall(
            self._device.next_ref(),
            op.task,
            op.version,
            op.step,
            op.attempt,
            ok,
            op.result if ok else None,
            None if ok else f"{op.tag} raised",
            op.ending is Ending.RAISED,
            op.token,
            op.tag if ok else "",
        )
        op.asked_to_record = True

        def recorded(value: object) -> None:
            assert isinstance(value, CallRecorded)
            op.promised = True
            self._end(op)
            self._world.checks.promised(self._device, op)
            user.next()

        def failed(error: SegueError) -> None:
            self._end(op)
            self._failed(error)

        self._device.tag(end.ref, op)
        user.ask(end, recorded, failed)

    # --- people -------------------------------------------------------------------------------------------------------

    def _settle(self, task: str, view: TaskView) -> bool:
        """Look in the outside system whether a call in doubt happened, and say so; now and then look wrongly."""
        doubts = [
            call for call in view.calls.values() if call.state is CallState.IN_DOUBT and call.tool in GUARDED_TOOLS
        ]
        if not doubts:
            return False
        call = self._rng.choice(doubts)
        shown = call.shown
        assert shown is not None
        deed = self._world.outside.find(self._key_of(task, call))
        happened = deed is not None
        if self._rng.random() < self._user.mix.lies:
            happened, deed = not happened, None
        result = None
        if happened:
            result = json.dumps("somebody said so") if deed is None else deed.result
        settle = SettleCall(
            self._device.next_ref(),
            task,
            call.version,
            call.step,
            shown.tool,
            happened,
            shown.entity,
            result,
            "",
            self._rng.random() < 0.5,
        )
        self._world.guarded.verdict_asked(result)
        self._user.ask(settle, self._go_on, self._failed)
        return True

    def _key_of(self, task: str, call: Call) -> str:
        """Return the key that a person looks for: what the attempt was given, or that of the step."""
        shown = call.shown
        for op in self._world.journal.guarded:
            if shown is not None and op.attempt == shown.attempt:
                return op.key
        return idempotency_key(self._world.subject, task, call.version, call.step)

    def _answer(self, task: str, view: TaskView) -> bool:
        """Say yes or no to a request, if this device may."""
        waiting = [request for request in view.approvals.values() if request.state is ApprovalState.WAITING]
        if not waiting or self._role not in (Role.APPROVE, Role.ADMIN):
            return False
        request: RequestedApproval = self._rng.choice(waiting)
        number, tag = self._world.journal.next_tag("a")
        op = ApprovalOp(
            number=number,
            device=self._device.label,
            task=task,
            tag=tag,
            version=request.version,
            step=request.step,
            tool=request.tool,
            digest=request.digest,
            approved=self._rng.random() < 0.85,
            principal=self._device.name,
        )
        self._user.write(op, GiveApproval(self._device.next_ref(), task, request.id, op.approved, tag))
        return True

    def _lift(self) -> None:
        """An admin who has looked says that nothing is missing; one who has not says so too."""
        if self._world.guarded.is_missing_something() and self._rng.random() >= self._user.mix.lies:
            self._user.next()
            return
        self._world.guarded.lift_asked()
        self._user.ask(LiftBarrier(self._device.next_ref()), self._go_on, self._failed)
