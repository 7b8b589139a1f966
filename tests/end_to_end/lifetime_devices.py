"""A relay and devices for tests of how tasks end: real sockets, real files, short times."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.opening import Opening
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect

__all__ = ["KEY", "content_bytes", "device", "is_empty", "rows", "running", "scan", "until", "work"]

KEY = "expense/TRIP-118"


@tool(effect=Effect.READ)
def scan(path: str) -> str:
    return path * 2_000


@asynccontextmanager
async def running(
    folder: Path, *, clean_up_grace_s: int = 600, task_ttl_s: int | None = None, clock_confirmed: bool = False
) -> AsyncIterator[RelayServer]:
    settings = RelaySettings(
        db=folder / "relay.db",
        port=0,
        sweep_every_ms=100,
        clean_up_grace_s=clean_up_grace_s,
        task_ttl_s=task_ttl_s,
        clock_confirmed=clock_confirmed,
    )
    relay = await serve(settings)
    try:
        yield relay
    finally:
        await relay.close()


def device(folder: Path, name: str, relay: RelayServer | None) -> Opening[Endpoint]:
    url = None if relay is None else f"ws://127.0.0.1:{relay.port}"
    backoff = Backoff(first_s=0.02, cap_s=0.1)
    return Endpoint.open(folder / f"{name}.db", subject="acme", device=name, relay=url, tools=[scan], backoff=backoff)


async def until(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait, at most thirty seconds, until something is so."""
    for _ in range(600):
        found = true()
        if await found if isinstance(found, Awaitable) else found:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came to that")


async def is_empty(relay: RelayServer) -> bool:
    found = (await relay.metrics()).mailbox
    return (found.entries, found.streams, found.blobs) == (0, 0, 0)


def rows(folder: Path, table: str, name: str = "relay") -> int:
    with closing(sqlite3.connect(folder / f"{name}.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def work(task: Task, steps: int = 3) -> None:
    await task.slots.confirm("amount", 249)
    for number in range(steps):
        await task.call(f"scan/{number}", scan, path=f"page {number} ")
        await task.history.append({"role": "user", "content": f"{number} " + "said " * 20_000})
        await task.notes.append("worklog", f"step {number}\n")


def content_bytes(folder: Path, name: str) -> int:
    """Return the bytes of all values in all tables of a file, a number counted as eight."""
    size = 0
    with closing(sqlite3.connect(folder / f"{name}.db")) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):
                size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
    return size
