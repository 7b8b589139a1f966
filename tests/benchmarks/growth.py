"""Growth (scenario SE-14): a task that is overwritten 100,000 times, over 10 slots, from 3 devices.

A new session, under a writer of its own, begins after each 100 writes. Every write deletes the one that stood and is
merged, as an entry, into one document that reads along; its merged bytes are what is counted. A second series with
longer sessions tells a session's share from a write's.
"""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from pycrdt import Doc

from sync_core import Endpoint
from sync_core.context.sqlite_store import SqliteStore
from sync_core.document.document import TaskDocument
from sync_core.document.slots import CandidateStatus
from sync_core.entry import CHAIN_START, Entry, EntryKind, WriterRow
from sync_core.errors import TooLarge
from sync_core.guard import check_entry
from sync_core.ids import new_writer
from sync_core.limits import TASK_WRITES_MAX, TASK_WRITES_WARNING
from sync_core.replica.writes import CompactStream, FollowTask, SetPosition, SetWriter
from tests.benchmarks.devices import TASK
from tests.benchmarks.figures import Figure, Scale, timed
from tests.benchmarks.stores import SUBJECT, fresh_bytes, task_document

__all__ = ["OVERWRITE_BYTES", "SESSION_BYTES", "run"]

_STREAM = f"{TASK}:state"
_DEVICES = ("phone", "desktop", "tablet")
_SLOTS = 10
_SESSION_WRITES = 100
_LONG_SESSION_WRITES = 1_000
_CURVE_POINTS = 5
OVERWRITE_BYTES = 45
SESSION_BYTES = 12
"""What design and README state as the cost of growth."""
_LOADS = 5


class _Growing:
    """A task that is written on and on, and the document of a device that reads along."""

    def __init__(self, session_writes: int) -> None:
        self.reader = task_document(TASK, "reader")
        self.writers: dict[int, WriterRow] = {}
        self.overwrites = 0
        self.sessions = 0
        self._session_writes = session_writes
        self._last_session: list[Entry] = []

    @property
    def document_bytes(self) -> int:
        """The size of the merged document."""
        return len(self.reader.state_bytes())

    def overwrite(self, upto: int) -> None:
        """Write until so many overwrites were made, whole sessions at a time."""
        while self.overwrites < upto:
            self._session()

    def _session(self) -> None:
        """One opening. All that stands was written in the last one, which is all that it needs to have read."""
        device = _DEVICES[self.sessions % len(_DEVICES)]
        writer = new_writer(os.urandom)
        document = TaskDocument(SUBJECT, TASK, device, writer, os.urandom)
        document.load(b"", self._last_session)
        self._last_session = list(self._written(document, device))
        self.sessions += 1

    def _written(self, document: TaskDocument, device: str) -> Iterator[Entry]:
        for seq in range(1, self._session_writes + 1):
            name = f"slot_{self.overwrites % _SLOTS}"
            token = document.slot(name).token
            value = f'"CC-{self.overwrites}"'
            update = document.write_slot(name, value, CandidateStatus.CONFIRMED, token, None, self.overwrites)
            self.overwrites += 1
            place = self.overwrites
            entry = Entry(_STREAM, document.writer, seq, EntryKind.UPDATE, update, device, relay_seq=place)
            self.writers[document.writer], scan = check_entry(entry, self.writers)
            self.reader.merge(entry, scan)
            yield entry


async def run(scale: Scale, folder: Path) -> list[Figure]:
    """Return the curve, where warning and refusal come, the load, and bytes an overwrite and a session."""
    growing = _Growing(_SESSION_WRITES)
    sizes, bounds, loads = [], [], []
    step = scale.overwrites // _CURVE_POINTS
    growing.overwrite(step)
    session_bytes = _session_bytes(growing)
    for upto in range(step, scale.overwrites + 1, step):
        growing.overwrite(upto)
        sizes.append(Figure("merged document", growing.overwrites, "overwrites", "KB", growing.document_bytes / 1e3))
        bounds += _bounds(growing)
        if upto in (step, scale.overwrites):
            loads += await _load(folder / f"{upto}.db", growing)
    overwrite_bytes = (_written_bytes(growing) - growing.sessions * session_bytes) / growing.overwrites
    return [
        Figure("an overwrite", growing.overwrites, "overwrites", "bytes", overwrite_bytes, None, OVERWRITE_BYTES),
        Figure("a session", growing.sessions, "sessions", "bytes", session_bytes, None, SESSION_BYTES),
        *sizes,
        *bounds,
        *loads,
    ]


def _session_bytes(growing: _Growing) -> float:
    """Return what a session adds: the same overwrites in fewer sessions are that much smaller."""
    longer = _Growing(_LONG_SESSION_WRITES)
    longer.overwrite(growing.overwrites)
    return (_written_bytes(growing) - _written_bytes(longer)) / (growing.sessions - longer.sessions)


def _written_bytes(growing: _Growing) -> int:
    return growing.document_bytes - fresh_bytes(growing.reader.view())


def _bounds(growing: _Growing) -> list[Figure]:
    """Say at how many overwrites a warning is due, or the next one is refused; each is due at its limit."""
    made = growing.overwrites
    if made == TASK_WRITES_WARNING:
        what, reached = "warning is due", growing.reader.view().writes >= TASK_WRITES_WARNING
    elif made == TASK_WRITES_MAX:
        what, reached = "the next is refused", _refuses(growing.reader)
    else:
        return []
    return [Figure(what, made, "overwrites", "writes", made if reached else made + 1, made, 1)]


def _refuses(document: TaskDocument) -> bool:
    try:
        document.write_slot("slot_0", '"CC-1042"', CandidateStatus.CONFIRMED, frozenset(), None, 0)
    except TooLarge:
        return True
    return False


async def _load(path: Path, growing: _Growing) -> list[Figure]:
    """Open the task from a store in which it lies as one merged row, and apply the same row with bare pycrdt."""
    content = growing.reader.state_bytes()
    await _store(path, growing, content)
    opened, applied = [], []
    for _ in range(_LOADS):
        async with Endpoint.open(path, subject=SUBJECT, device="reader") as reader:
            opened.append(await timed(partial(reader.task, TASK)))
        started = perf_counter()
        Doc().apply_update(content)
        applied.append(perf_counter() - started)
    size = growing.overwrites
    return [
        Figure("open the task, p50", size, "overwrites", "ms", median(opened) * 1e3, None, 250),
        Figure("bare pycrdt apply, p50", size, "overwrites", "ms", median(applied) * 1e3),
    ]


async def _store(path: Path, growing: _Growing, content: bytes) -> None:
    store = await SqliteStore.open(path, subject=SUBJECT)
    rows = tuple(growing.writers.values())
    await store.commit(
        [
            FollowTask(TASK),
            *(SetWriter(_STREAM, row) for row in rows),
            SetPosition(_STREAM, bytes(16), growing.overwrites, CHAIN_START),
            CompactStream(_STREAM, growing.overwrites, content, rows, CHAIN_START),
        ]
    )
    await store.close()
