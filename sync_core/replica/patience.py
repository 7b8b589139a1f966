"""How long an answer is waited for before it is asked for again.

A link is ordered: what was asked is answered unless the link ends. On a slow one the answer waits behind all that was
sent before, and whoever asks again after a fixed time puts more and more before it and never gets it (SE-16). So each
time that nothing came the next wait is twice as long.
"""

__all__ = ["Patience"]

_FACTOR_MAX = 64


class Patience:
    """`factor`: how many times the usual wait."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 1

    def lose(self) -> None:
        """Nothing came: it is asked for again."""
        self.factor = min(2 * self.factor, _FACTOR_MAX)

    def regain(self) -> None:
        """Something came."""
        self.factor = 1
