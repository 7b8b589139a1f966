"""pycrdt-websocket under uvicorn and uvloop; with `DB`, its SQLite store behind each room."""

import asyncio
import contextlib
import os

import uvicorn
import uvloop
from pycrdt.store import SQLiteYStore, YDocNotFound
from pycrdt.websocket import ASGIServer, WebsocketServer, YRoom, exception_logger

DB = os.environ.get("DB")


class Store(SQLiteYStore):  # type: ignore[misc]
    db_path = DB or ""


class StoringServer(WebsocketServer):  # type: ignore[misc]
    """A room loads its updates before it serves."""

    async def get_room(self, name: str) -> YRoom:
        if name not in self.rooms:
            room = YRoom(ready=False, ystore=Store(name), log=self.log, exception_handler=self.exception_handler)
            self.rooms[name] = room
            await self.start_room(room)
            async with room.ystore.start_lock:
                if not room.ystore.started.is_set():
                    await room._task_group.start(room.ystore.start)
            with contextlib.suppress(YDocNotFound):
                await room.ystore.apply_updates(room.ydoc)
            room.ready = True
        room = self.rooms[name]
        await self.start_room(room)
        await room.ready_event.wait()
        return room


async def make_store() -> None:
    """Make the file first: stores that start at once on a new one fail on a table that exists already."""
    async with Store("warm-up") as store:
        while store.db_initialized is None:  # noqa: ASYNC110 (the peer has no event for it)
            await asyncio.sleep(0.01)
        await store.db_initialized.wait()


async def main() -> None:
    if DB:
        await make_store()
    server = (StoringServer if DB else WebsocketServer)(exception_handler=exception_logger)
    async with server:
        config = uvicorn.Config(
            ASGIServer(server),
            host="127.0.0.1",
            port=int(os.environ["PORT"]),
            log_level="error",
            backlog=2_048,
            lifespan="off",
        )
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    uvloop.run(main())
