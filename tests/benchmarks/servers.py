"""Servers in processes of their own: `python -m tests.benchmarks.servers echo`, or `relay FILE TAIL`.

Each prints its port once it listens and runs until it is terminated. The relay is the real one; TAIL is how many
entries it lets pile up before it asks for a snapshot, which its command line does not offer.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets

from server_relay.command.run import relay_runner
from server_relay.config import RelaySettings
from server_relay.server import serve
from tests.benchmarks.processes import line_of, running

__all__ = ["NO_SNAPSHOTS", "echo_server", "relay_server"]

NO_SNAPSHOTS = 1_000_000_000
"""A tail that no log reaches."""


@asynccontextmanager
async def echo_server() -> AsyncIterator[str]:
    """Start a bare websockets server that sends back what it gets; give its address."""
    async with running("servers", "echo") as said:
        yield f"ws://127.0.0.1:{await line_of(said)}"


@asynccontextmanager
async def relay_server(db: Path, tail_entries: int = NO_SNAPSHOTS) -> AsyncIterator[str]:
    """Start a relay on a file; give its address."""
    async with running("servers", "relay", str(db), str(tail_entries)) as said:
        yield f"ws://127.0.0.1:{await line_of(said)}"


async def _echo() -> None:
    async def handle(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve_websockets(handle, "127.0.0.1", 0, compression=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await server.serve_forever()


async def _relay(db: str, tail_entries: str) -> None:
    server = await serve(RelaySettings(db=Path(db), port=0, snapshot_tail_entries=int(tail_entries)))
    print(server.port, flush=True)
    await server.closed()


if __name__ == "__main__":
    with relay_runner() as runner:
        runner.run(_relay(*sys.argv[2:]) if sys.argv[1] == "relay" else _echo())
