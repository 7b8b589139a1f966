"""Calls that cannot be undone: the authority is asked before anything starts, and its answer is what happens next.

Nothing here runs a tool. A call comes back granted, or as the result that is recorded of it, or it raises why not.
"""

import asyncio

from sync_core.document.approvals import ApprovalState, request_id
from sync_core.document.calls import AUTHORITY_NEED, Call, CallRecorded, CallState
from sync_core.endpoint.handle import Handle
from sync_core.endpoint.recorded import blob_text, recorded_text
from sync_core.endpoint.tools import BoundArguments, Tool
from sync_core.entry import Effect
from sync_core.errors import (
    AlreadyDone,
    InDoubt,
    KeyRetired,
    KeyReused,
    NeedsApproval,
    NeedsAuthority,
    NeedsKey,
    Refused,
    ResultUnavailable,
    RunningElsewhere,
    SegueError,
    TooLarge,
    ValueRefused,
    VersionMismatch,
)
from sync_core.limits import RESULT_INLINE_BYTES_MAX
from sync_core.petitions import ClaimAnswer, ClaimVerdict
from sync_core.replica.commands import ClaimCall, Claimed, PlanCall, RequestApproval, SettleCall
from sync_core.values import canonical

__all__ = ["UNKNOWN", "Granted", "ask_authority", "settle", "to_the_end"]

_DOUBT_HINT = (
    "Find out whether it happened and settle it. After a lost log, once every device has been there, an admin may lift"
    " the barrier instead."
)

UNKNOWN = object()
"""Stands for the result of a call of which only is known that it happened."""


class Granted:
    """The authority gave the key to this attempt; `cancelled`: whoever asked gave up meanwhile."""

    def __init__(self, claimed: Claimed, cancelled: bool) -> None:
        self.attempt = claimed.attempt
        self.key = claimed.answer.key
        self.token = claimed.answer.token
        self.cancelled = cancelled


class _Question:
    """One call, as the authority is asked about it."""

    def __init__(self, handle: Handle, step: str, tool: Tool[..., object], bound: BoundArguments) -> None:
        self.handle = handle
        self.step = step
        self.tool = tool
        self.bound = bound
        self.arguments = bound.named()
        self.entity = tool.safeguards.entity(self.arguments)
        self.releases = tool.safeguards.released(self.arguments)

    def command(self) -> ClaimCall:
        """The question itself."""
        return ClaimCall(
            self.handle.ref(),
            self.handle.key,
            self.handle.version,
            self.step,
            self.tool.name,
            self.bound.digest,
            self.entity,
            self.releases,
            self.tool.safeguards.approval,
            self.tool.safeguards.checked,
        )


async def ask_authority(handle: Handle, step: str, tool: Tool[..., object], bound: BoundArguments) -> Granted | str:
    """Return the grant of a call, or the result that is recorded of it as canonical JSON.

    A call in doubt is first looked up by the tool's probe, if it has one. Raises `NeedsKey`, `NeedsAuthority` (the step
    is planned and waits), `NeedsApproval` (the request is written down), `InDoubt`, `RunningElsewhere`, `AlreadyDone`,
    `KeyReused`, `KeyRetired`, `VersionMismatch`, `Refused`; the tool was not started.
    """
    if not tool.takes_key:
        raise NeedsKey(f"The tool {tool.name} cannot be undone and takes no idempotency_key.")
    question = _Question(handle, step, tool, bound)
    reply = await _claim(question)
    if isinstance(reply, Claimed) and reply.answer.verdict is ClaimVerdict.IN_DOUBT and tool.safeguards.can_probe:
        await _probe(question, reply.answer)
        reply = await _claim(question)
    if isinstance(reply, CallRecorded):
        return await recorded_text(handle, reply.call)
    if isinstance(reply, Granted):
        return reply
    if reply.answer.verdict is ClaimVerdict.DONE:
        return await _done(question, reply.answer)
    raise await _refusal(question, reply.answer)


