"""What became of a recorded call that cannot be undone: done once, prevented, dependent, or it did not happen.

Every such call comes to exactly one fate. That a key prevented it, or that it depends on one that was, is believed only
if the outside system and the recording say so too; and whatever happened outside beyond what the fate allows is counted
as astray, or as a double.
"""

from collections import Counter
from enum import StrEnum

from clients.desktop.rehearse.evidence import CallEvidence
from clients.desktop.rehearse.logs import AskOutcome
from clients.desktop.rehearse.rules import ToolRule

__all__ = ["KEPT_BACK", "Fate", "count_guarded"]


class Fate(StrEnum):
    """How a call that cannot be undone ended.

    `PREVENTED_FAILED`: it was prevented as well, but it had failed in the recording. `NOT_DONE`: none of the others.
    """

    DONE = "done"
    DID_NOT_HAPPEN = "did_not_happen"
    PREVENTED = "prevented"
    PREVENTED_FAILED = "prevented_failed"
    DEPENDENT = "dependent"
    REFUSED = "refused_for_authority"
    NOT_DONE = "not_done"


KEPT_BACK = frozenset({Fate.PREVENTED, Fate.PREVENTED_FAILED, Fate.DEPENDENT})
"""Calls that a key kept from running."""


def count_guarded(counts: Counter[str], rule: ToolRule, found: CallEvidence, authority: bool) -> Fate:
    """Add the call to the counts and return its fate. Without an authority it must have been refused."""
    fate = _fate(rule, found, authority)
    runs_allowed, effects_allowed = 0, 0
    if fate is Fate.DONE:
        runs_allowed = effects_allowed = 1
        counts["wrong"] += not found.known_everywhere
    elif fate is Fate.DID_NOT_HAPPEN:
        # It may be tried again as recorded, once for each ask.
        runs_allowed = len({execution.asked for execution in found.ran})
    elif fate is Fate.NOT_DONE:
        runs_allowed = int(authority)
    counts["irreversible"] += 1
    counts[fate] += 1
    counts["settled_by_probe"] += len(found.settled_by_probe)
    counts["doubles"] += sum(effect.double for effect in found.happened)
    counts["astray"] += max(len(found.happened) - effects_allowed, 0)
    counts["again"] += max(len(found.ran) - runs_allowed, 0)
    return fate


def _fate(rule: ToolRule, found: CallEvidence, authority: bool) -> Fate:
    failed = rule.failed(found.call.result)
    if AskOutcome.DEPENDENT in found.outcomes:
        return Fate.DEPENDENT if found.depends else Fate.NOT_DONE
    if AskOutcome.PREVENTED in found.outcomes:
        prevented = Fate.PREVENTED_FAILED if failed else Fate.PREVENTED
        return prevented if found.rightly_prevented else Fate.NOT_DONE
    if not authority:
        return Fate.NOT_DONE if found.ran or found.attempted else Fate.REFUSED
    if failed:
        return Fate.DID_NOT_HAPPEN if AskOutcome.DID_NOT_HAPPEN in found.outcomes else Fate.NOT_DONE
    return Fate.DONE if found.happened else Fate.NOT_DONE
