"""What the relay has not stored: entries without a relay number, in the order in which they must arrive.

First come `recovered` entries of an earlier epoch, of any writer, in old log order (rule J), then own entries in the
order of local commits, across writers and streams. An entry leaves when its number is durable here; a receipt that
came early only stops it from being sent again.
"""

from collections import deque
from collections.abc import Iterable

from sync_core.entry import Entry, EntryKind
from sync_core.replica.patience import Patience

__all__ = [
    "IN_FLIGHT_BYTES_MAX",
    "PUSH_BYTES",
    "PUSH_ENTRIES_MAX",
    "RESEND_AFTER_MS",
    "Key",
    "Outbox",
    "key_of",
]

Key = tuple[str, int, int]
"""(stream, writer, writer_seq): an entry's name."""

PUSH_BYTES = 96 * 1024
PUSH_ENTRIES_MAX = 256
IN_FLIGHT_BYTES_MAX = 384 * 1024
RESEND_AFTER_MS = 3_000
_ENTRY_OVERHEAD_BYTES = 120


def key_of(entry: Entry) -> Key:
    """Return the name of an entry."""
    return (entry.stream, entry.writer, entry.writer_seq)


class Outbox:
    """The ordered outbox of one task. Nothing is sent twice at once, nothing overtakes."""

    __slots__ = (
        "_in_flight",
        "_in_flight_bytes",
        "_patience",
        "_progress_at_ms",
        "_to_send",
        "receipted",
        "recovered",
        "unsent",
    )

    def __init__(self) -> None:
        self.recovered: dict[Key, Entry] = {}
        self.unsent: dict[Key, Entry] = {}
        self.receipted: set[Key] = set()
        self._to_send: deque[Key] = deque()
        self._in_flight: set[Key] = set()
        self._in_flight_bytes = 0
        self._progress_at_ms = 0
        self._patience = Patience()

    def __len__(self) -> int:
        return len(self.recovered) + len(self.unsent)

    def add(self, entry: Entry) -> None:
        """Queue an own entry that was just written."""
        key = key_of(entry)
        self.unsent[key] = entry
        self._to_send.append(key)

    def find(self, key: Key) -> Entry | None:
        """Return a waiting entry."""
        return self.unsent.get(key) or self.recovered.get(key)

    def is_first(self, key: Key) -> bool:
        """Whether nothing before this entry waits for its receipt."""
        return next((other for other in (*self.recovered, *self.unsent) if other not in self.receipted), None) == key

    def restart(self) -> None:
        """Send everything that waits again, in order: a new session, a gap, or silence. Receipts that filled no place
        are forgotten: what the relay has it will receipt again."""
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self.receipted.clear()
        self._to_send = deque((*self.recovered, *self.unsent))

    def pause(self) -> None:
        """Send nothing until the next `restart`: the session is over, and how slow it was says nothing of the next."""
        self._patience.regain()
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._to_send.clear()

    def next_push(self, blocked: frozenset[str], now_ms: int) -> tuple[bool, tuple[Entry, ...]]:
        """Take the next frame's entries: (recovered, entries). Stops before an entry whose blob is in `blocked`."""
        if not self._in_flight:
            self._progress_at_ms = now_ms
        entries: list[Entry] = []
        size = 0
        recovered = False
        while self._to_send and len(entries) < PUSH_ENTRIES_MAX and self._in_flight_bytes < IN_FLIGHT_BYTES_MAX:
            key = self._to_send[0]
            entry = self.find(key)
            if entry is None or key in self.receipted:
                self._to_send.popleft()
                continue
            old = key in self.recovered
            full = size + len(entry.payload) > PUSH_BYTES
            needs_blob = entry.blob in blocked and (not old or entry.kind is EntryKind.SNAPSHOT)
            if needs_blob or (entries and (full or old != recovered)):
                break
            self._to_send.popleft()
            recovered = old
            entries.append(entry)
            size += len(entry.payload) + _ENTRY_OVERHEAD_BYTES
            self._in_flight.add(key)
            self._in_flight_bytes += len(entry.payload) + _ENTRY_OVERHEAD_BYTES
        return recovered, tuple(entries)

    def portions(self, keys: Iterable[Key]) -> list[tuple[Entry, ...]]:
        """Return waiting entries in frames' worth, apart from the order in which they will be sent."""
        portions: list[tuple[Entry, ...]] = []
        portion: list[Entry] = []
        size = 0
        for entry in (found for key in keys if (found := self.find(key)) is not None):
            if portion and (size + len(entry.payload) > PUSH_BYTES or len(portion) >= PUSH_ENTRIES_MAX):
                portions.append(tuple(portion))
                portion, size = [], 0
            portion.append(entry)
            size += len(entry.payload) + _ENTRY_OVERHEAD_BYTES
        return [*portions, tuple(portion)] if portion else portions

    def next_blob(self) -> str | None:
        """Return the blob that the next entry to send names."""
        while self._to_send:
            entry = self.find(self._to_send[0])
            if entry is not None and self._to_send[0] not in self.receipted:
                return entry.blob
            self._to_send.popleft()
        return None

    def on_receipt(self, key: Key, now_ms: int) -> None:
        """Note that the relay has stored an entry."""
        entry = self.find(key)
        if entry is not None:
            self.receipted.add(key)
        self._landed(key, entry, now_ms)

    def on_numbered(self, key: Key, now_ms: int) -> Entry | None:
        """Forget an entry whose number is now durable; return it, or None if it did not wait here."""
        entry = self.unsent.pop(key, None) or self.recovered.pop(key, None)
        self.receipted.discard(key)
        self._landed(key, entry, now_ms)
        return entry

    def drop(self, keys: Iterable[Key]) -> None:
        """Take entries out that will never be sent as they are."""
        for key in keys:
            self.on_numbered(key, self._progress_at_ms)

    def restart_if_silent(self, now_ms: int) -> None:
        """Send everything again if entries are in flight and nothing landed for a while."""
        if self._in_flight and self._patience.is_over(RESEND_AFTER_MS, self._progress_at_ms, now_ms):
            self._patience.lose()
            self.restart()

    def _landed(self, key: Key, entry: Entry | None, now_ms: int) -> None:
        if key in self._in_flight:
            self._in_flight.discard(key)
            if entry is not None:
                self._in_flight_bytes -= len(entry.payload) + _ENTRY_OVERHEAD_BYTES
            self._progress_at_ms = now_ms
            self._patience.regain()
