"""Python modules of this package that run in a process of their own and say lines."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["ProcessFailed", "line_of", "running"]


class ProcessFailed(Exception):
    """A process ended before it said what was expected; its own error stands on standard error."""


@asynccontextmanager
async def running(module: str, *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
    """Run a module until the end of the block; give what it says."""
    name = f"tests.benchmarks.{module}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", name, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def line_of(said: asyncio.StreamReader) -> str:
    """Return the next line; raises `ProcessFailed` if there is none."""
    line = await said.readline()
    if not line:
        raise ProcessFailed("A process of the benchmark ended early.")
    return line.decode().strip()
