"""A task's handle: everything a program does with one task.

Reads are immediate, from the last durable view. Every awaited write has been committed to this device's store when it
returns. Access and business version were fixed when the handle was opened.
"""

from collections.abc import Awaitable, Callable
from functools import cached_property
from types import TracebackType
from typing import Literal, ParamSpec, TypeVar
from weakref import WeakSet

from sync_core.checked import check_flag, check_instance, check_text, check_whole
from sync_core.document.approvals import RequestedApproval
from sync_core.document.calls import CallState, PlannedCall
from sync_core.document.handover import HandOverText, standing_hand_over
from sync_core.document.view import TaskCompletion, TaskView
from sync_core.endpoint.audit import Audit
from sync_core.endpoint.brief import Brief, BriefView, tell
from sync_core.endpoint.calls import CallPath
from sync_core.endpoint.changes import Changes
from sync_core.endpoint.explain import Explanation, explain
from sync_core.endpoint.guarded import UNKNOWN, settle
from sync_core.endpoint.handle import Handle
from sync_core.endpoint.history import History, Message
from sync_core.endpoint.model_tools import model_tools
from sync_core.endpoint.notes import Notes
from sync_core.endpoint.recorded import RecordedCall, RecordedCalls
from sync_core.endpoint.replay import ReplayReport
from sync_core.endpoint.restore import Restored, bring_back
from sync_core.endpoint.slots import Slots
from sync_core.endpoint.tools import Tool
from sync_core.endpoint.turns import Turns
from sync_core.errors import AccessFixed, TooLarge
from sync_core.ids import check_name, check_step
from sync_core.limits import RECORD_NUMBER_MAX
from sync_core.replica.commands import CompleteTask, GiveApproval, HandOverTask, PlanCall
from sync_core.values import JsonValue, canonical

__all__ = ["Access", "Task"]

Access = Literal["read", "write"]

_REASON_CHARS_MAX = 1_000

P = ParamSpec("P")
R = TypeVar("R")


