"""`task.pending_calls()` and `task.run()`: what waits to be run, and a model's tool call from request to answer.

An error of the model (an unknown tool, arguments that do not fit) is answered with a tool message that says so, and
nothing is run: a loop goes on, and the model can correct itself. An error of a tool, or of Segue, is raised: whether to
try again or to answer it is the program's decision.
"""

from sync_core.document.calls import AUTHORITY_NEED, CallState, PlannedCall
from sync_core.document.history import HistoryEntry
from sync_core.endpoint.calls import CallPath
from sync_core.endpoint.handle import Handle
from sync_core.endpoint.history import History, Message
from sync_core.endpoint.readable import readable
from sync_core.endpoint.tools import BoundArguments, Tool
from sync_core.errors import NeedsCapability, ValueRefused
from sync_core.values import parse

__all__ = ["Turns"]

_WAITING = (CallState.PLANNED, CallState.FAILED, CallState.IN_DOUBT)


class Turns:
    """The pending calls of one handle; `tools` are the endpoint's and the model's own, by name."""

    def __init__(
        self, handle: Handle, device: str, history: History, calls: CallPath, tools: dict[str, Tool[..., object]]
    ) -> None:
        self._handle = handle
        self._device = device
        self._history = history
        self._calls = calls
        self._tools = tools

    async def pending(self) -> tuple[PlannedCall, ...]:
        """Return what waits: unanswered calls of the history in its order, then planned steps by step."""
        asked = await self._history.unanswered()
        view = self._handle.view
        known = {call.step for call in asked} | {entry.answers for entry in view.history}
        planned = [
            PlannedCall(call.step, version, call.tool, call.planned_arguments, call.requires, call.state)
            for (version, step), call in sorted(view.calls.items())
            if version == self._handle.version
            and step not in known
            and call.planned_arguments is not None
            and call.state in _WAITING
        ]
        return (*asked, *planned)

    def can_run(self, pending: PlannedCall) -> bool:
        """Whether this endpoint has the tool and what it needs."""
        tool = self._tools.get(pending.tool)
        needs = set(pending.requires) - {AUTHORITY_NEED}
        return tool is not None and self._calls.can_run(tool.requires | needs)

    async def run(self, pending: PlannedCall) -> Message:
        """Run a pending call, or take its record, and return the tool message, appended to the history once."""
        self._handle.check_writable()
        answer = self._answer(pending.step)
        if answer is not None:
            return await self._history.message(answer)
        content = await self._content(pending)
        message: Message = {
            "role": "tool",
            "tool_call_id": pending.step if pending.tool_call_id is None else pending.tool_call_id,
            "name": pending.tool,
            "content": content,
        }
        # A planned step that no message asked for has no place in the conversation.
        if pending.tool_call_id is not None:
            await self._history.append(message, answers=pending.step)
        return message

    async def _content(self, pending: PlannedCall) -> str:
        tool = self._tools.get(pending.tool)
        if tool is None:
            self._check_own_turn(pending)
            return f"Error: there is no tool named {pending.tool!r}. Use one of the tools that are offered."
        bound = _bound(tool, pending)
        if isinstance(bound, str):
            return bound
        text = await self._calls.text(self._handle, pending.step, tool, bound)
        value = parse(text)
        return value if isinstance(value, str) else readable(text)

    def _check_own_turn(self, pending: PlannedCall) -> None:
        """A tool that this endpoint does not know may be known where the turn, or the plan, was made."""
        item = pending.step.rpartition("/")[0]
        author = next((entry.device for entry in self._handle.view.history if entry.item == item), "")
        if author != self._device:
            raise NeedsCapability(
                f"The tool {pending.tool} is not among this endpoint's tools.",
                hint=f"Run the step on the device that asked for it ({author or 'see the plan'}).",
            )

    def _answer(self, step: str) -> HistoryEntry | None:
        return next((entry for entry in self._handle.view.history if entry.answers == step), None)


def _bound(tool: Tool[..., object], pending: PlannedCall) -> BoundArguments | str:
    try:
        return tool.bind_json(pending.arguments or "{}")
    except ValueRefused as error:
        if pending.tool_call_id is None:
            raise
        return f"Error: {error.sentence} Correct the arguments and call the tool again."
