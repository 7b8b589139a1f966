"""A desktop in a process of its own: `python -m tests.benchmarks.watcher FOLDER RELAY`.

It opens the task and prints a line, then one for each change that it is told: the machine's monotonic clock,
nanoseconds, which all its processes share.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.benchmarks.devices import TASK, open_device
from tests.benchmarks.processes import line_of, running

__all__ = ["watching_desktop"]


@asynccontextmanager
async def watching_desktop(folder: Path, relay: str) -> AsyncIterator[asyncio.StreamReader]:
    """Start a desktop that has the task open; give the lines that follow, one for each change."""
    async with running("watcher", str(folder), relay) as said:
        await line_of(said)
        yield said


async def _watch(folder: str, relay: str) -> None:
    async with open_device(Path(folder), "desktop", relay) as desktop, desktop.task(TASK) as task:
        changes = task.changes()
        print("open", flush=True)
        async for _ in changes:
            print(time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    asyncio.run(_watch(*sys.argv[1:]))
