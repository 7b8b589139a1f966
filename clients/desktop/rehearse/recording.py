"""Recorded agent runs in the OpenAI chat format, checked and turned into what a rehearsal plays.

A file holds `{"runs": [{"messages": [...]}, ...]}`, or a plain list of runs, each an object with `messages` or itself a
list of messages. A call is paired with its answer inside its turn: the model's `tool_call_id` is no identity, and an
answer that names another one is taken under the call's.
"""

import codecs
import json
from pathlib import Path

import msgspec

from clients.config import WrongUsage
from sync_core.endpoint.safeguards import FENCING_TOKEN, IDEMPOTENCY_KEY
from sync_core.endpoint.tools import MODEL_TOOL_NAMES
from sync_core.errors import ValueRefused
from sync_core.ids import check_name
from sync_core.limits import BLOB_BYTES_MAX
from sync_core.values import JsonValue, canonical, parse

__all__ = ["FILLED_IN", "Message", "RecordedCall", "Run", "Said", "Turn", "read_runs"]

FILLED_IN = frozenset({IDEMPOTENCY_KEY, FENCING_TOKEN})
"""Arguments that Segue gives, not a model."""

Message = dict[str, JsonValue]
"""A chat message as it was recorded."""


class RecordedCall(msgspec.Struct, frozen=True):
    """A tool call of a run and the content of the message that answered it.

    `number` counts the run's calls from 0, `place` is its index in the turn's `tool_calls`, `arguments` is the model's
    own text.
    """

    number: int
    place: int
    tool: str
    arguments: str
    answer: Message

    @property
    def result(self) -> str:
        """The recorded content, which a replay must give again byte for byte."""
        content = self.answer["content"]
        assert isinstance(content, str)
        return content

    @property
    def given(self) -> dict[str, JsonValue] | None:
        """The arguments without those that are null, or None if the model garbled the call: it cannot be run.

        A key or a token is not the model's to give: where a tool takes one, Segue fills it in.
        """
        named = self.named
        if named is None:
            return None
        return {name: value for name, value in named.items() if value is not None and name not in FILLED_IN}

    @property
    def named(self) -> dict[str, JsonValue] | None:
        """Every argument by its name, or None if the model garbled the call: its arguments, or the tool's name."""
        try:
            check_name(self.tool, "tool name")
            arguments = parse(self.arguments or "{}")
            canonical(arguments)
        except ValueRefused:
            return None
        return arguments if isinstance(arguments, dict) and self.tool not in MODEL_TOOL_NAMES else None


class Said(msgspec.Struct, frozen=True):
    """A message that calls nothing."""

    message: Message


class Turn(msgspec.Struct, frozen=True):
    """An assistant message with calls; those that the recording never answered are left out of `calls`."""

    message: Message
    calls: tuple[RecordedCall, ...]


class Run(msgspec.Struct, frozen=True):
    """One recorded conversation; `number` is its place in the file, from 0."""

    number: int
    steps: tuple[Said | Turn, ...]

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """All calls in their order."""
        return tuple(call for step in self.steps if isinstance(step, Turn) for call in step.calls)

    @property
    def subject(self) -> str:
        """The business subject of this run alone: two runs may act on one entity, and neither hears of the other."""
        return f"run-{self.number}"

    @property
    def task(self) -> str:
        """The key of the task that this run becomes."""
        return f"rehearsal/run-{self.number}"


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _ToolCall(msgspec.Struct):
    id: str
    function: _Function


class _Checked(msgspec.Struct):
    role: str
    content: str | list[msgspec.Raw] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _RunObject(msgspec.Struct):
    messages: list[msgspec.Raw]


class _File(msgspec.Struct):
    runs: list[_RunObject | list[msgspec.Raw]]


