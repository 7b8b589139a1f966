"""Store files of many tasks, or of one long one, made through the store's own seam as a synced device would have them.

To write 10,000 tasks one by one through an endpoint would take longer than what is measured.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from sync_core.context.sqlite_store import SqliteStore
from sync_core.document.document import TaskDocument
from sync_core.document.slots import CandidateStatus, SlotDefinition
from sync_core.document.view import TaskView
from sync_core.entry import CHAIN_START, Entry, EntryKind, WriterRow
from sync_core.guard import check_entry
from sync_core.ids import new_writer
from sync_core.replica.writes import FollowTask, PutEntry, SetPosition, SetWriter, Write

__all__ = ["SUBJECT", "fresh_bytes", "key_of", "make_store", "task_document"]

SUBJECT = "acme"

_EPOCH = bytes(16)
_SLOTS = 4
_TASKS_A_COMMIT = 500


def key_of(number: int) -> str:
    """Return the key of a store's task."""
    return f"expense/TRIP-{number}"


def task_document(task: str, device: str = "phone") -> TaskDocument:
    """Return an empty document under a fresh writer."""
    return TaskDocument(SUBJECT, task, device, new_writer(os.urandom), os.urandom)


def fresh_bytes(view: TaskView) -> int:
    """Return the size of a fresh document that shows the same slots: each declared and written once."""
    document = task_document(view.task)
    for name, slot in view.slots.items():
        if slot.definition is not None:
            document.declare_slot(name, slot.definition, 0)
        for candidate in (*slot.candidates, *slot.proposals):
            document.write_slot(name, candidate.text, candidate.status, frozenset(), candidate.source, candidate.at_ms)
    return len(document.state_bytes())


async def make_store(path: Path, tasks: int) -> None:
    """Make a store of so many small synced tasks: four slots, each declared and confirmed."""
    store = await SqliteStore.open(path, subject=SUBJECT)
    try:
        for first in range(0, tasks, _TASKS_A_COMMIT):
            numbers = range(first, min(first + _TASKS_A_COMMIT, tasks))
            await store.commit([write for number in numbers for write in _small_task(key_of(number))])
    finally:
        await store.close()


def _small_task(task: str) -> list[Write]:
    document = task_document(task)
    updates = []
    for slot in range(_SLOTS):
        name = f"slot_{slot}"
        updates.append(document.declare_slot(name, SlotDefinition("What goes here?", required=True), 0))
        updates.append(document.write_slot(name, '"CC-1042"', CandidateStatus.CONFIRMED, frozenset(), None, 0))
    return [FollowTask(task), *_numbered(task, document.writer, updates)]


def _numbered(task: str, writer: int, updates: Sequence[bytes]) -> list[Write]:
    stream = f"{task}:state"
    rows: dict[int, WriterRow] = {}
    writes: list[Write] = []
    for number, update in enumerate(updates, 1):
        entry = Entry(stream, writer, number, EntryKind.UPDATE, update, "phone", relay_seq=number)
        rows[writer], _ = check_entry(entry, rows)
        writes.append(PutEntry(entry, own=False))
    # Nothing compares the chain before a relay is met.
    return [*writes, SetWriter(stream, rows[writer]), SetPosition(stream, _EPOCH, len(updates), CHAIN_START)]
