"""TaskView: an immutable picture of a task, announced only after what it shows is durable."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from sync_core.document.approvals import RequestedApproval
from sync_core.document.calls import Call
from sync_core.document.handover import HandOverText
from sync_core.document.history import HistoryEntry
from sync_core.document.notes import Note
from sync_core.document.slots import Slot

__all__ = ["CompletionState", "TaskCompletion", "TaskView"]


class CompletionState(StrEnum):
    """Whether a business version is finished.

    COMPLETING until the relay has stored the completion; COMPLETED_WHILE_EDITED where another device wrote what its
    author had not read: a person decides, by completing it again or by a higher version.
    """

    OPEN = "open"
    COMPLETING = "completing"
    COMPLETED = "completed"
    COMPLETED_WHILE_EDITED = "completed_while_edited"


class TaskCompletion(msgspec.Struct, frozen=True):
    """How far the standing business version is finished, and who finished it first ('' and '' while it is open)."""

    state: CompletionState = CompletionState.OPEN
    author: str = ""
    device: str = ""


class TaskView(msgspec.Struct, frozen=True):
    """A task as this device knows it.

    `slots` holds every slot with a definition or a live write, `notes` every note with text; `calls` is by (version,
    step) and holds planned steps too; `history` is in order. `version` is the highest business version, at least 1.
    `approvals` are the requests for a person's approval, by id.
    `handovers` holds what was handed over, by business version.
    `writes` counts slot and note writes over the task's life, for the growth warning (see `growth`).
    """

    task: str
    version: int
    slots: Mapping[str, Slot]
    notes: Mapping[str, Note]
    calls: Mapping[tuple[int, str], Call]
    history: tuple[HistoryEntry, ...]
    completion: TaskCompletion = TaskCompletion()
    writes: int = 0
    approvals: Mapping[str, RequestedApproval] = MappingProxyType({})
    handovers: Mapping[int, HandOverText] = MappingProxyType({})

    @property
    def completed(self) -> bool:
        """Whether a completion of the standing version is stored at the relay."""
        return self.completion.state in (CompletionState.COMPLETED, CompletionState.COMPLETED_WHILE_EDITED)
