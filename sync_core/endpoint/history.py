"""`task.history`: the conversation, apart from the slots; and what an assistant message asks for."""

from collections.abc import Mapping

import msgspec

from sync_core.checked import check_instance, check_whole
from sync_core.document.calls import CallState, PlannedCall
from sync_core.document.history import HistoryEntry
from sync_core.endpoint.handle import Handle
from sync_core.errors import ResultUnavailable, ValueRefused
from sync_core.ids import check_step
from sync_core.limits import RECORD_NUMBER_MAX
from sync_core.replica.commands import AppendHistory, FetchBlob, PopHistory
from sync_core.values import JsonValue, canonical, parse

__all__ = ["History", "Message"]

Message = dict[str, JsonValue]
"""A chat message in the OpenAI format: role, content, tool_calls, tool_call_id, name."""


class _Request(msgspec.Struct, frozen=True):
    tool: str
    arguments: str
    tool_call_id: str


class History:
    """The messages of one task."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def append(self, *messages: Mapping[str, object], answers: PlannedCall | str | None = None) -> None:
        """Append messages, all or none, durable on return. `answers` marks the output of a pending call or step."""
        step = answers.step if isinstance(answers, PlannedCall) else answers
        texts = tuple(map(_message_text, messages))
        await self._append(texts, None if step is None else check_step(step))

    async def append_turn(self, message: Mapping[str, object]) -> tuple[PlannedCall, ...]:
        """Append an assistant message and return the calls that it asks for, to be given to `task.run`.

        The message is durable before any of them runs: each call's step is its place in it. The model's own
        `tool_call_id` is carried along, but is no identity.
        """
        text = _message_text(message)
        if message.get("role") != "assistant":
            raise ValueRefused("A turn is a message of role assistant.", hint="Use history.append for others.")
        (item,) = await self._append((text,), None)
        return self._pending(item, text)

    async def items(self, *, last: int | None = None) -> list[Message]:
        """Return the newest `last` messages, or all, oldest first.

        An output that two devices appended while apart is given once. Raises `ResultUnavailable` for a large message
        whose bytes nobody can deliver.
        """
        entries = self._handle.view.history
        if last is not None:
            kept = min(check_whole(last, "last", least=0, most=RECORD_NUMBER_MAX), len(entries))
            entries = entries[len(entries) - kept :]
        return [await self.message(entry) for entry in entries]

    async def pop(self) -> Message | None:
        """Remove the last message that is visible now and return it; None if there is none."""
        self._handle.check_writable()
        reply = await self._handle.runner.ask(PopHistory(self._handle.ref(), self._handle.key), object)
        return await self.message(reply) if isinstance(reply, HistoryEntry) else None

    async def message(self, entry: HistoryEntry) -> Message:
        """Return an entry's message, fetched if it is a large one."""
        message = parse(await self._text(entry))
        if not isinstance(message, dict):
            raise ValueRefused("A history item is not a message.")
        return message

    async def unanswered(self) -> tuple[PlannedCall, ...]:
        """Return the calls that assistant messages asked for and that no message answers yet, in order.

        Those of a large message that is not on this device, and cannot be fetched now, are left out.
        """
        history = self._handle.view.history
        answered = {entry.answers for entry in history}
        found: list[PlannedCall] = []
        for entry in history:
            # An output asks for nothing, so that a large one need not be fetched.
            if entry.answers is None:
                asked = await self._asked(entry)
                found.extend(call for call in asked if call.step not in answered)
        return tuple(found)

    async def _asked(self, entry: HistoryEntry) -> tuple[PlannedCall, ...]:
        try:
            text = await self._text(entry)
            # A message that never mentions tool calls need not be parsed.
            return self._pending(entry.item, text) if '"tool_calls"' in text else ()
        except (ResultUnavailable, ValueRefused):
            # One message that is not here, or that no honest device wrote, must not keep the others' calls waiting.
            return ()

    async def _append(self, messages: tuple[str, ...], answers: str | None) -> tuple[str, ...]:
        self._handle.check_writable()
        if not messages:
            return ()
        command = AppendHistory(self._handle.ref(), self._handle.key, messages, answers)
        items: tuple[str, ...] = await self._handle.runner.ask(command, tuple)
        return items

    async def _text(self, entry: HistoryEntry) -> str:
        if entry.message is not None:
            return entry.message
        handle = self._handle
        try:
            return (await handle.ask(FetchBlob(handle.ref(), handle.key, entry.blob or ""), bytes)).decode()
        except UnicodeDecodeError:
            raise ValueRefused("A large message of the conversation is no text.") from None
        except ResultUnavailable as error:
            hint = "Connect to the relay: a large message is fetched when it is first read."
            raise ResultUnavailable("A large message of the conversation is not on this device.", hint=hint) from error

    def _pending(self, item: str, text: str) -> tuple[PlannedCall, ...]:
        pending: list[PlannedCall] = []
        calls = self._handle.view.calls
        for index, request in enumerate(_requests(parse(text))):
            step = f"{item}/{index}"
            call = calls.get((self._handle.version, step))
            pending.append(
                PlannedCall(
                    step,
                    self._handle.version,
                    request.tool,
                    request.arguments,
                    call.requires if call else (),
                    call.state if call else CallState.PLANNED,
                    request.tool_call_id,
                )
            )
        return tuple(pending)


def _message_text(message: Mapping[str, object]) -> str:
    wanted = "a mapping in the OpenAI format"
    check_instance(message, Mapping, "message", wanted, hint="Give message.model_dump(), or build the dict yourself.")
    return canonical(dict(message), "message")


def _requests(message: JsonValue) -> list[_Request]:
    """The tool calls of an assistant message; what a model garbled becomes empty text, to be answered with an error."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return []
    requests: list[_Request] = []
    tool_calls = message.get("tool_calls")
    for tool_call in tool_calls if isinstance(tool_calls, list) else []:
        call = tool_call if isinstance(tool_call, dict) else {}
        function = call.get("function")
        named = function if isinstance(function, dict) else {}
        requests.append(_Request(_text(named.get("name")), _arguments(named.get("arguments")), _text(call.get("id"))))
    return requests


def _arguments(value: JsonValue) -> str:
    """The arguments as JSON text; some models give the object itself."""
    return canonical(value) if isinstance(value, dict) else _text(value)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
