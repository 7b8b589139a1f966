"""The execution log: one line on disk each time a tool of the demo really runs, whoever runs it.

It is apart from Segue on purpose: what Segue recorded is checked against it.
"""

import os
import time
from pathlib import Path

import msgspec

from clients.demo.line_file import append_line, read_lines

__all__ = ["Execution", "log_execution", "read_executions"]


class Execution(msgspec.Struct, frozen=True):
    """A tool ran: when by this machine's clock, in which process, on which device, for which step."""

    at_ms: int
    pid: int
    device: str
    tool: str
    step: str


def log_execution(path: Path, device: str, tool: str, step: str) -> None:
    """Append one line and force it to the disk, so that a kill right after it loses nothing."""
    append_line(path, Execution(time.time_ns() // 1_000_000, os.getpid(), device, tool, step))


def read_executions(path: Path) -> tuple[Execution, ...]:
    """Return all executions in order; none if no tool ever ran."""
    return read_lines(path, Execution)
