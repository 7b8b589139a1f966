"""Replays a stored log entry by entry and says what each did: no tool, no relay and no device is asked."""

import os

import msgspec

from clients.demo.stores import StoredTask
from clients.demo.story import SUBJECT, TASK
from sync_core.document.document import TaskDocument
from sync_core.document.slots import Slot
from sync_core.document.view import TaskView
from sync_core.entry import Entry
from sync_core.ids import StreamName, new_writer

__all__ = ["Step", "digests", "replay"]


class Step(msgspec.Struct, frozen=True):
    """One entry of the log, and the task before and after it."""

    entry: Entry
    before: TaskView
    after: TaskView

    def slots(self) -> tuple[tuple[str, Slot | None, Slot], ...]:
        """Return the slots that the entry changed: name, before, after."""
        return tuple(
            (name, self.before.slots.get(name), slot)
            for name, slot in sorted(self.after.slots.items())
            if self.before.slots.get(name) != slot
        )

    def notes(self) -> tuple[str, ...]:
        """Return the names of the notes that the entry changed."""
        return tuple(name for name, note in sorted(self.after.notes.items()) if self.before.notes.get(name) != note)


def replay(stored: StoredTask) -> tuple[Step, ...]:
    """Return the steps of a log, in the order of the relay's places; an entry without a place is left out."""
    document = _empty()
    steps: list[Step] = []
    before = document.view()
    for entry in stored.numbered():
        document.merge(entry)
        after = document.view()
        steps.append(Step(entry, before, after))
        before = after
    return tuple(steps)


def digests(stored: StoredTask) -> dict[StreamName, bytes]:
    """Return the digest of each stream's content and writer table, rebuilt from what the file holds."""
    document = _empty()
    document.load(stored.document, stored.entries)
    return {
        name: document.digest(name, stored.writers_of(name))
        for name in (StreamName.STATE, StreamName.HISTORY, StreamName.HANDOVER)
    }


def _empty() -> TaskDocument:
    return TaskDocument(SUBJECT, TASK, "evidence", new_writer(os.urandom), os.urandom)
