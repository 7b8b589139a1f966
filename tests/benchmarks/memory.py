"""Memory of open tasks, in a process of its own: `python -m tests.benchmarks.memory FILE COUNT rss|traced`.

Opens so many tasks of a store and prints by how many bytes the process grew. RSS holds everything, the documents of
pycrdt too; tracemalloc sees what Python allocated.
"""

import asyncio
import gc
import os
import sys
import tracemalloc
from pathlib import Path

from sync_core import Endpoint
from tests.benchmarks.processes import line_of, running
from tests.benchmarks.stores import SUBJECT, key_of

__all__ = ["held_bytes"]


async def held_bytes(path: Path, count: int, traced: bool) -> int:
    """Return the bytes that so many open tasks hold in a fresh process."""
    async with running("memory", str(path), str(count), "traced" if traced else "rss") as said:
        return int(await line_of(said))


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _traced_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


async def _measure(path: str, count: int, kind: str) -> int:
    measure = _traced_bytes if kind == "traced" else _rss_bytes
    async with Endpoint.open(path, subject=SUBJECT, device="desktop") as desktop:
        # The first task pays for what all share.
        first = await desktop.task(key_of(0))
        if kind == "traced":
            tracemalloc.start()
        gc.collect()
        before = measure()
        tasks = [await desktop.task(key_of(number)) for number in range(count)]
        gc.collect()
        grown = measure() - before
        await first.aclose()
        for task in tasks:
            await task.aclose()
    return grown


if __name__ == "__main__":
    print(asyncio.run(_measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