async def _claim(question: _Question) -> Granted | Claimed | CallRecorded:
    handle = question.handle
    try:
        reply, cancelled = await to_the_end(handle.runner.submit(question.command()))
    except NeedsAuthority:
        await _leave_waiting(question)
        raise
    assert isinstance(reply, (Claimed, CallRecorded))
    if isinstance(reply, Claimed) and reply.answer.verdict is ClaimVerdict.GRANTED:
        return Granted(reply, cancelled)
    if cancelled:
        raise asyncio.CancelledError
    return reply


async def _leave_waiting(question: _Question) -> None:
    """Nobody can be asked now: ask for the approval that the call will need, or else plan it."""
    handle, tool = question.handle, question.tool
    if tool.safeguards.approval and not _is_approved(question):
        raise await _needs_approval(question) from None
    requires = tuple(sorted({*tool.requires, AUTHORITY_NEED}))
    command = PlanCall(
        handle.ref(), handle.key, handle.version, question.step, tool.name, question.bound.text, requires
    )
    await handle.runner.tell(command)


def _is_approved(question: _Question) -> bool:
    """Whether the rulings that are here say so; the authority judges it again."""
    handle = question.handle
    asked = request_id(question.step, handle.version, question.tool.name, question.bound.digest)
    request = handle.view.approvals.get(asked)
    return request is not None and request.state is ApprovalState.APPROVED


async def _needs_approval(question: _Question) -> NeedsApproval:
    """Write the request down, once, and return the error that names it."""
    handle, tool, bound = question.handle, question.tool, question.bound
    command = RequestApproval(
        handle.ref(), handle.key, handle.version, question.step, tool.name, bound.digest, bound.text
    )
    asked = await handle.runner.ask(command, str)
    request = handle.view.approvals.get(asked)
    if request is not None and request.state is ApprovalState.REJECTED:
        why = f": {request.reason.rstrip('.')}" if request.reason else ""
        return NeedsApproval(f"{request.by} rejected step {question.step}{why}.", request=asked)
    if request is not None and request.state is ApprovalState.APPROVED:
        # The authority looked: it is the caller's own, or was used up by a call.
        sentence = (
            f"The approval of {request.by} does not count for step {question.step}: it is the caller's own, or used."
        )
        return NeedsApproval(f"{sentence} Another person is to approve it.", request=asked)
    return NeedsApproval(f"Step {question.step} waits for a person's approval.", request=asked)


async def _done(question: _Question, answer: ClaimAnswer) -> str:
    """The recorded result of a call that happened: of this one, or, in the error, of another one with its key."""
    handle, step = question.handle, question.step
    if (answer.holder_task, answer.holder_step, answer.holder_version) != (handle.key, step, handle.version):
        raise AlreadyDone(
            f"It was done already, by step {answer.holder_step} of {answer.holder_task}.",
            task=answer.holder_task,
            step=answer.holder_step,
            result_text=answer.result,
        )
    if answer.recorded_digest not in ("", question.bound.digest):
        raise _key_reused(question, answer)
    if answer.result is not None:
        return answer.result
    if answer.blob is not None:
        return await blob_text(handle, step, answer.blob)
    raise ResultUnavailable(f"The step {step} was done, but nobody recorded its result.")


async def _refusal(question: _Question, answer: ClaimAnswer) -> SegueError:
    """Return what a verdict that is no grant means to the caller."""
    handle, step = question.handle, question.step
    reason = answer.reason.rstrip(".")
    match answer.verdict:
        case ClaimVerdict.KEY_REUSED:
            return _key_reused(question, answer)
        case ClaimVerdict.RUNNING:
            return RunningElsewhere(f"Step {step} is being run{_holder(question, answer)} on {answer.holder_device}.")
        case ClaimVerdict.IN_DOUBT:
            handle.opened.doubted[handle.version, step] = (question.tool.name, question.entity)
            sentence = f"Nobody knows whether step {step} happened{_holder(question, answer)}: {reason}."
            return InDoubt(sentence, hint=_DOUBT_HINT)
        case ClaimVerdict.NEEDS_APPROVAL:
            return await _needs_approval(question)
        case ClaimVerdict.RETIRED:
            return KeyRetired(f"Step {step} did not happen, and its tool cannot be fenced.")
        case ClaimVerdict.VERSION:
            return VersionMismatch(f"{reason}; this handle is at version {handle.version}.")
        case _:
            return Refused(f"The authority refused step {step}: {reason}.")


