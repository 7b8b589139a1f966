"""`segue explain`: who may change what."""

from typing import Annotated

import msgspec
import typer

from clients.desktop.connection import Session, connected
from clients.desktop.output import Answer
from sync_core.errors import ReadOnly

__all__ = ["explain", "register"]

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for name, command in (("explain", explain),):
        app.command(name)(connected(command))


async def explain(
    session: Session,
    task: _TaskKey,
    path: Annotated[str, typer.Argument(metavar="PATH", help="For example slots/amount, notes/worklog, calls/pay.")],
) -> Answer:
    """Explain where a part of a task lives, who may change it, who wins."""
    # Asked as one that would write, so that the answer is about the role and not about this command.
    try:
        opening = await session.task(task, write=True)
    except ReadOnly:
        opening = await session.task(task)
    async with opening as opened:
        sending = await session.synced()
        told = opened.explain(path)
    roles = ", ".join(told.roles) or "nobody"
    rows = (
        ("lives in", f"the stream {told.stream.value}, as entries of kind {told.kind.value}"),
        ("written by", told.owner),
        ("roles", roles),
        ("who wins", told.merge),
        ("this device", f"{'may write it' if told.may_write else 'may not write it'}. {told.because}"),
    )
    lines = (f"{told.path} of {task}", *(f"{label:13}{text}" for label, text in rows))
    return Answer(
        {"task": task, "explanation": msgspec.to_builtins(told), "relay": sending.document()},
        (*lines, *sending.sentences()),
        sending.exit_status,
    )
