"""`segue slot`: list, propose, confirm, resolve, clear.

A write replaces what its caller has read. A missing slot is simply written; where a candidate is present, the command
shows it and its read token, and writes only when that token is given back.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from clients.config import WrongUsage
from clients.desktop.connection import Sending, Session, connected
from clients.desktop.output import Answer, ExitStatus, Table
from clients.desktop.read_token import decode_token, encode_token
from clients.desktop.shapes import candidates_table, slot_document, slots_table
from clients.desktop.standard_input import read_input
from sync_core.document.slots import Candidate, Slot, SlotState
from sync_core.errors import SegueError, ValueRefused
from sync_core.values import JsonValue, parse

if TYPE_CHECKING:
    from sync_core.endpoint.slots import Slots

__all__ = ["ReadNeeded", "app", "clear", "confirm", "list_slots", "propose", "resolve"]

app = typer.Typer(help="List, propose, confirm, resolve and clear a task's slots.", no_args_is_help=True)

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]
_Name = Annotated[str, typer.Argument(metavar="SLOT", help="The slot's name.")]
_Value = Annotated[str, typer.Argument(metavar="VALUE", help="The value as text; - takes it from standard input.")]
_Read = Annotated[str | None, typer.Option("--read", help="The read token of the candidates that you have seen.")]
_IsJson = Annotated[bool, typer.Option("--as-json", help="The value is JSON: a number, an object, true.")]
_Source = Annotated[str | None, typer.Option("--source", help="Where the value comes from.")]
_Create = Annotated[bool, typer.Option("--create", help="Start the task if nobody has it.")]


class ReadNeeded(SegueError):
    """A slot holds candidates, and the caller did not say that it has read them."""

    code = "read_needed"
    status = 409


@app.command("list")
@connected
async def list_slots(session: Session, task: _TaskKey) -> Answer:
    """List the slots: state, value, read token. Also what is proposed beside a value."""
    async with session.task(task) as opened:
        sending = await session.synced()
        slots = [slot for _, slot in opened.slots.items()]
        parts: list[str | Table] = [slots_table(slots) if slots else "The task has no slots."]
        for slot in slots:
            if slot.state is SlotState.CONFLICTED:
                parts += ["", f"{slot.name} is conflicted. {_settling(task, slot)}", candidates_table(slot)]
        return Answer(
            {"task": task, "slots": [slot_document(slot) for slot in slots], "relay": sending.document()},
            (*parts, *sending.sentences()),
            sending.exit_status,
        )


@app.command()
@connected
async def propose(
    session: Session,
    task: _TaskKey,
    name: _Name,
    value: _Value,
    read: _Read = None,
    as_json_value: _IsJson = False,
    source: _Source = None,
    create: _Create = False,
) -> Answer:
    """Propose a value, which somebody still has to confirm."""
    given = _value(value, as_json_value)
    return await _write(
        session,
        task,
        name,
        read,
        lambda slots, slot, token: slots.propose(name, given, read=token, source=source),
        create=create,
    )


@app.command()
@connected
async def confirm(
    session: Session,
    task: _TaskKey,
    name: _Name,
    value: _Value,
    read: _Read = None,
    as_json_value: _IsJson = False,
    source: _Source = None,
    create: _Create = False,
) -> Answer:
    """Confirm a value. It stands in place of the candidates that you have read."""
    given = _value(value, as_json_value)
    return await _write(
        session,
        task,
        name,
        read,
        lambda slots, slot, token: slots.confirm(name, given, read=token, source=source),
        create=create,
    )


@app.command()
@connected
async def resolve(
    session: Session,
    task: _TaskKey,
    name: _Name,
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="The candidate's id, or how it begins.")],
    read: _Read = None,
) -> Answer:
    """Settle a conflict. One candidate's value stands in place of all that you have read."""
    return await _write(
        session, task, name, read, lambda slots, slot, token: slots.resolve(name, _chosen(slot, candidate), read=token)
    )


@app.command()
@connected
async def clear(session: Session, task: _TaskKey, name: _Name, read: _Read = None) -> Answer:
    """Delete the candidates that you have read. One that you have not read stays."""
    return await _write(session, task, name, read, lambda slots, slot, token: slots.clear(name, read=token))


async def _write(
    session: Session,
    task: str,
    name: str,
    read: str | None,
    write: Callable[["Slots", Slot, frozenset[str]], Awaitable[Slot]],
    *,
    create: bool = False,
) -> Answer:
    """Write with what the caller has read; it is shown what it still has to read instead, if there is any."""
    async with session.task(task, write=True, create=create) as opened:
        slot = opened.slots[name]
        token = _token(slot, read)
        if token is None:
            return _unread(task, slot)
        return _written(task, await write(opened.slots, slot, token), await session.synced())


def _value(text: str, is_json: bool) -> JsonValue:
    if text == "-":
        text = read_input().removesuffix("\n")
    if not is_json:
        return text
    try:
        return parse(text)
    except ValueRefused:
        raise WrongUsage("The value is not JSON.", hint="Leave out --as-json to give it as text.") from None


def _token(slot: Slot, read: str | None) -> frozenset[str] | None:
    """What the caller has read, or None if there is something that it has to read first."""
    if read is not None:
        return decode_token(read)
    return None if slot.token else frozenset()


def _unread(task: str, slot: Slot) -> Answer:
    token = encode_token(slot.token)
    error = ReadNeeded(
        f"The slot {slot.name} holds values already, so nothing was written.",
        hint=f"If yours shall replace them, give the same command again with --read {token}",
    )
    return Answer({"task": task, "slot": slot_document(slot)}, (candidates_table(slot),), error=error)


def _written(task: str, slot: Slot, sending: Sending) -> Answer:
    """A write that leaves several values standing was done, and still counts as conflicted."""
    conflicted = slot.state is SlotState.CONFLICTED
    parts: list[str | Table] = [f"{slot.name} is {slot.state.value}."]
    if slot.token:
        parts.append(candidates_table(slot))
    if conflicted:
        parts.append(_settling(task, slot))
    return Answer(
        {"task": task, "slot": slot_document(slot), "relay": sending.document()},
        (*parts, *sending.sentences()),
        ExitStatus.REFUSED if conflicted else sending.exit_status,
    )


def _settling(task: str, slot: Slot) -> str:
    return f"To settle it: segue slot resolve {task} {slot.name} CANDIDATE --read {encode_token(slot.token)}"


def _chosen(slot: Slot, start: str) -> Candidate:
    found = [each for each in (*slot.candidates, *slot.proposals) if each.write_id.startswith(start)]
    if len(found) != 1:
        many = "more than one candidate" if found else "no candidate"
        raise WrongUsage(f"The slot {slot.name} has {many} of this id.", hint="`segue slot list` shows them.")
    return found[0]
