"""Restore: what was deleted from a task since a place of its log comes back, as new entries of this device.

Nothing is taken away again: a value that was replaced by one that still stands stays replaced, and a note keeps what
was written since. Calls and history cannot be deleted, so nothing is done about them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from sync_core.document.diff import Edit, apply_edits, diff, rebase, split_lines
from sync_core.document.genesis import genesis_update
from sync_core.document.notes import Note
from sync_core.document.rewrite import Learner
from sync_core.document.slots import Candidate, CandidateStatus, Slot, SlotDefinition, SlotState
from sync_core.document.view import TaskView
from sync_core.endpoint.notes import Notes
from sync_core.endpoint.replay import (
    READER,
    Kept,
    check_place,
    document_at,
    merged_in_log,
    numbered_upto,
    rebuild,
    updates_in_order,
)
from sync_core.endpoint.slots import Slots
from sync_core.entry import Entry
from sync_core.errors import NeedsAuthority, PreconditionFailed, TooLarge, ValueRefused
from sync_core.values import parse

__all__ = ["Left", "Lost", "LostCandidate", "LostNote", "Restored", "bring_back", "find_lost"]

_NOTHING_READ: frozenset[str] = frozenset()


class LostCandidate(msgspec.Struct, frozen=True):
    """A value that was deleted."""

    slot: str
    candidate: Candidate


class LostNote(msgspec.Struct, frozen=True):
    """A note of which text was deleted: `text` is the merge of that and the present one, which has this hash."""

    name: str
    text: str
    present: Note | None


class Left(msgspec.Struct, frozen=True):
    """What was deleted and does not come back, and why."""

    what: str
    why: str


class Lost(msgspec.Struct, frozen=True):
    """What was deleted since a place."""

    definitions: tuple[tuple[str, SlotDefinition], ...]
    candidates: tuple[LostCandidate, ...]
    notes: tuple[LostNote, ...]
    left: tuple[Left, ...]


class Restored(msgspec.Struct, frozen=True):
    """What came back: slots that were declared again, (slot, status) of each value, notes; and what was left."""

    at: int
    definitions: tuple[str, ...]
    values: tuple[tuple[str, CandidateStatus], ...]
    notes: tuple[str, ...]
    left: tuple[Left, ...]


# --- what was lost ----------------------------------------------------------------------------------------------------


def find_lost(subject: str, device: str, kept: Kept, at: int) -> Lost:
    """Return what was live at a place of the `state` stream and was deleted since; pure, nothing is written.

    Raises `HistoryTrimmed`, `ValueRefused`, `StoreDamaged` as a replay does.
    """
    check_place(kept, at)
    then = document_at(subject, device, kept, at).view()
    now = rebuild(subject, device, kept, [entry for image in kept.image.streams for entry in image.entries]).view()
    walk = _walk(subject, kept, at, then)
    candidates: list[LostCandidate] = []
    left: list[Left] = []
    for name, slot in sorted(then.slots.items()):
        present = now.slots.get(name) or Slot(name, SlotState.MISSING)
        for candidate in sorted((*slot.candidates, *slot.proposals), key=lambda each: (each.n, each.write_id)):
            why = _why_left(candidate, slot, present, walk.successors)
            if why:
                left.append(Left(f"{name} ({candidate.status.value})", why))
            elif why is None:
                candidates.append(LostCandidate(name, candidate))
    notes = (LostNote(name, text, now.notes.get(name)) for name, text in sorted(walk.notes.items()))
    return Lost(
        tuple(_lost_definitions(then, now)),
        tuple(candidates),
        tuple(note for note in notes if note.text != (note.present.text if note.present else "")),
        tuple(left),
    )


def _walk(subject: str, kept: Kept, at: int, then: TaskView) -> "_Walk":
    """Walk from a place to the end of what the file holds."""
    seen = set(map(_key, numbered_upto(kept, at)))
    is_in_log = bool(merged_in_log(kept))
    before: list[bytes] = []
    later: list[bytes] = []
    for entry, update in updates_in_order(kept):
        known = is_in_log if entry is None else _key(entry) in seen
        (before if known else later).append(update)
    walk = _Walk(then, Learner(READER, genesis_update(subject, kept.image.task), before))
    for update in later:
        walk.take(update)
    return walk


def _key(entry: Entry) -> tuple[str, int, int]:
    return entry.stream, entry.writer, entry.writer_seq


class _Walk:
    """The updates since a place, one after the other.

    `successors`: for each write that was deleted, the writes that came to its slot in the same update. `notes`: the
    text that each note of that place would have if nothing had been taken from it since.
    """

    def __init__(self, then: TaskView, learner: Learner) -> None:
        self.successors: dict[str, set[str]] = {}
        self.notes = {name: note.text for name, note in then.notes.items()}
        self._learner = learner

    def take(self, update: bytes) -> None:
        """Take the next update; one that cannot be read did nothing."""
        done = self._learner.learn(update)
        if done is None:
            return
        fresh: dict[str, set[str]] = {}
        for key, text in done.changes.slots.items():
            name, _, write_id = key.partition("/")
            if text is not None:
                fresh.setdefault(name, set()).add(write_id)
        for key, text in done.changes.slots.items():
            name, _, write_id = key.partition("/")
            if text is None:
                self.successors.setdefault(write_id, set()).update(fresh.get(name, ()))
        for name, (before, after) in done.notes.items():
            if name in self.notes:
                self.notes[name] = _without_deletion(self.notes[name], before, after)


def _without_deletion(kept: str, before: str, after: str) -> str:
    """Merge an edit (before → after) into a text from which nothing was taken; what only deletes is left out."""
    if kept == after:
        return kept
    edits = diff(before, after)
    if not any(edit.text for edit in edits):
        return kept
    return after if kept == before else apply_edits(kept, rebase(_once(edits, before, kept), before, kept))


def _once(edits: list[Edit], before: str, kept: str) -> list[Edit]:
    """Return the edits without lines that somebody typed again: they were taken, and are kept already."""
    taken = Counter(split_lines(kept)) - Counter(split_lines(before))
    out = []
    for edit in edits:
        lines = []
        for line in split_lines(edit.text):
            if line.endswith("\n") and taken[line]:
                taken[line] -= 1
            else:
                lines.append(line)
        out.append(Edit(edit.start, edit.end, "".join(lines)))
    return out


def _why_left(candidate: Candidate, then: Slot, now: Slot, successors: Mapping[str, set[str]]) -> str | None:
    """Return None for a write that is to come back, else why it is not: "" if nothing is missing."""
    standing = (*now.candidates, *now.proposals)
    confirmed = [each for each in standing if each.status is CandidateStatus.CONFIRMED]
    if candidate.write_id in now.token:
        return ""
    if any(
        each.text == candidate.text and candidate.status in (each.status, CandidateStatus.PROPOSED) for each in standing
    ):
        return ""
    if not candidate.readable:
        return "It cannot be read."
    if any(each.write_id not in then.token for each in confirmed):
        return "A value that was confirmed later stands."
    if _replaced(candidate.write_id, successors, now.token):
        return "The value that replaced it stands."
    return None


def _replaced(write_id: str, successors: Mapping[str, set[str]], live: frozenset[str]) -> bool:
    """Whether a write, or one that replaced that one, took its place and is live."""
    seen: set[str] = set()
    waiting = [write_id]
    while waiting:
        for successor in successors.get(waiting.pop(), set()) - seen:
            if successor in live:
                return True
            seen.add(successor)
            waiting.append(successor)
    return False


def _lost_definitions(then: TaskView, now: TaskView) -> Iterable[tuple[str, SlotDefinition]]:
    for name, slot in sorted(then.slots.items()):
        present = now.slots.get(name)
        if slot.definition is not None and (present is None or present.definition is None):
            yield name, msgspec.structs.replace(slot.definition, secret=slot.secret)


# --- bringing it back -------------------------------------------------------------------------------------------------


async def bring_back(at: int, lost: Lost, slots: Slots, notes: Notes) -> Restored:
    """Write what was lost as new entries of this handle; each part that is refused is left, and said."""
    definitions: list[str] = []
    values: list[tuple[str, CandidateStatus]] = []
    written: list[str] = []
    left = list(lost.left)
    for name, definition in lost.definitions:
        try:
            await _declare(slots, name, definition)
            definitions.append(name)
        except (ValueRefused, TooLarge, NeedsAuthority) as error:
            left.append(Left(f"the definition of {name}", error.sentence))
    for each in lost.candidates:
        status = each.candidate.status
        write = slots.confirm if status is CandidateStatus.CONFIRMED else slots.propose
        try:
            await write(each.slot, each.candidate.value, read=_NOTHING_READ, source=each.candidate.source)
            values.append((each.slot, status))
        except (ValueRefused, TooLarge, NeedsAuthority) as error:
            left.append(Left(f"{each.slot} ({status.value})", error.sentence))
    for note in lost.notes:
        try:
            base = note.present.content_sha256 if note.present is not None else None
            await notes.write(note.name, note.text, content_sha256=base)
            written.append(note.name)
        except PreconditionFailed:
            left.append(Left(f"the note {note.name}", "It was changed in this moment; restore again."))
        except (TooLarge, ValueRefused) as error:
            left.append(Left(f"the note {note.name}", error.sentence))
    return Restored(at, tuple(definitions), tuple(values), tuple(written), tuple(left))


async def _declare(slots: Slots, name: str, definition: SlotDefinition) -> None:
    schema = None if definition.schema is None else parse(definition.schema)
    await slots.declare(
        name,
        ask=definition.ask,
        schema=schema if isinstance(schema, dict) else None,
        required=definition.required,
        secret=definition.secret,
        order=definition.order,
        held_by=definition.held_by,
    )
