"""The figures of a rehearsal, computed from the recorded file and the files that the rehearsal left, alone."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from clients.desktop.rehearse.evidence import CallEvidence, Evidence, grouped
from clients.desktop.rehearse.guarded import count_guarded
from clients.desktop.rehearse.logs import Ask, AskOutcome
from clients.desktop.rehearse.recording import Message, Run, Said
from clients.desktop.rehearse.rules import ToolRule, rule_of
from clients.desktop.rehearse.stores import StoredRun
from sync_core.document.history import HistoryEntry

__all__ = ["Figures", "figures_of"]


class Figures(msgspec.Struct, frozen=True):
    """What a rehearsal comes to; `report.py` says each in words."""

    runs: int
    calls: int
    executed: int
    run_again_after_crash: int
    executed_again: int
    irreversible: int
    done: int
    prevented: int
    prevented_failed: int
    dependent: int
    did_not_happen: int
    refused_for_authority: int
    settled_by_probe: int
    doubles: int
    not_done: int
    astray: int
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
        """Whether nothing was lost, wrong, doubled, left undone or executed again without being asked for."""
        bad = (
            self.executed_again,
            self.doubles,
            self.not_done,
            self.astray,
            self.wrong_results,
            self.lost_history_items,
        )
        return self.digests_equal and not any(bad)


def figures_of(
    runs: Sequence[Run], rules: Mapping[str, ToolRule], evidence: Evidence, authority: bool, offline_spells: int
) -> Figures:
    """Return the figures. `authority`: there was one to be asked; spells are as scheduled."""
    counts: Counter[str] = Counter(unasked=sum(execution.asked is None for execution in evidence.executions))
    ran, told, happened = grouped(evidence.executions), grouped(evidence.asks), grouped(evidence.happened)
    for run in runs:
        files = evidence.stored[run.number]
        counts["lost"] += _lost_items(run, files)
        counts["diverged"] += len({each.digests for each in files}) > 1
        turns = _turns(run, files)
        counts["moves"] += _moves(run, turns, told)
        for call in run.calls:
            key = (run.number, call.number)
            step = f"{turns[call.number].item}/{call.place}" if call.number in turns else ""
            found = CallEvidence(call, step, files, ran.get(key, ()), told.get(key, ()), happened.get(key, ()))
            rule = rule_of(rules, call.tool)
            if call.given is None:
                counts["garbled"] += 1
            elif rule.guarded:
                count_guarded(counts, rule, found, authority)
            else:
                _count_free(counts, found)
    return Figures(
        runs=len(runs),
        calls=sum(len(run.calls) for run in runs),
        executed=len(evidence.executions),
        run_again_after_crash=counts["after_crash"],
        executed_again=counts["unasked"] + counts["again"],
        irreversible=counts["irreversible"],
        done=counts["done"],
        prevented=counts["prevented"],
        prevented_failed=counts["prevented_failed"],
        dependent=counts["dependent"],
        did_not_happen=counts["did_not_happen"],
        refused_for_authority=counts["refused"],
        settled_by_probe=counts["settled_by_probe"],
        doubles=counts["doubles"],
        not_done=counts["not_done"],
        astray=counts["astray"],
        garbled_by_model=counts["garbled"],
        wrong_results=counts["wrong"],
        lost_history_items=counts["lost"],
        run_apart=counts["apart"],
        digests_equal=counts["diverged"] == 0,
        moves=counts["moves"],
        kills=sum(ask.outcome is AskOutcome.KILLED for ask in evidence.asks),
        offline_spells=offline_spells,
        asks=len(evidence.asks),
    )


def _count_free(counts: Counter[str], found: CallEvidence) -> None:
    """Sort a call's executions: the first, those apart, those after a crash, and those that nobody may explain."""
    if AskOutcome.DEPENDENT in found.outcomes:
        counts["dependent"] += 1
        counts["again"] += len(found.ran)
        return
    again = max(sum(each.begun_again[found.step] for each in found.files), found.ran_again_within_one_ask)
    successes = {attempt.device for record in found.records if record for attempt in record.attempts if attempt.ok}
    apart = max(len(successes) - 1, 0)
    counts["again"] += again
    counts["apart"] += apart
    counts["after_crash"] += max(len(found.ran) - 1 - apart - again, 0)
    counts["wrong"] += not found.known_everywhere


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
