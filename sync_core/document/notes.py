"""Notes: working text that all ends may edit; whole-text writes become few edits, merges go through a scratch document.

A note is there as long as it has text. A write names the SHA-256 of the text that it was made from, so a newer text is
never overwritten unread.
"""

import msgspec

from sync_core.document.diff import Edit, diff, split_lines
from sync_core.errors import PreconditionFailed, TooLarge, ValueRefused
from sync_core.limits import NOTE_BYTES_MAX
from sync_core.values import digest_text

__all__ = ["MergedNote", "Note", "NoteMerge", "check_base", "check_text", "find_once", "make_note", "overlap"]


class Note(msgspec.Struct, frozen=True):
    """A note's text and the SHA-256 (hex) of its UTF-8 bytes, which a later write or merge names as its base."""

    name: str
    text: str
    content_sha256: str


class MergedNote(msgspec.Struct, frozen=True):
    """A note after a three-way merge; `overlap` holds the lines that both ends had changed."""

    note: Note
    overlap: tuple[str, ...]


class NoteMerge(msgspec.Struct, frozen=True):
    """A merge that was made: the update (b"" if nothing changed), the writer id it is under, and the overlap."""

    update: bytes
    writer: int
    overlap: tuple[str, ...] = ()


def make_note(name: str, text: str) -> Note:
    """Return a note with the hash of its text."""
    return Note(name, text, digest_text(text))


def check_text(name: str, text: str) -> None:
    """Raise `TooLarge` for a note over 128 KiB, `ValueRefused` for text that has no UTF-8."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise ValueRefused(
            f"The note {name} holds a lone surrogate, which is no text.", hint="Decode the text properly first."
        ) from None
    if size_bytes > NOTE_BYTES_MAX:
        raise TooLarge(f"The note {name} exceeds {NOTE_BYTES_MAX} bytes.", hint="Begin another note.")


def check_base(note: Note, content_sha256: str | None) -> None:
    """Raise `PreconditionFailed` unless the hash is of the current text; None stands for a note that is not there."""
    if content_sha256 is None and not note.text:
        return
    if content_sha256 != note.content_sha256:
        raise PreconditionFailed(
            f"The note {note.name} was changed since it was read.",
            current_text=note.text,
            current_sha256=note.content_sha256,
        )


def find_once(note: Note, old: str) -> int:
    """Return where a text stands in the note; raises `ValueRefused` unless it occurs exactly once."""
    at = note.text.find(old) if old else -1
    if at < 0 or note.text.find(old, at + 1) >= 0:
        raise ValueRefused(
            f"The text to replace does not occur exactly once in the note {note.name}.",
            hint="Read the note again and give a longer piece of it.",
        )
    return at


def overlap(base: str, ours: str, theirs: str) -> tuple[str, ...]:
    """Return the lines of the base that both texts changed or took away, without their line feeds, in order."""
    lines = split_lines(base)
    both = _changed_lines(lines, diff(base, ours)) & _changed_lines(lines, diff(base, theirs))
    return tuple(lines[index].rstrip("\n") for index in sorted(both))


def _changed_lines(lines: list[str], edits: list[Edit]) -> set[int]:
    """A line is changed if an edit replaces a part of it or inserts within it; a new line before it changes nothing."""
    changed = set()
    at = index = 0
    for edit in edits:
        while index < len(lines) and at + len(lines[index]) <= edit.start:
            at, index = at + len(lines[index]), index + 1
        place, line = at, index
        while line < len(lines) and place < edit.end:
            changed.add(line)
            place, line = place + len(lines[line]), line + 1
    return changed
