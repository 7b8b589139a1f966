"""What a relay tells of single events: a few words and names, for a log; never a word of content.

Every value is written so that it cannot end a line or look like another field, whoever chose it.
"""

import json
import re
from collections.abc import Mapping

import msgspec

__all__ = ["Note", "as_json_line", "as_text"]

_PLAIN = re.compile(r"[A-Za-z0-9_./:@+-]+")
_CHARS_MAX = 256


class Note(msgspec.Struct, frozen=True):
    """Something happened. `fields` are names, addresses, codes and numbers."""

    event: str
    fields: Mapping[str, str | int | bool]
    level: str = "info"


def as_text(note: Note) -> str:
    """Return a note as one line of words; a value that is not plain is quoted as JSON."""
    return " ".join((note.event, *(f"{name}={_plain(value)}" for name, value in note.fields.items())))


def as_json_line(note: Note, at: str) -> str:
    """Return a note as one JSON document; `at` is when it happened."""
    fields = {name: value[:_CHARS_MAX] if isinstance(value, str) else value for name, value in note.fields.items()}
    return json.dumps({"at": at, "level": note.level, "event": note.event, **fields})


def _plain(value: str | int | bool) -> str:
    if not isinstance(value, str):
        return str(value).lower()
    return value if _PLAIN.fullmatch(value) and len(value) <= _CHARS_MAX else json.dumps(value[:_CHARS_MAX])
