"""Computes what happened from the files alone: three SQLite files, the execution log, the transcripts.

Nothing here was said by a process about itself: a call counts as recorded if its entries are in all three files, as
executed if the tool wrote its line, a conflict as shown if the user's transcript has it and the device's own log
replays to the same values.
"""

import msgspec

from clients.demo.conflict import competing_values, is_conflict
from clients.demo.executions import Execution, read_executions
from clients.demo.narrator import FigureRow
from clients.demo.replayed import Step, digests, replay
from clients.demo.stores import StoredTask, read_device, read_relay
from clients.demo.story import DESKTOP, PHONE, RELAY, DemoFiles
from clients.demo.transcript import Line, LineKind, read_transcript
from sync_core.entry import CallOutcome, EntryKind, decode_record

__all__ = ["EXPECTED", "Evidence", "Figures", "figures_of", "gather", "lost_lines", "table_rows", "unmet"]


class Figures(msgspec.Struct, frozen=True):
    """What is counted; `seconds` is the whole run by the parent's clock."""

    calls_recorded: int
    calls_executed: int
    calls_executed_again: int
    questions_on_desktop: int
    conflicts_shown: int
    conflicts_resolved: int
    note_lines_lost: int
    digests_equal: bool
    seconds: float


EXPECTED: dict[str, int | bool] = {
    "calls_recorded": 2,
    "calls_executed": 2,
    "calls_executed_again": 0,
    "questions_on_desktop": 1,
    "conflicts_shown": 2,
    "conflicts_resolved": 1,
    "note_lines_lost": 0,
    "digests_equal": True,
}

_MEANINGS = {
    "calls_recorded": "calls recorded, in all three files",
    "calls_executed": "tools that really ran",
    "calls_executed_again": "finished calls that were run again",
    "questions_on_desktop": "questions asked on the desktop",
    "conflicts_shown": "conflicts shown, one on each end",
    "conflicts_resolved": "conflicts resolved",
    "note_lines_lost": "lines of the work log lost",
    "digests_equal": "equal content on phone, desktop and relay",
}


class Evidence(msgspec.Struct, frozen=True):
    """The files of a run, read once. `steps` are replays of each file's own log."""

    stored: dict[str, StoredTask]
    steps: dict[str, tuple[Step, ...]]
    executions: tuple[Execution, ...]
    transcripts: dict[str, tuple[Line, ...]]


def gather(files: DemoFiles) -> Evidence:
    """Read every file of a run whose processes have ended."""
    stored = {device: read_device(files.store(device)) for device in (PHONE, DESKTOP)}
    stored[RELAY] = read_relay(files.store(RELAY))
    return Evidence(
        stored=stored,
        steps={name: replay(each) for name, each in stored.items()},
        executions=read_executions(files.executions),
        transcripts={device: read_transcript(files.transcript(device)) for device in (PHONE, DESKTOP)},
    )


def figures_of(evidence: Evidence, seconds: float) -> Figures:
    """Return the figures that the evidence supports."""
    executed_steps = {execution.step for execution in evidence.executions}
    recorded = [_recorded(stored) for stored in evidence.stored.values()]
    first, *others = (digests(stored) for stored in evidence.stored.values())
    return Figures(
        calls_recorded=len(frozenset.intersection(*recorded)),
        calls_executed=len(evidence.executions),
        calls_executed_again=len(evidence.executions) - len(executed_steps),
        questions_on_desktop=sum(line.kind is LineKind.QUESTION for line in evidence.transcripts[DESKTOP]),
        conflicts_shown=sum(_conflicts_shown(evidence, device) for device in (PHONE, DESKTOP)),
        conflicts_resolved=sum(_resolves(step) for step in evidence.steps[RELAY]),
        note_lines_lost=len(lost_lines(evidence)),
        digests_equal=all(other == first for other in others),
        seconds=round(seconds, 2),
    )


def lost_lines(evidence: Evidence) -> tuple[str, ...]:
    """Return the lines of notes that some entry once wrote and that are missing in the last text of some file.

    The story only ever adds lines, so each one that is gone was lost.
    """
    written = {line for steps in evidence.steps.values() for step in steps for line in _note_lines(step)}
    last = [_note_lines(steps[-1]) if steps else frozenset() for steps in evidence.steps.values()]
    return tuple(sorted(line for line in written if any(line not in lines for lines in last)))


def unmet(figures: Figures, evidence: Evidence) -> tuple[str, ...]:
    """Return a sentence for each figure that is not as expected."""
    found = msgspec.structs.asdict(figures)
    return tuple(
        f"Wrong: {_MEANINGS[name]}: {_shown(found[name])}, expected {_shown(expected)}.{_detail(name, evidence)}"
        for name, expected in EXPECTED.items()
        if found[name] != expected
    )


def table_rows(figures: Figures) -> tuple[FigureRow, ...]:
    """Return the closing table: what was counted, found, expected, and whether they agree."""
    found = msgspec.structs.asdict(figures)
    return tuple(
        (_MEANINGS[name], _shown(found[name]), _shown(expected), found[name] == expected)
        for name, expected in EXPECTED.items()
    )


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _detail(name: str, evidence: Evidence) -> str:
    if name == "calls_executed_again":
        again = evidence.executions[len({execution.step for execution in evidence.executions}) :]
        ran = ", ".join(f"{execution.tool} on the {execution.device}" for execution in again)
        return f" That was: {ran}."
    if name == "note_lines_lost":
        return f" Overwritten by an end that had not read it: «{'», «'.join(lost_lines(evidence))}»."
    return ""


def _recorded(stored: StoredTask) -> frozenset[tuple[int, str]]:
    """The (business version, step) of each call with a recorded success."""
    records = [decode_record(entry.kind, entry.payload) for entry in stored.entries if entry.kind is EntryKind.CALL]
    return frozenset(
        (record.version, record.step) for record in records if isinstance(record, CallOutcome) and record.ok
    )


def _conflicts_shown(evidence: Evidence, device: str) -> int:
    """The user's transcript shows it, and the device's own log replays to a conflict of the same values."""
    conflicted = {
        (name, competing_values(after))
        for step in evidence.steps[device]
        for name, _, after in step.slots()
        if is_conflict(after)
    }
    shown = {(line.slot, line.values) for line in evidence.transcripts[device] if line.kind is LineKind.CONFLICT}
    return len(shown & conflicted)


def _resolves(step: Step) -> bool:
    return any(is_conflict(before) and not is_conflict(after) for _, before, after in step.slots())


def _note_lines(step: Step) -> frozenset[str]:
    return frozenset(line for note in step.after.notes.values() for line in note.text.splitlines() if line.strip())
