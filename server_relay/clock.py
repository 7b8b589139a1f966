"""Relay time (rule K): it starts at the wall clock, never behind what was stored, and goes on with the monotonic one.

So a wall clock that is set while the relay runs expires nothing and revives nothing. A jump beyond the bound is
reported as *suspended*: ages may not be trusted until an operator has looked and confirms the time at the next start.
"""

__all__ = ["RelayClock"]


class RelayClock:
    """Relay time in milliseconds since 1970. `suspended` once the wall clock was found to have jumped."""

    def __init__(
        self, wall_ms: int, mono_ms: int, *, stored_at_ms: int, jump_ms_max: int, confirmed: bool = False
    ) -> None:
        """Start at the wall clock; `stored_at_ms` is the latest relay time that was kept, 0 if none was.

        Further than `jump_ms_max` from it, forwards or backwards, the clock is in doubt unless it is `confirmed`.
        """
        self.suspended = not confirmed and stored_at_ms > 0 and abs(stored_at_ms - wall_ms) > jump_ms_max
        self._offset_ms = max(wall_ms, stored_at_ms) - mono_ms
        self._wall_offset_ms = wall_ms - mono_ms
        self._jump_ms_max = jump_ms_max

    def now_ms(self, wall_ms: int, mono_ms: int) -> int:
        """Return relay time, given both clocks of the machine."""
        if abs(wall_ms - mono_ms - self._wall_offset_ms) > self._jump_ms_max:
            self.suspended = True
        return self._offset_ms + mono_ms
