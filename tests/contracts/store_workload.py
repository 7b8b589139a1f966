"""Random but seeded writes, legal by the seam's words and otherwise wild: any order, any numbers, any mix."""

from collections.abc import Callable
from hashlib import sha256
from random import Random

from sync_core.entry import Entry, EntryKind, WriterRow
from sync_core.replica import writes as w

__all__ = ["TASKS", "random_commit"]

TASKS = ("a", "a/b", "ab")
_STREAMS = tuple(f"{task}:{name}" for task in TASKS for name in ("history", "state"))
_WRITERS = (100_001, 100_002, 200_003)
_DATA = tuple(bytes([n]) * 50 for n in range(5))


def random_commit(rng: Random) -> list[w.Write]:
    """Return 1 to 12 random writes."""
    return [rng.choice(_MAKERS)(rng) for _ in range(rng.randint(1, 12))]


def _entry(rng: Random, *, numbered: bool) -> Entry:
    return Entry(
        rng.choice(_STREAMS),
        rng.choice(_WRITERS),
        rng.randint(1, 6),
        rng.choice((EntryKind.UPDATE, EntryKind.UPDATE, EntryKind.CALL, EntryKind.SNAPSHOT)),
        rng.randbytes(rng.randint(0, 40)),
        rng.choice(("phone", "desktop")),
        rng.randint(-5, 5),
        rng.choice((None, "ab" * 32)),
        rng.randint(1, 20) if numbered else None,
        rng.choice((None, "tablet")),
    )


def _rows(rng: Random) -> tuple[WriterRow, ...]:
    return tuple(_row(rng, writer) for writer in _WRITERS if rng.random() < 0.6)


def _row(rng: Random, writer: int) -> WriterRow:
    return WriterRow(writer, "phone", rng.randint(0, 9), rng.randint(1, 4), rng.random() < 0.2)


def _put(rng: Random) -> w.Write:
    return w.PutEntry(_entry(rng, numbered=rng.random() < 0.5), own=rng.random() < 0.6)


def _number(rng: Random) -> w.Write:
    first = rng.randint(1, 5)
    last = rng.randint(first, 6)
    return w.NumberEntries(
        rng.choice(_STREAMS), rng.choice(_WRITERS), first, last, rng.randint(1, 20), rng.random() < 0.3
    )


def _blob(rng: Random) -> tuple[str, str, bytes]:
    data = rng.choice(_DATA)
    return rng.choice(TASKS), sha256(data).hexdigest(), data


def _put_blob(rng: Random) -> w.Write:
    task, name, data = _blob(rng)
    return w.PutBlob(task, name, data, upload=rng.random() < 0.5)


def _set_blob(rng: Random) -> w.Write:
    task, name, _ = _blob(rng)
    return w.SetBlobState(task, name, upload=rng.random() < 0.5)


def _pin(rng: Random) -> w.Write:
    task, name, data = _blob(rng)
    return w.PinBase(task, "worklog", name, data, rng.choice((0, 10**12, 2 * 10**12)))


_MAKERS: tuple[Callable[[Random], w.Write], ...] = (
    *[_put] * 8,
    *[_number] * 3,
    lambda rng: w.QuarantineEntry(_entry(rng, numbered=True), "broken"),
    lambda rng: w.SetPosition(rng.choice(_STREAMS), rng.randbytes(4), rng.randint(0, 20), rng.randbytes(16)),
    lambda rng: w.SetWriter(rng.choice(_STREAMS), _row(rng, rng.choice(_WRITERS))),
    lambda rng: w.SetAside(rng.choice(_STREAMS), rng.choice(_WRITERS), rng.randint(1, 6), "role", "Refused."),
    lambda rng: w.DiscardEntries(rng.choice(_STREAMS), rng.choice(_WRITERS), (1, 2, 5)),
    lambda rng: w.StartEpoch(rng.choice(_STREAMS), rng.randbytes(4)),
    lambda rng: w.TruncateStream(rng.choice(_STREAMS), rng.randint(0, 20), rng.randbytes(16), _rows(rng)),
    lambda rng: w.CompactStream(
        rng.choice(_STREAMS), rng.randint(1, 20), rng.choice(_DATA), _rows(rng), rng.randbytes(16)
    ),
    _put_blob,
    _set_blob,
    _pin,
    lambda rng: w.FollowTask(rng.choice(TASKS)),
    lambda rng: w.DropTask(rng.choice(TASKS)) if rng.random() < 0.3 else w.FollowTask("a"),
)
