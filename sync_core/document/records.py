"""Records: what the entries of a task that are no updates of its document add up to; grow-only, in any order.

Calls are kept here and not in the document: a legal peer's deletion would erase a record, and the call would run again.
"""

from collections.abc import Mapping

import msgspec

from sync_core.completion import GivenCompletion, WriterTables, is_edited, read_of_others
from sync_core.document.calls import Attempt, Call, derive_call
from sync_core.document.guarded import Guarded, Moved, outcome_rank
from sync_core.document.handover import HandOvers
from sync_core.document.history import History
from sync_core.document.placed import Placed
from sync_core.document.view import CompletionState, TaskCompletion
from sync_core.entry import (
    CallIntent,
    CallOutcome,
    Completion,
    Entry,
    EntryKind,
    HandOver,
    HistoryItem,
    HistoryPop,
    Plan,
    VersionDecision,
    decode_record,
    entry_hash,
)
from sync_core.ids import StreamName
from sync_core.rulings import Approval, ApprovalRequest, Approved, Contradicted, Doubted, Granted, Held, Settled

__all__ = ["Records", "Touched"]

_CallKey = tuple[int, str]


class Touched(msgspec.Struct, frozen=True):
    """Which parts of a task's view an entry may have changed. `calls` holds (version, step), `handovers` versions."""

    slots: frozenset[str] = frozenset()
    notes: frozenset[str] = frozenset()
    calls: frozenset[_CallKey] = frozenset()
    approvals: frozenset[str] = frozenset()
    history: bool = False
    version: bool = False
    completed: bool = False
    handovers: frozenset[int] = frozenset()


class _Step:
    """All that was recorded of one step. Outcomes are by attempt and device: the one that stands of each."""

    __slots__ = ("intents", "outcomes", "plan")

    def __init__(self) -> None:
        self.intents: dict[str, Attempt] = {}
        self.outcomes: dict[str, dict[str, tuple[CallOutcome, str | None]]] = {}
        self.plan: Plan | None = None


