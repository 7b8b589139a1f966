"""Names and ids: the grammar of every name that crosses a border, and ids that are random at each use.

Names take letters, digits, `_` and `-` only: no dot, no separator of any file system or message bus, none of the
device names that Windows reserves (scenario RS-34).
"""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

from sync_core.errors import ValueRefused
from sync_core.limits import NAME_CHARS_MAX, STEP_CHARS_MAX, TASK_CHARS_MAX

__all__ = [
    "AUTHORITY_DEVICE",
    "GENESIS_WRITER",
    "WRITER_BITS",
    "Entropy",
    "StreamName",
    "check_name",
    "check_note",
    "check_step",
    "check_task",
    "new_hex_id",
    "new_writer",
    "split_stream",
    "stream_id",
]

Entropy = Callable[[int], bytes]
"""Returns that many random bytes: `os.urandom`, or a seeded source in the simulator."""

WRITER_BITS = 53
GENESIS_WRITER = 1
"""The reserved writer of every document's genesis update; no entry may use it."""

AUTHORITY_DEVICE = "_authority"
"""The device that rulings name; no endpoint may sign in under it."""

_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{NAME_CHARS_MAX - 1}}}")
_STEP = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_/:-]{{0,{STEP_CHARS_MAX - 1}}}")
_RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))})


class StreamName(StrEnum):
    """The streams of a task; each is one ordered log at the relay."""

    STATE = "state"
    HISTORY = "history"
    HANDOVER = "handover"
    AUTHORITY = "authority"


def check_name(name: str, what: str) -> str:
    """Return a plain name (subject, device, slot, capability); raises `ValueRefused`, naming `what`, for any other."""
    if not isinstance(name, str) or len(name) > NAME_CHARS_MAX or not _is_name(_plain(name)):
        raise ValueRefused(
            f"The {what} is not a valid name.",
            hint=f"Use 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ -, none of the names Windows reserves.",
        )
    return _plain(name)


# Every entry names its device.
@lru_cache(maxsize=1024)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name.lower() not in _RESERVED


def check_task(task: str) -> str:
    """Return the task key if it is names joined by `/`, at most 200 characters; else raise `ValueRefused`."""
    if not isinstance(task, str) or not 0 < len(task) <= TASK_CHARS_MAX:
        raise ValueRefused(f"A task key has 1 to {TASK_CHARS_MAX} characters.", hint="For example expense/TRIP-118.")
    for part in task.split("/"):
        check_name(part, "task key")
    return _plain(task)


def check_note(name: str) -> str:
    """Return the note's name; raises `ValueRefused` for a bad one and for `handover`, which is no note."""
    plain = check_name(name, "note name")
    if plain == "handover":
        raise ValueRefused("A note may not be named handover.", hint="The hand-over text has its own stream.")
    return plain


def check_step(step: str) -> str:
    """Return the step if it is letters, digits and `_ - / :`, at most 200 characters; else raise `ValueRefused`."""
    if not isinstance(step, str) or not _STEP.fullmatch(step):
        raise ValueRefused(
            "The step is not a valid name.", hint=f"Use 1 to {STEP_CHARS_MAX} of A-Z a-z 0-9 _ - / : for a step."
        )
    return _plain(step)


def _plain(text: str) -> str:
    """The text as a `str` itself: a value of a subclass cannot be encoded."""
    return str.__str__(text)


def stream_id(task: str, name: StreamName) -> str:
    """Return the id of a task's stream: `<task>:<name>`; a task key never holds a colon."""
    return f"{task}:{name.value}"


# Every entry names its stream, so this runs for each; what is no stream id is never kept.
@lru_cache(maxsize=1024)
def split_stream(stream: str) -> tuple[str, StreamName]:
    """Return (task, stream name); raises `ValueRefused` for what is no stream id."""
    task, _, name = stream.rpartition(":")
    check_task(task)
    try:
        return task, StreamName(name)
    except ValueError:
        raise ValueRefused("The stream name is unknown.", hint="state, history, handover or authority.") from None


def new_writer(entropy: Entropy) -> int:
    """Return a fresh writer id: 53 random bits, never a small number (those are reserved), never derived (rule D)."""
    while True:
        writer = int.from_bytes(entropy(7), "big") >> (56 - WRITER_BITS)
        if writer >= 2**16:
            return writer


def new_hex_id(entropy: Entropy) -> str:
    """Return 16 random hex digits: the id of a slot write, an attempt, a history item."""
    return entropy(8).hex()
