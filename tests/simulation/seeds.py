"""Seeds that once broke a promise, each with what it showed. They are run first, for ever."""

__all__ = ["REGRESSIONS"]

REGRESSIONS: tuple[tuple[int, str], ...] = (
    (15214, "after a failed commit a task that had been given back was not read again"),
    (665253723, "an eviction that a full disk refused left the other handles closed"),
    (3707, "rulings that two devices had brought back stood in two orders"),
    (6650, "a ruling that the new log could not take was sent for ever"),
)
"""(seed, what it had shown)."""
