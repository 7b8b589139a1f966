"""The authority: who may make a call that cannot be undone, decided on one key's row at a time.

Pure: a row and what was asked go in, the changed row, the rulings for the task's `authority` stream and the answer come
out. The caller makes row and rulings durable in one commit before anybody hears of the answer. The states:

    FREE      claim → RUNNING
    RUNNING   outcome ok → DONE · the tool raised DidNotHappen → FREE · it raised anything else → IN_DOUBT
              lease over → IN_DOUBT, never free
    IN_DOUBT  outcome of the holder, however late → DONE or FREE · verdict → DONE or RETIRED
    DONE      until a call that undoes it happened: the entity's next generation is FREE
    RETIRED   it did not happen, says a verdict: claim of a tool that the outside system checks → RUNNING

A key that was not opened since a log was lost is *behind the barrier*: its claim is answered in doubt, whatever the row
says, until a verdict opens it; nothing that a device brings back does.
"""

import msgspec
from msgspec.structs import replace

from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, KeyState, SubjectRow
from sync_core.entry import CallOutcome
from sync_core.keys import entity_key, entity_place, idempotency_key
from sync_core.limits import RESULT_INLINE_BYTES_MAX
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict, SettleDoubt
from sync_core.rulings import Contradicted, Doubted, Granted, Ruling, Settled, SettledBy

__all__ = [
    "Asker",
    "Decision",
    "close",
    "decide_claim",
    "decide_doubt",
    "decide_outcome",
    "end_lease",
    "key_of",
    "new_row",
    "release",
]

_LOST = "The relay's log was lost or restored, and nobody has said yet whether this call happened before."
_ERROR_CHARS_MAX = 1_000
_LABEL_CHARS_MAX = 200


class Asker(msgspec.Struct, frozen=True):
    """Who asks, and what stands where they ask.

    `version` is the task's standing business version, `opened_version` the one whose keys are granted; `keys` is the
    subject's row. `ended` says why the lease of the row's holder is over; it is empty while it lasts.
    """

    subject: str
    task: str
    principal: str
    device: str
    may_write: bool
    version: int
    opened_version: int
    keys: SubjectRow
    ended: str = ""


class Decision(msgspec.Struct, frozen=True):
    """What is decided: changed rows, None where nothing changes; rulings, in order; the answer.

    `code` and `sentence` say why a petition other than a claim was not granted. `releases` are the calls that are now
    undone, (tool, entity or label).
    """

    row: KeyRow | None = None
    grant: GrantRow | None = None
    rulings: tuple[Ruling, ...] = ()
    answer: ClaimAnswer | None = None
    used: ApprovalRow | None = None
    code: str = ""
    sentence: str = ""
    releases: tuple[tuple[str, str], ...] = ()


def new_row(subject: str, task: str, version: int, step: str, tool: str, entity: str, era: int = 1) -> KeyRow:
    """Return the row of a key that nobody has opened.

    `era` is the subject's: the generations of an entity begin above all that an earlier era can have reached, so no key
    of a log that was lost is ever made again for another call.
    """
    if entity:
        return KeyRow(entity_place(subject, tool, entity), tool, entity, _next_generation(0, era))
    return KeyRow(idempotency_key(subject, task, version, step), tool)


def _next_generation(generation: int, era: int) -> int:
    return max(generation, (era - 1) << 32) + 1


def key_of(subject: str, row: KeyRow) -> str:
    """Return the idempotency key of a row, the same for every attempt."""
    return entity_key(subject, row.tool, row.entity, row.generation) if row.entity else row.place


# --- claims -----------------------------------------------------------------------------------------------------------


def decide_claim(row: KeyRow | None, claim: Claim, asker: Asker, approvals: tuple[ApprovalRow, ...] = ()) -> Decision:
    """Decide a claim; `approvals` are those of exactly this call."""
    row = row or new_row(asker.subject, asker.task, claim.version, claim.step, claim.tool, claim.entity, asker.keys.era)
    if not asker.may_write:
        return _refused(claim, asker, row, ClaimVerdict.REFUSED, "This device may read only.")
    if claim.version != asker.version:
        sentence = f"The task's business version is {asker.version}."
        return _refused(claim, asker, row, ClaimVerdict.VERSION, sentence)
    if row.state is KeyState.RUNNING:
        if asker.ended:
            before = row
            row, doubted = end_lease(row, asker.subject, asker.ended)
            answered = _answer_standing(row, claim, asker)
            # The ruling is for the task whose attempt it was, and that one is told by the caller.
            return answered if before.task != asker.task else replace(answered, row=row, rulings=(doubted,))
        if (row.attempt, row.device, row.digest) == (claim.attempt, asker.device, claim.arguments_digest):
            return Decision(answer=_answer(claim, asker, row, ClaimVerdict.GRANTED))
    if row.state in (KeyState.RUNNING, KeyState.IN_DOUBT, KeyState.DONE):
        return _answer_standing(row, claim, asker)
    if row.state is KeyState.RETIRED and not claim.checked:
        if not row.entity or row.task != asker.task or row.version >= claim.version:
            return _refused(claim, asker, row, ClaimVerdict.RETIRED, "It did not happen, and will not be tried again.")
        row = replace(row, generation=_next_generation(row.generation, asker.keys.era))
    if _behind_barrier(row, claim.version, asker):
        return _refused(claim, asker, row, ClaimVerdict.IN_DOUBT, _LOST)
    approval = _approval_for(approvals, asker.principal)
    if claim.needs_approval and approval is None:
        return _refused(claim, asker, row, ClaimVerdict.NEEDS_APPROVAL, "Nobody else has approved this call yet.")
    return _grant(row, claim, asker, approval if claim.needs_approval else None)


