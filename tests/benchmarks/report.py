"""The report: one table for people, one document for programs."""

import sys
from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.benchmarks.figures import Figure, Verdict
from tests.benchmarks.machine import Machine

__all__ = ["Report", "as_json", "misses", "print_table"]

_HEAD = ("benchmark", "figure", "size", "Segue", "floor", "result", "target", "")
_RIGHT = frozenset({"Segue", "floor", "result", "target"})
_STYLES = {Verdict.PASS: "green", Verdict.MISS: "bold red", Verdict.SHOWN: "dim"}


class Report(msgspec.Struct, frozen=True):
    """A run: the machine, the figures of each benchmark by name, and why a benchmark could not run."""

    machine: Machine
    benchmarks: dict[str, list[Figure]]
    failed: dict[str, str]


def misses(report: Report) -> int:
    """Return how many targets were missed."""
    return sum(figure.verdict is Verdict.MISS for figures in report.benchmarks.values() for figure in figures)


def as_json(report: Report) -> str:
    """Return the report as one JSON document, with result and verdict of each figure."""
    benchmarks = {
        name: [
            {**msgspec.structs.asdict(figure), "result": figure.result, "verdict": figure.verdict} for figure in figures
        ]
        for name, figures in report.benchmarks.items()
    }
    document = {"machine": report.machine, "benchmarks": benchmarks, "failed": report.failed, "misses": misses(report)}
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def print_table(report: Report) -> None:
    """Print the machine, the table and what could not run."""
    print(_machine_line(report.machine))
    rows = _rows(report.benchmarks)
    if sys.stdout.isatty():
        _print_rich(rows)
    else:
        _print_plain([_HEAD, *rows])
    for name, reason in report.failed.items():
        print(f"{name} could not run: {reason}")


def _machine_line(machine: Machine) -> str:
    return (
        f"{machine.cpu}, {machine.cores} cores; Python {machine.python}, SQLite {machine.sqlite}, pycrdt"
        f" {machine.pycrdt}, websockets {machine.websockets}; an fsync of 4 KiB takes {machine.fsync_ms:.2f} ms"
    )


def _rows(benchmarks: Mapping[str, Sequence[Figure]]) -> list[tuple[str, ...]]:
    return [
        (
            name if place == 0 else "",
            figure.what,
            f"{figure.size:,} {figure.of}",
            f"{_number(figure.value)} {figure.unit}",
            "" if figure.floor is None else f"{_number(figure.floor)} {figure.unit}",
            _number(figure.result) + ("" if figure.floor is None else " ×"),
            "" if figure.target is None else f"{'≥' if figure.at_least else '≤'} {figure.target:g}",
            figure.verdict.value,
        )
        for name, figures in benchmarks.items()
        for place, figure in enumerate(figures)
    ]


def _number(value: float) -> str:
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _print_rich(rows: Sequence[tuple[str, ...]]) -> None:
    table = Table()
    for head in _HEAD:
        table.add_column(head, justify="right" if head in _RIGHT else "left")
    for row in rows:
        *cells, verdict = row
        table.add_row(*cells, Text(verdict, _STYLES[Verdict(verdict)]))
    Console().print(table)


def _print_plain(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if head in _RIGHT else cell.ljust(width)
            for cell, width, head in zip(row, widths, _HEAD, strict=True)
        ]
        print("  ".join(cells).rstrip())
