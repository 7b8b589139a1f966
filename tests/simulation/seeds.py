"""Seeds that once broke a promise, each with what it showed. They are run first, for ever."""

__all__ = ["REGRESSIONS"]

REGRESSIONS: tuple[tuple[int, str], ...] = ()
"""(seed, what it had shown)."""
