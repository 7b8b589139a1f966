"""`segue approvals, approve, reject, doubts, settle, explain, lift-barrier`: what a person decides of guarded calls."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from clients.config import WrongUsage
from clients.desktop.connection import Sending, Session, connected
from clients.desktop.output import Answer, ExitStatus, JsonDocument, Table
from clients.desktop.shapes import (
    approval_document,
    approval_lines,
    approvals_table,
    call_document,
    doubt_document,
    doubts_table,
)
from sync_core.document.approvals import ApprovalState, RequestedApproval
from sync_core.document.calls import Call, CallState
from sync_core.entry import Effect
from sync_core.errors import ReadOnly, Refused, ValueRefused
from sync_core.values import JsonValue, parse

if TYPE_CHECKING:
    from sync_core import Task

__all__ = ["approvals", "approve", "doubts", "explain", "lift_barrier", "register", "reject", "settle"]

_TaskKey = Annotated[str, typer.Argument(metavar="TASK", help="The task's key, for example expense/TRIP-118.")]
_OneTask = Annotated[str | None, typer.Argument(metavar="TASK", help="Only this task; else all that may have one.")]
_Request = Annotated[str, typer.Argument(metavar="REQUEST", help="The request's id, or how it begins.")]
_Step = Annotated[str, typer.Argument(metavar="STEP", help="The step, as `segue doubts` shows it.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for name, command in (
        ("approvals", approvals),
        ("approve", approve),
        ("reject", reject),
        ("doubts", doubts),
        ("settle", settle),
        ("explain", explain),
        ("lift-barrier", lift_barrier),
    ):
        app.command(name)(connected(command))


# --- approvals --------------------------------------------------------------------------------------------------------


async def approvals(
    session: Session,
    task: _OneTask = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are decided or used.")] = False,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Also in tasks never opened here; they are kept here then.")
    ] = False,
) -> Answer:
    """List the calls that wait for a person, with their arguments."""
    sending = await session.synced()
    infos = [] if task is not None else [info async for info in session.endpoint.tasks(state="open")]
    looked_at = [info.key for info in infos if info.known_here or everywhere] if task is None else [task]
    found = [
        (opened.key, request)
        async for opened in _opened(session, looked_at)
        for request in opened.approvals
        if every or request.state is ApprovalState.WAITING
    ]
    # What was not looked at is no «nothing waits».
    left = max(0, len(infos) - len(looked_at))
    elsewhere = (f"Open tasks that were not looked at: {left}, never opened here. See --everywhere.",) if left else ()
    parts: list[str | Table] = ["No call waits for a person here." if left else "No call waits for a person."]
    if found:
        parts = [approvals_table(found), *(line for _, request in found for line in approval_lines(request))]
        parts += ["", "To decide: segue approve TASK REQUEST, or segue reject TASK REQUEST --reason WHY"]
    document: list[JsonDocument] = [approval_document(key, request) for key, request in found]
    return Answer(
        {"approvals": document, "tasks_not_looked_at": left, "relay": sending.document()},
        (*parts, *elsewhere, *sending.sentences()),
        sending.exit_status,
    )


async def approve(session: Session, task: _TaskKey, request: _Request) -> Answer:
    """Approve a call. Exactly this one, with exactly these arguments, once."""
    return await _judge(session, task, request, None)


async def reject(
    session: Session,
    task: _TaskKey,
    request: _Request,
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever asked.")] = "",
) -> Answer:
    """Reject a call that waits for a person."""
    return await _judge(session, task, request, reason)


async def _judge(session: Session, task: str, start: str, rejected_for: str | None) -> Answer:
    """Say yes, or no with a reason; it counts once the relay has ruled on it."""
    async with session.task(task, write=True) as opened:
        await session.synced()
        request = _chosen(opened, start)
        if rejected_for is None:
            await opened.approve(request)
        else:
            await opened.reject(request, rejected_for)
        sending = await session.synced()
        after = next(each for each in opened.approvals if each.id == request.id)
    wanted = ApprovalState.APPROVED if rejected_for is None else ApprovalState.REJECTED
    document: dict[str, JsonDocument] = {"approval": approval_document(task, after), "relay": sending.document()}
    said = (*approval_lines(after), *_judged(after, wanted, sending), *sending.sentences())
    # An approval that was used up meanwhile was taken, too.
    taken = after.state is wanted or (wanted, after.state) == (ApprovalState.APPROVED, ApprovalState.USED)
    return Answer(document, said, sending.exit_status if taken or not sending.done else ExitStatus.REFUSED)


def _judged(after: RequestedApproval, wanted: ApprovalState, sending: Sending) -> tuple[str, ...]:
    if after.state is ApprovalState.WAITING:
        why = "the relay did not take it: it takes one from a signed-in person whose role is approve or admin"
        waits = "it counts when the relay has ruled on it"
        return (f"The call still waits; {why if sending.done else waits}.",)
    said = f"Step {after.step} is {after.state.value}, by {after.by}"
    return (f"{said}, so yours changes nothing." if after.state is not wanted else f"{said}.",)


def _chosen(task: "Task", start: str) -> RequestedApproval:
    found = [request for request in task.approvals if request.id.startswith(start)]
    if len(found) != 1:
        many = "more than one request" if found else "no request"
        raise WrongUsage(f"The task has {many} of this id.", hint=f"`segue approvals {task.key} --all` shows them.")
    return found[0]


# --- doubts -----------------------------------------------------------------------------------------------------------


async def doubts(session: Session, task: _OneTask = None) -> Answer:
    """List the calls of which nobody knows whether they happened."""
    sending = await session.synced()
    looked_at = [task] if task is not None else [key async for key in _perhaps_in_doubt(session)]
    found = [
        (opened.key, call)
        async for opened in _opened(session, looked_at)
        for call in _calls_in(opened, CallState.IN_DOUBT)
    ]
    parts: list[str | Table] = ["No call is in doubt."]
    if found:
        parts = [doubts_table(found)]
        if any(call.shown is not None and call.shown.effect is Effect.IRREVERSIBLE for _, call in found):
            parts += ["", "Find out outside, then: segue settle TASK STEP --happened, or --did-not-happen"]
        if any(call.shown is not None and call.shown.effect is not Effect.IRREVERSIBLE for _, call in found):
            parts += ["", "A call that may run twice needs no verdict: its agent calls it again."]
    document: list[JsonDocument] = [doubt_document(key, call) for key, call in found]
    return Answer(
        {"doubts": document, "relay": sending.document()}, (*parts, *sending.sentences()), sending.exit_status
    )


async def settle(
    session: Session,
    task: _TaskKey,
    step: _Step,
    happened: Annotated[
        bool | None, typer.Option("--happened/--did-not-happen", help="What you found out at the outside system.")
    ] = None,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="What the call returned, if you know it.")
    ] = None,
) -> Answer:
    """Say of a call in doubt whether it happened. Your verdict stands for everybody."""
    if happened is None:
        raise WrongUsage("Say --happened or --did-not-happen.", hint="Look at the outside system first.")
    if result is not None and not happened:
        raise WrongUsage("What did not happen has no result.", hint="Leave out --result.")
    async with session.task(task, write=True) as opened:
        await session.synced()
        if result is None:
            await opened.settle(step, happened=happened)
        else:
            await opened.settle(step, happened=happened, result=_parsed(result))
        sending = await session.synced()
        call = opened.view.calls[opened.version, step]
    retired = call.shown is not None and call.shown.retired
    said = "happened" if happened else "did not happen"
    then = " Its key is used up: only a new business version may do it." if retired else ""
    return Answer(
        {"task": task, "call": call_document(call), "retired": retired, "relay": sending.document()},
        (f"Step {step} {said}, by your verdict.{then}", *sending.sentences()),
        sending.exit_status,
    )


def _parsed(text: str) -> JsonValue:
    try:
        return parse(text)
    except ValueRefused:
        raise WrongUsage("The result is not JSON.", hint="A text needs its quotes: --result '\"paid\"'.") from None


def _calls_in(task: "Task", state: CallState) -> list[Call]:
    made = [call for (version, _), call in sorted(task.view.calls.items()) if version == task.version]
    return [call for call in made if call.state is state]


async def _perhaps_in_doubt(session: Session) -> AsyncIterator[str]:
    """The tasks that are known here, and those of which the relay says that a call is in doubt."""
    async for info in session.endpoint.tasks():
        if info.known_here or info.calls_in_doubt:
            yield info.key


async def _opened(session: Session, keys: list[str]) -> AsyncIterator["Task"]:
    """These tasks, each open while it is looked at."""
    for key in keys:
        async with session.task(key) as opened:
            yield opened


# --- the rest ---------------------------------------------------------------------------------------------------------


async def explain(
    session: Session,
    task: _TaskKey,
    path: Annotated[str, typer.Argument(metavar="PATH", help="For example slots/amount, notes/worklog, calls/pay.")],
) -> Answer:
    """Explain where a part lives, who may change it, who wins."""
    # Asked as one that would write, so that the answer is about the role and not about this command.
    try:
        opening = await session.task(task, write=True)
    except ReadOnly:
        opening = await session.task(task)
    async with opening as opened:
        sending = await session.synced()
        told = opened.explain(path)
    rows = (
        ("lives in", f"the stream {told.stream.value}, as entries of kind {told.kind.value}"),
        ("written by", told.owner),
        ("roles", ", ".join(told.roles) or "nobody"),
        ("who wins", told.merge),
        ("this device", f"{'may write it' if told.may_write else 'may not write it'}. {told.because}"),
    )
    return Answer(
        {"task": task, "explanation": msgspec.to_builtins(told), "relay": sending.document()},
        (f"{told.path} of {task}", *(f"{label:13}{text}" for label, text in rows), *sending.sentences()),
        sending.exit_status,
    )


async def lift_barrier(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", help="You know that no device still holds what was lost.")] = False,
) -> Answer:
    """Grant the keys again that a lost log holds back. For admins."""
    if not yes:
        raise WrongUsage(
            "Keys from before the loss are in doubt, because a device that was away may hold what happened.",
            hint="Bring every device to the relay first. If none is missing, give --yes.",
        )
    sending = await session.synced()
    if sending.refused:
        raise Refused(f"The relay refused this device: {sending.status.reason.rstrip('.')}.")
    await session.endpoint.lift_barrier()
    return Answer(
        {"lifted": True, "relay": sending.document()},
        ("The barrier is lifted for the whole subject.", *sending.sentences()),
        sending.exit_status,
    )