def _answer_standing(row: KeyRow, claim: Claim, asker: Asker) -> Decision:
    """Answer a claim of a key that somebody has, or had."""
    if row.state is KeyState.DONE:
        return Decision(answer=_answer(claim, asker, row, ClaimVerdict.DONE))
    if row.digest and row.digest != claim.arguments_digest:
        return _refused(claim, asker, row, ClaimVerdict.KEY_REUSED, "The key is taken with other arguments.")
    if row.state is KeyState.RUNNING:
        return _refused(claim, asker, row, ClaimVerdict.RUNNING, "Another attempt has the key.")
    return _refused(claim, asker, row, ClaimVerdict.IN_DOUBT, row.reason)


def _behind_barrier(row: KeyRow, version: int, asker: Asker) -> bool:
    """Whether the key was not opened since a log was lost."""
    if row.era >= max(asker.keys.barrier, 1):
        return False
    return asker.keys.barrier > 0 if row.entity else version != asker.opened_version


def _approval_for(approvals: tuple[ApprovalRow, ...], claimant: str) -> ApprovalRow | None:
    """Return the unused approval of another principal, if nobody rejected the call after it."""
    rejected = max((row.relay_seq for row in approvals if not row.approved), default=0)
    valid = [row for row in approvals if row.approved and not row.used and row.principal != claimant]
    valid = [row for row in valid if row.relay_seq > rejected]
    return max(valid, key=lambda row: row.relay_seq, default=None)


def _grant(row: KeyRow, claim: Claim, asker: Asker, approval: ApprovalRow | None) -> Decision:
    """Give the key to the attempt, under a token above all before."""
    granted = KeyRow(
        row.place,
        claim.tool,
        row.entity,
        row.generation,
        KeyState.RUNNING,
        asker.keys.era,
        max(row.token, asker.keys.era << 32) + 1,
        asker.task,
        claim.step,
        claim.version,
        claim.arguments_digest,
        claim.attempt,
        asker.device,
        asker.principal,
        claim.checked,
    )
    key = key_of(asker.subject, granted)
    ruling = Granted(
        key,
        claim.step,
        claim.version,
        claim.tool,
        claim.arguments_digest,
        claim.attempt,
        granted.token,
        asker.principal,
        asker.device,
        row.entity,
        row.generation,
        approval.principal if approval is not None else "",
    )
    return Decision(
        granted,
        GrantRow(claim.attempt, row.place, key, granted.token, asker.device, None, claim.releases),
        (ruling,),
        _answer(claim, asker, granted, ClaimVerdict.GRANTED),
        replace(approval, used=True) if approval is not None else None,
    )


def _refused(claim: Claim, asker: Asker, row: KeyRow, verdict: ClaimVerdict, reason: str) -> Decision:
    return Decision(answer=replace(_answer(claim, asker, row, verdict), reason=reason))


def _answer(claim: Claim, asker: Asker, row: KeyRow, verdict: ClaimVerdict) -> ClaimAnswer:
    """Return the answer, with what is recorded of the key's holder where that is another attempt."""
    key = key_of(asker.subject, row)
    if verdict is ClaimVerdict.GRANTED:
        return ClaimAnswer(claim.task, claim.request, verdict, key, row.token)
    if verdict in (ClaimVerdict.REFUSED, ClaimVerdict.VERSION):
        return ClaimAnswer(claim.task, claim.request, verdict, key)
    return ClaimAnswer(
        claim.task,
        claim.request,
        verdict,
        key,
        0,
        row.task,
        row.step,
        row.version,
        row.device,
        row.digest,
        row.result,
        row.blob,
    )


# --- how a call ended -------------------------------------------------------------------------------------------------


