"""NoteTable: the notes of a document, read again only when they were touched; and a merge made beside the document."""

from collections.abc import Iterable, Mapping

from sync_core.document.diff import diff
from sync_core.document.notes import Note, make_note
from sync_core.document.shared import DocumentBroken, SharedDoc
from sync_core.errors import BaseUnknown

__all__ = ["NoteTable", "edit_base", "load_base"]


class NoteTable:
    """Notes by name; one without text is not there."""

    def __init__(self, shared: SharedDoc) -> None:
        self._shared = shared
        self._notes: dict[str, Note] = {}
        self._stale: set[str] = set()

    def change(self, names: Iterable[str]) -> None:
        """Take the names of notes that were touched."""
        self._stale.update(names)

    def note(self, name: str) -> Note:
        """Return a note; one with empty text if it is not there."""
        return self.notes().get(name) or make_note(name, "")

    def notes(self) -> Mapping[str, Note]:
        """Return every note that has text. The mapping is never changed afterwards."""
        if self._stale:
            notes = dict(self._notes)
            for name in sorted(self._stale):
                text = self._shared.note_text(name)
                if text:
                    notes[name] = make_note(name, text)
                else:
                    notes.pop(name, None)
            self._notes = notes
            self._stale = set()
        return self._notes

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text), sorted: what a digest covers."""
        return sorted((note.name, note.text) for note in self.notes().values())


def load_base(writer: int, genesis: bytes, name: str, state: bytes) -> SharedDoc:
    """Return a scratch document of a pinned state; its writer id is its own, or the same clocks were used twice."""
    base = SharedDoc(writer, genesis)
    try:
        base.apply((state,))
    except DocumentBroken:
        raise _unknown(name) from None
    return base


def edit_base(base: SharedDoc, live: SharedDoc, name: str, base_sha256: str, text: str) -> tuple[str, bytes]:
    """Turn the note of a scratch document of its base into `text`; return (the base's text, the update).

    Raises `BaseUnknown` if the state is not of that base, or holds what the live document does not: own operations that
    were written again under another id.
    """
    base_text = base.note_text(name)
    known = live.clocks()
    covered = all(clock <= known.get(writer, 0) for writer, clock in base.clocks().items())
    if not covered or make_note(name, base_text).content_sha256 != base_sha256:
        raise _unknown(name)
    update, _ = base.write(notes={name: diff(base_text, text)})
    return base_text, update


def _unknown(name: str) -> BaseUnknown:
    return BaseUnknown(f"The text that the note {name} was merged from is not known here.")
