"""Files of JSON lines that survive a kill: a line is on the disk before the call returns."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

__all__ = ["append_line", "read_lines"]

T = TypeVar("T")


def append_line(path: Path, value: msgspec.Struct) -> None:
    """Append a value as one line and force it to the disk; the file is made with mode 0600."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(value) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path, of: type[T]) -> tuple[T, ...]:
    """Return all lines in order; none if there is no file. Raises `msgspec.DecodeError` for a damaged line."""
    if not path.exists():
        return ()
    return tuple(msgspec.json.decode(line, type=of) for line in path.read_bytes().splitlines())
