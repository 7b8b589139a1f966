"""The one place that prints: for people, or exactly one JSON document with `--json`.

Text from elsewhere may hold control sequences, so people are shown every character that is not printable as an escape.
"""

import sys
from enum import IntEnum

import msgspec

from clients.config import WrongUsage
from sync_core.errors import SegueError

__all__ = [
    "Answer",
    "ExitStatus",
    "JsonDocument",
    "Table",
    "emit",
    "emit_error",
    "emit_line",
    "emit_remark",
    "printable",
]

JsonDocument = None | bool | int | float | str | msgspec.Raw | list["JsonDocument"] | dict[str, "JsonDocument"]
"""What `--json` prints. A slot's value is `msgspec.Raw`: its canonical text, so that no number is rounded."""

_CELL_CHARS_MAX = 64
_PIPE_COLUMNS = 200
_WHOLE_COLUMNS = frozenset({"CANDIDATE", "READ", "SHA256"})
"""What is copied from the screen must not be broken over lines."""


class ExitStatus(IntEnum):
    """How a command ended."""

    DONE = 0
    REFUSED = 1
    WRONG_USAGE = 2


class Table(msgspec.Struct, frozen=True):
    """Rows for people; `styles` colours single cells by their text, on a terminal only."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What a command has to say: one document for programs, parts for people, and how it ended.

    With `error` it was refused, and the rest is what helps to go on.
    """

    document: dict[str, JsonDocument]
    parts: tuple[str | Table, ...]
    status: ExitStatus = ExitStatus.DONE
    error: SegueError | None = None


_STYLES = {
    "conflicted": "bold red",
    "missing": "yellow",
    "in_doubt": "bold red",
    "key_conflict": "bold red",
    "failed": "red",
    "refused": "bold red",
    "confirmed": "green",
    "done": "green",
    "live": "green",
    "offline": "yellow",
    "warning": "yellow",
    "limit": "bold red",
}


def emit(answer: Answer, as_json: bool) -> int:
    """Print a command's answer and return its exit status."""
    if answer.error is None:
        _write(answer, as_json)
        return int(answer.status)
    if as_json:
        _write_json({"error": dict(answer.error.as_json()), **answer.document})
        return int(ExitStatus.REFUSED)
    _write(answer, as_json)
    return emit_error(answer.error, as_json)


def _write(answer: Answer, as_json: bool) -> None:
    if as_json:
        _write_json(answer.document)
        return
    for part in answer.parts:
        if isinstance(part, Table):
            _write_table(part)
        else:
            sys.stdout.write(printable(part) + "\n")
    sys.stdout.flush()


def emit_line(document: JsonDocument, text: str, as_json: bool) -> None:
    """Print one line of a stream of changes at once: a JSON document, or text."""
    if as_json:
        _write_json(document)
    else:
        sys.stdout.write(printable(text) + "\n")
        sys.stdout.flush()


def emit_error(error: SegueError, as_json: bool) -> int:
    """Print an error, to stdout as JSON or to stderr for people, and return the exit status."""
    if as_json:
        _write_json({"error": dict(error.as_json())})
    else:
        sys.stderr.write(f"Error: {printable(error.sentence)}\n")
        if error.hint:
            sys.stderr.write(f"{printable(error.hint)}\n")
    return int(ExitStatus.WRONG_USAGE if isinstance(error, WrongUsage) else ExitStatus.REFUSED)


def emit_remark(text: str) -> None:
    """Print a remark for people to stderr, where it disturbs no document."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Return the text with every character that is not printable, except line ends and tabs, as an escape."""
    return "".join(char if char.isprintable() or char in "\n\t" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def _write_json(document: JsonDocument) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    sys.stdout.buffer.flush()


def _cell(column: str, text: str) -> str:
    line = " ".join(printable(text).split())
    if column in _WHOLE_COLUMNS or len(line) <= _CELL_CHARS_MAX:
        return line
    return line[: _CELL_CHARS_MAX - 1] + "…"


def _write_table(table: Table) -> None:
    """Rich is imported only here: a command that prints text or JSON starts without it."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    grid = RichTable(box=None, pad_edge=False, title=table.title or None, title_justify="left", title_style="bold")
    for column in table.columns:
        grid.add_column(column, overflow="fold", no_wrap=column in _WHOLE_COLUMNS)
    for row in table.rows:
        cells = map(_cell, table.columns, row)
        grid.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    console.print(grid)
