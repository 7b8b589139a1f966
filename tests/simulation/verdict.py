"""The final verdict: what stands on every disk after the heal, against the journal.

Documents are read anew from each disk, and once more from the relay's log alone. Slots and notes are taken out of the
raw Yjs document with pycrdt itself, so the content is judged without the code that shows it.
"""

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from pycrdt import Doc, Map, Text

from sync_core.document.calls import CallState
from sync_core.document.document import TaskDocument
from sync_core.document.view import TaskView
from sync_core.entry import Entry, EntryKind, WriterRow
from sync_core.ids import GENESIS_WRITER, StreamName, split_stream
from sync_core.replica.snapshots import fill
from tests.simulation import peek
from tests.simulation.checks_endings import check_endings
from tests.simulation.driver import Violation
from tests.simulation.verdict_calls import check_calls, check_history
from tests.simulation.verdict_content import check_notes, check_slots
from tests.simulation.verdict_guarded import check_guarded

if TYPE_CHECKING:
    from tests.simulation.device import Device
    from tests.simulation.world import World

__all__ = [
    "Content",
    "at_rest",
    "difference",
    "final_checks",
    "raw_content",
    "rebuilt_view",
    "state_vector",
    "writers_clocks",
]


class Content(msgspec.Struct, frozen=True):
    """A raw document: live slot writes and definitions by key, notes by name, and the next clock of each writer."""

    slots: dict[str, str]
    definitions: dict[str, str]
    notes: dict[str, str]
    clocks: dict[int, int]


def rebuilt(world: "World", device: "Device", task: str) -> tuple[TaskDocument, dict[StreamName, dict[int, WriterRow]]]:
    """Return a document made of what stands on a disk, and the writer tables."""
    image = device.disk.load_task(task)
    entropy = Random(f"{world.seed} verdict").randbytes
    document = TaskDocument(world.subject, task, device.name, 2**52 + 1, entropy)
    merged = b""
    entries: list[Entry] = []
    tables = {}
    for stream in image.streams:
        merged = stream.document or merged
        entries.extend(stream.entries)
        tables[split_stream(stream.stream)[1]] = {row.writer: row for row in stream.writers}
    snapshots = {
        entry.blob: data
        for entry in entries
        if entry.kind is EntryKind.SNAPSHOT and entry.blob and (data := device.disk.load_blob(task, entry.blob))
    }
    whole = [entry for entry in entries if entry.kind is not EntryKind.SNAPSHOT or entry.blob in snapshots]
    fill(document, merged, whole, snapshots)
    return document, tables


def rebuilt_view(world: "World", device: "Device", task: str) -> TaskView:
    """Return the view that a disk gives."""
    return at_rest(_judged(*rebuilt(world, device, task)))


def _judged(document: TaskDocument, tables: dict[StreamName, dict[int, WriterRow]]) -> TaskView:
    """Return a document's view, with what writer tables alone can tell."""
    return document.judged(document.view(), {name: table.values() for name, table in tables.items()})


def at_rest(view: TaskView, elsewhere: TaskView | None = None) -> TaskView:
    """Return a view as another process would have it, the count of writes left out.

    A step that runs in this process has the state there that it has `elsewhere`.
    """
    if elsewhere is None:
        return replace(view, writes=0)
    calls = {}
    for key, call in view.calls.items():
        other = elsewhere.calls.get(key)
        is_running = call.state is CallState.RUNNING and other is not None
        calls[key] = replace(call, state=other.state) if is_running and other is not None else call
    return replace(view, calls=calls, writes=0)


def state_vector(state: bytes) -> dict[int, int]:
    """Return a Yjs state vector as next clock by writer."""
    numbers: list[int] = []
    value = shift = 0
    for byte in state:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    return dict(zip(numbers[1::2], numbers[2::2], strict=True))


def raw_content(update: bytes) -> Content:
    """Return what pycrdt makes of a merged update."""
    doc: Doc[Any] = Doc()
    doc.apply_update(update)
    keys = sorted(doc.keys())
    return Content(
        slots=dict(doc.get("slots", type=Map).to_py() or {}),
        definitions=dict(doc.get("slotdefs", type=Map).to_py() or {}),
        notes={key[5:]: text for key in keys if key.startswith("note:") and (text := str(doc.get(key, type=Text)))},
        clocks=state_vector(doc.get_state()),
    )


