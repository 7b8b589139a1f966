"""Petitions: what is asked of the authority on a connection, answered once, after the commit of what it led to."""

import msgspec

from server_relay.admission import Grant
from server_relay.authority import Decision, decide_claim, decide_doubt, end_lease, new_row
from server_relay.effects import ReadKeys, RelayRead
from server_relay.keeper import NO_READS, Keeper, hold
from server_relay.key_records import KeyState
from server_relay.records import LowerBarrier
from server_relay.sessions import Errand, LeaseOver, Session, Turn
from server_relay.streams import Known, TaskLog
from sync_core.errors import ProtocolError, ValueRefused
from sync_core.ids import check_name, check_step
from sync_core.limits import RECORD_NUMBER_MAX, RESULT_INLINE_BYTES_MAX, SLOT_VALUE_BYTES_MAX
from sync_core.parts import HOLDERS, LIFTERS
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict, HoldSlot, LiftBarrier, Petition, Ruled, SettleDoubt
from sync_core.rulings import Held
from sync_core.values import parse

__all__ = ["end_lease_of", "petition"]

_NO_AUTHORITY = "This relay does not rule on calls that cannot be undone."
_NOT_ITS_TASK = "Another task's call has the key, which this device may not see."
_USED_ATTEMPT = "The attempt's id was used for another grant before."
_NO_HELLO = "This connection has not said where it is in the task."
_TEXT_CHARS_MAX = 4_096
_RELEASES_MAX = 16


def petition(
    turn: Turn, log: TaskLog, session: Session, frame: Petition, grant: Grant, known: Known, keeper: Keeper
) -> tuple[RelayRead, ...]:
    """Answer a petition; returns reads if it must wait for them and be answered then.

    Raises `ProtocolError` for one that no device sends.
    """
    _check(frame)
    if not keeper.enabled:
        _decline(turn, session, frame, "no_authority", _NO_AUTHORITY)
        return NO_READS
    if not grant.role.may_write:
        keeper.counts["refused_role"] += 1
        _decline(turn, session, frame, "role", "This device may read only.")
        return NO_READS
    if log.purged is not None and isinstance(frame, (Claim, HoldSlot)):
        _decline(turn, session, frame, "purged", "The task was purged.")
        return NO_READS
    match frame:
        case Claim():
            return _claim(turn, log, session, frame, grant, known, keeper)
        case SettleDoubt():
            return _settle(turn, log, session, frame, grant, known, keeper)
        case HoldSlot():
            return _hold(turn, log, session, frame, grant, keeper)
        case LiftBarrier():
            return _lift(turn, log, session, frame, grant, known, keeper)


def _claim(
    turn: Turn, log: TaskLog, session: Session, claim: Claim, grant: Grant, known: Known, keeper: Keeper
) -> tuple[RelayRead, ...]:
    # A Hello shows whether the log was lost; before it nobody knows what may have happened.
    if log.task not in session.follows:
        _decline(turn, session, claim, "hello", _NO_HELLO)
        return NO_READS
    place = new_row(log.subject, log.task, claim.version, claim.step, claim.tool, claim.entity).place
    call = (claim.version, claim.step, claim.tool, claim.arguments_digest)
    calls = (call,) if claim.needs_approval else ()
    reads = keeper.read(ReadKeys(*log.key, (place,), attempts=(claim.attempt,), calls=calls), known)
    if reads:
        return reads
    row = keeper.ring.row(log.subject, place, turn.now_ms)
    asker = keeper.asker(turn, log, grant, row, session, claim.attempt)
    decision = decide_claim(row, claim, asker, known.approvals.get(call, ()))
    if decision.grant is not None and keeper.ring.grant(*log.key, claim.attempt) is not None:
        # Its outcome would be taken for that of the call which had the id before.
        _decline(turn, session, claim, "attempt", _USED_ATTEMPT)
        return NO_READS
    if asker.ended and row is not None and row.task != log.task:
        turn.errands.append(Errand(log.subject, row.task, None, LeaseOver(place)))
    keeper.apply(turn, log, decision)
    answer = decision.answer
    assert answer is not None
    granted = decision.row or row
    if answer.verdict is ClaimVerdict.GRANTED and granted is not None:
        keeper.ring.give_lease(log.subject, granted, session.conn)
    keeper.counts[f"claims_{answer.verdict.value}"] += 1
    foreign = answer.holder_task != "" and not grant.admits(answer.holder_task)
    turn.reply(session, _without_holder(answer) if foreign else answer)
    return NO_READS


def _without_holder(answer: ClaimAnswer) -> ClaimAnswer:
    """Return the answer without what is of a task that the connection may not know of."""
    return ClaimAnswer(
        answer.task, answer.request, answer.verdict, answer.key, answer.token, reason=answer.reason or _NOT_ITS_TASK
    )


