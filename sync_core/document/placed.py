"""Records of which the first in the log's order stands: a place is the relay's to give, and comes later.

A record without a place comes after all that have one; of equal places (all of one recovered snapshot) the order in
which they came decides.
"""

from typing import Generic, TypeVar

from sync_core.entry import Entry

__all__ = ["Placed"]

T = TypeVar("T")


class Placed(Generic[T]):
    """Records by their entries' names, each with its place in the log once that is known."""

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], T] = {}
        self._places: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, entry: Entry, record: T) -> None:
        """Take the record of an entry."""
        self._records[entry.writer, entry.writer_seq] = record
        self.place(entry)

    def place(self, entry: Entry) -> bool:
        """Take note of an entry's place; return whether a record that was taken got one that it did not have."""
        name = (entry.writer, entry.writer_seq)
        if entry.relay_seq is None or name not in self._records or self._places.get(name) == entry.relay_seq:
            return False
        self._places[name] = entry.relay_seq
        return True

    def in_order(self) -> tuple[tuple[T, int | None], ...]:
        """Return every record with its place, the one that stands first."""
        placed = [(record, self._places.get(name)) for name, record in self._records.items()]
        return tuple(sorted(placed, key=lambda item: (item[1] is None, item[1] or 0)))
