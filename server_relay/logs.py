"""The relay's log: one line for each event, as text or as JSON, bounded in what one second may write."""

import logging
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from server_relay.notes import Note, as_json_line, as_text

__all__ = ["LOGGER_NAME", "RelayLog", "failure", "silent_logger", "write_log"]

LOGGER_NAME = "segue.relay"
_LINES_PER_SECOND_MAX = 100
_PLACES_MAX = 8
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
        note = found if isinstance(found, Note) else _of_another(record)
        return as_json_line(note, at) if self._as_json else f"{at} {note.level} {as_text(note)}"


def _of_another(record: logging.LogRecord) -> Note:
    """What a library logs could hold anything; only where it comes from is told."""
    error = record.exc_info[0] if record.exc_info else None
    level = "error" if record.levelno >= logging.ERROR else "warning"
    where = {"by": record.name, "at_line": f"{record.filename}:{record.lineno}"}
    return Note("logged", {**where, "error": error.__name__ if error else ""}, level)


def failure(error: BaseException) -> Note:
    """Return what is told of an error that nobody foresaw: its type and where it happened, not what it says."""
    places = traceback.extract_tb(error.__traceback__)[-_PLACES_MAX:]
    where = " ".join(f"{Path(place.filename).name}:{place.lineno}" for place in reversed(places))
    return Note("failed", {"error": type(error).__name__, "where": where}, "error")


def silent_logger() -> logging.Logger:
    """Return a logger that writes nothing, for libraries: what a stranger sends does not belong into a log."""
    logger = logging.getLogger(f"{LOGGER_NAME}.websockets")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def write_log(style: Literal["text", "json"]) -> None:
    """Have the notes written to standard error, and of what asyncio logs only where it comes from."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(style))
    for name, level in ((LOGGER_NAME, logging.INFO), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)
