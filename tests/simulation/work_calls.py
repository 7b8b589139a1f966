"""Work on calls: ask for a step, run the tool if the Replica says so, record how it ended; executions count outside.

Steps share their arguments in pairs, so a result that was cached by arguments is a wrong one. A device may die between
any two of these lines; whoever asks again after that asks for a new attempt.
"""

import hashlib
import json
from typing import TYPE_CHECKING

from sync_core.document.calls import CallBegun, CallRecorded
from sync_core.entry import Effect
from sync_core.errors import InDoubt, KeyReused, NeedsAuthority, ResultUnavailable, SegueError
from sync_core.replica.commands import BeginCall, EndCall, FetchBlob, PlanCall
from tests.simulation.journal import CallOp, PlanOp

if TYPE_CHECKING:
    from tests.simulation.workload import User

__all__ = ["STEPS", "CallWork"]

STEPS = ("invoice", "policy", "rate", "notify")
_LARGE = 5_000


class CallWork:
    """What a user does with steps."""

    def __init__(self, user: "User") -> None:
        self._user = user

    def step(self, task: str) -> None:
        """Plan a step, or run one."""
        choice = self._user.rng.random()
        if choice < 0.12:
            self._plan(task)
        elif choice < 0.18:
            self._call(task, "payment", Effect.IRREVERSIBLE)
        else:
            self.call(task, self._user.rng.choice(STEPS))

    def call(self, task: str, step: str) -> None:
        """Ask for a READ or IDEMPOTENT step."""
        self._call(task, step, Effect.IDEMPOTENT if step == "notify" else Effect.READ)

    def _call(self, task: str, step: str, effect: Effect) -> None:
        user = self._user
        arguments = json.dumps({"n": len(step) % 2})
        if user.mix.conflicts and user.rng.random() < user.mix.conflicts:
            arguments = json.dumps({"n": "other"})
        digest = hashlib.sha256(arguments.encode()).hexdigest()
        version = user.open[task]
        ref = user.device.next_ref()
        held = user.world.calls.begin_asked(user.device, task, version, step)

        def begun(value: object) -> None:
            if isinstance(value, CallBegun):
                assert effect is not Effect.IRREVERSIBLE, "an irreversible tool was started without an authority"
                user.world.calls.call_begun(user.device, held, task, version, step, value)
                self._run(task, version, step, effect, digest, value)
            elif isinstance(value, CallRecorded):
                user.world.calls.call_recorded(task, version, step, digest, value)
                self._fetch(task, value)

        def failed(error: SegueError) -> None:
            if not isinstance(error, InDoubt | KeyReused | NeedsAuthority | ResultUnavailable):
                user.world.tolerate(error)
            user.next()

        user.ask(BeginCall(ref, task, version, step, "lookup", effect, digest, arguments), begun, failed)

    def _fetch(self, task: str, value: CallRecorded) -> None:
        """Read a large result; nobody may be able to deliver it, but it must be the right one."""
        user, shown = self._user, value.call.shown
        if shown is None or shown.blob is None:
            user.next()
            return
        blob = shown.blob

        def fetched(data: object) -> None:
            assert isinstance(data, bytes)
            ran = next((op for op in user.world.journal.calls if op.attempt == shown.attempt), None)
            user.world.calls.blob_fetched(ran, data)
            user.next()

        user.ask(FetchBlob(user.device.next_ref(), task, blob), fetched)

    def _run(self, task: str, version: int, step: str, effect: Effect, digest: str, begun: CallBegun) -> None:
        """Start the tool a little later; its effect takes place outside, whatever becomes of the record."""
        user = self._user
        number, tag = user.world.journal.next_tag("r")
        result = f"{tag} of {step}"
        if user.rng.random() < user.mix.blobs:
            result += "." * _LARGE
        op = CallOp(
            number=number,
            device=user.device.label,
            task=task,
            tag=tag,
            version=version,
            step=step,
            effect=effect,
            digest=digest,
            attempt=begun.attempt,
            key=begun.idempotency_key,
            result=json.dumps(result),
            ok=user.rng.random() < 0.85,
        )
        user.world.journal.add(op)

        def effect_happens() -> None:
            op.executed = True
            user.device.later(user.rng.choice((0, 0, 5, 80, 1_500)), lambda: self._record(op))

        user.device.later(user.rng.choice((0, 0, 5, 80, 1_500)), effect_happens)

    def _record(self, op: CallOp) -> None:
        user = self._user
        ref = user.device.next_ref()
        result, error = (op.result, None) if op.ok else (None, f"{op.tag} failed")
        command = EndCall(ref, op.task, op.version, op.step, op.attempt, op.ok, result, error)
        op.asked_to_record = True

        def recorded(value: object) -> None:
            assert isinstance(value, CallRecorded)
            op.promised = True
            user.world.checks.promised(user.device, op)
            user.next()

        def failed(error: SegueError) -> None:
            user.world.tolerate(error)
            user.next()

        user.device.tag(ref, op)
        user.ask(command, recorded, failed)

    def _plan(self, task: str) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("p")
        step = user.rng.choice((*STEPS, "later"))
        version = user.open[task]
        op = PlanOp(number=number, device=user.device.label, task=task, tag=tag, version=version, step=step)
        arguments = json.dumps({"note": tag}, separators=(",", ":"))
        user.write(op, PlanCall(user.device.next_ref(), task, version, step, "lookup", arguments, ("files",)))