def writers_clocks(update: bytes) -> dict[int, int]:
    """Return the next clock of each writer of a merged update, the genesis left out."""
    clocks = raw_content(update).clocks
    return {writer: clock for writer, clock in clocks.items() if writer != GENESIS_WRITER}


def final_checks(world: "World") -> None:
    """Check every task; raises `Violation` at the first broken promise."""
    for task in sorted({op.task for op in world.journal.ops}):
        _check_task(world, task)


def _check_task(world: "World", task: str) -> None:
    holders = [device for device in world.devices if task in {known.task for known in device.disk.followed_tasks()}]
    first: tuple[str, Content, TaskView, dict[StreamName, bytes]] | None = None
    for device in holders:
        document, tables = rebuilt(world, device, task)
        content = raw_content(document.state_bytes())
        _check_clocks(device.label, content, tables.get(StreamName.STATE, {}))
        view = _judged(document, tables)
        digests = {name: document.digest(name, table) for name, table in sorted(tables.items())}
        _check_open_view(device, task, view)
        if first is None:
            first = (device.label, content, view, digests)
        else:
            _compare(task, first, (device.label, content, view, digests))
    if first is None:
        first = _from_relay(world, task)
    if first is not None:
        _, content, view, _ = first
        check_slots(world, task, content.slots, content.definitions)
        check_notes(world, task, content.notes)
        check_calls(world, task, view)
        check_guarded(world, task, view)
        check_endings(world, task, view)
        check_history(world, task, view, holders)


def _check_clocks(label: str, content: Content, table: dict[int, WriterRow]) -> None:
    """Nothing waits inside pycrdt for what never came: its clocks are those of the writer table."""
    clocks = {writer: clock for writer, clock in content.clocks.items() if writer != GENESIS_WRITER}
    due = {row.writer: row.next_clock for row in table.values() if row.next_clock}
    if clocks != due:
        wrong = Counter(clocks) - Counter(due) + (Counter(due) - Counter(clocks))
        raise Violation(f"on {label} the document's clocks differ from the writer table in {len(wrong)} writers")


def _check_open_view(device: "Device", task: str, view: TaskView) -> None:
    """What the device last announced of an open task is what its disk gives."""
    if any(task in user.open for user in device.users):
        shown = device.views.get(task)
        if shown is not None and at_rest(shown, view) != at_rest(view):
            detail = difference(at_rest(shown, view), at_rest(view))
            raise Violation(f"{device.label} shows another view of {task} than its disk gives: {detail}")


def _compare(
    task: str,
    one: tuple[str, Content, TaskView, dict[StreamName, bytes]],
    other: tuple[str, Content, TaskView, dict[StreamName, bytes]],
) -> None:
    if one[1] != other[1]:
        raise Violation(f"{one[0]} and {other[0]} hold other content of {task}: {difference(one[1], other[1])}")
    if at_rest(one[2]) != at_rest(other[2]):
        raise Violation(
            f"{one[0]} and {other[0]} show other views of {task}: {difference(at_rest(one[2]), at_rest(other[2]))}"
        )
    for name, digest in one[3].items():
        if other[3].get(name, digest) != digest:
            raise Violation(f"{one[0]} and {other[0]} have other digests of {task}:{name}")


def difference(one: msgspec.Struct, other: msgspec.Struct) -> str:
    """Name the fields that differ, with both values cut short."""
    parts = []
    for field in one.__struct_fields__:
        left, right = getattr(one, field), getattr(other, field)
        if left != right:
            if isinstance(left, dict) and isinstance(right, dict):
                keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
                left, right = {k: left.get(k) for k in keys}, {k: right.get(k) for k in keys}
            parts.append(f"{field}: {str(left)[:300]} / {str(right)[:300]}")
    return "; ".join(parts)


def _from_relay(world: "World", task: str) -> tuple[str, Content, TaskView, dict[StreamName, bytes]] | None:
    """Nobody follows the task any more: read it from the relay's log, unless that needs judging or blobs."""
    entries = peek.mailbox_entries(world.relay.mailbox, world.subject, task)
    if not entries or world.faults.plan.hostile or any(entry.kind is EntryKind.SNAPSHOT for entry in entries):
        return None
    document = TaskDocument(world.subject, task, "relay", 2**52 + 1, Random(f"{world.seed} verdict").randbytes)
    document.load(b"", entries)
    return "relay", raw_content(document.state_bytes()), document.view(), {}
