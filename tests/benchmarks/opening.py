"""Opening a task: what it costs in a large store, and what an open one, or one that is not open, holds in memory."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from sync_core import Endpoint
from tests.benchmarks.figures import Figure, Scale, timed
from tests.benchmarks.memory import held_bytes
from tests.benchmarks.stores import SUBJECT, key_of, make_store

__all__ = ["run"]

_OPEN_TASKS_MAX = 1_000
_STRIDE = 7_919
"""A prime, so that the tasks of a store take turns."""
_REST_S = 10
_POLL_S = 0.02


async def run(scale: Scale, folder: Path) -> list[Figure]:
    """Return times of opening by size of the store, and what tasks hold."""
    paths = {size: folder / f"{size}.db" for size in scale.sizes}
    for size, path in paths.items():
        await make_store(path, size)
    async with AsyncExitStack() as stack:
        endpoints = {}
        starts = []
        for size, path in paths.items():
            started = perf_counter()
            endpoints[size] = await stack.enter_async_context(Endpoint.open(path, subject=SUBJECT, device="desktop"))
            starts.append(Figure("open the endpoint", size, "tasks", "ms", (perf_counter() - started) * 1e3))
        figures = await _open_one(scale, endpoints)
        for size, endpoint in endpoints.items():
            held = await _documents_at_rest(endpoint)
            figures.append(Figure("documents of an idle endpoint", size, "tasks", "held", held, None, 0))
    return [*figures, *starts, *await _memory(paths)]


async def _open_one(scale: Scale, endpoints: dict[int, Endpoint]) -> list[Figure]:
    """Each round opens some tasks, one of each store in turn.

    A task that was just closed may still be in memory, so all come to rest before.
    """
    times: dict[int, list[float]] = {size: [] for size in endpoints}
    a_round = min(endpoints)
    for first in range(0, scale.samples, a_round):
        for endpoint in endpoints.values():
            await _documents_at_rest(endpoint)
        for place in range(first, first + a_round):
            for size, endpoint in endpoints.items():
                key = key_of(place * _STRIDE % size)
                times[size].append(await timed(partial(_open_and_close, endpoint, key)))
    smallest = median(times[min(times)])
    return [
        Figure("open one task, p50", size, "tasks", "ms", median(taken) * 1e3, smallest * 1e3, 1.5)
        for size, taken in times.items()
    ]


async def _open_and_close(endpoint: Endpoint, key: str) -> None:
    task = await endpoint.task(key)
    await task.aclose()


async def _documents_at_rest(endpoint: Endpoint) -> int:
    """Documents of closed tasks go, the last few at the next tick; return how many are left when no more go."""
    deadline = perf_counter() + _REST_S
    while True:
        held = (await endpoint.stats()).documents
        if not held or perf_counter() > deadline:
            return held
        await asyncio.sleep(_POLL_S)


async def _memory(paths: dict[int, Path]) -> list[Figure]:
    """The store with the fewest tasks that still gives a figure, and one more for growth."""
    path = next(reversed(paths.values()))
    count = min(_OPEN_TASKS_MAX, next(reversed(paths)))
    figures = []
    for what, traced in (("memory an open task, RSS", False), ("memory an open task, tracemalloc", True)):
        for opened in (count // 10, count):
            held = await held_bytes(path, opened, traced)
            figures.append(Figure(what, opened, "open tasks", "KB", held / opened / 1e3, None, 50))
    return figures
