"""Growth: how much was ever written into a document, which no deletion takes back (scenario SE-14).

Every device counts the same, whatever it merged or compacted: what is counted stands in the merged document. A write of
a slot or a definition leaves its key for good and counts as one. Text leaves little when it is deleted, so notes count
as one write for each `_UNITS_PER_WRITE` UTF-16 units ever inserted, and the size in bytes is bounded beside it.
"""

from collections.abc import Callable

from sync_core.errors import TooLarge
from sync_core.limits import DOCUMENT_BYTES_MAX, TASK_WRITES_MAX
from sync_core.scan import GENESIS_CLOCKS, Scan

__all__ = ["Growth"]

_UNITS_PER_WRITE = 64
_MAP_PARENTS = (b"\x01\x05slots", b"\x01\x08slotdefs")
"""How a map item names its root. Stored JSON is printable ASCII and holds no such bytes."""


class Growth:
    """Counts of one document. `state_bytes` returns the whole document, merged."""

    def __init__(self, state_bytes: Callable[[], bytes]) -> None:
        self._state_bytes = state_bytes
        self._sets = 0
        self._text_units = 0
        self._bytes_at_most = 0

    @property
    def writes(self) -> int:
        """Slot and note writes over the task's life."""
        return self._sets - (-self._text_units // _UNITS_PER_WRITE)

    def recount(self, clocks: dict[int, int], state: bytes | None = None) -> None:
        """Count anew from the clocks and the merged document, if it is not at hand as `state`."""
        state = self._state_bytes() if state is None else state
        self._bytes_at_most = len(state)
        self._sets = sum(state.count(parent) for parent in _MAP_PARENTS)
        self._text_units = sum(clocks.values()) - GENESIS_CLOCKS - self._sets

    def add(self, update: bytes, sets: int, text_units: int) -> None:
        """Count one update."""
        self._bytes_at_most += len(update)
        self._sets += sets
        self._text_units += text_units

    def add_scanned(self, update: bytes, scan: Scan) -> None:
        """Count one update that was scanned."""
        self.add(update, len(scan.sets), sum(end - first for _, first, end in scan.structs) - len(scan.sets))

    def check(self) -> None:
        """Raise `TooLarge` if the task may not be written any more."""
        if self.writes >= TASK_WRITES_MAX:
            raise TooLarge(f"The task holds {TASK_WRITES_MAX} writes.", hint="Complete it and go on in a new task.")
        if self._bytes_at_most > DOCUMENT_BYTES_MAX:
            self._bytes_at_most = len(self._state_bytes())
            if self._bytes_at_most > DOCUMENT_BYTES_MAX:
                raise TooLarge(
                    f"The task's document exceeds {DOCUMENT_BYTES_MAX} bytes.",
                    hint="Complete it and go on in a new task.",
                )
