"""Which promised writes a thrown-away disk has taken with it: those that no disk of the world holds any more.

A restored image, a relay without its log, or a forgotten task may be the last holder's end. That loss is no broken
promise: nobody promised more copies than there were. Whatever one disk still holds stays owed, by all.
"""

from typing import TYPE_CHECKING

from sync_core.entry import Entry
from tests.simulation import peek
from tests.simulation.journal import CallOp, DeclareOp, GuardedOp, HistoryOp, NoteOp, Op, PlanOp, SlotOp

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["mark_lost", "mark_set_aside"]


def mark_lost(world: "World") -> None:
    """Mark every promised op that no disk holds."""
    holdings: dict[str, tuple[bytes, list[Entry]]] = {}
    for op in world.journal.promised():
        if op.task not in holdings:
            holdings[op.task] = _holdings(world, op.task)
        content, records = holdings[op.task]
        if not _is_held(world, op, content, records):
            op.lost = True


def mark_set_aside(world: "World") -> None:
    """Mark every promised op whose entry the relay refused for good: it is kept in the file, out of the document."""
    for op in world.journal.promised():
        for device in world.devices:
            aside = peek.aside_of(device.disk, op.task)
            if _is_among(op, aside):
                op.lost = True


def _is_among(op: Op, entries: list[Entry]) -> bool:
    if any((entry.stream, entry.writer, entry.writer_seq) in op.keys for entry in entries):
        return True
    needle = (op.attempt if isinstance(op, CallOp | GuardedOp) else op.tag).encode()
    return any(needle in entry.payload for entry in entries)


def _holdings(world: "World", task: str) -> tuple[bytes, list[Entry]]:
    content, records = peek.mailbox_payloads(world.relay.mailbox, world.subject, task)
    for device in world.devices:
        more, other = peek.payloads_of(device.disk, task)
        content = content + more
        records = records + other
    return b"\x00".join(content), records


def _is_held(world: "World", op: Op, content: bytes, records: list[Entry]) -> bool:
    if isinstance(op, CallOp | GuardedOp):
        needle = op.attempt.encode()
        return any(needle in entry.payload and b"outcome" in entry.payload for entry in records)
    if isinstance(op, DeclareOp | HistoryOp | PlanOp) or (isinstance(op, NoteOp) and op.added):
        return op.tag.encode() in content
    if isinstance(op, SlotOp) and op.status is not None:
        return op.tag.encode() in content
    return any(_entry_is_held(world, key) for key in op.keys)


def _entry_is_held(world: "World", key: tuple[str, int, int]) -> bool:
    """Whether an entry without content of its own is held: as a row, at the relay, or inside a merged row."""
    stream, writer, seq = key
    if peek.mailbox_place(world.relay.mailbox, world.subject, stream, writer, seq) is not None:
        return True
    for device in world.devices:
        if peek.row_of(device.disk, stream, writer, seq) is not None:
            return True
        kept = peek.streams_of(device.disk, stream.rpartition(":")[0]).get(stream)
        merged = None if kept is None else kept.document
        if merged is not None and any(row.writer == writer and row.next_seq > seq for row in merged.writers):
            return True
    return False
