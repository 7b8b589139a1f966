"""`segue watch`: print each change of a task as it comes, until Ctrl-C."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from clients.desktop.connection import Session
from clients.desktop.output import JsonDocument, emit_line, emit_remark
from clients.desktop.shapes import approval_document, slot_document, slot_line
from sync_core.replica.changes import (
    ApprovalChanged,
    CallChanged,
    Change,
    NoteChanged,
    Resync,
    SlotChanged,
    VersionChanged,
)

if TYPE_CHECKING:
    from sync_core import Task

__all__ = ["watch"]


async def watch(
    session: Session,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")],
) -> None:
    """Print each change of a task as it comes. One line each, until Ctrl-C."""
    async with session.task(task) as opened:
        changes = opened.changes()
        for sentence in (await session.synced()).sentences():
            emit_remark(sentence)
        emit_remark(f"Watching {task}; Ctrl-C ends.")
        try:
            async for change in changes:
                emit_line(_document(change), _text(change, opened), session.as_json)
        except asyncio.CancelledError:
            # Ctrl-C is how a watch ends, so it ends well.
            return


def _document(change: Change) -> JsonDocument:
    if isinstance(change, SlotChanged):
        return {"type": "slot", "task": change.task, "slot": slot_document(change.slot), "local": change.local}
    if isinstance(change, ApprovalChanged):
        return {"type": "approval", **approval_document(change.task, change.request), "local": change.local}
    document: JsonDocument = msgspec.to_builtins(change)
    return document


def _text(change: Change, task: "Task") -> str:
    if isinstance(change, Resync):
        return "Too many changes at once: some were left out, look at the task anew."
    what = msgspec.to_builtins(change)["type"].replace("_", " ")
    where = "here" if getattr(change, "local", False) else "elsewhere"
    if isinstance(change, SlotChanged):
        return f"{slot_line(change.slot)} ({where})"
    if isinstance(change, NoteChanged):
        return f"note {change.name} changed ({where}), sha256 {change.content_sha256}"
    if isinstance(change, CallChanged):
        call = task.view.calls.get((change.version, change.step))
        return f"call {change.step} is {call.state.value if call else 'gone'} ({where})"
    if isinstance(change, ApprovalChanged):
        request = change.request
        return f"approval {request.id} for step {request.step} is {request.state.value} ({where})"
    if isinstance(change, VersionChanged):
        return f"version {change.version} was decided ({where})"
    return f"{what} changed"
