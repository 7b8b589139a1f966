"""What a benchmark reports: figures, each with its floor from the same run and, where one is promised, its target."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec

__all__ = ["FULL", "QUICK", "TINY", "Benchmark", "Figure", "Scale", "Verdict", "interleaved", "timed"]


class Verdict(StrEnum):
    """How a figure stands to its target; one without a target only shows how cost grows."""

    PASS = "PASS"
    MISS = "MISS"
    SHOWN = "shown"


class Figure(msgspec.Struct, frozen=True):
    """One line of the report.

    `size` counts what `of` names. `value` is Segue's cost in `unit` and `floor` that of the bare thing; the result is
    then their ratio. Without a floor the result is the value itself. `target` bounds the result: from above, or with
    `at_least` from below.
    """

    what: str
    size: int
    of: str
    unit: str
    value: float
    floor: float | None = None
    target: float | None = None
    at_least: bool = False

    @property
    def result(self) -> float:
        """The ratio to the floor, or the value where there is none."""
        return self.value if self.floor is None else self.value / self.floor

    @property
    def verdict(self) -> Verdict:
        """Whether the target is met."""
        if self.target is None:
            return Verdict.SHOWN
        met = self.result >= self.target if self.at_least else self.result <= self.target
        return Verdict.PASS if met else Verdict.MISS


class Scale(msgspec.Struct, frozen=True):
    """How much a run measures: at which sizes, how often each side alternates with its floor, how many overwrites."""

    sizes: tuple[int, ...]
    samples: int
    rounds: int
    overwrites: int


FULL = Scale((10, 1_000, 10_000), samples=300, rounds=5, overwrites=100_000)
QUICK = Scale((10, 1_000), samples=100, rounds=3, overwrites=20_000)
TINY = Scale((4, 40), samples=4, rounds=1, overwrites=5_000)

Benchmark = Callable[[Scale, Path], Awaitable[list[Figure]]]
"""Measures at a scale, with files in a folder of its own."""


async def timed(step: Callable[[], Awaitable[object]]) -> float:
    """Return how long a step took, seconds."""
    started = perf_counter()
    await step()
    return perf_counter() - started


async def interleaved(samples: int, steps: Sequence[Callable[[], Awaitable[float]]]) -> list[float]:
    """Return the median of what each step returns; the steps take turns, so that what disturbs one disturbs all."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(samples):
        for step, taken in zip(steps, times, strict=True):
            taken.append(await step())
    return [median(taken) for taken in times]
