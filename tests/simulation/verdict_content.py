"""Slots and notes in the end: nothing gone that nobody who had read it took away, nothing there that nobody wrote."""

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from sync_core.document.slots import CandidateStatus
from tests.simulation.driver import Violation
from tests.simulation.journal import DeclareOp, SlotOp, tags_of

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["check_notes", "check_slots"]

_TAG_IN_SLOT = re.compile(r'"(s\d+x)"')
_TAG_IN_DEFINITION = re.compile(r"\b(d\d+x)\b")
_GLUED = re.compile(r"n\d+xn\d+x")


def check_slots(world: "World", task: str, slots: dict[str, str], definitions: dict[str, str]) -> None:
    """Compare the live writes of a task's slots with the journal."""
    ops = {op.tag: op for op in world.journal.slots if op.task == task}
    alive: dict[str, SlotOp] = {}
    for key, text in slots.items():
        slot, _, write_id = key.partition("/")
        found = _TAG_IN_SLOT.search(text)
        op = None if found is None else ops.get(found.group(1))
        if op is None:
            if world.faults.plan.hostile:
                continue
            raise Violation(f"slot {slot} of {task} holds a value that nobody wrote: {text[:80]}")
        if op.refused:
            raise Violation(f"slot {slot} holds {op.tag}, whose write was refused")
        if op.slot != slot or (op.write_id and op.write_id != write_id):
            raise Violation(f"{op.tag} was written to {op.slot}/{op.write_id} and stands at {key}")
        op.write_id = write_id
        alive[write_id] = op
    for op in ops.values():
        _check_owed(op, alive, ops)
        if not world.checks.may_be_written_twice(task):
            # What took one of two copies away leaves the other.
            _check_deletions(op, alive)
    _check_definitions(world, task, definitions)


def _check_owed(op: SlotOp, alive: dict[str, SlotOp], ops: dict[str, SlotOp]) -> None:
    """A promised value stands unless a write that had read it took it away."""
    if not op.owed or op.status is None or op.write_id in alive:
        return
    if not op.write_id:
        raise Violation(f"slot {op.slot} lost {op.tag}, which was answered without being shown")
    if not any(other.deletes(op.write_id, op.status) for other in ops.values() if not other.refused):
        kind = "confirmed" if op.status is CandidateStatus.CONFIRMED else "proposed"
        raise Violation(f"slot {op.slot}: the {kind} value {op.tag} is gone, and nobody who had read it replaced it")


def _check_deletions(op: SlotOp, alive: dict[str, SlotOp]) -> None:
    """What a write that stands had read is gone."""
    if op.refused or not (op.owed or op.write_id in alive):
        return
    if op.status is not None and op.write_id not in alive:
        return
    for write_id in sorted(op.token):
        target = alive.get(write_id)
        if target is not None and target is not op and op.deletes(write_id, target.status):
            raise Violation(f"slot {op.slot}: {target.tag} is there again, though {op.tag} had read and replaced it")


def _check_definitions(world: "World", task: str, definitions: dict[str, str]) -> None:
    ops: dict[str, DeclareOp] = {op.tag: op for op in world.journal.definitions if op.task == task}
    defined = set()
    for key, text in definitions.items():
        found = _TAG_IN_DEFINITION.search(str(json.loads(text)))
        op = None if found is None else ops.get(found.group(1))
        if op is None and not world.faults.plan.hostile:
            raise Violation(f"a definition of {key} that nobody declared: {text[:80]}")
        defined.add(key.partition("/")[0])
    for op in ops.values():
        if op.owed and op.slot not in defined:
            raise Violation(f"the definition {op.tag} of slot {op.slot} is gone, and no other stands")


def check_notes(world: "World", task: str, notes: dict[str, str]) -> None:
    """Every line that was written and that nobody took away stands, once."""
    ops = [op for op in world.journal.notes if op.task == task]
    twice = world.checks.may_be_written_twice(task)
    glued = any(_GLUED.search(text) for text in notes.values())
    for name in sorted({op.note for op in ops}):
        text = notes.get(name, "")
        removed: set[str] = set()
        for op in ops:
            if op.note == name and not op.refused:
                removed |= op.removed
        counts = Counter(tags_of(text))
        for op in ops:
            if op.note != name:
                continue
            for tag in op.added:
                if op.owed and tag not in removed and tag not in counts:
                    raise Violation(f"note {name}: the line {tag} is gone, and nobody who had read it removed it")
                if op.refused and tag in counts:
                    raise Violation(f"note {name} holds {tag}, whose write was refused")
                if counts[tag] > 1 and not glued and not twice:
                    raise Violation(f"note {name} holds the line {tag} {counts[tag]} times")