def _holder(question: _Question, answer: ClaimAnswer) -> str:
    """Whose attempt it is, where that is another call on the same entity."""
    handle = question.handle
    holder = (answer.holder_task, answer.holder_step, answer.holder_version)
    if not answer.holder_task or holder == (handle.key, question.step, handle.version):
        return ""
    return f" (as step {answer.holder_step} of {answer.holder_task})"


def _key_reused(question: _Question, answer: ClaimAnswer) -> KeyReused:
    return KeyReused(
        f"The key of step {question.step} is taken with other arguments{_holder(question, answer)}.",
        recorded_digest=answer.recorded_digest,
        given_digest=question.bound.digest,
    )


# --- doubts -----------------------------------------------------------------------------------------------------------


async def _probe(question: _Question, answer: ClaimAnswer) -> None:
    """Have the tool look whether the call happened, and settle it; raises `InDoubt` if that is still not known."""
    handle, tool, step = question.handle, question.tool, question.step
    try:
        found = await tool.safeguards.probe(question.arguments, answer.key)
    except Exception as error:
        handle.opened.doubted[handle.version, step] = (tool.name, question.entity)
        raise InDoubt(f"Nobody knows whether step {step} happened, and its probe failed.") from error
    if found.happened is None:
        raise await _refusal(question, answer)
    result = tool.encode(found.result) if found.happened else None
    if result is not None and len(result) > RESULT_INLINE_BYTES_MAX:
        result = None
    label = tool.safeguards.label_of(found.result) if found.happened else ""
    command = SettleCall(
        handle.ref(),
        handle.key,
        handle.version,
        step,
        tool.name,
        found.happened,
        question.entity,
        result,
        label,
        by_probe=True,
    )
    await handle.runner.tell(command)


async def settle(handle: Handle, step: str, happened: bool, result: object) -> None:
    """Say, as a person, whether a call in doubt happened; `result` is `UNKNOWN` for what nobody knows.

    Raises `ValueRefused` for a call that is not in doubt or needs no verdict, `TooLarge`, `NeedsAuthority`.
    """
    handle.check_writable()
    call = handle.view.calls.get((handle.version, step))
    tool, entity = _doubted(handle, call, step)
    text = None
    if result is not UNKNOWN:
        if not happened:
            raise ValueRefused("What did not happen has no result.", hint="Leave result out.")
        text = canonical(result, "result")
        if len(text) > RESULT_INLINE_BYTES_MAX:
            raise TooLarge(f"A result given by hand exceeds {RESULT_INLINE_BYTES_MAX} bytes of ASCII JSON.")
    command = SettleCall(handle.ref(), handle.key, handle.version, step, tool, happened, entity, text)
    await handle.runner.tell(command)


def _doubted(handle: Handle, call: Call | None, step: str) -> tuple[str, str]:
    """The tool and entity by which the authority knows the key of a call in doubt; empty for one that is not."""
    shown = call.shown if call is not None else None
    if call is not None and shown is not None and call.state is CallState.IN_DOUBT:
        if shown.effect is not Effect.IRREVERSIBLE:
            raise ValueRefused(f"Step {step} needs no verdict.", hint="Call it again: its tool may run twice.")
        return shown.tool, shown.entity
    return handle.opened.doubted.get((handle.version, step), ("", ""))


async def to_the_end(future: asyncio.Future[object]) -> tuple[object, bool]:
    """Wait for a command's reply even when cancelled; return it and whether a cancellation is owed."""
    cancelled = False
    while True:
        try:
            return await asyncio.shield(future), cancelled
        except asyncio.CancelledError:
            if future.cancelled():
                raise
            cancelled = True
