"""Virtual time: one scheduler for the whole world, and for each device a monotonic and a skewed wall clock.

All times are whole milliseconds. Nothing here reads a real clock, so one seed gives one order of events.
"""

import heapq
from collections.abc import Callable
from random import Random

__all__ = ["Action", "DeviceClock", "Scheduler"]

Action = Callable[[], None]

_WALL_START_MS = 1_790_000_000_000
_STEPS_PER_MS_MAX = 20_000
_TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000


class Scheduler:
    """Runs actions at their time; actions of one time run in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.steps = 0
        self._count = 0
        self._moved_at_step = 0
        self._heap: list[tuple[int, int, Action]] = []

    def after(self, delay_ms: int, action: Action) -> None:
        """Run an action `delay_ms` from now."""
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, action))

    def run(self, until_ms: int, stop: Callable[[], bool] | None = None) -> bool:
        """Run what is due up to a time, or until `stop` says so after an action; return whether it did."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            due_ms, _, action = heapq.heappop(heap)
            self.steps += 1
            if due_ms > self.now_ms:
                self.now_ms = due_ms
                self._moved_at_step = self.steps
            elif self.steps - self._moved_at_step > _STEPS_PER_MS_MAX:
                raise RuntimeError("time stands still: something asks for itself again and again")
            action()
            if stop is not None and stop():
                return True
        self.now_ms = max(self.now_ms, until_ms)
        return False


class DeviceClock:
    """A device's two clocks. Only the monotonic one may be trusted for time-outs; it starts anew at each boot."""

    def __init__(self, scheduler: Scheduler, rng: Random, skewed: bool) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._boot_ms = 0
        self._uptime_ms = 0
        self._skew_ms = rng.randint(-_TEN_YEARS_MS, _TEN_YEARS_MS) if skewed else 0
        self._skewed = skewed

    def reboot(self) -> None:
        """Start the monotonic clock at some other value."""
        self._boot_ms = self._scheduler.now_ms
        self._uptime_ms = self._rng.randint(0, 10_000_000)

    def step(self) -> None:
        """Set a skewed wall clock back or forth, as a user or a time server does."""
        if self._skewed:
            self._skew_ms += self._rng.choice((-3_600_000, -86_400_000, 3_600_000, -_TEN_YEARS_MS))

    @property
    def mono_ms(self) -> int:
        """Milliseconds since some moment before this boot; never goes back."""
        return self._uptime_ms + self._scheduler.now_ms - self._boot_ms

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this device believes."""
        return max(0, _WALL_START_MS + self._scheduler.now_ms + self._skew_ms)
