"""A histogram with fixed bounds, as Prometheus wants it: how often each span of time was not exceeded."""

from bisect import bisect_left

__all__ = ["BOUNDS_S", "Histogram"]

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts of spans, in seconds."""

    def __init__(self) -> None:
        self.sum_s = 0.0
        self._counts = [0] * (len(BOUNDS_S) + 1)

    def add(self, span_s: float, count: int = 1) -> None:
        """Count a span, or so many of the same length."""
        self.sum_s += span_s * count
        self._counts[bisect_left(BOUNDS_S, span_s)] += count

    @property
    def count(self) -> int:
        """How many spans were counted."""
        return sum(self._counts)

    def cumulative(self) -> tuple[int, ...]:
        """Return for each bound how many spans did not exceed it; the last is of all."""
        total = 0
        return tuple(total := total + count for count in self._counts)
