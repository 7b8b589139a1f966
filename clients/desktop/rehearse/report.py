"""What a rehearsal tells: a table for people, one document for programs."""

from collections.abc import Iterator

import msgspec

from clients.desktop.output import Answer, ExitStatus, JsonDocument, Table
from clients.desktop.rehearse.figures import Figures
from clients.desktop.rehearse.guarded import Fate

__all__ = ["answer_of"]

_MEANINGS: dict[str, str] = {
    "runs": "runs",
    "calls": "tool calls in them",
    "moves": "moves to another device",
    "kills": "devices killed during a call",
    "offline_spells": "devices cut off from the relay",
    "asks": "times that a device was asked for a call",
    "executed": "executions of tools",
    "run_again_after_crash": "of these: run again after a crash (asked for)",
    "run_apart": "of these: run apart, the first record had not left its device",
    "executed_again": "of these: executed again (not asked for)",
    "irreversible": "calls that cannot be undone",
    "done": "of these: happened, once",
    "did_not_happen": "of these: tried, and did not happen, as recorded",
    "prevented": "of these: prevented, what they act on stands already",
    "prevented_failed": "of these: prevented too, but failed in the recording",
    "refused_for_authority": "of these: refused for lack of an authority",
    "not_done": "of these: not done, and nobody can say why",
    "dependent": "calls not run, they name what a prevented one would bring",
    "settled_by_probe": "attempts in doubt that a probe settled",
    "doubles": "effects that happened twice outside",
    "astray": "effects outside that nothing explains",
    "garbled_by_model": "calls that the model garbled, not run",
    "wrong_results": "calls with a wrong result on some device",
    "lost_history_items": "messages lost from the history",
    "digests_equal": "equal digests on all devices of each run",
}
_FATES = {
    Fate.DONE: "DONE",
    Fate.DID_NOT_HAPPEN: "DID NOT HAPPEN",
    Fate.PREVENTED: "PREVENTED",
    Fate.PREVENTED_FAILED: "PREVENTED, FAILED IN THE RECORDING",
    Fate.DEPENDENT: "DEPENDENT",
}
_ROWS_MAX = 40
_MUST_BE_ZERO = frozenset({"executed_again", "wrong_results", "lost_history_items", "doubles", "not_done", "astray"})


def answer_of(figures: Figures, seed: int, devices: int, seconds: float) -> Answer:
    """Return a rehearsal's answer: refused if anything was lost, wrong, doubled or executed again unasked."""
    found: dict[str, JsonDocument] = msgspec.to_builtins(figures)
    document: dict[str, JsonDocument] = {
        **found,
        "seed": seed,
        "devices": devices,
        "seconds": round(seconds, 1),
        "good": figures.good,
    }
    rows = tuple((meaning, _shown(found[name]), _verdict(name, found[name])) for name, meaning in _MEANINGS.items())
    verdict = (
        "Nothing was lost, wrong, doubled or executed again without being asked for"
        if figures.good
        else "Something was lost, wrong, doubled, left undone or executed again without being asked for"
    )
    return Answer(
        document,
        (
            Table(("FIGURE", "FOUND", ""), rows),
            *_guarded(figures),
            f"{verdict}; seed {seed}, {devices} devices, {seconds:.1f} s.",
        ),
        ExitStatus.DONE if figures.good else ExitStatus.REFUSED,
    )


def _guarded(figures: Figures) -> Iterator[str | Table]:
    """What became of the calls that cannot be undone, tool by tool, and each one that a key kept back."""
    if figures.irreversible == figures.refused_for_authority:
        return
    rows = tuple(
        (tool, str(sum(fates.values())), *(str(fates.get(fate, 0)) for fate in _FATES))
        for tool, fates in figures.by_tool.items()
    )
    yield Table(("TOOL", "CALLS", *_FATES.values()), rows, "Calls that cannot be undone")
    if figures.kept_back:
        kept = tuple(
            (str(each.run), str(each.call), each.tool, _FATES[each.fate].lower())
            for each in figures.kept_back[:_ROWS_MAX]
        )
        yield Table(("RUN", "CALL", "TOOL", "WHY"), kept, "Not run, because of a key")
    if len(figures.kept_back) > _ROWS_MAX:
        yield f"… and {len(figures.kept_back) - _ROWS_MAX} more; --json names them all."


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _verdict(name: str, value: object) -> str:
    if name in _MUST_BE_ZERO:
        return "ok" if value == 0 else "WRONG"
    return "" if name != "digests_equal" else "ok" if value else "WRONG"
