"""Durable slot writes through the public interface, against a bare insert and commit.

One writer alternates with aiosqlite's insert and commit. Then 32 coroutines write at once, against 32 that hand their
rows to a bare conductor which commits them in groups.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from tests.benchmarks.devices import TASK, open_device, overwrite
from tests.benchmarks.figures import Figure, Scale, interleaved, timed
from tests.benchmarks.floors import PAYLOAD_BYTES, BareWriter, GroupWriter

__all__ = ["run"]

_SLOTS = 10
_WRITERS = 32
_WRITES_EACH_PER_SAMPLE = 0.3
_FLOOR_FACTOR = 4
"""The bare group is several times faster: it writes more, so that both sides are measured for about as long."""


async def run(scale: Scale, folder: Path) -> list[Figure]:
    """Return the latency of one writer by size of the task, and the throughput of 32."""
    async with BareWriter.open(folder / "bare.db") as bare:
        figures = [await _one_writer(scale, folder, size, bare) for size in scale.sizes]
        return [*figures, await _many_writers(scale, folder, bare)]


async def _one_writer(scale: Scale, folder: Path, size: int, bare: BareWriter) -> Figure:
    async with (
        open_device(folder, f"one-{size}", None) as phone,
        phone.task(TASK, create=True) as task,
    ):
        await overwrite(task, size)
        places = iter(range(scale.samples))

        async def confirm() -> None:
            place = next(places)
            await task.slots.confirm(f"slot_{place % _SLOTS}", f"CC-{place}")

        floor_s, value_s = await interleaved(scale.samples, (partial(timed, bare.write), partial(timed, confirm)))
    return Figure("one writer, p50", size, "writes before", "ms", value_s * 1e3, floor_s * 1e3, 1.5)


async def _many_writers(scale: Scale, folder: Path, bare: BareWriter) -> Figure:
    each = max(1, int(scale.samples * _WRITES_EACH_PER_SAMPLE))
    payload = os.urandom(PAYLOAD_BYTES)
    async with (
        open_device(folder, "many", None) as phone,
        phone.task(TASK, create=True) as task,
        GroupWriter.over(bare) as group,
    ):

        async def insert(_writer: int, _place: int) -> None:
            await group.write(payload)

        async def confirm(writer: int, place: int) -> None:
            await task.slots.confirm(f"slot_{writer}", f"CC-{place}")

        floors, values = [], []
        for _ in range(scale.rounds):
            floors.append(await _rate(each * _FLOOR_FACTOR, insert))
            values.append(await _rate(each, confirm))
    return Figure(
        f"{_WRITERS} writers", each * _WRITERS, "writes", "per s", median(values), median(floors), 0.3, at_least=True
    )


async def _rate(each: int, write: Callable[[int, int], Awaitable[None]]) -> float:
    """Return how many writes a second the writers get done together."""

    async def writer(number: int) -> None:
        for place in range(each):
            await write(number, place)

    started = perf_counter()
    await asyncio.gather(*(writer(number) for number in range(_WRITERS)))
    return each * _WRITERS / (perf_counter() - started)
