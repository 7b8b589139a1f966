"""Explain: of each part of a task, where it lives, who may change it, who wins, and what this handle may do now.

What it says of roles, streams and merging is the table of `parts`, which is also what is enforced.
"""

import msgspec

from sync_core.document.calls import CallState
from sync_core.document.view import TaskView
from sync_core.entry import Effect, EntryKind
from sync_core.ids import StreamName
from sync_core.parts import HOLDERS, WRITERS, Part, part_of, role_named
from sync_core.replica.changes import LinkState, Status

__all__ = ["Explanation", "explain"]

_NOT_AGAIN = {
    CallState.DONE: "The step is done; it is not run again.",
    CallState.RESULT_UNAVAILABLE: "The step ran; that its result is not here does not make it run again.",
    CallState.KEY_CONFLICT: "The step is recorded with several arguments; use another step.",
}
_OF_ONE_VERSION = frozenset({EntryKind.CALL, EntryKind.PLAN, EntryKind.HANDOVER})


class Explanation(msgspec.Struct, frozen=True):
    """What `task.explain` says of a path.

    `stream` and `kind` are where it lives, `owner` and `roles` who may change it, `merge` who wins when two do.
    `may_write` says whether this handle may change it now, `because` why, or why not.
    """

    path: str
    stream: StreamName
    kind: EntryKind
    owner: str
    roles: tuple[str, ...]
    merge: str
    may_write: bool
    because: str


def explain(path: str, view: TaskView, version: int, writable: bool, status: Status) -> Explanation:
    """Explain a path to a handle of this version and access; raises `ValueRefused` for what names no part."""
    part, item = part_of(path)
    held = part.name == "slots" and item in view.slots and view.slots[item].held
    roles = HOLDERS if held else part.roles
    refused = _refused(part, roles, writable, status) or _standing(part, item, view, version)
    if not refused and held and status.link is not LinkState.LIVE:
        refused = "The authority holds this slot, and it cannot be reached now."
    allowed = "This session has write access" + (f", and its role is {status.role}." if status.role else ".")
    return Explanation(
        path,
        part.stream,
        part.kind,
        part.owner,
        tuple(sorted(role.value for role in roles)),
        part.merge,
        not refused,
        refused or allowed,
    )


def _refused(part: Part, roles: frozenset[str], writable: bool, status: Status) -> str:
    """Why this session may not write such a part at all; empty if it may."""
    role = role_named(status.role)
    if not roles:
        return "Nobody writes this but the relay."
    if not writable:
        return "This session was opened to read only; open a new one with access='write'."
    if role is not None and role not in roles:
        needed = "a role that may write" if roles == WRITERS else " or ".join(sorted(roles))
        return f"The relay gave this device the role {role.value}; it takes {needed}."
    return ""


def _standing(part: Part, item: str, view: TaskView, version: int) -> str:
    """Why the task as it stands takes no such write; empty if it does."""
    if part.kind in _OF_ONE_VERSION and view.version != version:
        return f"Version {view.version} stands, and this session is of version {version}; open the task again."
    if part.name == "handover" and version in view.handovers:
        return f"This version was handed over by {view.handovers[version].author}; it is read-only for everybody."
    if part.name == "completion" and view.completed:
        return "This version is completed; a higher version opens the task again."
    call = view.calls.get((version, item)) if part.name in ("calls", "plan") else None
    if call is None:
        return ""
    shown = call.shown
    if call.state is CallState.IN_DOUBT and shown is not None and shown.effect is Effect.IRREVERSIBLE:
        return "Nobody knows whether the step happened; settle it first."
    return _NOT_AGAIN.get(call.state, "")
