"""The parts of a task, as one table: where each lives, who may write it, and who wins when two did.

The table is what is enforced, not a description of it: the guard takes from it which kinds of entry a stream holds, the
relay which roles may push them, the endpoint which of them this device may write, and `task.explain` what it says.

Rules:
1. A role that is not in a part's row is refused for it, at the endpoint before anything is written, and at the relay.
2. Several parts may live in entries of one kind; then the same roles may write them.
3. A ruling is nobody's to write: the relay makes it. What is brought back after a lost log (rule J of the design) was
   judged when it was written, so any role that may write at all may bring it back.
"""

from enum import StrEnum

import msgspec

from sync_core.entry import EntryKind
from sync_core.errors import ValueRefused
from sync_core.ids import StreamName, check_name, check_note, check_step

__all__ = [
    "HOLDERS",
    "KINDS_OF_STREAM",
    "LIFTERS",
    "PARTS",
    "WRITERS",
    "Part",
    "Role",
    "part_of",
    "role_named",
    "roles_of",
]


class Role(StrEnum):
    """What a device may do. All but `read` may write; who may write what is in the table."""

    READ = "read"
    WRITE = "write"
    APPROVE = "approve"
    AUTHORITY = "authority"
    ADMIN = "admin"

    @property
    def may_write(self) -> bool:
        """Whether entries and blobs are taken from this role."""
        return self in WRITERS


WRITERS = frozenset({Role.WRITE, Role.APPROVE, Role.AUTHORITY, Role.ADMIN})
HOLDERS = frozenset({Role.AUTHORITY, Role.ADMIN})
"""The roles for which the authority writes a slot that it holds."""

LIFTERS = frozenset({Role.ADMIN})
"""The roles that may say that nothing is missing after a log was lost."""

_APPROVERS = frozenset({Role.APPROVE, Role.ADMIN})
_NOBODY: frozenset[Role] = frozenset()
_ANY_WRITER = "Any session with write access, on a device whose role may write."


class Part(msgspec.Struct, frozen=True):
    """One part of a task.

    `name` begins its path, `item` says what follows there (empty for a part that there is once). `owner` says who may
    change it, `merge` who wins when two change it.
    """

    name: str
    item: str
    streams: tuple[StreamName, ...]
    kind: EntryKind
    roles: frozenset[Role]
    owner: str
    merge: str

    @property
    def stream(self) -> StreamName:
        """The stream that the part lives in."""
        return self.streams[0]


PARTS: tuple[Part, ...] = (
    Part(
        "slots",
        "slot name",
        (StreamName.STATE,),
        EntryKind.UPDATE,
        WRITERS,
        _ANY_WRITER + " A slot that the authority holds is written by the authority alone.",
        "A write replaces only what its writer had read: two that had not read each other both stand, and the slot is"
        " conflicted until somebody who read both resolves it. A held slot has the value of the authority's last"
        " ruling.",
    ),
    Part(
        "notes",
        "note name",
        (StreamName.STATE,),
        EntryKind.UPDATE,
        WRITERS,
        _ANY_WRITER,
        "Both edits are merged. A whole text made from an older one is refused, and lines that both ends changed are"
        " reported by the merge.",
    ),
    Part(
        "calls",
        "step",
        (StreamName.STATE,),
        EntryKind.CALL,
        WRITERS,
        _ANY_WRITER + " What cannot be undone needs a grant of the authority besides.",
        "Nothing recorded is overwritten. A success stands and is not run again; of two successes of one step both are"
        " kept, and the same one is shown everywhere.",
    ),
    Part(
        "plan",
        "step",
        (StreamName.STATE,),
        EntryKind.PLAN,
        WRITERS,
        _ANY_WRITER,
        "The plan with the highest number stands; a step that is done is not planned again.",
    ),
    Part(
        "version",
        "",
        (StreamName.STATE,),
        EntryKind.VERSION,
        WRITERS,
        _ANY_WRITER + " It is decided by opening the task with a higher one.",
        "The highest business version stands.",
    ),
    Part(
        "completion",
        "",
        (StreamName.STATE,),
        EntryKind.COMPLETION,
        WRITERS,
        _ANY_WRITER,
        "Of one business version the first in the relay's order stands; a higher version opens the task again.",
    ),
    Part(
        "history",
        "",
        (StreamName.HISTORY,),
        EntryKind.HISTORY,
        WRITERS,
        _ANY_WRITER,
        "Nothing is replaced: the runs of two ends stay whole, one after the other, and two removals of one item remove"
        " one.",
    ),
    Part(
        "handover",
        "",
        (StreamName.HANDOVER,),
        EntryKind.HANDOVER,
        WRITERS,
        _ANY_WRITER + " Once for each business version; from then on it is read-only for everybody.",
        "Of one business version the first in the relay's order stands; later ones are kept and shown as conflicts.",
    ),
    Part(
        "approvals",
        "",
        (StreamName.AUTHORITY,),
        EntryKind.APPROVAL,
        _APPROVERS,
        "A person on a device whose role may approve, and not the one that makes the call.",
        "The relay's ruling alone counts, made by who signed in at the connection that brought the approval; it is used"
        " up by one call.",
    ),
    Part(
        "rulings",
        "",
        (StreamName.AUTHORITY,),
        EntryKind.RULING,
        _NOBODY,
        "The relay alone.",
        "There is one author, so the relay's order decides.",
    ),
    Part(
        "snapshots",
        "",
        (StreamName.STATE, StreamName.HISTORY, StreamName.AUTHORITY),
        EntryKind.SNAPSHOT,
        WRITERS,
        "A device that brings back what a lost log held.",
        "What is there already is left as it is.",
    ),
)
"""One row for each part. `check_entry` and every writer look here."""

KINDS_OF_STREAM: dict[StreamName, frozenset[EntryKind]] = {
    name: frozenset(part.kind for part in PARTS if name in part.streams) for name in StreamName
}
"""Which kinds of entry a stream holds."""

_ROLES: dict[EntryKind, frozenset[Role]] = {part.kind: part.roles for part in PARTS}
_PARTS = {part.name: part for part in PARTS}
_CHECKS = {"slot name": lambda name: check_name(name, "slot name"), "note name": check_note, "step": check_step}


def roles_of(kind: EntryKind) -> frozenset[Role]:
    """Return the roles that may write entries of a kind."""
    return _ROLES[kind]


def role_named(name: str) -> Role | None:
    """Return the role of this name, None for one that this program does not know."""
    return next((role for role in Role if role.value == name), None)


def part_of(path: str) -> tuple[Part, str]:
    """Return the part that a path names, and what follows in it: a slot's or note's name, a step, or nothing.

    Raises `ValueRefused` for a path that names no part.
    """
    name, slash, item = path.partition("/") if isinstance(path, str) else ("", "", "")
    part = _PARTS.get(name)
    if part is None or bool(slash) != bool(part.item):
        known = ", ".join(part.name + (f"/<{part.item}>" if part.item else "") for part in PARTS)
        raise ValueRefused("The path names no part of a task.", hint=f"Give one of {known}.")
    return part, _CHECKS[part.item](item) if part.item else ""
