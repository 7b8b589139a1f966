"""What a task's parts look like: JSON documents for programs, tables and lines for people. A secret is shown as set."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from clients.desktop.output import JsonDocument, Table
from clients.desktop.read_token import encode_token
from sync_core.document.approvals import RequestedApproval
from sync_core.document.calls import Call
from sync_core.document.notes import Note
from sync_core.document.slots import Candidate, Slot, SlotState
from sync_core.endpoint.secrets import NO_SECRETS, SecretValues, shown_source
from sync_core.values import JsonValue, canonical

__all__ = [
    "approval_document",
    "approval_lines",
    "approvals_table",
    "call_document",
    "calls_table",
    "candidates_table",
    "clock_text",
    "doubt_document",
    "doubts_table",
    "message_line",
    "note_document",
    "slot_document",
    "slot_line",
    "slots_table",
]

_SET = "set"


def slot_document(slot: Slot) -> dict[str, JsonDocument]:
    """Return a slot: state, value, candidates and proposals, and the read token to write it with."""
    one = slot.state in (SlotState.PROPOSED, SlotState.CONFIRMED)
    return {
        "name": slot.name,
        "state": slot.state.value,
        "value": _value(slot.candidates[0], slot.secret) if one else None,
        "secret": slot.secret,
        "ask": slot.definition.ask if slot.definition else None,
        "required": slot.definition.required if slot.definition else False,
        "candidates": [_candidate_document(candidate, slot.secret) for candidate in slot.candidates],
        "proposals": [_candidate_document(candidate, slot.secret) for candidate in slot.proposals],
        "redefined": slot.redefined,
        "schema_error": slot.schema_error,
        "read": encode_token(slot.token),
    }


def slot_line(slot: Slot) -> str:
    """Return a slot as one line."""
    values = " | ".join(_shown(candidate, slot.secret) for candidate in slot.candidates)
    return f"slot {slot.name} is {slot.state.value}" + (f": {values}" if values else "")


def slots_table(slots: Iterable[Slot]) -> Table:
    """Return one row per slot, conflicting values side by side."""
    rows = tuple(
        (
            slot.name,
            slot.state.value,
            " | ".join(_shown(candidate, slot.secret) for candidate in slot.candidates) or "-",
            " | ".join(_shown(candidate, slot.secret) for candidate in slot.proposals),
            encode_token(slot.token) if slot.token else "",
        )
        for slot in slots
    )
    return Table(("SLOT", "STATE", "VALUE", "PROPOSED BESIDE", "READ"), rows)


def candidates_table(slot: Slot) -> Table:
    """Return one row per candidate of a slot: what it says, who wrote it, from where, when."""
    rows = tuple(
        (
            candidate.write_id,
            _shown(candidate, slot.secret),
            candidate.status.value,
            candidate.author,
            shown_source(candidate, slot.secret) or "",
            clock_text(candidate.at_ms),
        )
        for candidate in (*slot.candidates, *slot.proposals)
    )
    return Table(("CANDIDATE", "VALUE", "STATUS", "AUTHOR", "SOURCE", "WRITTEN"), rows)


def note_document(note: Note, secrets: SecretValues = NO_SECRETS) -> dict[str, JsonDocument]:
    """Return a note with the hash that a later write or merge names; what holds one of the secrets is withheld."""
    return {"name": note.name, "text": secrets.checked_text(note.text), "content_sha256": note.content_sha256}


def call_document(call: Call, secrets: SecretValues = NO_SECRETS) -> dict[str, JsonDocument]:
    """Return a step's record without its result, which may be large or not be here, and without these secrets."""
    return {
        "step": call.step,
        "version": call.version,
        "state": call.state.value,
        "tool": call.shown.tool if call.shown else call.tool,
        "effect": call.shown.effect.value if call.shown else None,
        "device": call.device or None,
        "attempts": len(call.attempts),
        "recorded_twice": call.recorded_twice,
        "requires": list(call.requires),
        "error": secrets.checked_text(call.shown.error) if call.shown and call.shown.error else None,
    }


def calls_table(calls: Iterable[Call]) -> Table:
    """Return one row per step."""
    rows = tuple(
        (
            call.step,
            call.state.value,
            call.shown.tool if call.shown else call.tool,
            call.device or "-",
            str(len(call.attempts)) + (" (recorded twice)" if call.recorded_twice else ""),
            ", ".join(call.requires),
        )
        for call in calls
    )
    return Table(("STEP", "STATE", "TOOL", "DEVICE", "ATTEMPTS", "REQUIRES"), rows)