def _settle(
    turn: Turn, log: TaskLog, session: Session, settle: SettleDoubt, grant: Grant, known: Known, keeper: Keeper
) -> tuple[RelayRead, ...]:
    place = new_row(log.subject, settle.task, settle.version, settle.step, settle.tool, settle.entity).place
    reads = keeper.read(ReadKeys(*log.key, (place,)), known)
    if reads:
        return reads
    row = keeper.ring.row(log.subject, place, turn.now_ms)
    if row is not None and row.task not in ("", log.task):
        # The verdict is a ruling of the task whose attempt it was.
        if not grant.admits(row.task):
            _decline(turn, session, settle, "role", _NOT_ITS_TASK)
            return NO_READS
        turn.errands.append(Errand(log.subject, row.task, session, settle))
        return NO_READS
    held = None
    if row is not None and row.attempt:
        reads = keeper.read(ReadKeys(*log.key, attempts=(row.attempt,)), known)
        if reads:
            return reads
        held = keeper.ring.grant(*log.key, row.attempt)
    asker = keeper.asker(turn, log, grant, row, session)
    decision = decide_doubt(row, settle, asker, held)
    if decision.releases:
        reads = keeper.read(keeper.releases_wanted(log, decision.releases), known)
        if reads:
            return reads
    keeper.apply(turn, log, decision)
    turn.reply(session, Ruled(settle.task, settle.request, decision.code, decision.sentence))
    return NO_READS


def _hold(
    turn: Turn, log: TaskLog, session: Session, frame: HoldSlot, grant: Grant, keeper: Keeper
) -> tuple[RelayRead, ...]:
    if frame.value is not None and grant.role not in HOLDERS:
        _decline(turn, session, frame, "role", f"The role {grant.role.value} may not write slots that are held.")
    elif frame.value is not None and len(frame.value.encode()) > SLOT_VALUE_BYTES_MAX:
        _decline(turn, session, frame, "too_large", f"The value exceeds {SLOT_VALUE_BYTES_MAX} bytes.")
    else:
        before = log.guard.held
        if not hold(log, frame.slot):
            _decline(turn, session, frame, "limit", "The task has too many slots that the authority holds.")
            return NO_READS
        if frame.value is not None or log.guard.held != before:
            keeper.rule(turn, log, Held(frame.slot, grant.principal, grant.device, frame.value))
        turn.reply(session, Ruled(log.task, frame.request))
    return NO_READS


def _lift(
    turn: Turn, log: TaskLog, session: Session, frame: LiftBarrier, grant: Grant, known: Known, keeper: Keeper
) -> tuple[RelayRead, ...]:
    if grant.role not in LIFTERS or grant.tasks is not None:
        _decline(turn, session, frame, "role", "Only an admin of the whole subject lifts the barrier.")
        return NO_READS
    reads = keeper.read(ReadKeys(*log.key), known)
    if reads:
        return reads
    lowered = msgspec.structs.replace(keeper.ring.subject(log.subject), barrier=0)
    keeper.ring.put_subject(log.subject, lowered)
    turn.writes.append(LowerBarrier(*log.key))
    turn.reply(session, Ruled(log.task, frame.request))
    return NO_READS


def end_lease_of(turn: Turn, log: TaskLog, over: LeaseOver, known: Known, keeper: Keeper) -> tuple[RelayRead, ...]:
    """Rule that nobody knows how a task's attempt ended, if its lease is really over."""
    reads = keeper.read(ReadKeys(*log.key, (over.place,)), known)
    if reads:
        return reads
    row = keeper.ring.row(log.subject, over.place, turn.now_ms)
    if row is None or row.state is not KeyState.RUNNING or row.task != log.task:
        keeper.ring.drop_lease(log.subject, over.place)
        return NO_READS
    lease = keeper.ring.lease(log.subject, row, turn.now_ms)
    lease.called = False
    if lease.ends_ms is not None and lease.ends_ms <= turn.now_ms:
        after, doubted = end_lease(row, log.subject, lease.reason)
        keeper.apply(turn, log, Decision(after, rulings=(doubted,)))
        keeper.counts["leases_ended"] += 1
    return NO_READS


def _decline(turn: Turn, session: Session, frame: Petition, code: str, sentence: str) -> None:
    if isinstance(frame, Claim):
        turn.reply(session, ClaimAnswer(frame.task, frame.request, ClaimVerdict.REFUSED, "", reason=sentence))
    else:
        turn.reply(session, Ruled(frame.task, frame.request, code, sentence))


def _check(frame: Petition) -> None:
    """The names and numbers of a petition: a row of a key, and a ruling, are small."""
    try:
        match frame:
            case Claim():
                check_step(frame.step)
                texts = [frame.tool, frame.arguments_digest, frame.attempt, frame.entity]
                texts += [text for pair in frame.releases for text in pair]
                within = len(frame.releases) <= _RELEASES_MAX and frame.attempt != ""
                _check_bounds(within, frame.version, *texts)
            case SettleDoubt():
                check_step(frame.step)
                within = len((frame.result or "").encode()) <= RESULT_INLINE_BYTES_MAX
                _check_bounds(within, frame.version, frame.tool, frame.entity, frame.label)
            case HoldSlot():
                check_name(frame.slot, "slot")
                if frame.value is not None:
                    parse(frame.value)
            case LiftBarrier():
                pass
    except ValueRefused as error:
        raise ProtocolError(error.sentence) from None


def _check_bounds(within: bool, version: int, *texts: str) -> None:
    if not within or not 0 <= version <= RECORD_NUMBER_MAX or any(len(text) > _TEXT_CHARS_MAX for text in texts):
        raise ProtocolError("A petition is out of bounds.")
