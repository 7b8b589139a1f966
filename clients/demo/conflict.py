"""How a conflict is told to a user, recognised in a replayed log by the same words, and answered."""

from sync_core.document.slots import Candidate, Slot, SlotState

__all__ = ["choices", "chosen", "competing_values", "is_conflict"]


def is_conflict(slot: Slot | None) -> bool:
    """Whether a slot shows competing values."""
    return slot is not None and slot.state is SlotState.CONFLICTED


def competing_values(slot: Slot) -> tuple[str, ...]:
    """Return each competing value with who wrote it, in an order that is the same everywhere."""
    return tuple(map(_told, _in_order(slot)))


def choices(slot: Slot) -> str:
    """Return the competing values as a user is asked about them, numbered."""
    return " or ".join(f"[{number}] {told}" for number, told in enumerate(competing_values(slot), 1))


def chosen(slot: Slot, answer: str) -> Candidate | None:
    """Return the candidate that an answer means: by its number, its value, or as it was shown; None if it is none."""
    for number, candidate in enumerate(_in_order(slot), 1):
        if answer in (str(number), f"[{number}]", str(candidate.value), _told(candidate)):
            return candidate
    return None


def _in_order(slot: Slot) -> list[Candidate]:
    return sorted(slot.candidates, key=_told)


def _told(candidate: Candidate) -> str:
    return f"{candidate.value} ({candidate.author})"
