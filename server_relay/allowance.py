"""How much one device may send in a minute, over all its connections: so that coming again gives it nothing anew."""

from server_relay.admission import Grant
from server_relay.config import RelaySettings

__all__ = ["Allowance", "Allowances"]

_WINDOW_MS = 60_000


class Allowance:
    """What a device has sent in the present minute of relay time. `connections` share it.

    `suspect` says that poison came of it before (see `quarantine`), `poisons` how often in this minute.
    """

    __slots__ = ("connections", "entries", "frames", "poisons", "since_ms", "size_bytes", "streams", "suspect")

    def __init__(self, now_ms: int) -> None:
        self.connections = 0
        self.suspect = False
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.frames = self.entries = self.streams = self.size_bytes = self.poisons = 0

    def over(self, now_ms: int) -> bool:
        """Whether the minute is over, so that nothing of it need be remembered."""
        return not 0 <= now_ms - self.since_ms < _WINDOW_MS

    def spend(self, settings: RelaySettings, now_ms: int, entries: int, size_bytes: int) -> str:
        """Count a frame; a minute that is over is forgotten first. Return which bound is exceeded, '' if none."""
        if self.over(now_ms):
            self._begin(now_ms)
        self.frames += 1
        self.entries += entries
        self.size_bytes += size_bytes
        if self.frames > settings.frames_per_minute_max:
            return "frames"
        if self.entries > settings.entries_per_minute_max:
            return "entries"
        if self.streams > settings.streams_per_minute_max:
            return "streams"
        return "bytes" if self.size_bytes > settings.bytes_per_minute_max else ""


class Allowances:
    """The allowances of all devices that are connected, or sent something in the last minute."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Allowance] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, grant: Grant, now_ms: int) -> Allowance:
        """Return a device's allowance, one for all its connections; each is to be given back once."""
        allowance = self._of.setdefault((grant.subject, grant.device), Allowance(now_ms))
        allowance.connections += 1
        return allowance

    def forget(self, now_ms: int) -> None:
        """Forget the minutes that are over, of devices without a connection."""
        gone = [key for key, allowance in self._of.items() if not allowance.connections and allowance.over(now_ms)]
        for key in gone:
            del self._of[key]
