"""TaskView: an immutable picture of a task, announced only after what it shows is durable."""

from collections.abc import Mapping

import msgspec

from sync_core.document.calls import Call
from sync_core.document.history import HistoryEntry
from sync_core.document.notes import Note
from sync_core.document.slots import Slot

__all__ = ["TaskView"]


class TaskView(msgspec.Struct, frozen=True):
    """A task as this device knows it.

    `slots` holds every slot with a definition or a live write, `notes` every note with text; `calls` is by (version,
    step) and holds planned steps too; `history` is in order. `version` is the highest business version, at least 1.
    `writes` counts slot and note writes over the task's life, for the growth warning (see `growth`).
    """

    task: str
    version: int
    slots: Mapping[str, Slot]
    notes: Mapping[str, Note]
    calls: Mapping[tuple[int, str], Call]
    history: tuple[HistoryEntry, ...]
    completed: bool = False
    writes: int = 0