class Records:
    """What a task's records add up to; `guarded` holds what the authority ruled, `handovers` what was handed over."""

    def __init__(self) -> None:
        self.guarded = Guarded()
        self.handovers = HandOvers()
        self.history = History()
        self.version = 1
        self._completions = Placed[GivenCompletion]()
        self.highest_n = 0
        self._steps: dict[_CallKey, _Step] = {}
        self._step_of: dict[str, _CallKey] = {}
        self.running: frozenset[str] = frozenset()
        self._calls: dict[_CallKey, Call] = {}
        self._stale: set[_CallKey] = set()
        self._hashes: dict[str, set[bytes]] = {}

    # --- what came ----------------------------------------------------------------------------------------------------

    def add(self, entry: Entry) -> Touched:
        """Take an entry that is no update; one that is there already changes nothing. Raises `EntryRefused`."""
        hashes = self._hashes.setdefault(entry.stream.rpartition(":")[2], set())
        digest = entry_hash(entry)
        if digest in hashes or entry.kind is EntryKind.SNAPSHOT:
            return Touched()
        touched = self._add_record(entry)
        hashes.add(digest)
        return touched

    def _add_record(self, entry: Entry) -> Touched:
        record = decode_record(entry.kind, entry.payload)
        match record:
            case CallIntent():
                self._add_intent(record, entry)
            case CallOutcome():
                self._add_outcome(record, entry.device, entry.blob)
            case Plan():
                self._add_plan(record)
            case ApprovalRequest():
                self.highest_n = max(self.highest_n, record.n)
                return self._moved(self.guarded.ask(record, entry.device))
            case Approval():
                return self._moved(self.guarded.give(record, entry.device))
            case Approved() | Granted() | Doubted() | Settled() | Contradicted() | Held():
                if isinstance(record, Granted):
                    self._step(record.version, record.step)
                    self._step_of.setdefault(record.attempt, (record.version, record.step))
                return self._moved(self.guarded.rule(record, entry))
            case VersionDecision():
                self.version = max(self.version, record.version)
                return Touched(version=True)
            case Completion():
                given = GivenCompletion(record, entry.device, entry.writer, entry.writer_seq)
                self._completions.add(entry, given)
                return Touched(completed=True)
            case HistoryItem():
                self.history.add_item(record, entry.blob, entry.device, entry.at_ms)
                return Touched(history=True)
            case HistoryPop():
                self.history.add_pop(record)
                return Touched(history=True)
            case HandOver():
                self.handovers.add(record, entry)
                return Touched(handovers=frozenset((record.version,)))
            case _:
                return Touched()
        key = (record.version, record.step)
        self._stale.add(key)
        return Touched(calls=frozenset((key,)))

    def _moved(self, moved: Moved) -> Touched:
        self._stale |= {key for key in moved.calls if key in self._steps}
        return Touched(slots=moved.slots, calls=moved.calls, approvals=moved.approvals)

    def place(self, entry: Entry) -> Touched | None:
        """Take note of the place of an entry that is here already; return what that changes, None for most."""
        if entry.kind is EntryKind.COMPLETION and self._completions.place(entry):
            return Touched(completed=True)
        if entry.kind is EntryKind.HANDOVER and (versions := self.handovers.place(entry)):
            return Touched(handovers=versions)
        if entry.kind is EntryKind.RULING:
            record = decode_record(entry.kind, entry.payload)
            if isinstance(record, (Held, Approved, Granted)):
                return self._moved(self.guarded.rule(record, entry))
        return None

    def _step(self, version: int, step: str) -> _Step:
        return self._steps.setdefault((version, step), _Step())

    def _add_intent(self, record: CallIntent, entry: Entry) -> None:
        attempt = Attempt(
            record.attempt,
            record.n,
            entry.device,
            record.tool,
            record.effect,
            record.arguments_digest,
            record.arguments,
            entry.at_ms,
        )
        intents = self._step(record.version, record.step).intents
        known = intents.get(record.attempt)
        intents[record.attempt] = attempt if known is None else min(known, attempt, key=_claim)
        self._step_of[record.attempt] = (record.version, record.step)
        self.highest_n = max(self.highest_n, record.n)

    def _add_outcome(self, record: CallOutcome, device: str, blob: str | None) -> None:
        outcomes = self._step(record.version, record.step).outcomes.setdefault(record.attempt, {})
        known = outcomes.get(device)
        outcome = (record, blob)
        outcomes[device] = outcome if known is None else min(known, outcome, key=outcome_rank)

    def _add_plan(self, record: Plan) -> None:
        step = self._step(record.version, record.step)
        step.plan = record if step.plan is None else max(step.plan, record, key=_plan_rank)
        self.highest_n = max(self.highest_n, record.n)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def calls(self) -> Mapping[_CallKey, Call]:
        """Return every step that was planned or begun, by (version, step). The mapping is never changed afterwards."""
        if self._stale:
            calls = dict(self._calls)
            for version, name in sorted(self._stale):
                call = self._derive(version, name, self._steps[version, name])
                if call is not None:
                    calls[version, name] = call
            self._calls = calls
            self._stale = set()
        return self._calls

    def _derive(self, version: int, name: str, step: _Step) -> Call | None:
        attempts = self.guarded.attempts((version, name), step.intents, step.outcomes)
        if not attempts and step.plan is None:
            return None
        contradictions = self.guarded.contradictions((version, name))
        return derive_call(name, version, attempts, step.plan, self.running, contradictions)

    def completion(self) -> TaskCompletion:
        """Return how far the standing version is finished, as its completions alone say."""
        for given, place in self._completions.in_order():
            if given.record.version == self.version:
                state = CompletionState.COMPLETING if place is None else CompletionState.COMPLETED
                return TaskCompletion(state, given.record.completed_by, given.device)
        return TaskCompletion()

    def judged(self, completion: TaskCompletion, tables: WriterTables) -> TaskCompletion:
        """Return a completion as the writer tables judge it."""
        if completion.state is not CompletionState.COMPLETED:
            return completion
        placed = [given for given, place in self._completions.in_order() if place is not None]
        if not is_edited(placed, self.version, tables):
            return completion
        return msgspec.structs.replace(completion, state=CompletionState.COMPLETED_WHILE_EDITED)

    def complete(self, device: str, tables: WriterTables) -> Completion | None:
        """Return the completion of the standing version by a device; None if one stands, or is on its way from here."""
        standing = self.judged(self.completion(), tables).state
        if standing is CompletionState.COMPLETED or self._is_completing(device):
            return None
        return Completion(self.version, device, read_of_others(device, tables))

    def _is_completing(self, device: str) -> bool:
        return any(
            place is None and given.device == device and given.record.version == self.version
            for given, place in self._completions.in_order()
        )

    def run(self, attempts: frozenset[str]) -> None:
        """Say which attempts are executing in this opening; their steps show as running, not as in doubt."""
        changed = attempts ^ self.running
        self.running = attempts
        self._stale.update(self._step_of[attempt] for attempt in changed if attempt in self._step_of)

    def rows(self, stream: StreamName) -> list[bytes]:
        """Return the sorted hashes of all entries that were taken of a stream: what a digest covers."""
        return sorted(self._hashes.get(stream.value, ()))


def _claim(attempt: Attempt) -> tuple[int, str, str, str, str, str, int]:
    return (
        attempt.n,
        attempt.device,
        attempt.tool,
        attempt.effect.value,
        attempt.arguments_digest,
        attempt.arguments or "",
        attempt.at_ms,
    )


def _plan_rank(plan: Plan) -> tuple[int, str, str, tuple[str, ...]]:
    return plan.n, plan.tool, plan.arguments, plan.requires
