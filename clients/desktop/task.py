"""`segue tasks, show, brief, calls, history`: what there is, and how it stands."""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from clients.desktop.connection import Session, connected
from clients.desktop.output import Answer, JsonDocument, Table
from clients.desktop.shapes import call_document, calls_table, message_line, note_document, slot_document, slots_table
from sync_core.document.calls import CallState
from sync_core.endpoint.secrets import secrets_of
from sync_core.values import canonical

if TYPE_CHECKING:
    from sync_core import TaskInfo

__all__ = ["brief", "calls", "history", "register", "show", "tasks"]

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for name, command in (
        ("tasks", tasks),
        ("show", show),
        ("brief", brief),
        ("calls", calls),
        ("history", history),
    ):
        app.command(name)(connected(command))


async def tasks(
    session: Session,
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys that begin like this.")] = "",
    state: Annotated[Literal["open", "completed"] | None, typer.Option("--state", help="Only these.")] = None,
    waiting_for: Annotated[
        str | None, typer.Option("--waiting-for", help="Only with a planned step that needs this capability.")
    ] = None,
) -> Answer:
    """List the subject's tasks, also those never opened here."""
    sending = await session.synced()
    found = [info async for info in session.endpoint.tasks(state=state, prefix=prefix, waiting_for=waiting_for)]
    columns = ("TASK", "STATE", "VERSION", "SLOTS", "CALLS DONE", "IN DOUBT", "PLANNED", "HERE")
    table = Table(columns, tuple(map(_info_row, found)))
    return Answer(
        {"tasks": [_info_document(info) for info in found], "relay": sending.document()},
        (table if found else "There are no tasks.", *sending.sentences()),
        sending.exit_status,
    )


async def show(session: Session, task: _TaskKey) -> Answer:
    """Show a task: slots, notes, calls and how much has been said."""
    async with session.task(task) as opened:
        sending = await session.synced()
        view = opened.view
        slots = [slot for _, slot in opened.slots.items()]
        notes = opened.notes.list()
        made = [call for (version, _), call in sorted(view.calls.items()) if version == opened.version]
        state = view.completion.state.value
        secrets = secrets_of(slots)
        document: dict[str, JsonDocument] = {
            "task": task,
            "version": view.version,
            "state": state,
            "slots": [slot_document(slot) for slot in slots],
            "notes": [note_document(note, secrets) for note in notes],
            "calls": [call_document(call, secrets) for call in made],
            "messages": len(view.history),
            "writes": view.writes,
            "relay": sending.document(),
        }
        parts: list[str | Table] = [f"{task}, version {view.version}, {state}, {len(view.history)} messages"]
        if slots:
            parts += ["", slots_table(slots)]
        if notes:
            rows = tuple((note.name, str(len(note.text)), note.content_sha256) for note in notes)
            parts += ["", Table(("NOTE", "CHARACTERS", "SHA256"), rows)]
        if made:
            parts += ["", calls_table(made)]
        return Answer(document, (*parts, *sending.sentences()), sending.exit_status)


async def brief(
    session: Session,
    task: _TaskKey,
    view: Annotated[
        Literal["work", "confirm"], typer.Option("--view", help="All to go on with, or the slots alone.")
    ] = "work",
    max_chars: Annotated[int | None, typer.Option("--max-chars", min=1, help="Bound of the text.")] = None,
) -> Answer:
    """Tell the task as an agent is told it."""
    async with session.task(task) as opened:
        sending = await session.synced()
        told = opened.brief(view=view, max_chars=max_chars)
        return Answer(
            {"brief": msgspec.Raw(msgspec.json.encode(told.json)), "text": told.text, "relay": sending.document()},
            (told.text.removesuffix("\n"), *sending.sentences()),
            sending.exit_status,
        )


async def calls(session: Session, task: _TaskKey) -> Answer:
    """List the recorded and planned calls of the standing version."""
    async with session.task(task) as opened:
        sending = await session.synced()
        made = [call for (version, _), call in sorted(opened.view.calls.items()) if version == opened.version]
        secrets = secrets_of(opened.view.slots.values())
        return Answer(
            {"task": task, "calls": [call_document(call, secrets) for call in made], "relay": sending.document()},
            (calls_table(made) if made else "Nothing was called or planned.", *sending.sentences()),
            sending.exit_status,
        )


async def history(
    session: Session,
    task: _TaskKey,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only so many of the newest messages.")] = None,
) -> Answer:
    """Show the conversation, oldest message first."""
    async with session.task(task) as opened:
        sending = await session.synced()
        messages = await opened.history.items(last=last)
        told: list[JsonDocument] = [msgspec.Raw(canonical(message).encode()) for message in messages]
        lines = tuple(map(message_line, messages)) or ("Nothing was said.",)
        document: dict[str, JsonDocument] = {"task": task, "messages": told, "relay": sending.document()}
        return Answer(document, (*lines, *sending.sentences()), sending.exit_status)


def _info_row(info: "TaskInfo") -> tuple[str, ...]:
    counted: dict[str, int] = {}
    for state in (info.slots or {}).values():
        counted[state.value] = counted.get(state.value, 0) + 1
    slots = ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
    return (
        info.key,
        info.state,
        str(info.version),
        slots if info.slots is not None else "?",
        str(info.calls_done),
        str(info.calls_in_doubt),
        ", ".join(step.step for step in info.planned),
        "yes" if info.known_here else "no",
    )


def _info_document(info: "TaskInfo") -> dict[str, JsonDocument]:
    return {
        "task": info.key,
        "state": info.state,
        "version": info.version,
        "slots": None if info.slots is None else {name: state.value for name, state in info.slots.items()},
        "calls": {CallState.DONE.value: info.calls_done, CallState.IN_DOUBT.value: info.calls_in_doubt},
        "planned": [{"step": step.step, "tool": step.tool, "requires": [*step.requires]} for step in info.planned],
        "known_here": info.known_here,
    }
