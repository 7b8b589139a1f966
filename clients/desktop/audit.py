"""`segue replay, export, restore`: what the log says, and bringing back what was deleted."""

from typing import Annotated

import msgspec
import typer

from clients.desktop.connection import Session, connected
from clients.desktop.output import Answer, ExitStatus, JsonDocument, Table, emit_line, emit_remark
from clients.desktop.shapes import call_document, calls_table, note_document, slot_document, slots_table
from sync_core.endpoint.secrets import secrets_of

__all__ = ["export", "register", "replay", "restore"]

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for name, command in (("replay", replay), ("export", export), ("restore", restore)):
        app.command(name)(connected(command))


async def replay(
    session: Session,
    task: _TaskKey,
    at: Annotated[int | None, typer.Option("--at", min=0, help="Show the task as of this place of its log.")] = None,
) -> Answer:
    """Build the task anew from this device's log and compare. Lists what is missing; no tool and nobody is asked."""
    async with session.task(task) as opened:
        sending = await session.synced()
        report = await opened.replay(at)
    slots = [slot for _, slot in sorted(report.view.slots.items())]
    notes = [note for _, note in sorted(report.view.notes.items())]
    calls = [call for _, call in sorted(report.view.calls.items())]
    secrets = secrets_of(slots)
    document: dict[str, JsonDocument] = {
        "task": task,
        "at": at,
        "entries": report.entries,
        "equal": report.equal,
        "streams": [{**msgspec.to_builtins(stream), "equal": stream.equal} for stream in report.streams],
        "gaps": msgspec.to_builtins(report.gaps),
        "version": report.view.version,
        "slots": [slot_document(slot) for slot in slots],
        "notes": [note_document(note, secrets) for note in notes],
        "calls": [call_document(call, secrets) for call in calls],
        "relay": sending.document(),
    }
    same = "as the live task" if report.equal else "OTHER than the live task"
    streams = Table(
        ("STREAM", "ENTRIES", "EARLIEST PLACE", "LAST PLACE", "DIGEST"),
        tuple(
            (each.stream.value, str(each.entries), str(each.earliest), str(each.cursor), each.rebuilt[:16])
            for each in report.streams
        ),
    )
    parts: list[str | Table] = [f"{task}: {report.entries} entries replayed, content {same}.", streams]
    gaps = tuple((gap.kind.value, gap.stream.value, str(gap.place or "-"), gap.what) for gap in report.gaps)
    parts += [Table(("GAP", "STREAM", "PLACE", "WHAT"), gaps) if gaps else "No gaps."]
    parts += ["", f"As of place {at}:" if at is not None else "As the log leads to it:"]
    parts += [slots_table(slots)] if slots else []
    parts += [Table(("NOTE", "CHARACTERS"), tuple((note.name, str(len(note.text))) for note in notes))] if notes else []
    parts += [calls_table(calls)] if calls else []
    status = sending.exit_status if report.equal else ExitStatus.REFUSED
    return Answer(document, (*parts, *sending.sentences()), status)


async def export(session: Session, task: _TaskKey) -> None:
    """Write this device's log of the task as JSON lines. Each has author, order, content and sizes; none a secret."""
    async with session.task(task):
        for remark in (await session.synced()).sentences():
            emit_remark(remark)
        async for line in session.endpoint.export(task):
            emit_line(msgspec.Raw(msgspec.json.encode(line)), "", as_json=True)


async def restore(
    session: Session,
    task: _TaskKey,
    at: Annotated[int, typer.Option("--at", min=0, help="The place of the log; `segue export` shows them.")],
) -> Answer:
    """Bring back what was deleted since a place of the log. Slots and notes; what was written since stays."""
    async with session.task(task, write=True) as opened:
        await session.synced()
        done = await opened.restore(at)
        sending = await session.synced()
    said = [f"The slot {name} is declared again." for name in done.definitions]
    said += [f"The slot {name} has its {status.value} value back." for name, status in done.values]
    said += [f"The note {name} has its text back." for name in done.notes]
    document: dict[str, JsonDocument] = {
        "task": task,
        "at": at,
        "declared": list(done.definitions),
        "slots": [{"slot": name, "status": status.value} for name, status in done.values],
        "notes": list(done.notes),
        "left": [{"what": left.what, "why": left.why} for left in done.left],
        "relay": sending.document(),
    }
    left = tuple(f"Left: {each.what}. {each.why}" for each in done.left)
    return Answer(
        document, (*(said or ["Nothing had to be brought back."]), *left, *sending.sentences()), sending.exit_status
    )
