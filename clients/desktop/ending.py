"""`segue handover, complete, purge, evict`: how a task is handed over, finished, deleted, and forgotten here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clients.config import WrongUsage
from clients.desktop.connection import Session, connected
from clients.desktop.output import Answer, ExitStatus, JsonDocument
from clients.desktop.shapes import clock_text
from clients.desktop.standard_input import read_file

if TYPE_CHECKING:
    from sync_core import HandOverText

__all__ = ["complete", "evict", "handover", "purge", "register"]

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for name, command in (("handover", handover), ("complete", complete), ("purge", purge), ("evict", evict)):
        app.command(name)(connected(command))


async def handover(
    session: Session,
    task: _TaskKey,
    text: Annotated[str | None, typer.Option("--text", help="Give this closing text.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Give this file's text; - for standard input.")] = None,
) -> Answer:
    """Show a task's closing text, or give it. It is given once for each version, with --text or --file."""
    if text is not None and file is not None:
        raise WrongUsage("The text was given twice.", hint="Give it with --text or with --file.")
    given = read_file(file) if file is not None else text
    async with session.task(task, write=given is not None) as opened:
        sending = await session.synced()
        mine = None if given is None else await opened.hand_over(given)
        sending = sending if mine is None else await session.synced()
        standing = opened.handover
    document: dict[str, JsonDocument] = {
        "task": task,
        "handover": None if standing is None else _document(standing),
        "relay": sending.document(),
    }
    if standing is None:
        return Answer(document, ("The task was not handed over.", *sending.sentences()), sending.exit_status)
    lines = [standing.text.removesuffix("\n"), _signature(standing)]
    lines += [line for other in standing.conflicts for line in ("", *_conflict_lines(other))]
    lost = mine is not None and mine.content_sha256 != standing.content_sha256
    return Answer(
        document,
        (*lines, *sending.sentences()),
        ExitStatus.REFUSED if lost or standing.conflicts else sending.exit_status,
    )


async def complete(session: Session, task: _TaskKey) -> Answer:
    """Say that a task is finished. It counts once the relay has stored it."""
    async with session.task(task, write=True) as opened:
        await session.synced()
        await opened.complete()
        sending = await session.synced()
        done, version = opened.completion, opened.version
    edited = done.state == "completed_while_edited"
    said = {
        "completing": f"{task}, version {version}, will be completed when the relay has stored it.",
        "completed": f"{task}, version {version}, is completed, by {done.device}.",
        "completed_while_edited": f"{task}, version {version}, was completed by {done.device}, but another device wrote"
        " what that one had not read. Look at it, then complete it again.",
    }
    document: dict[str, JsonDocument] = {
        "task": task,
        "version": version,
        "state": done.state.value,
        "author": done.author,
        "device": done.device,
        "relay": sending.document(),
    }
    return Answer(
        document,
        (said.get(done.state.value, f"{task} is open."), *sending.sentences()),
        ExitStatus.REFUSED if edited else sending.exit_status,
    )


async def purge(
    session: Session,
    task: _TaskKey,
    yes: Annotated[bool, typer.Option("--yes", help="You know that nobody gets it back.")] = False,
) -> Answer:
    """Delete a task everywhere. What this device had not sent is kept aside in its file."""
    if not yes:
        raise WrongUsage(
            f"{task} would be deleted at the relay and on every device, and nobody gets it back.",
            hint="`segue export` keeps its log; `segue evict` forgets it on this device alone. Else give --yes.",
        )
    await session.synced()
    await session.endpoint.purge(task)
    sending = await session.synced()
    where = "everywhere" if sending.done else "here, and elsewhere once the relay hears of it"
    return Answer(
        {"task": task, "purged": True, "relay": sending.document()},
        (f"{task} is deleted {where}.", *sending.sentences()),
        sending.exit_status,
    )


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


def _document(text: "HandOverText") -> dict[str, JsonDocument]:
    return {
        "version": text.version,
        "text": text.text,
        "content_sha256": text.content_sha256,
        "author": text.author,
        "at_ms": text.at_ms,
        "stored": text.stored,
        "conflicts": [_document(other) for other in text.conflicts],
    }


def _signature(text: "HandOverText") -> str:
    waits = "" if text.stored else ", not at the relay yet"
    return f"-- version {text.version}, by {text.author}, {clock_text(text.at_ms)}, sha256 {text.content_sha256}{waits}"


def _conflict_lines(other: "HandOverText") -> tuple[str, ...]:
    return (
        "Given for the same version while apart, and not standing:",
        other.text.removesuffix("\n"),
        _signature(other),
    )
