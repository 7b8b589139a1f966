"""The relay's log: one line for each event, as text or as JSON, bounded in what one second may write."""

import logging
import sys
import time
from datetime import UTC, datetime
from typing import Literal

from server_relay.notes import Note, as_json_line, as_text

__all__ = ["LOGGER_NAME", "RelayLog", "silent_logger", "write_log"]

LOGGER_NAME = "segue.relay"
_LINES_PER_SECOND_MAX = 100
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class RelayLog:
    """Hands notes to the logger `segue.relay`. What a flood of strangers would write beyond a bound is only counted."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(LOGGER_NAME)
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def put(self, note: Note) -> None:
        """Log a note. Warnings and errors are the relay's own, few, and always written."""
        level = _LEVELS[note.level]
        if not self._logger.isEnabledFor(level):
            return
        if level == logging.INFO and not self._has_room():
            self._left_out += 1
            return
        self._logger.log(level, "%s", as_text(note), extra={"note": note})

    def _has_room(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                self.put(Note("lines_left_out", {"lines": left_out}, "warning"))
        self._lines += 1
        return self._lines <= _LINES_PER_SECOND_MAX


class _Lines(logging.Formatter):
    def __init__(self, style: Literal["text", "json"]) -> None:
        super().__init__()
        self._as_json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        found = getattr(record, "note", None)
        # Another program's record has no note; its traceback could hold anything, so it is not written.
        note = found if isinstance(found, Note) else Note("logged", {"by": record.name, "text": record.getMessage()})
        return as_json_line(note, at) if self._as_json else f"{at} {note.level} {as_text(note)}"


def silent_logger() -> logging.Logger:
    """Return a logger that writes nothing, for libraries: what a stranger sends does not belong into a log."""
    logger = logging.getLogger(f"{LOGGER_NAME}.websockets")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def write_log(style: Literal["text", "json"]) -> None:
    """Have the notes written to standard error, and nothing else of them anywhere."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(style))
    logger = logging.getLogger(LOGGER_NAME)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
