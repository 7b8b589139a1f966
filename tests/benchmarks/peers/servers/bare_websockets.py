"""Floor: a bare `websockets` server that sends what it gets to the others of the room, and keeps nothing."""

import asyncio
import os
from collections import defaultdict

from websockets.asyncio.server import ServerConnection, serve

rooms: defaultdict[str, set[ServerConnection]] = defaultdict(set)


async def handle(connection: ServerConnection) -> None:
    assert connection.request is not None
    members = rooms[connection.request.path]
    members.add(connection)
    try:
        async for message in connection:
            for member in members:
                if member is not connection:
                    await member.send(message)
    finally:
        members.discard(connection)


async def main() -> None:
    async with serve(handle, "127.0.0.1", int(os.environ["PORT"]), compression=None, backlog=4_096) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
