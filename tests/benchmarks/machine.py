"""What the figures were measured on: ratios travel between machines, times do not."""

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

import msgspec

from tests.benchmarks.floors import fsync_ms

__all__ = ["Machine", "describe"]


class Machine(msgspec.Struct, frozen=True):
    """The machine and the libraries. `fsync_ms` is the median for 4 KiB at the end of a file in the folder used."""

    cpu: str
    cores: int
    python: str
    sqlite: str
    pycrdt: str
    websockets: str
    fsync_ms: float


def describe(folder: Path) -> Machine:
    """Return what this machine is."""
    return Machine(
        _cpu(),
        os.cpu_count() or 1,
        platform.python_version(),
        sqlite3.sqlite_version,
        version("pycrdt"),
        version("websockets"),
        fsync_ms(folder),
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
