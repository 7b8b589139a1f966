"""The figures of a rehearsal, computed from the recorded file, the two logs and the devices' stores alone."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from clients.desktop.rehearse.logs import Ask, AskOutcome, Execution
from clients.desktop.rehearse.recording import Message, RecordedCall, Run, Said
from clients.desktop.rehearse.stores import StoredRun
from sync_core.document.calls import Call, CallState
from sync_core.document.history import HistoryEntry
from sync_core.entry import Effect
from sync_core.values import canonical

__all__ = ["Figures", "figures_of"]


class Figures(msgspec.Struct, frozen=True):
    """What a rehearsal comes to; `report.py` says each in words."""

    runs: int
    calls: int
    executed: int
    run_again_after_crash: int
    executed_again: int
    refused_for_authority: int
    garbled_by_model: int
    wrong_results: int
    lost_history_items: int
    run_apart: int
    digests_equal: bool
    moves: int
    kills: int
    offline_spells: int
    asks: int

    @property
    def good(self) -> bool:
        """Whether nothing was lost, wrong or executed again without being asked for."""
        return self.digests_equal and not (self.executed_again or self.wrong_results or self.lost_history_items)


def figures_of(
    runs: Sequence[Run],
    effects: Mapping[str, Effect],
    stored: Mapping[int, Sequence[StoredRun]],
    executions: Sequence[Execution],
    asks: Sequence[Ask],
    offline_spells: int,
) -> Figures:
    """Return the figures. `stored` has, by run number, what each device's file holds; spells are as scheduled."""
    counts: Counter[str] = Counter(unasked=sum(execution.asked is None for execution in executions))
    ran: dict[tuple[int, int], list[Execution]] = defaultdict(list)
    for execution in executions:
        if execution.run is not None and execution.step is not None:
            ran[execution.run, execution.step].append(execution)
    told: dict[tuple[int, int], list[Ask]] = defaultdict(list)
    for ask in asks:
        told[ask.run, ask.step].append(ask)
    for run in runs:
        files = stored[run.number]
        counts["lost"] += _lost_items(run, files)
        counts["diverged"] += len({each.digests for each in files}) > 1
        turns = _turns(run, files)
        counts["moves"] += _moves(run, turns, told)
        for call in run.calls:
            key = (run.number, call.number)
            guarded = effects.get(call.tool, Effect.IRREVERSIBLE) is Effect.IRREVERSIBLE
            step = f"{turns[call.number].item}/{call.place}" if call.number in turns else ""
            _count_call(counts, call, guarded, step, files, ran[key], told[key])
    return Figures(
        runs=len(runs),
        calls=sum(len(run.calls) for run in runs),
        executed=len(executions),
        run_again_after_crash=counts["after_crash"],
        executed_again=counts["unasked"] + counts["again"],
        refused_for_authority=counts["refused"],
        garbled_by_model=counts["garbled"],
        wrong_results=counts["wrong"],
        lost_history_items=counts["lost"],
        run_apart=counts["apart"],
        digests_equal=counts["diverged"] == 0,
        moves=counts["moves"],
        kills=sum(ask.outcome is AskOutcome.KILLED for ask in asks),
        offline_spells=offline_spells,
        asks=len(asks),
    )


def _count_call(
    counts: Counter[str],
    call: RecordedCall,
    guarded: bool,
    step: str,
    files: Sequence[StoredRun],
    ran: Sequence[Execution],
    told: Sequence[Ask],
) -> None:
    """Sort a call's executions: the first, those apart, those after a crash, and those that nobody may explain."""
    if call.given is None:
        counts["garbled"] += 1
        return
    records = [each.calls.get(step) for each in files]
    if guarded:
        counts["refused"] += not ran and not any(records)
        counts["again"] += len(ran)
        counts["wrong"] += any(ask.outcome is AskOutcome.ANSWERED and not _told_right(ask, call) for ask in told)
        return
    held = sum(each.begun_again[step] for each in files)
    within_one_ask = len(ran) - len({execution.asked for execution in ran})
    again = max(held, within_one_ask)
    successes = {attempt.device for record in records if record for attempt in record.attempts if attempt.ok}
    apart = max(len(successes) - 1, 0)
    counts["again"] += again
    counts["apart"] += apart
    counts["after_crash"] += max(len(ran) - 1 - apart - again, 0)
    right = all(record is not None and _recorded_right(record, call) for record in records)
    answered = [ask for ask in told if ask.outcome is AskOutcome.ANSWERED]
    counts["wrong"] += not (right and answered and all(_told_right(ask, call) for ask in answered))


def _recorded_right(record: Call, call: RecordedCall) -> bool:
    """A large result is a blob, whose name is the hash of its bytes."""
    shown = record.shown
    if record.state is not CallState.DONE or shown is None:
        return False
    expected = canonical(call.result)
    if shown.blob is not None:
        return shown.blob == hashlib.sha256(expected.encode()).hexdigest()
    return shown.result == expected


def _told_right(ask: Ask, call: RecordedCall) -> bool:
    return ask.sha256 == hashlib.sha256(call.result.encode()).hexdigest()


def _turns(run: Run, files: Sequence[StoredRun]) -> dict[int, HistoryEntry]:
    """The history item of each call's assistant message, by the call's number."""
    found: dict[int, HistoryEntry] = {}
    for each in files:
        entries = [entry for entry, message in each.messages if message.get("tool_calls")]
        recorded = [step for step in run.steps if not isinstance(step, Said)]
        for entry, turn in zip(entries, recorded, strict=False):
            for call in turn.calls:
                found.setdefault(call.number, entry)
    return found


def _moves(run: Run, turns: Mapping[int, HistoryEntry], told: Mapping[tuple[int, int], Sequence[Ask]]) -> int:
    """How many calls were first asked of another device than the one that held the work."""
    moves = 0
    for call in run.calls:
        asks = told.get((run.number, call.number), ())
        turn = turns.get(call.number)
        if asks and turn is not None:
            earlier = told.get((run.number, call.number - 1), ()) if turn is turns.get(call.number - 1) else ()
            holders = [ask.device for ask in earlier if ask.asked < asks[0].asked]
            moves += asks[0].device != (holders[-1] if holders else turn.device)
    return moves


def _lost_items(run: Run, files: Sequence[StoredRun]) -> int:
    """How many recorded messages are missing, or out of their order, in the history of at least one device."""
    expected = _expected(run)
    lost: set[int] = set()
    for each in files:
        present = [_compared(message) for _, message in each.messages]
        position = 0
        for number, message in enumerate(expected):
            try:
                position = present.index(message, position) + 1
            except ValueError:
                lost.add(number)
    return len(lost)


def _expected(run: Run) -> list[Message]:
    """The recorded messages in the order of a history: the outputs of a turn stand in the order of its calls."""
    messages: list[Message] = []
    for step in run.steps:
        messages.append(_compared(step.message))
        if not isinstance(step, Said):
            ordered = sorted(step.calls, key=lambda call: call.place)
            messages.extend(_compared(call.answer) for call in ordered)
    return messages


def _compared(message: Message) -> Message:
    """What must come back of a message: all of it, and of a tool message what a recording is sure to hold."""
    if message.get("role") != "tool":
        return message
    return {name: message.get(name) for name in ("role", "tool_call_id", "content")}
