"""The journal: what the simulated users asked for, and what they were promised. The checkers believe nothing else.

Every write carries a tag, a text that occurs once in the world. It is found again in payloads, in merged documents and
in views, whatever entry, writer or row carries it. A write is *promised* once its Reply came back. It is *lost* when a
disk was thrown away (a restored image, an emptied relay) while no other disk held it: then it may be missing, and it
may still come back, because its bytes can be on their way.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from sync_core.document.slots import CandidateStatus
from sync_core.entry import Effect

__all__ = [
    "ApprovalOp",
    "CallOp",
    "CompletionOp",
    "DeclareOp",
    "Ending",
    "GuardedOp",
    "HandOverOp",
    "HistoryOp",
    "Journal",
    "NoteOp",
    "Op",
    "PlanOp",
    "PopOp",
    "SlotOp",
    "VersionOp",
    "tags_of",
]

_TAG = re.compile(r"[a-z]\d+x")


def tags_of(text: str) -> list[str]:
    """Return the tags in a text, in order."""
    return _TAG.findall(text)


@dataclass(eq=False, kw_only=True)
class Op:
    """One write that a user asked for. `device` is the label of the disk that it was asked on; `keys` are the
    entries that were written in the event that answered it."""

    number: int
    device: str
    task: str
    tag: str
    promised: bool = False
    refused: bool = False
    lost: bool = False
    keys: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def owed(self) -> bool:
        """Whether it must be there: promised, and not lost with the last disk that held it."""
        return self.promised and not self.lost


@dataclass(eq=False, kw_only=True)
class SlotOp(Op):
    """A propose, confirm or clear (`status` None). `token` holds the write ids that the user had seen."""

    slot: str
    status: CandidateStatus | None
    token: frozenset[str]
    write_id: str = ""

    def deletes(self, write_id: str, status: CandidateStatus | None) -> bool:
        """Whether this write takes a candidate away: it was read, and a proposal takes proposals only."""
        if write_id not in self.token:
            return False
        return self.status is not CandidateStatus.PROPOSED or status is CandidateStatus.PROPOSED


@dataclass(eq=False, kw_only=True)
class DeclareOp(Op):
    """A definition of a slot; its tag is in the ask text."""

    slot: str


@dataclass(eq=False, kw_only=True)
class NoteOp(Op):
    """A change of a note: tags of the lines that it added, and of those that it took away."""

    note: str
    added: tuple[str, ...] = ()
    removed: frozenset[str] = frozenset()
    repeated: bool = False


@dataclass(eq=False, kw_only=True)
class CallOp(Op):
    """One execution of a tool, counted outside; `promised` once its outcome was recorded."""

    version: int
    step: str
    effect: Effect
    digest: str
    attempt: str
    key: str
    result: str = ""
    executed: bool = False
    ok: bool = True
    asked_to_record: bool = False


class Ending(StrEnum):
    """How a tool that cannot be undone ended: it returned, said that nothing happened, or raised anything else."""

    RETURNED = "returned"
    DID_NOT_HAPPEN = "did_not_happen"
    RAISED = "raised"


@dataclass(eq=False, kw_only=True)
class GuardedOp(Op):
    """One grant of a key, and what became of it; `promised` once its outcome was recorded.

    `entity` is the business entity whose key it is, empty for the key of the call; `principal` claimed it.
    """

    version: int
    step: str
    tool: str
    entity: str
    digest: str
    needs_approval: bool
    principal: str
    attempt: str
    key: str
    token: int
    result: str = ""
    ending: Ending | None = None
    asked_to_record: bool = False


@dataclass(eq=False, kw_only=True)
class ApprovalOp(Op):
    """A person's yes or no, given on a device that signs in under `principal`."""

    version: int
    step: str
    tool: str
    digest: str
    approved: bool
    principal: str


@dataclass(eq=False, kw_only=True)
class PlanOp(Op):
    """A planned step."""

    version: int
    step: str


@dataclass(eq=False, kw_only=True)
class VersionOp(Op):
    """A business version was decided by opening the task with it."""

    version: int


@dataclass(eq=False, kw_only=True)
class HandOverOp(Op):
    """A closing text; its tag is in it."""

    version: int


@dataclass(eq=False, kw_only=True)
class CompletionOp(Op):
    """A business version was said to be finished."""

    version: int


@dataclass(eq=False, kw_only=True)
class HistoryOp(Op):
    """One message; `answers` names the step whose output it is."""

    message: str
    answers: str | None = None
    item: str = ""


@dataclass(eq=False, kw_only=True)
class PopOp(Op):
    """A pop; `item` is what the reply said was removed."""

    item: str = ""


@dataclass
class Journal:
    """All ops in the order in which they were asked for."""

    ops: list[Op] = field(default_factory=list)
    slots: list[SlotOp] = field(default_factory=list)
    definitions: list[DeclareOp] = field(default_factory=list)
    notes: list[NoteOp] = field(default_factory=list)
    calls: list[CallOp] = field(default_factory=list)
    guarded: list[GuardedOp] = field(default_factory=list)
    approvals: list[ApprovalOp] = field(default_factory=list)
    history: list[HistoryOp] = field(default_factory=list)
    plans: list[PlanOp] = field(default_factory=list)
    pops: list[PopOp] = field(default_factory=list)
    versions: list[VersionOp] = field(default_factory=list)
    handovers: list[HandOverOp] = field(default_factory=list)
    completions: list[CompletionOp] = field(default_factory=list)
    _count: int = 0

    def next_tag(self, letter: str) -> tuple[int, str]:
        """Return a fresh number and the tag made of it."""
        self._count += 1
        return self._count, f"{letter}{self._count}x"

    def add(self, op: Op) -> None:
        """Keep an op that is about to be asked for."""
        self.ops.append(op)
        match op:
            case SlotOp():
                self.slots.append(op)
            case DeclareOp():
                self.definitions.append(op)
            case NoteOp():
                self.notes.append(op)
            case CallOp():
                self.calls.append(op)
            case GuardedOp():
                self.guarded.append(op)
            case ApprovalOp():
                self.approvals.append(op)
            case HistoryOp():
                self.history.append(op)
            case PlanOp():
                self.plans.append(op)
            case PopOp():
                self.pops.append(op)
            case VersionOp():
                self.versions.append(op)
            case HandOverOp():
                self.handovers.append(op)
            case CompletionOp():
                self.completions.append(op)

    def promised(self) -> Iterable[Op]:
        """Return the ops that are still owed."""
        return (op for op in self.ops if op.owed)
