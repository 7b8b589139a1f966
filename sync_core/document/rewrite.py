"""Own updates written again under another writer id (rule E).

An id may be closed, or may have been used twice. The updates that it can no longer send are replayed one after the
other in a scratch document, only to learn what each did; the same is then done to a document of everything else. Write
ids and values stay, so a token that somebody holds still names the write.
"""

from collections.abc import Iterable, Sequence

from sync_core.document.diff import Edit, diff, rebase
from sync_core.document.genesis import genesis_update
from sync_core.document.shared import Changes, DocumentBroken, MapEdit, SharedDoc
from sync_core.entry import Entry, EntryKind

__all__ = ["Done", "Learner", "rewrite_updates"]

_ROOTS = ("slots", "slotdefs")


def rewrite_updates(
    subject: str,
    task: str,
    writer: int,
    document: bytes,
    base: Iterable[Entry],
    unsent: Sequence[Entry],
    skip: frozenset[int] = frozenset(),
) -> tuple[bytes, ...]:
    """Return for each of `unsent` (own updates, in the order in which they were written) what it is under `writer`.

    `document` (or b"") and the updates of `base` are everything else that counts, in order. `skip` holds the indices of
    updates that were refused: they are replayed, because later ones stand on them, but not written again. An update
    that is skipped, or has nothing left to do, comes back as b"".
    """
    parts = ([document] if document else []) + [entry.payload for entry in base if entry.kind is EntryKind.UPDATE]
    genesis = genesis_update(subject, task)
    replay = Learner(writer, genesis, parts)
    target = SharedDoc(writer, genesis)
    target.apply(parts)
    known = b"\x00".join(parts)
    updates = []
    for index, entry in enumerate(unsent):
        done = replay.learn(entry.payload)
        updates.append(b"" if index in skip or done is None else _repeat(target, done, known))
    return tuple(updates)


class Done:
    """What one update did: keys set and deleted, and notes before and after."""

    def __init__(self, changes: Changes, notes: dict[str, tuple[str, str]]) -> None:
        self.changes = changes
        self.notes = notes


class Learner:
    """A scratch document that is never written, only fed: it tells what each update did. `parts` come before them."""

    def __init__(self, writer: int, genesis: bytes, parts: Sequence[bytes]) -> None:
        self._writer = writer
        self._genesis = genesis
        self._parts = list(parts)
        self._start()

    def _start(self) -> None:
        self._shared = SharedDoc(self._writer, self._genesis)
        notes = self._shared.apply(self._parts).notes
        self._texts = {name: self._shared.note_text(name) for name in notes}

    def learn(self, update: bytes) -> Done | None:
        """Replay an update; None if pycrdt refuses it, which leaves the scratch document as it was before."""
        try:
            changes = self._shared.apply((update,))
        except DocumentBroken:
            self._start()
            return None
        self._parts.append(update)
        before = {name: self._texts.get(name, "") for name in sorted(changes.notes)}
        self._texts.update((name, self._shared.note_text(name)) for name in changes.notes)
        return Done(changes, {name: (text, self._texts[name]) for name, text in before.items()})


def _repeat(target: SharedDoc, done: Done, known: bytes) -> bytes:
    """Do the same on the target. A key that was ever set there is not set again: the write has arrived already."""
    maps = []
    for root in _ROOTS:
        changes: dict[str, str | None] = getattr(done.changes, root)
        deletes = tuple(key for key, text in changes.items() if text is None and target.has(root, key))
        sets = tuple((key, text) for key, text in changes.items() if text is not None and key.encode() not in known)
        if deletes or sets:
            maps.append(MapEdit(root, deletes, sets))
    notes = {name: _moved(target.note_text(name), before, after) for name, (before, after) in done.notes.items()}
    update, _ = target.write(maps, notes)
    return update


def _moved(present: str, before: str, after: str) -> list[Edit]:
    edits = diff(before, after)
    return edits if present == before else rebase(edits, before, present)