_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def read_runs(path: Path, limit: int | None = None) -> tuple[Run, ...]:
    """Return the runs of a file, at most `limit` of them; raises `WrongUsage`, naming run and message, for bad ones."""
    data = _read(path)
    try:
        if data.lstrip()[:1] == b"[":
            runs = msgspec.json.decode(data, type=list[_RunObject | list[msgspec.Raw]])
        else:
            runs = msgspec.json.decode(data, type=_File).runs
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WrongUsage(
            f"{path} does not hold recorded runs: {error}.",
            hint='It holds {"runs": [{"messages": [...]}]}, or a list of lists of OpenAI chat messages.',
        ) from None
    if not runs:
        raise WrongUsage(f"{path} holds no runs.")
    chosen = runs if limit is None else runs[:limit]
    return tuple(
        _run(number, run.messages if isinstance(run, _RunObject) else run) for number, run in enumerate(chosen)
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}.") from None


def _run(number: int, raws: list[msgspec.Raw]) -> Run:
    steps: list[Said | Turn] = []
    calls = position = 0
    while position < len(raws):
        where = f"Run {number}, message {position}"
        checked, message = _message(where, raws[position])
        position += 1
        if checked.role == "tool":
            raise WrongUsage(f"{where}: this tool message answers no call of the assistant message before it.")
        if not checked.tool_calls:
            steps.append(Said(message))
            continue
        answers = _answers(number, raws, position)
        position += len(answers)
        paired = _pair(where, checked.tool_calls, answers, calls)
        calls += len(paired)
        steps.append(Turn(message, paired))
    return Run(number, tuple(steps))


def _message(where: str, raw: msgspec.Raw) -> tuple[_Checked, Message]:
    try:
        checked = msgspec.json.decode(raw, type=_Checked)
        message: Message = json.loads(bytes(raw))
        size_bytes = len(canonical(message, "message"))
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise WrongUsage(f"{where} is not a chat message: {error}.") from None
    except ValueRefused as error:
        raise WrongUsage(f"{where} cannot be kept: {error.sentence}") from None
    if size_bytes > BLOB_BYTES_MAX:
        raise WrongUsage(f"{where} cannot be kept: it exceeds {BLOB_BYTES_MAX} bytes of ASCII JSON.")
    if checked.role not in _ROLES:
        raise WrongUsage(f"{where} has an unknown role.", hint=f"Known are {', '.join(sorted(_ROLES))}.")
    if checked.tool_calls and checked.role != "assistant":
        raise WrongUsage(f"{where} has tool_calls, but only an assistant calls tools.")
    if checked.role == "tool" and not isinstance(checked.content, str):
        raise WrongUsage(f"{where}: the content of a tool message is not text.")
    return checked, message


def _answers(number: int, raws: list[msgspec.Raw], position: int) -> list[tuple[str | None, Message]]:
    """The tool messages that follow a turn, each with the id that it names."""
    found: list[tuple[str | None, Message]] = []
    while position < len(raws):
        checked, message = _message(f"Run {number}, message {position}", raws[position])
        if checked.role != "tool":
            break
        found.append((checked.tool_call_id, message))
        position += 1
    return found


def _pair(
    where: str, wanted: list[_ToolCall], answers: list[tuple[str | None, Message]], first: int
) -> tuple[RecordedCall, ...]:
    """Pair by id where the turn's ids tell its calls apart, else by order."""
    ids = [call.id for call in wanted]
    if len(answers) > len(wanted):
        raise WrongUsage(f"{where}: more tool messages follow than it has calls.")
    if len(set(ids)) == len(ids) and all(answer_id in ids for answer_id, _ in answers):
        places = [ids.index(answer_id) for answer_id, _ in answers if answer_id is not None]
    else:
        places = list(range(len(answers)))
    if len(set(places)) != len(answers):
        raise WrongUsage(f"{where}: two tool messages answer one call.")
    return tuple(
        RecordedCall(
            first + offset,
            place,
            wanted[place].function.name,
            wanted[place].function.arguments,
            {**message, "tool_call_id": ids[place]},
        )
        for offset, (place, message) in enumerate(zip(places, (message for _, message in answers), strict=True))
    )
