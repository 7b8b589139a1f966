"""Tells the story to whoever watches: in colour on a terminal, in plain lines elsewhere, or not at all."""

import importlib.util
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["FigureRow", "Narrator", "PlainNarrator", "RichNarrator", "SilentNarrator", "narrator_for"]

FigureRow = tuple[str, str, str, bool]
"""A row of the closing table: what was counted, the count, what was expected, whether they agree."""

_WHO_WIDTH = 8
_COLOURS = {"phone": "cyan", "desktop": "magenta", "relay": "yellow", "you": "bold green", "demo": "bold red"}


class Narrator(Protocol):
    """What the story needs of its teller. `waiting` is called about once a second while nothing happens."""

    def chapter(self, title: str) -> None: ...

    def line(self, who: str, text: str) -> None: ...

    def waiting(self, what: str, seconds: int) -> None: ...

    def arrived(self) -> None: ...

    def figures(self, rows: Sequence[FigureRow]) -> None: ...

    def closing(self, text: str, good: bool) -> None: ...


class PlainNarrator:
    """Lines of plain text, for pipes, logs and terminals without rich."""

    def chapter(self, title: str) -> None:
        print(f"\n{title}", flush=True)

    def line(self, who: str, text: str) -> None:
        print(f"  {who:<{_WHO_WIDTH}} {text}", flush=True)

    def waiting(self, what: str, seconds: int) -> None:
        print(f"  {'':<{_WHO_WIDTH}} ... waiting for {what} ({seconds} s)", flush=True)

    def arrived(self) -> None:
        """Nothing to wipe away."""

    def figures(self, rows: Sequence[FigureRow]) -> None:
        print()
        width = max(len(row[0]) for row in rows)
        print(f"  {'counted from the files':<{width}}  {'found':>8}  {'expected':>8}")
        for label, found, expected, agrees in rows:
            print(f"  {label:<{width}}  {found:>8}  {expected:>8}{'' if agrees else '   <-- wrong'}")

    def closing(self, text: str, good: bool) -> None:
        print(f"\n{text}", flush=True)


class RichNarrator:
    """The same story with colours, a spinner while waiting, and a drawn table."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._status: Status | None = None

    def chapter(self, title: str) -> None:
        self.arrived()
        self._console.print()
        self._console.print(title, style="bold", markup=False)

    def line(self, who: str, text: str) -> None:
        from rich.table import Table
        from rich.text import Text

        self.arrived()
        # Two columns, so that a long text goes on below its own beginning.
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_column(width=2)
        row.add_column(width=_WHO_WIDTH)
        row.add_column()
        row.add_row("", Text(who, _COLOURS.get(who, "")), Text(text))
        self._console.print(row)

    def waiting(self, what: str, seconds: int) -> None:
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        self._status.update(f"waiting for {what} ({seconds} s)")

    def arrived(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def figures(self, rows: Sequence[FigureRow]) -> None:
        from rich.table import Table

        table = Table(title="Counted from the files, after all processes had ended", title_justify="left")
        table.add_column("figure")
        table.add_column("found", justify="right")
        table.add_column("expected", justify="right")
        for label, found, expected, agrees in rows:
            table.add_row(label, found, expected, style="green" if agrees else "bold red")
        self._console.print()
        self._console.print(table)

    def closing(self, text: str, good: bool) -> None:
        self.arrived()
        self._console.print()
        self._console.print(text, style="bold green" if good else "bold red", markup=False, soft_wrap=True)


class SilentNarrator:
    """Says nothing: the one JSON document is all there is to read."""

    def chapter(self, title: str) -> None: ...

    def line(self, who: str, text: str) -> None: ...

    def waiting(self, what: str, seconds: int) -> None: ...

    def arrived(self) -> None: ...

    def figures(self, rows: Sequence[FigureRow]) -> None: ...

    def closing(self, text: str, good: bool) -> None: ...


def narrator_for(json_output: bool) -> Narrator:
    """Return the narrator that fits the output: none for JSON, rich if it is installed and this is a terminal."""
    if json_output:
        return SilentNarrator()
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        return RichNarrator()
    return PlainNarrator()
