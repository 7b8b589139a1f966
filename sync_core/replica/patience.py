"""How long an answer is waited for before it is asked for again.

A link is ordered: what was asked is answered unless the link ends. On a slow one the answer waits behind all that was
sent before, and whoever asks again after a fixed time puts more and more before it and never gets it (SE-16). So each
time that nothing came the next wait is twice as long.
"""

__all__ = ["Patience"]

_FACTOR_MAX = 64
"""How many times the usual wait is the longest."""


class Patience:
    """Of one thing that is waited for. Times are of the driver's clock, in milliseconds."""

    __slots__ = ("_factor",)

    def __init__(self) -> None:
        self._factor = 1

    def is_over(self, usual_ms: int, since_ms: int, now_ms: int) -> bool:
        """Return whether it was waited for long enough; `usual_ms` is the wait before anything was lost."""
        return now_ms - since_ms >= usual_ms * self._factor

    def lose(self) -> None:
        """Nothing came: it is asked for again."""
        self._factor = min(2 * self._factor, _FACTOR_MAX)

    def regain(self) -> None:
        """Something came."""
        self._factor = 1
