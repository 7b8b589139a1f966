"""What to tell the watchers of a task: which parts of a view changed."""

from collections.abc import Iterable

from sync_core.document.document import Touched
from sync_core.document.view import TaskView
from sync_core.replica.changes import (
    ApprovalChanged,
    CallChanged,
    Change,
    Completed,
    HandOverChanged,
    HistoryChanged,
    NoteChanged,
    SlotChanged,
    VersionChanged,
)

__all__ = ["changes_of", "difference"]


def difference(before: TaskView, now: TaskView) -> Touched:
    """Return what differs between two views of a task."""
    return Touched(
        slots=frozenset(name for name in {*before.slots, *now.slots} if before.slots.get(name) != now.slots.get(name)),
        notes=frozenset(name for name in {*before.notes, *now.notes} if before.notes.get(name) != now.notes.get(name)),
        calls=frozenset(key for key in {*before.calls, *now.calls} if before.calls.get(key) != now.calls.get(key)),
        approvals=frozenset(
            name
            for name in {*before.approvals, *now.approvals}
            if before.approvals.get(name) != now.approvals.get(name)
        ),
        history=before.history != now.history,
        version=before.version != now.version,
        completed=before.completion != now.completion,
        handovers=frozenset(
            version
            for version in {*before.handovers, *now.handovers}
            if before.handovers.get(version) != now.handovers.get(version)
        ),
    )


def changes_of(task: str, view: TaskView, touched: Iterable[Touched], *, local: bool) -> tuple[Change, ...]:
    """Return the changes of what was touched, each once, in a stable order."""
    slots: set[str] = set()
    notes: set[str] = set()
    calls: set[tuple[int, str]] = set()
    approvals: set[str] = set()
    handovers: set[int] = set()
    history = version = completed = False
    for part in touched:
        slots |= part.slots
        notes |= part.notes
        calls |= part.calls
        approvals |= part.approvals
        handovers |= part.handovers
        history = history or part.history
        version = version or part.version
        completed = completed or part.completed
    changes: list[Change] = []
    if version:
        changes.append(VersionChanged(task, view.version, local))
    changes += [SlotChanged(task, view.slots[name], local) for name in sorted(slots) if name in view.slots]
    for name in sorted(notes):
        note = view.notes.get(name)
        changes.append(NoteChanged(task, name, note.content_sha256 if note else "", local))
    changes += [CallChanged(task, number, step, local) for number, step in sorted(calls)]
    requests = [view.approvals[name] for name in sorted(approvals) if name in view.approvals]
    changes += [ApprovalChanged(task, request, local) for request in requests]
    if history:
        changes.append(HistoryChanged(task, local))
    changes += [HandOverChanged(task, number, local) for number in sorted(handovers)]
    if completed:
        changes.append(Completed(task, local))
    return tuple(changes)
