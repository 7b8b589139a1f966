"""Poison: entries whose bytes no device may read, whatever the stream, remembered by their hash.

The guard refuses such an entry each time that it comes; but what makes it look long is as slow the tenth time. So the
hash of what it refused is kept, and a device of which any came has its entries looked up before they are judged. Only
verdicts on the bytes alone are kept: what was refused because of the stream before it may be right later. A device of
which nothing of the kind came pays nothing. All of it is in memory: after a restart the guard finds it once more.
"""

import hashlib
from collections import Counter

import msgspec

from server_relay.allowance import Allowance
from sync_core.entry import BytesRefused, Entry, EntryKind
from sync_core.errors import EntryRefused

__all__ = ["POISONS_MAX", "Poison", "Quarantine"]

POISONS_MAX = 1_024
"""Hashes that are kept; the one that has not come for longest goes first."""

_NEWS_MAX = 16
_FOUND = {EntryKind.UPDATE: "update", EntryKind.SNAPSHOT: "snapshot"}


class Poison(msgspec.Struct, frozen=True):
    """What is known of one payload: its SHA-256 in hex (behind the kind; of a snapshot that of its name), the guard's
    sentence, and who brought it when it was last judged. Times are relay time, in milliseconds."""

    sha256: str
    kind: str
    size_bytes: int
    sentence: str
    subject: str
    device: str
    first_ms: int
    last_ms: int
    times: int = 1


class Quarantine:
    """The poison that a relay knows. `counts` has `poison_update`, `poison_record` and `poison_snapshot` for what
    the guard found, and `poison_again` for what was refused by its hash."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._known: dict[bytes, Poison] = {}
        self._news: list[Poison] = []

    def __len__(self) -> int:
        return len(self._known)

    def why_refused(self, entry: Entry, allowance: Allowance, now_ms: int) -> str:
        """Return why an entry is refused without being judged, '' if it is not known."""
        key = _key(entry)
        poison = self._known.pop(key, None)
        if poison is None:
            return ""
        self._known[key] = msgspec.structs.replace(poison, last_ms=now_ms, times=poison.times + 1)
        self._counts["poison_again"] += 1
        allowance.poisons += 1
        return poison.sentence

    def refused(
        self, entry: Entry, error: EntryRefused, allowance: Allowance, subject: str, device: str, now_ms: int
    ) -> None:
        """The guard refused an entry: keep its hash, if that was for its bytes alone."""
        if not isinstance(error, BytesRefused):
            return
        allowance.poisons += 1
        allowance.suspect = True
        self._counts[f"poison_{_FOUND.get(entry.kind, 'record')}"] += 1
        key = _key(entry)
        before = self._known.pop(key, None)
        first_ms, times = (now_ms, 1) if before is None else (before.first_ms, before.times + 1)
        size = len(entry.payload)
        poison = Poison(key.hex(), entry.kind.value, size, error.sentence, subject, device, first_ms, now_ms, times)
        self._known[key] = poison
        if len(self._known) > POISONS_MAX:
            del self._known[next(iter(self._known))]
        if before is None and len(self._news) < _NEWS_MAX:
            self._news.append(poison)

    def known_now(self) -> tuple[Poison, ...]:
        """Return all that is known, what came last first."""
        return tuple(reversed(self._known.values()))

    def clear(self) -> int:
        """Forget all of it; return how many hashes that were."""
        cleared = len(self._known)
        self._known.clear()
        return cleared

    def take_news(self) -> list[Poison]:
        """Return what was found first since the last call, as far as a log is told of a flood."""
        news, self._news = self._news, []
        return news


def _key(entry: Entry) -> bytes:
    # The bytes of a snapshot are those of the blob that its entry names.
    content = entry.payload if entry.kind is not EntryKind.SNAPSHOT else (entry.blob or "").encode()
    return hashlib.sha256(b"%s\0%s" % (entry.kind.value.encode(), content)).digest()
