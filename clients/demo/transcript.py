"""A device's transcript: what its user was asked, answered and shown, and when its link was up; one JSON line each."""

import os
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from clients.demo.line_file import append_line, read_lines

__all__ = ["Line", "LineKind", "Transcript", "read_transcript"]


class LineKind(StrEnum):
    """What a line of the transcript tells."""

    ONLINE = "online"
    OFFLINE = "offline"
    REUSED = "reused"
    QUESTION = "question"
    ANSWER = "answer"
    REFUSED = "refused"
    CONFLICT = "conflict"
    STOPPED = "stopped"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `at_ms` is this machine's clock; `values` are the competing values that a conflict showed."""

    at_ms: int
    pid: int
    kind: LineKind
    slot: str = ""
    text: str = ""
    values: tuple[str, ...] = ()


class Transcript:
    """Appends to a device's transcript; a question is on disk before the user can answer it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kind: LineKind, *, slot: str = "", text: str = "", values: tuple[str, ...] = ()) -> None:
        """Append a line and force it to the disk."""
        append_line(self._path, Line(time.time_ns() // 1_000_000, os.getpid(), kind, slot, text, values))


def read_transcript(path: Path) -> tuple[Line, ...]:
    """Return all lines in order; none if the device never started."""
    return read_lines(path, Line)
