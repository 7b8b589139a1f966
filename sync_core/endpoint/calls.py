"""The call path: a recorded success is returned; else the intent is durable, then the tool runs, then its outcome is.

Two coroutines on one step share one execution. A tool that raises is recorded as failed and its exception is raised
again; cancellation counts as such an exception. Only a crash leaves an intent without outcome: in doubt. Of a tool that
cannot be undone (see `guarded` for what comes before its intent) whatever it raises leaves its call in doubt, unless it
says itself that nothing happened, or had not been started.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from sync_core.document.calls import CallBegun, CallRecorded, CallState
from sync_core.endpoint.guarded import Granted, ask_authority, to_the_end
from sync_core.endpoint.handle import Execution, Handle
from sync_core.endpoint.points import CallPoint, Crashed, due
from sync_core.endpoint.recorded import recorded_text
from sync_core.endpoint.tools import BoundArguments, Tool
from sync_core.entry import Effect
from sync_core.errors import Closed, DidNotHappen, KeyReused, NeedsCapability, ResultUnavailable, ValueRefused
from sync_core.ids import check_step
from sync_core.limits import ARGUMENT_INLINE_BYTES_MAX, BLOB_BYTES_MAX
from sync_core.replica.commands import BeginCall, EndCall, PlanCall

__all__ = ["CallPath"]

P = ParamSpec("P")
R = TypeVar("R")

_ERROR_CHARS_MAX = 500
_SETTLED = (CallState.DONE, CallState.KEY_CONFLICT, CallState.RESULT_UNAVAILABLE)


class CallPath:
    """How an endpoint with these capabilities runs calls; `crash` drops it as a test's crash point asks."""

    def __init__(self, capabilities: frozenset[str], crash: Callable[[], Awaitable[None]]) -> None:
        self._capabilities = capabilities
        self._crash = crash

    def can_run(self, requires: frozenset[str]) -> bool:
        """Whether this endpoint has these capabilities."""
        return requires <= self._capabilities

    async def call(self, handle: Handle, step: str, tool: Tool[P, R], bound: BoundArguments) -> R:
        """Return the step's recorded result as the tool's type, running the tool only if there is none."""
        text = await self.text(handle, step, tool, bound)
        try:
            return tool.decode(text)
        except ValueRefused as error:
            hint = "Read it as JSON with task.calls[…].result(), or use a new step."
            raise ResultUnavailable(error.sentence, hint=hint) from None

    async def text(self, handle: Handle, step: str, tool: Tool[..., object], bound: BoundArguments) -> str:
        """Return the step's recorded result as canonical JSON, running the tool only if there is none."""
        handle.check_writable()
        step = check_step(step)
        key = (handle.version, step)
        executions = handle.opened.executions
        execution = executions.get(key)
        if execution is None:
            running = asyncio.get_running_loop().create_task(self._execute(handle, step, tool, bound))
            execution = executions[key] = Execution(running, tool.name, bound.digest)
            running.add_done_callback(lambda _: executions.pop(key, None))
        elif (execution.tool, execution.digest) != (tool.name, bound.digest):
            raise KeyReused(
                f"Step {step} is being run with another tool or other arguments.",
                recorded_digest=execution.digest,
                given_digest=bound.digest,
            )
        return await _shared(execution)

    async def _execute(self, handle: Handle, step: str, tool: Tool[..., object], bound: BoundArguments) -> str:
        if not self.can_run(tool.requires):
            await self._leave_to_others(handle, step, tool, bound)
        granted = None
        if tool.effect is Effect.IRREVERSIBLE:
            answer = await ask_authority(handle, step, tool, bound)
            if isinstance(answer, str):
                return answer
            granted = answer
            await self._reach(CallPoint.AFTER_GRANT)
        begun, cancelled = await self._begin(handle, step, tool, bound, granted)
        if isinstance(begun, CallRecorded):
            return await recorded_text(handle, begun.call)
        started = False
        try:
            await self._reach(CallPoint.AFTER_INTENT)
            if cancelled:
                raise asyncio.CancelledError
            started = True
            value = await tool.invoke(bound, begun.idempotency_key, begun.token)
        except (KeyboardInterrupt, SystemExit, GeneratorExit, Crashed):
            raise
        except BaseException as error:
            # Whatever a tool raises, the call has ended here: without an outcome it would seem to run for ever.
            unsure = granted is not None and started and not isinstance(error, DidNotHappen)
            await self._end(handle, step, begun, error=_told(error), unsure=unsure)
            raise
        await self._reach(CallPoint.AFTER_EFFECT)
        text = tool.encode(value)
        if text is not None and len(text) > BLOB_BYTES_MAX:
            text = None
        recorded = await self._end(handle, step, begun, result=text, label=tool.safeguards.label_of(value))
        await self._reach(CallPoint.AFTER_RECORD)
        return await recorded_text(handle, recorded.call)

    async def _leave_to_others(self, handle: Handle, step: str, tool: Tool[..., object], bound: BoundArguments) -> None:
        """Plan a step that has no outcome yet for an endpoint that can run it."""
        call = handle.view.calls.get((handle.version, step))
        if call is not None and call.state in _SETTLED:
            return
        requires = tuple(sorted(tool.requires))
        command = PlanCall(handle.ref(), handle.key, handle.version, step, tool.name, bound.text, requires)
        await handle.runner.tell(command)
        lacking = ", ".join(sorted(tool.requires - self._capabilities))
        raise NeedsCapability(f"The tool {tool.name} needs what this endpoint does not have: {lacking}.")

    async def _begin(
        self, handle: Handle, step: str, tool: Tool[..., object], bound: BoundArguments, granted: Granted | None
    ) -> tuple[CallBegun | CallRecorded, bool]:
        command = BeginCall(
            handle.ref(),
            handle.key,
            handle.version,
            step,
            tool.name,
            tool.effect,
            bound.digest,
            bound.text if len(bound.text) <= ARGUMENT_INLINE_BYTES_MAX else None,
        )
        if granted is not None:
            command = replace(command, granted=granted.attempt, token=granted.token, key=granted.key)
        begun, cancelled = await to_the_end(handle.runner.submit(command))
        assert isinstance(begun, (CallBegun, CallRecorded))
        return begun, cancelled or (granted is not None and granted.cancelled)

    async def _end(
        self,
        handle: Handle,
        step: str,
        begun: CallBegun,
        *,
        result: str | None = None,
        error: str | None = None,
        unsure: bool = False,
        label: str = "",
    ) -> CallRecorded:
        command = EndCall(
            handle.ref(),
            handle.key,
            handle.version,
            step,
            begun.attempt,
            error is None,
            result,
            error,
            unsure,
            begun.token,
            label,
        )
        recorded, cancelled = await to_the_end(handle.runner.submit(command))
        assert isinstance(recorded, CallRecorded)
        if cancelled:
            raise asyncio.CancelledError
        return recorded

    async def _reach(self, point: CallPoint) -> None:
        if due(point):
            await self._crash()
            raise Crashed(point)


async def _shared(execution: Execution) -> str:
    """Wait for an execution; the last one that gives up cancels it and waits until that is recorded."""
    execution.waiting += 1
    try:
        return await asyncio.shield(execution.task)
    except asyncio.CancelledError:
        if execution.closing and not _is_cancelled():
            raise Closed("The endpoint was closed while the tool ran; the call is recorded as cancelled.") from None
        if execution.waiting == 1 and not execution.task.done():
            execution.task.cancel()
            await asyncio.wait([execution.task])
        raise
    finally:
        execution.waiting -= 1


def _is_cancelled() -> bool:
    """Whether somebody cancelled the coroutine that runs now, and not only what it waits for."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _told(error: BaseException) -> str:
    """What is recorded of a failure: any exception has to come out as text that can be stored."""
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:
        said = "(it cannot be told as text)"
    text = f"{name}: {said}" if said else name
    return text.encode("utf-8", "backslashreplace").decode()[:_ERROR_CHARS_MAX]