def approval_document(task: str, request: RequestedApproval) -> dict[str, JsonDocument]:
    """Return a request for approval; `genuine` is False if it shows other arguments than it asks to approve."""
    return {
        "task": task,
        "request": request.id,
        "step": request.step,
        "version": request.version,
        "tool": request.tool,
        "arguments": None if request.arguments is None else msgspec.Raw(request.arguments.encode()),
        "arguments_digest": request.digest,
        "genuine": request.shows_what_it_asks,
        "device": request.device,
        "state": request.state.value,
        "by": request.by or None,
        "reason": request.reason or None,
    }


def approvals_table(requests: Iterable[tuple[str, RequestedApproval]]) -> Table:
    """Return one row per request, each with its task."""
    rows = tuple(
        (request.id, task, request.step, request.tool, request.device, request.state.value, request.by)
        for task, request in requests
    )
    return Table(("REQUEST", "TASK", "STEP", "TOOL", "ASKED BY", "STATE", "DECIDED BY"), rows)


def approval_lines(request: RequestedApproval) -> tuple[str, ...]:
    """Return what a person has to see before they decide: the arguments, whole."""
    if request.arguments is None:
        return (f"{request.id}  arguments too large to show, SHA-256 {request.digest}",)
    if not request.shows_what_it_asks:
        return (f"{request.id}  shows other arguments than it asks to approve: reject it",)
    reason = f"  ({request.reason})" if request.reason else ""
    return (f"{request.id}  {request.tool} {request.arguments}{reason}",)


def doubt_document(task: str, call: Call) -> dict[str, JsonDocument]:
    """Return a call in doubt: what was called with which arguments, and why nobody knows."""
    shown = call.shown
    arguments = None if shown is None or shown.arguments is None else msgspec.Raw(shown.arguments.encode())
    return {
        "task": task,
        **call_document(call),
        "arguments": arguments,
        "entity": msgspec.Raw(shown.entity.encode()) if shown is not None and shown.entity else None,
        "why": _doubt(call),
    }


def doubts_table(calls: Iterable[tuple[str, Call]]) -> Table:
    """Return one row per call in doubt, each with its task."""
    rows = tuple(
        (task, call.step, call.tool, call.shown.effect.value if call.shown else "", call.device, _doubt(call))
        for task, call in calls
    )
    return Table(("TASK", "STEP", "TOOL", "EFFECT", "DEVICE", "WHY"), rows)


def _doubt(call: Call) -> str:
    """Why nobody knows; what the tool said comes before what the authority only concluded."""
    shown = call.shown
    if shown is None:
        return ""
    return shown.error or shown.doubt or "It was started, and no outcome came."


def message_line(message: Mapping[str, JsonValue]) -> str:
    """Return a message as text: who speaks, what is said, and what is called."""
    content = message.get("content")
    said = content if isinstance(content, str) else "" if content is None else canonical(content)
    calls = message.get("tool_calls")
    wanted = [_call_text(call) for call in calls] if isinstance(calls, list) else []
    role = message.get("role")
    name = message.get("name")
    speaker = f"{role} {name}" if role == "tool" and isinstance(name, str) else str(role)
    return f"{speaker}: " + " ".join(part for part in (said, *wanted) if part)


def _call_text(call: JsonValue) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return "(a call that cannot be read)"
    return f"[calls {function.get('name')} {function.get('arguments')}]"


def clock_text(at_ms: int) -> str:
    """Return a writer's own clock as text, for display only."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at_ms else ""


def _candidate_document(candidate: Candidate, secret: bool) -> dict[str, JsonDocument]:
    return {
        "write_id": candidate.write_id,
        "value": _value(candidate, secret),
        "status": candidate.status.value,
        "author": candidate.author,
        "source": shown_source(candidate, secret),
        "at_ms": candidate.at_ms,
        "readable": candidate.readable,
    }


def _value(candidate: Candidate, secret: bool) -> JsonDocument:
    """The canonical text itself, so that no number is rounded on its way out."""
    if secret:
        return _SET
    return msgspec.Raw(candidate.text.encode()) if candidate.readable else None


def _shown(candidate: Candidate, secret: bool) -> str:
    if secret:
        return _SET
    if not candidate.readable:
        return "(unreadable)"
    value = candidate.value
    return value if isinstance(value, str) else candidate.text
