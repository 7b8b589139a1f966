"""What became of a recorded call that cannot be undone: done once, prevented, dependent, or it did not happen.

Every such call comes to exactly one of these, or it is counted as not done; and whatever the outside system has that
the call's fate does not allow is counted as astray or as a double.
"""

from collections import Counter

from clients.desktop.rehearse.evidence import CallEvidence
from clients.desktop.rehearse.logs import AskOutcome
from clients.desktop.rehearse.rules import ToolRule

__all__ = ["count_guarded"]


def count_guarded(counts: Counter[str], rule: ToolRule, found: CallEvidence, authority: bool) -> None:
    """Add the call to the counts. Without an authority it must have been refused, and nothing may have happened."""
    failed = rule.failed(found.call.result)
    counts["irreversible"] += 1
    counts["doubles"] += sum(effect.double for effect in found.happened)
    counts["settled_by_probe"] += len(found.settled_by_probe)
    allowed = 0
    if AskOutcome.DEPENDENT in found.outcomes:
        counts["dependent"] += 1
    elif AskOutcome.PREVENTED in found.outcomes:
        counts["prevented_failed" if failed else "prevented"] += 1
    elif not authority:
        counts["refused"] += not found.ran and not any(found.records)
    elif failed:
        allowed = len({execution.asked for execution in found.ran})
        counts["did_not_happen"] += AskOutcome.DID_NOT_HAPPEN in found.outcomes and not found.happened
        counts["not_done"] += AskOutcome.DID_NOT_HAPPEN not in found.outcomes
    else:
        allowed = 1
        counts["done"] += len(found.happened) == 1
        counts["not_done"] += not found.happened
        counts["wrong"] += not found.known_everywhere
    counts["again"] += max(len(found.ran) - allowed, 0)
    counts["astray"] += max(len(found.happened) - (0 if failed else allowed), 0)
