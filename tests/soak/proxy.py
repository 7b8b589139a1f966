"""A TCP proxy whose connections do not last: each is cut after a time of its own, with whatever it carries."""

import asyncio
from contextlib import suppress
from random import Random

__all__ = ["FlappingProxy"]

_CHUNK_BYTES = 64 * 1024


class FlappingProxy:
    """Carries bytes between devices and a relay. `cuts` counts the connections that it ended; `flaps` may be unset."""

    def __init__(self, chance: Random, life_s: float) -> None:
        """`life_s` is how long a connection lasts on average."""
        self.flaps = True
        self.cuts = self.connections = 0
        self.target_port = 0
        self.port = 0
        self._chance = chance
        self._life_s = life_s
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        self.connections += 1
        try:
            relay_reader, relay_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            writers.append(relay_writer)
            ways = [
                asyncio.ensure_future(_pump(reader, relay_writer)),
                asyncio.ensure_future(_pump(relay_reader, writer)),
            ]
            try:
                while True:
                    life_s = self._chance.expovariate(1 / self._life_s)
                    done, _ = await asyncio.wait(ways, timeout=life_s, return_when=asyncio.FIRST_COMPLETED)
                    if done:
                        break
                    if self.flaps:
                        self.cuts += 1
                        break
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            # The relay is down: the device finds nobody.
            pass
        finally:
            for each in writers:
                # What is on its way is lost, as on a real link.
                each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
