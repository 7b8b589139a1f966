"""What a program asks of a Replica: one struct per command.

Every command carries `ref`, chosen by the caller; the Replica answers each exactly once, with `Reply(ref, value)` or
`Fail(ref, error)`, after what it wrote was committed. The comment behind each names the reply's value.
"""

import msgspec

from sync_core.document.slots import CandidateStatus, SlotDefinition
from sync_core.entry import Effect
from sync_core.petitions import ClaimAnswer

__all__ = [
    "AppendHistory",
    "AppendNote",
    "AwaitSynced",
    "BeginCall",
    "Cancel",
    "ClaimCall",
    "Claimed",
    "ClearSlot",
    "CloseTask",
    "Command",
    "CompactTask",
    "CompleteTask",
    "DeclareSlot",
    "DeleteNote",
    "EditNote",
    "EndCall",
    "EvictTask",
    "FetchBlob",
    "GiveApproval",
    "HandOverTask",
    "HoldSlot",
    "LiftBarrier",
    "MergeNote",
    "OpenTask",
    "PlanCall",
    "PopHistory",
    "PurgeTask",
    "QueryTasks",
    "ReadNote",
    "RequestApproval",
    "SettleCall",
    "TaskCommand",
    "WriteNote",
    "WriteSlot",
]


class _Command(msgspec.Struct, frozen=True):
    ref: int


class TaskCommand(_Command, frozen=True):
    """A command on one open task."""

    task: str


class OpenTask(TaskCommand, frozen=True):  # -> TaskView
    """Open a task: load it, follow it, wait for the heads; see the design's section 7 for `create` and `version`."""

    create: bool = False
    version: int | None = None
    write: bool = True


class CloseTask(TaskCommand, frozen=True):  # -> None
    """Give one handle of the task back; its document goes with the last one."""


class EvictTask(TaskCommand, frozen=True):  # -> None
    """Forget the task on this device; refused with `UnsentWork` while an entry has no receipt."""


class PurgeTask(TaskCommand, frozen=True):  # -> None
    """Delete the task here at once, and everywhere when the relay hears of it. What was not sent is kept aside."""


class CompactTask(TaskCommand, frozen=True):  # -> None
    """Merge the stored updates of the task into one row; equal content is checked before anything is deleted."""


class DeclareSlot(TaskCommand, frozen=True):  # -> Slot
    name: str
    definition: SlotDefinition


class WriteSlot(TaskCommand, frozen=True):  # -> Slot
    """Propose or confirm; `text` is the value as canonical JSON, `token` the write ids that the caller has read."""

    name: str
    text: str
    status: CandidateStatus
    token: frozenset[str]
    source: str | None = None


class ClearSlot(TaskCommand, frozen=True):  # -> Slot
    name: str
    token: frozenset[str]


class ReadNote(TaskCommand, frozen=True):  # -> Note
    """Return the note and pin its state as a base for a later merge."""

    name: str


class WriteNote(TaskCommand, frozen=True):  # -> Note
    """Replace the whole text; `content_sha256` is of the text that the caller read, None only for a new note."""

    name: str
    text: str
    content_sha256: str | None


class MergeNote(TaskCommand, frozen=True):  # -> MergedNote
    """Three-way merge of `text`, made from the base with this hash, into the current text."""

    name: str
    text: str
    base_sha256: str


class EditNote(TaskCommand, frozen=True):  # -> Note
    """Replace `old`, which must occur exactly once in the current text."""

    name: str
    old: str
    new: str


class AppendNote(TaskCommand, frozen=True):  # -> Note
    name: str
    text: str


class DeleteNote(TaskCommand, frozen=True):  # -> None
    name: str
    content_sha256: str


class BeginCall(TaskCommand, frozen=True):  # -> CallBegun | CallRecorded
    """Ask for a step: the record if it succeeded, else a durable intent. `version` is the handle's.

    A call that cannot be undone names the `granted` attempt, its fencing `token` and its idempotency `key`.
    """

    version: int
    step: str
    tool: str
    effect: Effect
    arguments_digest: str
    arguments: str | None
    granted: str = ""
    token: int = 0
    key: str = ""


