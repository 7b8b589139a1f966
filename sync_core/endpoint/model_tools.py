"""Tools that let a model read and write the task itself: its slots and its notes.

They are recorded like any other tool. What Segue refuses is told to the model as their result, so that it can correct
itself.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from sync_core.document.slots import Candidate, Slot
from sync_core.endpoint.notes import Notes
from sync_core.endpoint.secrets import shown_source
from sync_core.endpoint.slots import Slots
from sync_core.endpoint.tools import AsyncTool, Tool
from sync_core.entry import Effect
from sync_core.errors import PreconditionFailed, SegueError
from sync_core.values import JsonValue

__all__ = ["model_tools"]

P = ParamSpec("P")


def model_tools(slots: Slots, notes: Notes) -> dict[str, Tool[..., object]]:
    """Return the tools of one handle, by name."""
    return {made.name: made for made in (*_slot_tools(slots), *_note_tools(notes))}


def _slot_tools(slots: Slots) -> tuple[Tool[..., object], ...]:
    async def slot_list() -> object:
        """List the task's slots: what is asked, the state, and every value that stands, with its author."""
        return [_slot_json(slots[name]) for name, _ in slots.items()]

    async def slot_propose(name: str, value: object) -> object:
        """Propose a value for a slot; a person or a rule still has to confirm it."""
        return _slot_json(await slots.propose(name, value, source="model"))

    async def slot_confirm(name: str, value: object) -> object:
        """Confirm a value for a slot. Use it only for what the user has said or agreed to."""
        return _slot_json(await slots.confirm(name, value, source="model"))

    async def slot_clear(name: str) -> object:
        """Delete the values of a slot that you have read."""
        return _slot_json(await slots.clear(name))

    return (
        _made(slot_list, Effect.READ),
        _made(slot_propose, Effect.IDEMPOTENT),
        _made(slot_confirm, Effect.IDEMPOTENT),
        _made(slot_clear, Effect.IDEMPOTENT),
    )


def _note_tools(notes: Notes) -> tuple[Tool[..., object], ...]:
    async def note_list() -> object:
        """List the names of the task's notes."""
        return [note.name for note in notes.list()]

    async def note_read(name: str) -> object:
        """Read a note: its text, and the content_sha256 to give when you write it."""
        note = await notes.read(name)
        return {"text": note.text, "content_sha256": note.content_sha256}

    async def note_write(name: str, text: str, content_sha256: str | None = None) -> object:
        """Replace a note's whole text. Give the content_sha256 of the text you read; leave it out for a new note."""
        note = await notes.write(name, text, content_sha256=content_sha256)
        return {"content_sha256": note.content_sha256}

    async def note_edit(name: str, old: str, new: str) -> object:
        """Replace one passage of a note; `old` must occur exactly once."""
        note = await notes.edit(name, old, new)
        return {"content_sha256": note.content_sha256}

    return (
        _made(note_list, Effect.READ),
        _made(note_read, Effect.READ),
        _made(note_write, Effect.IDEMPOTENT),
        _made(note_edit, Effect.IDEMPOTENT),
    )


def _made(function: Callable[P, Awaitable[object]], effect: Effect) -> Tool[..., object]:
    @functools.wraps(function)
    async def told(*args: P.args, **kwargs: P.kwargs) -> object:
        try:
            return await function(*args, **kwargs)
        except SegueError as error:
            answer: dict[str, object] = {"error": error.sentence, "hint": error.hint}
            if isinstance(error, PreconditionFailed):
                answer |= {"current_text": error.current_text, "current_sha256": error.current_sha256}
            return answer

    return AsyncTool(told, effect, (), None)


def _slot_json(slot: Slot) -> dict[str, JsonValue]:
    """Return a slot as a model sees it; of a secret one only that it is set."""
    definition = slot.definition
    shown: dict[str, JsonValue] = {"name": slot.name, "state": slot.state.value}
    if definition is not None:
        shown |= {"ask": definition.ask, "required": definition.required}
    candidates = [_candidate_json(candidate, slot.secret) for candidate in (*slot.candidates, *slot.proposals)]
    shown["values"] = [*candidates]
    return shown


def _candidate_json(candidate: Candidate, secret: bool) -> dict[str, JsonValue]:
    value: JsonValue = "set" if secret else candidate.value
    return {
        "value": value,
        "status": candidate.status.value,
        "author": candidate.author,
        "source": shown_source(candidate, secret),
    }