def decide_outcome(
    row: KeyRow, grant: GrantRow, outcome: CallOutcome, blob: str | None, subject: str, principal: str
) -> Decision:
    """Decide what the outcome of an attempt that holds, or held, a grant means; `blob` holds its result if any."""
    ended = None if outcome.unsure and not outcome.ok else outcome.ok
    has_key = (row.attempt, row.token) == (grant.attempt, grant.token)
    if ended is None:
        if grant.happened is None and has_key and row.state is KeyState.RUNNING:
            in_doubt, doubted = end_lease(row, subject, _short(outcome.error) or "The tool raised an error.")
            return Decision(in_doubt, rulings=(doubted,))
        return Decision()
    result = _inline(outcome.result)
    if grant.happened is not None:
        if ended == grant.happened:
            return Decision()
        contradicted = Contradicted(
            grant.key,
            outcome.step,
            outcome.version,
            grant.attempt,
            grant.token,
            ended,
            grant.device,
            result,
            _short(outcome.error),
        )
        return Decision(rulings=(contradicted,))
    label = outcome.label[:_LABEL_CHARS_MAX]
    settled = Settled(
        grant.key,
        outcome.step,
        outcome.version,
        grant.attempt,
        grant.token,
        ended,
        SettledBy.HOLDER,
        principal,
        grant.device,
        result,
        _short(outcome.error),
        label,
    )
    after: KeyRow | None = None
    if has_key:
        state = KeyState.DONE if ended else KeyState.FREE
        after = replace(row, state=state, result=result, blob=blob if ended else None, label=label, reason="")
    return Decision(
        after, replace(grant, happened=ended), (settled,), releases=grant.releases if ended and has_key else ()
    )


def decide_doubt(row: KeyRow | None, settle: SettleDoubt, asker: Asker, grant: GrantRow | None) -> Decision:
    """Decide a verdict; `grant` is that of the row's last attempt. What is settled so already is granted again."""
    if not asker.may_write:
        return Decision(code="role", sentence="This device may read only.")
    if row is None and settle.version > asker.version:
        return Decision(code="version", sentence=f"The task's business version is {asker.version}.")
    era = asker.keys.era
    row = row or new_row(asker.subject, asker.task, settle.version, settle.step, settle.tool, settle.entity, era)
    rulings: tuple[Ruling, ...] = ()
    if row.state is KeyState.RUNNING:
        if not asker.ended:
            return Decision(code="running", sentence="The call is running.")
        row, doubted = end_lease(row, asker.subject, asker.ended)
        rulings = (doubted,)
    if row.state is not KeyState.IN_DOUBT:
        settled_so = row.state is (KeyState.DONE if settle.happened else KeyState.RETIRED)
        if row.state is KeyState.DONE or not _behind_barrier(row, settle.version, asker):
            return (
                Decision()
                if settled_so
                else Decision(code="not_in_doubt", sentence="Nobody doubts how this call ended.")
            )
    result = _inline(settle.result) if settle.happened else None
    label = settle.label[:_LABEL_CHARS_MAX] if settle.happened else ""
    after = replace(
        row,
        state=KeyState.DONE if settle.happened else KeyState.RETIRED,
        era=asker.keys.era,
        task=row.task or asker.task,
        step=row.step or settle.step,
        version=row.version or settle.version,
        result=result,
        blob=None,
        label=label,
        reason="",
    )
    verdict = Settled(
        key_of(asker.subject, row),
        after.step,
        after.version,
        row.attempt,
        row.token,
        settle.happened,
        SettledBy.PROBE if settle.by_probe else SettledBy.PERSON,
        asker.principal,
        asker.device,
        result,
        None,
        label,
        not settle.happened and not row.checked,
    )
    settled_grant = replace(grant, happened=settle.happened) if grant is not None else None
    releases = grant.releases if grant is not None and settle.happened else ()
    return Decision(after, settled_grant, (*rulings, verdict), releases=releases)


def end_lease(row: KeyRow, subject: str, reason: str) -> tuple[KeyRow, Doubted]:
    """Return the row and the ruling of a running attempt of which nobody knows any more how it ended."""
    doubted = Doubted(key_of(subject, row), row.step, row.version, row.attempt, row.token, reason)
    return replace(row, state=KeyState.IN_DOUBT, reason=reason), doubted


def release(row: KeyRow, era: int) -> KeyRow | None:
    """Return the row of an entity whose call was undone, free in its next generation; None if there was nothing to
    undo: the key of a call is for one effect, and an attempt that still runs, or did not happen, stays what it is."""
    if not row.entity or row.state not in (KeyState.DONE, KeyState.IN_DOUBT):
        return None
    generation = _next_generation(row.generation, era)
    return KeyRow(row.place, row.tool, row.entity, generation, era=era, token=row.token, task=row.task)


# --- after a lost log -------------------------------------------------------------------------------------------------


def close(row: KeyRow | None, found: KeyRow, barrier: int) -> KeyRow | None:
    """Return the row after a device brought back what a lost log said of it, None if what stands is left alone.

    `found` is the row as it was, in doubt or done. It may close a key, never open one, and it says nothing of a key
    that was opened since, which somebody decided who knew of the loss.
    """
    if row is None:
        return found
    if row.era >= max(barrier, 1) or found.generation < row.generation:
        return None
    if found.generation == row.generation:
        if row.state is KeyState.DONE:
            return None
        if found.state is KeyState.IN_DOUBT and row.token >= found.token and row.state is not KeyState.FREE:
            return None
    return replace(found, token=max(row.token, found.token))


def _inline(result: str | None) -> str | None:
    """A result that is small enough to be kept with the key; a larger one is in the outcome's own entry."""
    return None if result is None or len(result.encode()) > RESULT_INLINE_BYTES_MAX else result


def _short(error: str | None) -> str | None:
    return None if error is None else error[:_ERROR_CHARS_MAX]