class Task:
    """One opening of a task, made by `endpoint.task(key)`; an async context manager that closes it."""

    def __init__(
        self,
        handle: Handle,
        device: str,
        calls: CallPath,
        tools: dict[str, Tool[..., object]],
        release: Callable[[Handle], Awaitable[None]],
        audit: Audit,
    ) -> None:
        self._handle = handle
        self._device = device
        self._call_path = calls
        self._release = release
        self._audit = audit
        self._tools = tools
        self._watchers: WeakSet[Changes] = WeakSet()
        self.slots = Slots(handle)
        self.notes = Notes(handle)
        self.history = History(handle)
        self.calls = RecordedCalls(handle)

    # Most handles are never given to a model, and what describes these tools to one is most of a small handle (45 KB).

    @cached_property
    def _model_tools(self) -> dict[str, Tool[..., object]]:
        return model_tools(self.slots, self.notes)

    @cached_property
    def _turns(self) -> Turns:
        return Turns(self._handle, self._device, self.history, self._call_path, self._tools | self._model_tools)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The business key, the same on every device."""
        return self._handle.key

    @property
    def version(self) -> int:
        """The business version of this handle."""
        return self._handle.version

    @property
    def access(self) -> Access:
        """`read` or `write`, fixed when the handle was opened."""
        return "write" if self._handle.writable else "read"

    @access.setter
    def access(self, value: Access) -> None:
        raise AccessFixed("Access was fixed when this handle was opened.")

    @property
    def handover(self) -> HandOverText | None:
        """The closing text that stands, of this handle's business version or the last one before it; None without.

        It is read-only for everybody. `conflicts` are those that other ends gave for the same version while apart.
        """
        return standing_hand_over(self.view.handovers, self.version)

    @handover.setter
    def handover(self, value: object) -> None:
        raise AccessFixed(
            "A hand-over is read-only, and what a live handle may do does not change.",
            hint="Give it once, with hand_over(), in a session with access='write'.",
        )

    @property
    def completed(self) -> bool:
        """Whether a completion of the version that stands is stored at the relay."""
        return self.view.completed

    @property
    def completion(self) -> TaskCompletion:
        """How far the version that stands is finished, and by whom."""
        return self.view.completion

    @property
    def view(self) -> TaskView:
        """The task as this device durably knows it: an immutable picture. Raises `Closed` on a closed handle."""
        return self._handle.view

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(self, step: str, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the step's recorded result, or run the tool, record how it ended and return what was recorded.

        Raises what the tool raised (recorded as failed; the next call of the step is a new attempt), `KeyReused` for
        other arguments than the recorded ones, `NeedsCapability` (the step is planned for a capable device),
        `InDoubt`, `ResultUnavailable`, `VersionMismatch`, `ReadOnly`.

        A tool that is IRREVERSIBLE is started by a grant of the authority alone. Before it is, this raises `NeedsKey`,
        `NeedsAuthority` (none is reachable; the step is planned), `NeedsApproval`, `RunningElsewhere`, `AlreadyDone`
        (the entity's key, with the recorded result inside), `KeyRetired`. Whatever the tool raises but `DidNotHappen`,
        and a cancellation while it runs, leaves its call in doubt.
        """
        _check_tool(tool)
        return await self._call_path.call(self._handle, step, tool, tool.bind(args, kwargs))

    async def plan(self, step: str, tool: Tool[..., object] | str, /, **arguments: object) -> None:
        """Write down a wanted call for a device that can run it; nothing runs. A tool is named or given."""
        self._handle.check_writable()
        if isinstance(tool, str):
            name = check_name(tool, "tool name")
            known = self._tools.get(name)
        else:
            _check_tool(tool)
            name, known = tool.name, tool
        requires = () if known is None else tuple(sorted(known.requires))
        text = canonical(arguments, "arguments") if known is None else known.bind((), arguments).text
        handle = self._handle
        command = PlanCall(handle.ref(), handle.key, handle.version, check_step(step), name, text, requires)
        await handle.runner.tell(command)

    def in_doubt(self) -> tuple[RecordedCall, ...]:
        """Return the calls that were started and of which nobody knows how they ended."""
        return tuple(call for call in self.calls.values() if call.state is CallState.IN_DOUBT)

    async def settle(self, call: RecordedCall | str, *, happened: bool, result: object = UNKNOWN) -> None:
        """Say of a call in doubt that cannot be undone whether it happened, having found out outside.

        `call` is the call or its step; `result` what it returned, if that is known. The verdict stands for everybody,
        also against what the device that ran it reports later. Raises `ValueRefused` for a call that is not in doubt,
        `TooLarge`, `RunningElsewhere`, `NeedsAuthority`, `ReadOnly`.
        """
        step = call.step if isinstance(call, RecordedCall) else check_step(call)
        await settle(self._handle, step, check_flag(happened, "happened"), result)

    @property
    def approvals(self) -> tuple[RequestedApproval, ...]:
        """The calls of this business version that wait, or waited, for a person's approval, by step."""
        asked = (request for request in self.view.approvals.values() if request.version == self.version)
        return tuple(sorted(asked, key=lambda request: (request.step, request.id)))

    async def approve(self, request: RequestedApproval | str) -> None:
        """Say yes to a request of `approvals`, or to its id: one call, with exactly these arguments.

        Durable when this returns, also offline; it counts once the authority took it, from a device that may approve
        and was not the caller's. Raises `ValueRefused` for a request that is not there or shows other arguments than
        it asks to approve, `ReadOnly` for a role that may not approve.
        """
        await self._judge(request, True, "")

    async def reject(self, request: RequestedApproval | str, reason: str = "") -> None:
        """Say no to a request, with a reason for whoever asked, at most 1,000 characters; see `approve`."""
        if len(check_text(reason, "reason")) > _REASON_CHARS_MAX:
            raise TooLarge(f"The reason exceeds {_REASON_CHARS_MAX} characters.")
        await self._judge(request, False, reason)

    async def _judge(self, request: RequestedApproval | str, approved: bool, reason: str) -> None:
        self._handle.check_writable()
        asked = request.id if isinstance(request, RequestedApproval) else check_text(request, "request")
        command = GiveApproval(self._handle.ref(), self._handle.key, asked, approved, reason)
        await self._handle.runner.tell(command)

    async def pending_calls(self) -> tuple[PlannedCall, ...]:
        """Return what waits to be run: unanswered tool calls of the history in order, then planned steps."""
        return await self._turns.pending()

    def can_run(self, pending: PlannedCall) -> bool:
        """Whether this endpoint has the tool of a pending call and the capabilities that it needs."""
        _check_pending(pending)
        return self._turns.can_run(pending)

    async def run(self, pending: PlannedCall) -> Message:
        """Run a pending call and return its role=tool message, which is appended to the history once.

        A recorded step is not run again, an answer in the history is returned as it stands. A model's own mistake (no
        such tool, arguments that do not fit) is answered with a message that says so. Raises what `call` raises.
        """
        _check_pending(pending)
        return await self._turns.run(pending)

    def model_tools(self) -> list[dict[str, JsonValue]]:
        """Return descriptions, in the OpenAI function format, of tools for the slots and notes; `run` executes them."""
        return [made.schema for made in self._model_tools.values()]

    # --- the end of the work ------------------------------------------------------------------------------------------

    async def complete(self) -> TaskCompletion:
        """Say that this business version is finished; it takes effect when the relay stores it, see `completion`.

        If another device wrote what this one had not read, the task shows as `completed_while_edited` and nothing is
        cleaned up before a person decides: by completing it again, or by a higher version. What is finished is not
        finished twice. Raises `ReadOnly`, `VersionMismatch`.
        """
        handle = self._handle
        handle.check_writable()
        return await handle.runner.ask(CompleteTask(handle.ref(), handle.key, handle.version), TaskCompletion)

    # --- telling and watching -----------------------------------------------------------------------------------------

    def brief(self, *, view: BriefView = "work", max_chars: int | None = None) -> Brief:
        """Tell the task as text and JSON, at most `max_chars` characters of text unless what is missing needs more.

        A candidate that is shown in full counts as read by this handle. `view="confirm"` tells the slots alone.
        """
        brief, tokens = tell(self._handle.view, self._handle.version, view, max_chars)
        self.slots.note_read(tokens)
        return brief

    def explain(self, path: str) -> Explanation:
        """Say of a part where it lives, who may change it, who wins when two do, and whether this handle may now.

        Paths are `slots/<name>`, `notes/<name>`, `calls/<step>`, `plan/<step>`, `history`, `handover`, `version`,
        `completion`, `approvals`, `rulings` and `snapshots`. Raises `ValueRefused` for any other.
        """
        handle = self._handle
        return explain(path, handle.view, handle.version, handle.writable, handle.status())

    def changes(self) -> Changes:
        """Watch the task: an async iterator of each merged or local change from now on, once.

        A watcher that is too slow gets `Resync`. It ends when handle or endpoint close, and raises `Refused` once the
        relay refuses this endpoint's credentials for good.
        """
        changes = Changes(self.key)
        if self._handle.closed:
            changes.end()
        else:
            self._watchers.add(changes)
            self._handle.opened.watch(changes)
        return changes

    # --- the hand-over ------------------------------------------------------------------------------------------------

    async def hand_over(self, text: str) -> HandOverText:
        """Give the closing text of this business version, once; from then on it is read-only for everybody.

        Raises `HandedOver` if this version was handed over, as far as this device knows, `ReadOnly`,
        `VersionMismatch`, `ValueRefused` for an empty text, `TooLarge` over 128 KiB.
        """
        self._handle.check_writable()
        handle = self._handle
        command = HandOverTask(handle.ref(), handle.key, handle.version, check_text(text, "text"))
        return await handle.runner.ask(command, HandOverText)

    # --- audit --------------------------------------------------------------------------------------------------------

    async def replay(self, at: int | None = None) -> ReplayReport:
        """Build the task anew from this device's file, compare the digests with the live task's, and list the gaps.

        No tool, relay or device is asked. `at` shows it as of that place of the `state` stream. Raises `HistoryTrimmed`
        where this file holds that place in merged form only, `ValueRefused` for one that it does not have.
        """
        self._handle.check_open()
        return await self._audit.replay(self.key, None if at is None else _place(at))

    async def restore(self, at: int) -> Restored:
        """Bring back, as new entries of this device, slots and notes that were deleted since a place of `state`.

        A value that was replaced by one that stands, and what was written since, stays. Calls are never touched. Raises
        `ReadOnly`, and what `replay` raises.
        """
        self._handle.check_writable()
        place = _place(at)
        return await bring_back(place, await self._audit.find_lost(self.key, place), self.slots, self.notes)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close this handle; idempotent. The task leaves memory with its last handle."""
        if self._handle.closed:
            return
        self._handle.closed = True
        for changes in self._watchers:
            changes.end()
        await self._release(self._handle)

    async def __aenter__(self) -> "Task":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Task({self.key!r}, version={self.version}, access={self.access!r})"


def _place(at: object) -> int:
    return check_whole(at, "at", least=0, most=RECORD_NUMBER_MAX)


def _check_tool(tool: object) -> None:
    check_instance(tool, Tool, "tool", "a tool", hint="Decorate the function with @tool.")


def _check_pending(pending: object) -> None:
    hint = "Take it from history.append_turn or task.pending_calls()."
    check_instance(pending, PlannedCall, "pending", "a pending call", hint)
