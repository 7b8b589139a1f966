"""When a completion counts: relay and devices judge it by the same rule, from writer tables alone.

A completion names what its author had read of every other device. If one of those has written more since, or had
before, the task was edited meanwhile: it is shown so, nothing is cleaned up, and a person decides by completing it
again or by a higher version. Writer tables survive compaction, snapshots and a lost log, where a place would not.
Merged content that is brought back after a lost log (rule J) counts as written anew: what was read of it is not known.
"""

from collections.abc import Iterable, Mapping

import msgspec

from sync_core.entry import Completion, WriterRow
from sync_core.ids import StreamName

__all__ = ["COMPLETED_STREAMS", "GivenCompletion", "WriterTables", "is_edited", "read_of_others"]

COMPLETED_STREAMS = (StreamName.STATE, StreamName.HISTORY, StreamName.HANDOVER)
"""What a completion speaks of; the authority's rulings go on without being edits."""

WriterTables = Mapping[StreamName, Iterable[WriterRow]]


class GivenCompletion(msgspec.Struct, frozen=True):
    """A completion, with the name of its entry."""

    record: Completion
    device: str
    writer: int
    writer_seq: int


def read_of_others(device: str, tables: WriterTables) -> tuple[tuple[str, int, int], ...]:
    """Return what a completion by this device names: how far it has read each writer of every other device."""
    return tuple(
        (name.value, row.writer, row.next_seq - 1)
        for name in COMPLETED_STREAMS
        for row in sorted(tables.get(name, ()), key=lambda row: row.writer)
        if row.device != device
    )


def is_edited(completions: Iterable[GivenCompletion], version: int, tables: WriterTables) -> bool:
    """Whether none of a version's completions had read all that other devices wrote. A completion is no edit."""
    known = tuple(completions)
    return not any(given.record.version == version and _has_read_all(given, known, tables) for given in known)


def _has_read_all(given: GivenCompletion, known: tuple[GivenCompletion, ...], tables: WriterTables) -> bool:
    read = {(name, writer): seq for name, writer, seq in given.record.read}
    for name in COMPLETED_STREAMS:
        for row in tables.get(name, ()):
            if row.device == given.device:
                continue
            first = read.get((name.value, row.writer), 0) + 1
            written = range(first, row.next_seq)
            completions = name is StreamName.STATE and {
                other.writer_seq for other in known if other.writer == row.writer and other.writer_seq in written
            }
            if len(written) > len(completions or ()):
                return False
    return True
