"""SharedDoc: one pycrdt document with the roots of a task, and what each transaction changed in them.

This is the only file that touches pycrdt. What it knows of the library: the update bytes are taken from the transaction
event; a document is never read inside an observer, which only collects keys and names; `apply_update` is not atomic, so
whatever it raises, PanicException (a BaseException) included, means that the instance must be dropped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from pycrdt import Doc, Map, Text, TransactionEvent

from sync_core.document.diff import Edit, to_utf8

__all__ = ["Changes", "DocumentBroken", "MapEdit", "SharedDoc"]

_NOTE_PREFIX = "note:"
_NOTE_BYTES = _NOTE_PREFIX.encode()


class DocumentBroken(Exception):
    """pycrdt failed in the middle of a change: the document may hold a part of it and must be built anew (rule E)."""


class Changes:
    """What a transaction did: per map root, key → text that was set, or None if it was deleted; names of notes."""

    __slots__ = ("notes", "slotdefs", "slots")

    def __init__(self) -> None:
        self.slots: dict[str, str | None] = {}
        self.slotdefs: dict[str, str | None] = {}
        self.notes: set[str] = set()


class MapEdit(msgspec.Struct, frozen=True):
    """What a local write does to a map root: delete keys that are live, then set fresh ones."""

    root: str
    deletes: tuple[str, ...]
    sets: tuple[tuple[str, str], ...] = ()


_NoteEdits = Mapping[str, Sequence[Edit]]
"""Edits by note; offsets count characters of the note's present text."""


class _Collector:
    """What the observers tell of the transaction that runs. They collect and never read the document."""

    __slots__ = ("changes", "is_local", "update")

    def __init__(self) -> None:
        self.changes = Changes()
        self.is_local = False
        self.update = b""

    def on_map(self, root: str, event: Any) -> None:
        found: dict[str, str | None] = getattr(self.changes, root)
        for key, change in event.keys.items():
            found[key] = change.get("newValue")

    def on_text(self, name: str, _: Any) -> None:
        self.changes.notes.add(name)

    def on_transaction(self, event: TransactionEvent) -> None:
        if self.is_local:
            self.update = event.update


class SharedDoc:
    """A document of a task, written under one writer id.

    A subscription of pycrdt and its document hold each other, where no garbage collector sees it, so every subscription
    is dropped with this object (measured: 12 KB lost for each document otherwise).
    """

    def __init__(self, writer: int, genesis: bytes) -> None:
        self.writer = writer
        self._doc: Doc[Any] = Doc(client_id=writer)
        self._collector = _Collector()
        self._notes: dict[str, Text] = {}
        self._maps: dict[str, Map[str]] = {}
        self._subscriptions = [self._doc.observe(self._collector.on_transaction)]
        for root in ("slots", "slotdefs"):
            shared: Map[str] = Map()
            self._doc[root] = shared
            # The bare event: pycrdt's own `observe` wraps each of its parts, which doubles the cost of a write.
            self._subscriptions.append(shared.integrated.observe(partial(self._collector.on_map, root)))
            self._maps[root] = shared
        self.apply((genesis,))

    def __del__(self) -> None:
        for subscription in self._subscriptions:
            subscription.drop()

    # --- changes ------------------------------------------------------------------------------------------------------

    def apply(self, updates: Iterable[bytes]) -> Changes:
        """Merge updates, in causal order, in one transaction; raises `DocumentBroken` whatever went wrong."""
        updates = tuple(updates)

        def merge() -> None:
            for update in updates:
                self._doc.apply_update(update)

        changes = self._transact(merge)
        if _NOTE_BYTES in b"".join(updates):
            self._find_notes(changes)
        return changes

    def write(self, maps: Sequence[MapEdit] = (), notes: _NoteEdits | None = None) -> tuple[bytes, Changes]:
        """Make local changes in one transaction; return their update (b"" if nothing changed) and what they did."""
        texts = [(self._note(name), edits) for name, edits in (notes or {}).items()]
        places = [(text, to_utf8(str(text), edits)) for text, edits in texts]

        def change() -> None:
            for edit in maps:
                _edit_map(self._maps[edit.root], edit)
            for text, edits in places:
                _edit_text(text, edits)

        return self._transact_locally(change)

    def _transact_locally(self, change: Callable[[], None]) -> tuple[bytes, Changes]:
        self._collector.is_local, self._collector.update = True, b""
        try:
            changes = self._transact(change)
        finally:
            self._collector.is_local = False
        return self._collector.update, changes

    def _transact(self, change: Callable[[], None]) -> Changes:
        changes = self._collector.changes = Changes()
        try:
            with self._doc.transaction():
                change()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise DocumentBroken(f"pycrdt could not change the document ({type(error).__name__}).") from None
        return changes

    # --- notes --------------------------------------------------------------------------------------------------------

    def _note(self, name: str) -> Text:
        text = self._notes.get(name)
        if text is None:
            text = Text()
            self._doc[_NOTE_PREFIX + name] = text
            self._subscriptions.append(text.integrated.observe(partial(self._collector.on_text, name)))
            self._notes[name] = text
        return text

    def _find_notes(self, changes: Changes) -> None:
        """Watch the notes whose roots came with an update; a new root's name stands in the bytes that made it."""
        roots = list(self._doc.keys())
        for root in roots:
            name = root.removeprefix(_NOTE_PREFIX)
            if name != root and name not in self._notes:
                self._note(name)
                changes.notes.add(name)

    # --- reading ------------------------------------------------------------------------------------------------------

    def note_text(self, name: str) -> str:
        """Return a note's text, empty for one that is not there."""
        return str(self._note(name))

    def has(self, root: str, key: str) -> bool:
        """Return whether a key of a map root is live."""
        return key in self._maps[root]

    def state_bytes(self) -> bytes:
        """Return the whole document as one merged update."""
        return self._doc.get_update()

    def clocks(self) -> dict[int, int]:
        """Return the next clock of every writer, the genesis's included."""
        return _decode_state(self._doc.get_state())


def _edit_map(shared: Map[str], edit: MapEdit) -> None:
    for key in edit.deletes:
        del shared[key]
    for key, text in edit.sets:
        shared[key] = text


def _edit_text(text: Text, edits: Sequence[Edit]) -> None:
    """From the end, so that the places before stay right; offsets count UTF-8 bytes."""
    for edit in reversed(edits):
        if edit.end > edit.start:
            del text[edit.start : edit.end]
        if edit.text:
            text.insert(edit.start, edit.text)


def _decode_state(data: bytes) -> dict[int, int]:
    numbers = []
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        if byte > 127:
            shift += 7
        else:
            numbers.append(value)
            value = shift = 0
    return dict(zip(numbers[1::2], numbers[2::2], strict=True))