class EndCall(TaskCommand, frozen=True):  # -> CallRecorded
    """Record how an attempt ended. `result` is canonical JSON; a large one becomes a blob.

    `unsure`: nobody knows whether it happened. `token` and `label` are those of a guarded call.
    """

    version: int
    step: str
    attempt: str
    ok: bool
    result: str | None = None
    error: str | None = None
    unsure: bool = False
    token: int = 0
    label: str = ""


class Claimed(msgspec.Struct, frozen=True):
    """What the authority answered to a claim; with a grant, `attempt` is what `BeginCall` names."""

    attempt: str
    answer: ClaimAnswer


class ClaimCall(TaskCommand, frozen=True):  # -> Claimed | CallRecorded
    """Ask the authority for the right to make a call that cannot be undone; fails with `NeedsAuthority` without one.

    `entity`, `releases`, `needs_approval` and `checked` are those of the petition `Claim`.
    """

    version: int
    step: str
    tool: str
    arguments_digest: str
    entity: str = ""
    releases: tuple[tuple[str, str], ...] = ()
    needs_approval: bool = False
    checked: bool = False


class SettleCall(TaskCommand, frozen=True):  # -> None
    """Say of a guarded call in doubt whether it happened; answered once the ruling is merged here.

    `tool` is empty for a step that is not known to be in doubt, which is refused.
    """

    version: int
    step: str
    tool: str
    happened: bool
    entity: str = ""
    result: str | None = None
    label: str = ""
    by_probe: bool = False


class HoldSlot(TaskCommand, frozen=True):  # -> None
    """Have the authority hold a slot and, unless `text` is None, give it this value (canonical JSON)."""

    name: str
    text: str | None = None


class RequestApproval(TaskCommand, frozen=True):  # -> str: the request's id
    """Ask, once, for a person's approval of exactly this call; `arguments` is canonical JSON."""

    version: int
    step: str
    tool: str
    arguments_digest: str
    arguments: str


class GiveApproval(TaskCommand, frozen=True):  # -> None
    """Write down a person's yes or no to a request; it counts once the authority ruled on it."""

    approval: str
    approved: bool
    reason: str = ""


class PlanCall(TaskCommand, frozen=True):  # -> None
    version: int
    step: str
    tool: str
    arguments: str
    requires: tuple[str, ...]


class CompleteTask(TaskCommand, frozen=True):  # -> TaskCompletion
    """Say that the version is finished; it takes effect when the relay stores it. `version` is the handle's."""

    version: int


class AppendHistory(TaskCommand, frozen=True):  # -> tuple[str, ...]: the item ids
    """Append messages (canonical JSON), all or none; `answers` marks the output of a step."""

    messages: tuple[str, ...]
    answers: str | None = None


class PopHistory(TaskCommand, frozen=True):  # -> HistoryEntry | None
    """Remove the last item that is visible now."""


class HandOverTask(TaskCommand, frozen=True):  # -> HandOverText
    """Give the closing text of the handle's business version, once."""

    version: int
    text: str


class FetchBlob(TaskCommand, frozen=True):  # -> bytes
    """Return a blob, from this device or the relay; fails with `ResultUnavailable` if nobody can deliver it."""

    sha256: str


class QueryTasks(_Command, frozen=True):  # -> Listing frame, or None when there is no link
    """Ask the relay for a page of the subject's tasks."""

    prefix: str = ""
    after: str = ""


class LiftBarrier(_Command, frozen=True):  # -> None
    """Say, as an admin, that the relay misses nothing any more of what was lost."""


class AwaitSynced(_Command, frozen=True):  # -> None
    """Answer once all that was written before is stored at the relay and all it held then is merged here."""


class Cancel(_Command, frozen=True):
    """The caller of `ref` gave up waiting (open, synced, blob, listing): forget it; no reply is sent."""


Command = (
    OpenTask
    | CloseTask
    | EvictTask
    | CompactTask
    | PurgeTask
    | DeclareSlot
    | WriteSlot
    | ClearSlot
    | ReadNote
    | WriteNote
    | MergeNote
    | EditNote
    | AppendNote
    | DeleteNote
    | BeginCall
    | EndCall
    | ClaimCall
    | SettleCall
    | HoldSlot
    | RequestApproval
    | GiveApproval
    | LiftBarrier
    | PlanCall
    | CompleteTask
    | AppendHistory
    | PopHistory
    | HandOverTask
    | FetchBlob
    | QueryTasks
    | AwaitSynced
    | Cancel
)
