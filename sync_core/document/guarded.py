"""What the authority ruled, as a table: grants, doubts, verdicts, approvals, and the slots that it holds.

Nothing here comes from anybody but the authority, except requests, which claim nothing, and what people said to them,
which counts for nothing until it was ruled on. Grow-only; the order in which rulings come does not matter: where one
follows another, for approvals and held slots, the log's order decides.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from sync_core.document.approvals import ApprovalState, RequestedApproval, asked, request_id
from sync_core.document.calls import Attempt
from sync_core.document.definitions import schema_error
from sync_core.document.slots import HELD_BY_AUTHORITY, Candidate, CandidateStatus, Slot, SlotState
from sync_core.entry import CallOutcome, Effect, Entry
from sync_core.rulings import (
    Approval,
    ApprovalRequest,
    Approved,
    Contradicted,
    Doubted,
    Granted,
    Held,
    Ruling,
    Settled,
)

__all__ = ["Guarded", "Moved", "Outcomes", "outcome_rank"]

_CallKey = tuple[int, str]
Outcomes = Mapping[str, tuple[CallOutcome, str | None]]
"""What devices said of one attempt, by device, each with the blob that it names."""

_T = TypeVar("_T", bound=msgspec.Struct)


class Moved(msgspec.Struct, frozen=True):
    """Which steps, approvals and slots a ruling may have changed."""

    calls: frozenset[_CallKey] = frozenset()
    approvals: frozenset[str] = frozenset()
    slots: frozenset[str] = frozenset()


class _InOrder(Generic[_T]):
    """Rulings in the log's order; what was brought back from a lost log comes before what the new one began with."""

    def __init__(self) -> None:
        self._ranked: dict[tuple[int, int], tuple[tuple[bool, int, int], _T, int]] = {}

    def __len__(self) -> int:
        return len(self._ranked)

    def add(self, record: _T, entry: Entry) -> None:
        """Take a ruling, or the place that one got which is here already."""
        live = entry.relay_seq is not None and entry.vouched_by is None
        rank = (live, entry.relay_seq or 0, entry.writer_seq)
        self._ranked[entry.writer, entry.writer_seq] = (rank, record, entry.at_ms)

    def all(self) -> list[tuple[_T, int]]:
        """Return every ruling with the relay's time of it."""
        ranked = sorted(self._ranked.values(), key=lambda item: item[0])
        return [(record, at_ms) for _, record, at_ms in ranked]


