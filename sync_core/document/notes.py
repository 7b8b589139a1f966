"""Notes: working text that all ends may edit; whole-text writes become few edits, merges go through a scratch Doc."""

import msgspec

__all__ = ["MergedNote", "Note"]


class Note(msgspec.Struct, frozen=True):
    """A note's text and the SHA-256 (hex) of its UTF-8 bytes, which a later write or merge names as its base."""

    name: str
    text: str
    content_sha256: str


class MergedNote(msgspec.Struct, frozen=True):
    """A note after a three-way merge; `overlap` holds the lines that both ends had changed."""

    note: Note
    overlap: tuple[str, ...]
