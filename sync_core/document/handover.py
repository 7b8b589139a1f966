"""The hand-over: the closing text of a business version, written once and read-only from then on.

Two ends that handed over while apart both did so rightly: the first in the relay's order stands, the other is kept and
shown as a conflict.
"""

from collections.abc import Mapping

import msgspec

from sync_core.document.placed import Placed
from sync_core.entry import Entry, HandOver
from sync_core.errors import HandedOver, TooLarge, ValueRefused
from sync_core.limits import NOTE_BYTES_MAX
from sync_core.values import digest_text

__all__ = ["HandOverText", "HandOvers", "check_hand_over", "standing_hand_over"]


class HandOverText(msgspec.Struct, frozen=True):
    """A hand-over as it stands, read-only for everybody.

    `author` is the device that gave it, `at_ms` that device's clock, for display only. `stored` says that it has its
    place at the relay; until then another device's may still come to stand. `conflicts` are those of the same version
    that came later.
    """

    version: int
    text: str
    content_sha256: str
    author: str
    at_ms: int
    stored: bool
    conflicts: tuple["HandOverText", ...] = ()


class HandOvers:
    """The hand-overs of a task, by business version."""

    def __init__(self) -> None:
        self._of_version: dict[int, Placed[HandOverText]] = {}

    def add(self, record: HandOver, entry: Entry) -> None:
        """Take a hand-over."""
        sha256, stored = digest_text(record.text), entry.relay_seq is not None
        text = HandOverText(record.version, record.text, sha256, entry.device, entry.at_ms, stored)
        self._of_version.setdefault(record.version, Placed()).add(entry, text)

    def place(self, entry: Entry) -> frozenset[int]:
        """Take note of an entry's place; return the versions of which that changes what is shown."""
        return frozenset(version for version, placed in self._of_version.items() if placed.place(entry))

    def texts(self) -> Mapping[int, HandOverText]:
        """Return what stands, by business version. The mapping is never changed afterwards."""
        return {version: _standing(placed) for version, placed in sorted(self._of_version.items())}

    def rows(self) -> list[tuple[int, list[tuple[str, str]]]]:
        """Return the order of each version's hand-overs: what a digest covers beside the entries themselves."""
        return [
            (version, [(text.author, text.content_sha256) for text, _ in self._of_version[version].in_order()])
            for version in sorted(self._of_version)
        ]

    def check(self, version: int) -> None:
        """Raise `HandedOver` if this version was handed over, as far as is known here."""
        placed = self._of_version.get(version)
        if placed is not None:
            raise HandedOver(f"Version {version} of this task was handed over by {_standing(placed).author}.")


def _standing(placed: Placed[HandOverText]) -> HandOverText:
    first, *later = (msgspec.structs.replace(text, stored=place is not None) for text, place in placed.in_order())
    return msgspec.structs.replace(first, conflicts=tuple(later))


def standing_hand_over(texts: Mapping[int, HandOverText], version: int) -> HandOverText | None:
    """Return what was handed over of a business version, or of the last one before it; None without."""
    versions = [given for given in texts if given <= version]
    return texts[max(versions)] if versions else None


def check_hand_over(text: str) -> None:
    """Raise `ValueRefused` for an empty text, `TooLarge` over 128 KiB."""
    if not text.strip():
        raise ValueRefused("An empty hand-over says nothing.", hint="It is given once, so say what the next one needs.")
    if len(text.encode()) > NOTE_BYTES_MAX:
        raise TooLarge(f"The hand-over exceeds {NOTE_BYTES_MAX} bytes.", hint="Put details into notes.")
