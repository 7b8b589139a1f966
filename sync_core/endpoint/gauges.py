"""Gauges: a figure, the level at which it is worth a look, and the bound at which something is refused.

The level of the warning lies below the bound of every gauge, so that somebody is told before anybody is refused.
"""

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from sync_core.frames import Push, Receipt

__all__ = ["Gauge", "Latencies", "Latency", "Level"]

_SAMPLES = 1_024
"""So many of the newest moments are kept for each latency."""


class Level(StrEnum):
    """How a gauge stands."""

    OK = "ok"
    WARNING = "warning"
    LIMIT = "limit"


class Gauge(msgspec.Struct, frozen=True):
    """A figure, None while there is none. `warning` and `limit` are None where nothing bounds it."""

    value: float | None
    warning: float | None = None
    limit: float | None = None

    @property
    def level(self) -> Level:
        """`WARNING` from the warning on, `LIMIT` from the bound on."""
        if self.value is None:
            return Level.OK
        if self.limit is not None and self.value >= self.limit:
            return Level.LIMIT
        return Level.WARNING if self.warning is not None and self.value >= self.warning else Level.OK


class Latency(msgspec.Struct, frozen=True):
    """Durations of one kind since this endpoint was opened, ms. `count` is of all, the percentiles of the newest."""

    count: int
    p50_ms: float | None
    p95: Gauge


class _Samples:
    def __init__(self) -> None:
        self.count = 0
        self._newest_ms: deque[float] = deque(maxlen=_SAMPLES)

    def add(self, duration_ns: int) -> None:
        self.count += 1
        self._newest_ms.append(duration_ns / 1e6)

    def told(self, warning_ms: float, limit_ms: float) -> Latency:
        ordered = sorted(self._newest_ms)
        return Latency(self.count, _percentile(ordered, 50), Gauge(_percentile(ordered, 95), warning_ms, limit_ms))


class Latencies:
    """Durations of commits, and from a push to its receipt. The caller reads the (monotonic) clock."""

    def __init__(self) -> None:
        self._commits = _Samples()
        self._receipts = _Samples()
        self._pushed: dict[tuple[str, int], deque[tuple[int, int]]] = {}

    def committed(self, duration_ns: int) -> None:
        """A commit took so long."""
        self._commits.add(duration_ns)

    def pushed(self, push: Push, now_ns: int) -> None:
        """A push leaves; its last entry stands for all of it. What is brought back is nobody's fresh write."""
        if push.entries and not push.recovered:
            last = push.entries[-1]
            self._pushed.setdefault((last.stream, last.writer), deque()).append((last.writer_seq, now_ns))

    def received(self, receipt: Receipt, now_ns: int) -> None:
        """A receipt came."""
        waiting = self._pushed.get((receipt.stream, receipt.writer))
        while waiting and waiting[0][0] <= receipt.last_seq:
            self._receipts.add(now_ns - waiting.popleft()[1])
        if waiting is not None and not waiting:
            del self._pushed[receipt.stream, receipt.writer]

    def disconnected(self) -> None:
        """The link is gone, and with it the receipts of what was pushed over it."""
        self._pushed.clear()

    def writes(self, warning_ms: float, limit_ms: float) -> Latency:
        """Return how long commits took."""
        return self._commits.told(warning_ms, limit_ms)

    def syncs(self, warning_ms: float, limit_ms: float) -> Latency:
        """Return how long the relay took to store what was pushed."""
        return self._receipts.told(warning_ms, limit_ms)


def _percentile(ordered: Iterable[float], percent: int) -> float | None:
    """The value below or at which so many of them lie (nearest rank)."""
    values = list(ordered)
    return values[max(0, -(-len(values) * percent // 100) - 1)] if values else None
