"""`segue evict`: how a task ends, here or everywhere."""

from typing import Annotated

import typer

from clients.desktop.connection import Session, connected
from clients.desktop.output import Answer

__all__ = ["evict", "register"]

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("evict")(connected(evict))


async def evict(session: Session, task: _TaskKey) -> Answer:
    """Forget a task on this device alone. The relay and the other devices keep it."""
    sending = await session.synced()
    here = [info.known_here async for info in session.endpoint.tasks(prefix=task) if info.key == task] == [True]
    await session.endpoint.evict(task)
    return Answer(
        {"task": task, "evicted": here, "relay": sending.document()},
        (f"{task} is forgotten here." if here else f"{task} was not kept here.", *sending.sentences()),
        sending.exit_status,
    )
