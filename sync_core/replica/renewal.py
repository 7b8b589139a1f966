"""When the token of a session is to be renewed: some time before its end, at a moment of this device's own.

The relay says in `Welcome` how much longer the token lives, as a span: a device's clock may be wrong, its waits are
not. A renewal that fails costs nothing but another try; the connection stands until the relay ends it.
"""

from sync_core.ids import Entropy

__all__ = ["MARGIN_MS_MAX", "Renewal"]

MARGIN_MS_MAX = 5 * 60_000
"""A token is asked for at most this long before the end of the last one, and at most a third of its life before."""

_RETRY_MS_MIN = 1_000
_CHANCE_BYTES = 2


class Renewal:
    """The renewal of one session's token. Times are those of the driver's clock, in milliseconds."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._ends_ms = 0
        self._due_ms: int | None = None

    def welcomed(self, lives_ms: int, now_ms: int) -> None:
        """A token was taken that lives so much longer; 0 if it never ends."""
        self._ends_ms = now_ms + lives_ms
        self._due_ms = None
        if lives_ms > 0:
            self._due_ms = self._ends_ms - self._some_of(min(lives_ms // 3, MARGIN_MS_MAX))

    def failed(self, now_ms: int) -> None:
        """No fresh token came: try again while the present one lives, sooner as its end comes near."""
        rest_ms = self._ends_ms - now_ms
        self._due_ms = now_ms + max(_RETRY_MS_MIN, self._some_of(rest_ms // 4)) if rest_ms > 0 else None

    def stop(self) -> None:
        """The session is over."""
        self._due_ms = None

    def is_due(self, now_ms: int) -> bool:
        """Return whether a fresh token is to be asked for now; said once for each try."""
        if self._due_ms is None or now_ms < self._due_ms:
            return False
        self._due_ms = None
        return True

    def _some_of(self, longest_ms: int) -> int:
        """Between half of a span and all of it: devices that came together, after a restart, do not ask together."""
        chance = int.from_bytes(self._entropy(_CHANCE_BYTES), "big")
        return longest_ms - (longest_ms * chance >> 8 * _CHANCE_BYTES + 1)
