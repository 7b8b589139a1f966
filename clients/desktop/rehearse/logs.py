"""The two files that a rehearsal writes while it plays, one JSON line each time, only ever appended to.

The stand-in tools write the executions themselves; the player writes what each ask came to. No figure is kept anywhere
else while the runs are played.
"""

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

__all__ = ["Ask", "AskOutcome", "Execution", "LineLog", "content_sha256", "read_lines"]

T = TypeVar("T", bound=msgspec.Struct)


class Execution(msgspec.Struct, frozen=True):
    """A stand-in tool ran on a device. `asked` is the number of the ask that it ran for.

    It is None, as are `run` and `step`, if nobody had asked this device for just this call.
    """

    tool: str
    device: str
    run: int | None
    step: int | None
    asked: int | None


class AskOutcome(StrEnum):
    """What came of asking a device for a call.

    `REFUSED`: no authority was there to be asked. `RUNNING`: another device has the key. `PREVENTED`: the key of what
    it acts on is done already. `DID_NOT_HAPPEN`: the tool ran and knows that nothing happened. `DEPENDENT`: nobody was
    asked, because the call names what only a prevented one would have brought.
    """

    ANSWERED = "answered"
    REFUSED = "refused"
    KILLED = "killed"
    RUNNING = "running"
    PREVENTED = "prevented"
    DID_NOT_HAPPEN = "did_not_happen"
    DEPENDENT = "dependent"


class Ask(msgspec.Struct, frozen=True):
    """A device was asked for a call.

    `sha256` (hex) is of the content that it answered, or, where a key prevented the call, of the result that it was
    given of the one that stands; None without either.
    """

    asked: int
    run: int
    step: int
    device: str
    outcome: AskOutcome
    sha256: str | None = None


def content_sha256(content: str) -> str:
    """Return the SHA-256 (hex) of a result's text."""
    return hashlib.sha256(content.encode()).hexdigest()


class LineLog(Generic[T]):
    """A file to which lines are appended; each write is one line, handed to the operating system at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def append(self, line: T) -> None:
        """Write one line."""
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()


def read_lines(path: Path, kind: type[T]) -> tuple[T, ...]:
    """Return the lines of a log; a file that was never made has none."""
    if not path.exists():
        return ()
    return tuple(msgspec.json.Decoder(kind).decode_lines(path.read_bytes()))
