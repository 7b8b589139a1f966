"""The figures of a rehearsal, computed from the recorded file and the files that the rehearsal left, alone."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from clients.desktop.rehearse.dependence import dependents
from clients.desktop.rehearse.evidence import ByCall, CallEvidence, Evidence, grouped
from clients.desktop.rehearse.guarded import KEPT_BACK, Fate, count_guarded
from clients.desktop.rehearse.logs import Ask, AskOutcome, Execution
from clients.desktop.rehearse.outside import Happened
from clients.desktop.rehearse.recording import Message, RecordedCall, Run, Said
from clients.desktop.rehearse.rules import ToolRule, rule_of
from clients.desktop.rehearse.stores import StoredRun
from sync_core.document.history import HistoryEntry
from sync_core.values import canonical

__all__ = ["Figures", "KeptBack", "figures_of"]


class KeptBack(msgspec.Struct, frozen=True):
    """A call that a key kept from running."""

    run: int
    call: int
    tool: str
    fate: Fate


class Figures(msgspec.Struct, frozen=True):
    """What a rehearsal comes to; `report.py` says each in words.

    `by_tool` has, for each tool that cannot be undone, how many of its calls came to which fate.
    """

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
    by_tool: dict[str, dict[Fate, int]]
    kept_back: tuple[KeptBack, ...]

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
    by_tool: dict[str, Counter[Fate]] = defaultdict(Counter)
    kept_back: list[KeptBack] = []
    ran, told, happened = grouped(evidence.executions), grouped(evidence.asks), grouped(evidence.happened)
    for run in runs:
        files = evidence.stored[run.number]
        counts["lost"] += _lost_items(run, files)
        counts["diverged"] += len({each.digests for each in files}) > 1
        turns = _turns(run, files)
        counts["moves"] += _moves(run, turns, told)
        for found in _calls(run, rules, evidence, turns, (ran, told, happened)):
            call, rule = found.call, rule_of(rules, found.call.tool)
            if call.given is None:
                counts["garbled"] += 1
                continue
            if rule.guarded:
                fate = count_guarded(counts, rule, found, authority)
                by_tool[call.tool][fate] += 1
            else:
                fate = _count_free(counts, found)
            if fate in KEPT_BACK:
                kept_back.append(KeptBack(run.number, call.number, call.tool, fate))
    return Figures(
        runs=len(runs),
        calls=sum(len(run.calls) for run in runs),
        executed=len(evidence.executions),
        run_again_after_crash=counts["after_crash"],
        executed_again=counts["unasked"] + counts["again"],
        irreversible=counts["irreversible"],
        done=counts[Fate.DONE],
        prevented=counts[Fate.PREVENTED],
        prevented_failed=counts[Fate.PREVENTED_FAILED],
        dependent=counts[Fate.DEPENDENT],
        did_not_happen=counts[Fate.DID_NOT_HAPPEN],
        refused_for_authority=counts[Fate.REFUSED],
        settled_by_probe=counts["settled_by_probe"],
        doubles=counts["doubles"],
        not_done=counts[Fate.NOT_DONE],
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
        by_tool={name: dict(fates) for name, fates in sorted(by_tool.items())},
        kept_back=tuple(kept_back),
    )


def _calls(
    run: Run,
    rules: Mapping[str, ToolRule],
    evidence: Evidence,
    turns: Mapping[int, HistoryEntry],
    found: tuple[ByCall[Execution], ByCall[Ask], ByCall[Happened]],
) -> Iterator[CallEvidence]:
    """What became of each call of a run, in their order."""
    ran, told, happened = found
    prevented = frozenset(
        call.number
        for call in run.calls
        if any(ask.outcome is AskOutcome.PREVENTED for ask in told.get((run.number, call.number), ()))
        and not rule_of(rules, call.tool).failed(call.result)
    )
    depends = dependents(run, prevented)
    effects = [effect for effect in evidence.happened if effect.run == run.number]
    for call in run.calls:
        key = (run.number, call.number)
        entity = canonical(rule_of(rules, call.tool).entity(call.given or {}))
        yield CallEvidence(
            call,
            f"{turns[call.number].item}/{call.place}" if call.number in turns else "",
            evidence.stored[run.number],
            ran.get(key, ()),
            told.get(key, ()),
            happened.get(key, ()),
            next((each for each in effects if _stood_in_the_way(each, call, entity)), None),
            call.number in depends,
        )


def _stood_in_the_way(effect: Happened, call: RecordedCall, entity: str) -> bool:
    return (effect.tool, effect.entity) == (call.tool, entity) and effect.stood_at(call.number)


def _count_free(counts: Counter[str], found: CallEvidence) -> Fate:
    """Sort a call's executions: the first, those apart, those after a crash, and those that nobody may explain."""
    if AskOutcome.DEPENDENT in found.outcomes and found.depends:
        counts[Fate.DEPENDENT] += 1
        counts["again"] += len(found.ran)
        return Fate.DEPENDENT
    again = max(sum(each.begun_again[found.step] for each in found.files), found.ran_again_within_one_ask)
    successes = {attempt.device for record in found.records if record for attempt in record.attempts if attempt.ok}
    apart = max(len(successes) - 1, 0)
    counts["again"] += again
    counts["apart"] += apart
    counts["after_crash"] += max(len(found.ran) - 1 - apart - again, 0)
    counts["wrong"] += not found.known_everywhere
    return Fate.DONE


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
