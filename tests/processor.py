"""How much processor time a program takes: on a busy machine the clock on the wall tells of others."""

import os
import subprocess
import sys
from collections.abc import Callable

__all__ = ["fastest_s", "starts_fast"]


def fastest_s(run: Callable[[], object]) -> float:
    """Return the least processor time (s) that child processes took in five runs."""
    spans = []
    for _ in range(5):
        before = os.times()
        run()
        after = os.times()
        spans.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(spans)


def starts_fast(start_and_stop: Callable[[], object]) -> bool:
    """Say whether 0.3 s are enough; on a slow machine, four times what Python takes to have a loop and SQLite."""
    floor_s = fastest_s(lambda: subprocess.run([sys.executable, "-c", "import asyncio, sqlite3"], check=True))
    return fastest_s(start_and_stop) < max(0.3, 4 * floor_s)
