"""How a conflict is told to a user, and recognised in a replayed log: by the same words."""

from sync_core.document.slots import Slot, SlotState

__all__ = ["competing_values", "is_conflict"]


def is_conflict(slot: Slot | None) -> bool:
    """Whether a slot shows competing values."""
    return slot is not None and slot.state is SlotState.CONFLICTED


def competing_values(slot: Slot) -> tuple[str, ...]:
    """Return each competing value with who wrote it, in an order that is the same everywhere."""
    return tuple(sorted(f"{candidate.value} ({candidate.author})" for candidate in slot.candidates))
