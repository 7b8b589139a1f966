"""`segue note`: read, write, append, merge. A whole text is written only over the text that its writer has read."""

from pathlib import Path
from typing import Annotated

import typer

from clients.config import WrongUsage
from clients.desktop.connection import Sending, Session, connected
from clients.desktop.output import Answer
from clients.desktop.shapes import note_document
from clients.desktop.standard_input import read_file, read_input
from sync_core.document.notes import Note
from sync_core.errors import PreconditionFailed

__all__ = ["app", "append", "merge", "read", "write"]

app = typer.Typer(help="Read, write, append to and merge the notes of a task.", no_args_is_help=True)

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]
_Name = Annotated[str, typer.Argument(metavar="NOTE", help="The note's name.")]
_Text = Annotated[str | None, typer.Argument(metavar="TEXT", help="The text; without it, standard input.")]
_File = Annotated[Path | None, typer.Option("--file", help="Take the text from this file.")]
_Sha256 = Annotated[str | None, typer.Option("--sha256", help="The hash of the text that yours was made from.")]
_Create = Annotated[bool, typer.Option("--create", help="Start the task if nobody has it.")]


@app.command()
@connected
async def read(session: Session, task: _TaskKey, name: _Name) -> Answer:
    """Show a note's text and its hash. Who writes or merges a text made from it needs the hash."""
    async with session.task(task) as opened:
        sending = await session.synced()
        note = await opened.notes.read(name)
        return Answer(
            {"task": task, "note": note_document(note), "relay": sending.document()},
            (note.text.removesuffix("\n"), f"-- sha256 {note.content_sha256}", *sending.sentences()),
            sending.exit_status,
        )


@app.command()
@connected
async def write(
    session: Session,
    task: _TaskKey,
    name: _Name,
    text: _Text = None,
    file: _File = None,
    sha256: Annotated[
        str | None, typer.Option("--sha256", help="The hash of the text that yours was made from.")
    ] = None,
    create: _Create = False,
) -> Answer:
    """Replace a note's whole text. An existing note needs the hash of the text that was read."""
    given = _given(text, file)
    async with session.task(task, write=True, create=create) as opened:
        try:
            note = await opened.notes.write(name, given, content_sha256=sha256)
        except PreconditionFailed as error:
            return _stale(task, name, error)
        return _written(task, note, await session.synced())


@app.command()
@connected
async def append(
    session: Session, task: _TaskKey, name: _Name, text: _Text = None, file: _File = None, create: _Create = False
) -> Answer:
    """Put a text at the end of a note. One given as an argument is a line."""
    given = _given(text, file)
    async with session.task(task, write=True, create=create) as opened:
        if text is not None:
            given = _line((await opened.notes.read(name)).text, text)
        note = await opened.notes.append(name, given)
        return _written(task, note, await session.synced())


@app.command()
@connected
async def merge(
    session: Session,
    task: _TaskKey,
    name: _Name,
    text: _Text = None,
    file: _File = None,
    base: Annotated[str, typer.Option("--base", help="The hash of the text that yours was made from.")] = "",
) -> Answer:
    """Merge a text into the current one. Lines that both ends changed are told."""
    if not base:
        raise WrongUsage("A merge needs --base.", hint="It is the hash that `segue note read` showed.")
    given = _given(text, file)
    async with session.task(task, write=True) as opened:
        merged = await opened.notes.merge(name, given, base=base)
        answer = _written(task, merged.note, await session.synced())
        told = tuple(f"Changed on both ends: {line}" for line in merged.overlap)
        return Answer({**answer.document, "overlap": [*merged.overlap]}, (*answer.parts, *told), answer.status)


def _given(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise WrongUsage("The text was given twice.", hint="Give it as an argument or with --file.")
    if text is not None:
        return text
    return read_input() if file is None else read_file(file)


def _line(before: str, text: str) -> str:
    """The text as a line of its own behind what is there."""
    start = "\n" if before and not before.endswith("\n") else ""
    return f"{start}{text}" if text.endswith("\n") else f"{start}{text}\n"


def _stale(task: str, name: str, error: PreconditionFailed) -> Answer:
    return Answer(
        {"task": task, "current_sha256": error.current_sha256, "current_text": error.current_text},
        (f"-- sha256 {error.current_sha256} is current.",),
        error=PreconditionFailed(
            error.sentence,
            current_text=error.current_text,
            current_sha256=error.current_sha256,
            hint=f"Read it with `segue note read {task} {name}`, then write with its --sha256, or merge.",
        ),
    )


def _written(task: str, note: Note, sending: Sending) -> Answer:
    return Answer(
        {"task": task, "note": note_document(note), "relay": sending.document()},
        (f"{note.name} is written.", f"-- sha256 {note.content_sha256}", *sending.sentences()),
        sending.exit_status,
    )