class Guarded:
    """The rulings of one task."""

    def __init__(self) -> None:
        self._granted: dict[str, Granted] = {}
        self._attempts: dict[_CallKey, set[str]] = {}
        self._doubted: dict[str, Doubted] = {}
        self._settled: dict[str, tuple[Settled, str | None]] = {}
        self._contradicted: dict[_CallKey, set[Contradicted]] = {}
        self._requests: dict[str, RequestedApproval] = {}
        self._given: dict[str, list[str]] = {}
        self._approvals: dict[str, RequestedApproval] = {}
        self._stale: set[str] = set()
        self._ruled: dict[str, _InOrder[Approved | Granted]] = {}
        self._held: dict[str, _InOrder[Held]] = {}

    # --- what came ----------------------------------------------------------------------------------------------------

    def ask(self, record: ApprovalRequest, device: str) -> Moved:
        """Take a request; of several for one call one that shows what it asks for stands."""
        request = asked(record, device)
        known = self._requests.get(request.id)
        self._requests[request.id] = request if known is None else min(known, request, key=_request_rank)
        return self._moved(approvals=(request.id,))

    def give(self, record: Approval, device: str) -> Moved:
        """Take what a person said; it is only remembered, so that it is not said twice."""
        approval = request_id(record.step, record.version, record.tool, record.arguments_digest)
        self._given.setdefault(approval, []).append(device)
        return self._moved(approvals=(approval,))

    def rule(self, record: Ruling, entry: Entry) -> Moved:
        """Take a ruling."""
        match record:
            case Held():
                self._held.setdefault(record.slot, _InOrder()).add(record, entry)
                return Moved(slots=frozenset({record.slot}))
            case Approved():
                approval = request_id(record.step, record.version, record.tool, record.arguments_digest)
                self._ruled.setdefault(approval, _InOrder()).add(record, entry)
                return self._moved(approvals=(approval,))
            case Granted():
                self._grant(record, entry)
            case Doubted():
                self._doubted[record.attempt] = _least(self._doubted.get(record.attempt), record)
            case Settled():
                verdict = (record, entry.blob)
                known = self._settled.get(record.attempt)
                self._settled[record.attempt] = verdict if known is None else min(known, verdict, key=_verdict_rank)
            case Contradicted():
                self._contradicted.setdefault((record.version, record.step), set()).add(record)
        # A verdict may also say that an approval was used up for nothing.
        return self._moved({(record.version, record.step)}, self._approvals_of(record.attempt))

    def _moved(self, calls: Iterable[_CallKey] = (), approvals: Iterable[str] = ()) -> Moved:
        moved = Moved(frozenset(calls), frozenset(approvals))
        self._stale |= moved.approvals & self._requests.keys()
        return moved

    def _grant(self, record: Granted, entry: Entry) -> None:
        self._granted[record.attempt] = _least(self._granted.get(record.attempt), record)
        self._attempts.setdefault((record.version, record.step), set()).add(record.attempt)
        for approval in self._approvals_of(record.attempt):
            self._ruled.setdefault(approval, _InOrder()).add(record, entry)

    def _approvals_of(self, attempt: str) -> Iterable[str]:
        grant = self._granted.get(attempt)
        if grant is not None and grant.approved_by:
            yield request_id(grant.step, grant.version, grant.tool, grant.arguments_digest)

    # --- calls --------------------------------------------------------------------------------------------------------

    def attempts(
        self, key: _CallKey, intents: Mapping[str, Attempt], outcomes: Mapping[str, Outcomes]
    ) -> list[Attempt]:
        """Return all attempts of a step as they stand: what was recorded of them, and what was ruled."""
        found = dict(intents)
        for attempt in self._attempts.get(key, ()):
            grant = self._granted[attempt]
            known = found.get(attempt)
            found[attempt] = Attempt(
                attempt,
                known.n if known else 0,
                grant.device,
                grant.tool,
                Effect.IRREVERSIBLE,
                grant.arguments_digest,
                known.arguments if known and known.arguments_digest == grant.arguments_digest else None,
                known.at_ms if known else 0,
                token=grant.token,
                entity=grant.entity,
            )
        return [self._judged(attempt, outcomes.get(attempt.attempt, {})) for attempt in found.values()]

    def _judged(self, attempt: Attempt, outcomes: Outcomes) -> Attempt:
        grant = self._granted.get(attempt.attempt)
        # Of a granted attempt only its holder can say how it ended.
        told = outcomes.get(grant.device) if grant else min(outcomes.values(), key=outcome_rank, default=None)
        verdict = self._settled.get(attempt.attempt)
        if verdict is not None:
            return _settled(attempt, *verdict, told)
        outcome, blob = told or (None, None)
        if outcome is not None and not outcome.unsure:
            return _ended(attempt, outcome, blob)
        doubt = self._doubted.get(attempt.attempt)
        if outcome is None and doubt is None:
            return attempt
        error = outcome.error if outcome is not None else None
        return msgspec.structs.replace(attempt, error=error, doubt=doubt.reason if doubt else "")

    def contradictions(self, key: _CallKey) -> tuple[Contradicted, ...]:
        """Return what stale holders of a step said against a verdict."""
        return tuple(sorted(self._contradicted.get(key, ()), key=msgspec.structs.astuple))

    # --- approvals ----------------------------------------------------------------------------------------------------

    def approvals(self) -> Mapping[str, RequestedApproval]:
        """Return every request as it stands, by id. The mapping is never changed afterwards."""
        if self._stale:
            changed = {approval: self._standing(self._requests[approval]) for approval in self._stale}
            self._approvals = dict(sorted({**self._approvals, **changed}.items()))
            self._stale = set()
        return self._approvals

    def waits_to_be_ruled(self, approval: str, device: str) -> bool:
        """Whether this device said yes or no to a request and the authority has not ruled on it yet."""
        ruled = sum(isinstance(ruling, Approved) and ruling.device == device for ruling in self._rulings(approval))
        return self._given.get(approval, []).count(device) > ruled

    def _rulings(self, approval: str) -> list[Approved | Granted]:
        return [ruling for ruling, _ in self._ruled[approval].all()] if approval in self._ruled else []

    def stands_from(self, approval: str, device: str) -> bool:
        """Whether a yes that was given on this device is still good for a call; another person's is no reason not to
        say it too, because it may be the one of whoever makes the call."""
        unused: set[str] = set()
        own: set[str] = set()
        for ruling in self._rulings(approval):
            if isinstance(ruling, Granted):
                unused.discard(ruling.approved_by)
            elif ruling.approved:
                unused.add(ruling.principal)
                own |= {ruling.principal} if ruling.device == device else set()
            else:
                unused.clear()
        return bool(unused & own)

    def _standing(self, request: RequestedApproval) -> RequestedApproval:
        unused: list[Approved] = []
        last: Approved | None = None
        used = False
        for ruling in self._rulings(request.id):
            if isinstance(ruling, Granted):
                used = used or self._may_have_happened(ruling.attempt)
                last = unused.pop() if unused else last
            else:
                # A no withdraws every yes before it.
                unused, last = ([*unused, ruling], ruling) if ruling.approved else ([], ruling)
        if unused:
            state, last = ApprovalState.APPROVED, unused[-1]
        elif used:
            state = ApprovalState.USED
        elif last is not None and not last.approved:
            state = ApprovalState.REJECTED
        else:
            return request
        by, reason = (last.principal, last.reason) if last is not None else ("", "")
        return msgspec.structs.replace(request, state=state, by=by, reason=reason)

    def _may_have_happened(self, attempt: str) -> bool:
        verdict = self._settled.get(attempt)
        return verdict is None or verdict[0].happened

    # --- slots --------------------------------------------------------------------------------------------------------

    def holds(self, slot: str) -> bool:
        """Whether the authority holds a slot."""
        return slot in self._held

    def held(self, slots: Mapping[str, Slot]) -> Mapping[str, Slot]:
        """Return the slots with those that the authority holds as it has them."""
        if not self._held:
            return slots
        shown = {name: self.held_slot(slots.get(name) or Slot(name, SlotState.MISSING)) for name in self._held}
        return {**slots, **shown}

    def held_slot(self, slot: Slot) -> Slot:
        """Return a slot as the authority has it, if it holds it; what the document says of its value is no value."""
        values = self._held.get(slot.name)
        if values is None:
            return slot
        last, at_ms = values.all()[-1]
        text = last.value
        error = None
        candidates: tuple[Candidate, ...] = ()
        if text is not None:
            n, status = len(values), CandidateStatus.CONFIRMED
            candidates = (Candidate(HELD_BY_AUTHORITY, text, status, n, last.device, HELD_BY_AUTHORITY, at_ms),)
            error = schema_error(slot.definition, slot.secret, text) if slot.definition is not None else None
        return msgspec.structs.replace(
            slot,
            state=SlotState.CONFIRMED if candidates else SlotState.MISSING,
            candidates=candidates,
            proposals=(),
            token=frozenset(),
            schema_error=error,
            held=True,
        )


