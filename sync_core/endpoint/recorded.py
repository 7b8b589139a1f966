"""`task.calls`: what was called, by whom, how it stands, and the recorded result."""

from collections.abc import Iterator, Mapping

from sync_core.document.calls import Attempt, Call, CallState
from sync_core.endpoint.handle import Handle
from sync_core.entry import Effect
from sync_core.errors import InDoubt, KeyReused, ResultUnavailable
from sync_core.replica.commands import FetchBlob
from sync_core.rulings import Contradicted
from sync_core.values import JsonValue, parse

__all__ = ["RecordedCall", "RecordedCalls", "blob_text", "recorded_text"]


class RecordedCall:
    """One step's record as it stood when it was asked for."""

    def __init__(self, handle: Handle, call: Call) -> None:
        self._handle = handle
        self._call = call

    @property
    def step(self) -> str:
        """The place of the call in the task."""
        return self._call.step

    @property
    def state(self) -> CallState:
        """Planned, running, in doubt, done, failed, key conflict or result unavailable."""
        return self._call.state

    @property
    def tool(self) -> str:
        """The tool that was called, or is wanted."""
        return self._call.tool

    @property
    def device(self) -> str:
        """The device whose outcome stands; empty for a step that never ran."""
        return self._call.device

    @property
    def requires(self) -> tuple[str, ...]:
        """The capabilities that a planned step needs."""
        return self._call.requires

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every execution of the step, in the order that all devices agree on."""
        return self._call.attempts

    @property
    def contradictions(self) -> tuple[Contradicted, ...]:
        """What a device that held the call's key said against the verdict that stands."""
        return self._call.contradictions

    @property
    def recorded_twice(self) -> bool:
        """Whether two devices ran the step while apart."""
        return self._call.recorded_twice

    async def result(self) -> JsonValue:
        """Return the recorded result as JSON; it may have to be fetched from the relay.

        Raises `ResultUnavailable` if there is none or nobody can deliver it, `InDoubt`, or `KeyReused`.
        """
        return parse(await recorded_text(self._handle, self._call))

    def __repr__(self) -> str:
        return f"RecordedCall({self.step!r}, {self.state.value})"


class RecordedCalls(Mapping[str, RecordedCall]):
    """The calls and planned steps of the handle's business version, by step."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __getitem__(self, step: str) -> RecordedCall:
        """Return the step's record; raises `KeyError` for a step that was never called or planned."""
        call = self._handle.view.calls.get((self._handle.version, step))
        if call is None:
            raise KeyError(step)
        return RecordedCall(self._handle, call)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(step for version, step in self._handle.view.calls if version == self._handle.version))

    def __len__(self) -> int:
        return sum(1 for version, _ in self._handle.view.calls if version == self._handle.version)


async def recorded_text(handle: Handle, call: Call) -> str:
    """Return a step's result as canonical JSON; raises what stands in its way."""
    shown = call.shown
    if call.state is CallState.KEY_CONFLICT:
        digests = sorted({attempt.arguments_digest for attempt in call.attempts})
        raise KeyReused(
            f"Step {call.step} was run with different arguments on two devices; no result is chosen.",
            recorded_digest=digests[0],
            given_digest=digests[-1],
            hint="Look at both attempts, then go on under a new step.",
        )
    if call.state in (CallState.IN_DOUBT, CallState.RUNNING):
        raise InDoubt(f"Step {call.step} was started and has no outcome yet.")
    if shown is None or not shown.ok:
        raise ResultUnavailable(f"Step {call.step} has no result: it is {call.state.value}.", hint="Call it.")
    if shown.result is not None:
        return shown.result
    if shown.blob is None:
        again = (
            "it happened, and a new step would do it again: look at the outside system"
            if shown.effect is Effect.IRREVERSIBLE
            else "then use a new step"
        )
        raise ResultUnavailable(
            f"Step {call.step} ran, but its result could not be recorded.",
            hint="Let the tool return what its annotation says, at most 16 MiB of ASCII JSON (a letter beyond ASCII"
            f" counts as 6 bytes); {again}.",
        )
    return await blob_text(handle, call.step, shown.blob)


async def blob_text(handle: Handle, step: str, sha256: str) -> str:
    """Return a step's result that is kept in a blob, as canonical JSON; raises `ResultUnavailable`."""
    data = await handle.ask(FetchBlob(handle.ref(), handle.key, sha256), bytes)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ResultUnavailable(f"The recorded result of step {step} is no text.", hint="Use a new step.") from None
