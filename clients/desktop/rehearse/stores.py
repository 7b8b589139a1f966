"""What the devices' files hold of a run, read after every endpoint was closed."""

import os
import sqlite3
from collections import Counter
from pathlib import Path

import msgspec

from clients.desktop.rehearse.recording import Message, Run
from sync_core.context.rows import KEPT_COLUMNS, kept_entry, task_span
from sync_core.context.sqlite_store import SqliteStore
from sync_core.document.calls import Call
from sync_core.document.document import TaskDocument
from sync_core.document.history import HistoryEntry
from sync_core.entry import CallIntent, CallOutcome, EntryKind, decode_record
from sync_core.ids import StreamName, new_writer, stream_id
from sync_core.values import parse

__all__ = ["StoredRun", "read_stored"]

_STREAMS = (StreamName.STATE, StreamName.HISTORY, StreamName.HANDOVER)


class StoredRun(msgspec.Struct, frozen=True):
    """One task in one device's file.

    `calls` is by step. `begun_again` counts, by step, how often this device began a call after the file held a success
    of it already. `digests` are of the task's streams, rebuilt from the file.
    """

    device: str
    digests: tuple[bytes, ...]
    calls: dict[str, Call]
    messages: tuple[tuple[HistoryEntry, Message], ...]
    begun_again: Counter[str]


async def read_stored(path: Path, device: str, run: Run) -> StoredRun:
    """Return what a device's file holds of a run."""
    store = await SqliteStore.open(path, subject=run.subject)
    try:
        found = await _read(store, device, run)
    finally:
        await store.close()
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        found.begun_again.update(_begun_again(connection, run.task))
    connection.close()
    return found


async def _read(store: SqliteStore, device: str, run: Run) -> StoredRun:
    task = run.task
    image = await store.load_task(task)
    document = TaskDocument(run.subject, task, device, new_writer(os.urandom), os.urandom)
    streams = {stream.stream: stream for stream in image.streams}
    state = streams.get(stream_id(task, StreamName.STATE))
    document.load(state.document if state else b"", (entry for each in image.streams for entry in each.entries))
    digests = []
    for name in _STREAMS:
        stream = streams.get(stream_id(task, name))
        digests.append(document.digest(name, {row.writer: row for row in stream.writers} if stream else {}))
    view = document.view()
    messages = [(entry, await _message(store, task, entry)) for entry in view.history]
    calls = {step: call for (_, step), call in view.calls.items()}
    return StoredRun(device, tuple(digests), calls, tuple(messages), Counter())


async def _message(store: SqliteStore, task: str, entry: HistoryEntry) -> Message:
    text = entry.message
    if text is None:
        blob = await store.load_blob(task, entry.blob or "")
        text = "{}" if blob is None else blob.decode()
    message = parse(text)
    return message if isinstance(message, dict) else {}


def _begun_again(connection: sqlite3.Connection, task: str) -> Counter[str]:
    """Go through the file's call entries in the order in which they were committed to it."""
    rows = connection.execute(
        f"SELECT {KEPT_COLUMNS} FROM entries WHERE stream >= ? AND stream < ? AND kind = ? ORDER BY local",
        (*task_span(task), EntryKind.CALL.value),
    )
    succeeded: set[str] = set()
    again: Counter[str] = Counter()
    for kept in map(kept_entry, rows):
        record = decode_record(EntryKind.CALL, kept.entry.payload) if kept.entry is not None else None
        if isinstance(record, CallOutcome) and record.ok:
            succeeded.add(record.step)
        if isinstance(record, CallIntent) and kept.own and record.step in succeeded:
            again[record.step] += 1
    return again