def _ended(attempt: Attempt, outcome: CallOutcome, blob: str | None) -> Attempt:
    return msgspec.structs.replace(
        attempt,
        ok=outcome.ok,
        result=outcome.result,
        blob=blob,
        error=outcome.error,
        lost=outcome.lost,
        label=outcome.label,
    )


def _settled(
    attempt: Attempt, verdict: Settled, blob: str | None, told: tuple[CallOutcome, str | None] | None
) -> Attempt:
    """An attempt as the authority settled it; the result is the holder's own record of it where there is one."""
    outcome, told_blob = told or (None, None)
    if outcome is not None and verdict.happened and outcome.ok and not outcome.lost:
        ended = _ended(attempt, outcome, told_blob)
    else:
        unknown = verdict.result is None and blob is None
        ended = msgspec.structs.replace(
            attempt,
            ok=verdict.happened,
            result=verdict.result,
            blob=blob,
            error=verdict.error or (outcome.error if outcome is not None and not verdict.happened else None),
            lost=verdict.happened and unknown,
        )
    return msgspec.structs.replace(
        ended, settled_by=verdict.by, label=verdict.label or ended.label, retired=verdict.retired
    )


def _least(known: _T | None, new: _T) -> _T:
    """Of two rulings of one attempt, which there is one of, the same one everywhere."""
    return new if known is None else min(known, new, key=msgspec.structs.astuple)


def _verdict_rank(verdict: tuple[Settled, str | None]) -> tuple[object, ...]:
    """What happened stands before what did not: the other way round it would be done again."""
    record, blob = verdict
    return (not record.happened, record.result or "", blob or "", record.error or "", record.by.value, record.token)


def _request_rank(request: RequestedApproval) -> tuple[bool, bool, str, str]:
    return not request.shows_what_it_asks, request.arguments is None, request.device, request.arguments or ""


def outcome_rank(outcome: tuple[CallOutcome, str | None]) -> tuple[bool, bool, bool, str, str, str]:
    """Order outcomes of one attempt: a success stands before a failure, a result before a lost one; then by content."""
    record, blob = outcome
    return (
        not record.ok,
        record.unsure,
        record.lost,
        record.result or "",
        blob or "",
        record.error or "",
    )
