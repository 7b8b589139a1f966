"""Whether a row of figures grows: a line is fitted to them, and what it rises over their span is compared with what it
may."""

import ctypes
import ctypes.util
import os
import statistics
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["Sample", "Trend", "cache_bytes", "sample", "trend"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sample(msgspec.Struct, frozen=True):
    """A process at one moment, `at_s` seconds after the start. `cached` is what SQLite holds of `memory_bytes`."""

    at_s: float
    memory_bytes: int
    handles: int
    cached: int


class Trend(msgspec.Struct, frozen=True):
    """The mean of a row, and what the fitted line rises from its first figure to its last."""

    mean: float
    rise: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether it rises by no more than it may; falling is no fault."""
        return self.rise <= self.allowed


def sample(pid: int, at_s: float, cached: int) -> Sample:
    """Return a process's resident memory and open handles; `cached` is what it says of `cache_bytes`."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Sample(at_s, pages * _PAGE_BYTES, len(os.listdir(f"/proc/{pid}/fd")), cached)


def cache_bytes() -> int:
    """Give back to the system what nobody in this process uses; return what SQLite holds, 0 if it cannot be asked.

    The page caches of stores fill up to their bound as the files grow, for longer than a soak takes: they are told
    apart, so that whatever else grows is seen.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError, AttributeError, TypeError):
        used = ctypes.CDLL(ctypes.util.find_library("sqlite3")).sqlite3_memory_used
        used.restype = ctypes.c_int64
        return int(used())
    return 0


def trend(at_s: list[float], figures: list[float], *, part: float, base: float) -> Trend:
    """Fit a line; `part` of the mean and `base` on top is what it may rise over the whole span."""
    mean = statistics.fmean(figures)
    slope, _ = statistics.linear_regression(at_s, figures)
    return Trend(mean, slope * (at_s[-1] - at_s[0]), part * mean + base)
