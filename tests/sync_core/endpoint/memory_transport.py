"""A network in memory, for tests of what stands on the transport seam."""

import asyncio

from sync_core.endpoint.transport import Connection, LinkLost
from sync_core.limits import FRAME_BYTES_MAX

_QUEUE_MESSAGES_MAX = 8


class MemoryConnection:
    """One end of a pipe; what one end sends the other receives, in order."""

    def __init__(self, incoming: "_Pipe", outgoing: "_Pipe") -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def send(self, message: bytes) -> None:
        await self._outgoing.put(message)

    async def receive(self) -> bytes | str:
        return await self._incoming.take()

    async def close(self) -> None:
        self.hang_up("closed")

    def hang_up(self, reason: str) -> None:
        """End both directions; what was sent before can still be received."""
        self._incoming.end(reason)
        self._outgoing.end(reason)


class MemoryTransport:
    """Connects to whoever waits in `accept`; refuses while `down` is set."""

    def __init__(self) -> None:
        self.down = False
        self.attempts = 0
        self._arrived: asyncio.Queue[MemoryConnection] = asyncio.Queue()

    async def connect(self, url: str) -> Connection:
        self.attempts += 1
        if self.down or not url.startswith("memory:"):
            raise LinkLost("nobody is there")
        there, back = _Pipe(), _Pipe()
        self._arrived.put_nowait(MemoryConnection(there, back))
        return MemoryConnection(back, there)

    async def accept(self) -> MemoryConnection:
        """Wait for the next connection and return its far end."""
        return await self._arrived.get()


class _Pipe:
    def __init__(self) -> None:
        self._messages: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE_MESSAGES_MAX)
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def put(self, message: bytes) -> None:
        if self._ended.done():
            raise LinkLost(self._ended.result())
        if len(message) > FRAME_BYTES_MAX:
            self.end("the message is too big")
            raise LinkLost("the message is too big")
        await self._until_ended(self._messages.put(message))

    async def take(self) -> bytes:
        if self._messages.empty():
            return await self._until_ended(self._messages.get())
        return self._messages.get_nowait()

    async def _until_ended(self, step):  # type: ignore[no-untyped-def]
        work = asyncio.ensure_future(step)
        try:
            await asyncio.wait({work, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not work.done():
                work.cancel()
        if work.done() and not work.cancelled():
            return work.result()
        raise LinkLost(self._ended.result())

    def end(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)
