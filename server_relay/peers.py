"""One websocket connection as the server sees it: frames decoded as they come, an out-queue of its own, one writer.

What waits of a connection for the conductor is bounded, and nothing is read while its out-queue is full: so what a
device can make the relay hold is bounded in both directions. Once nothing can be written any more, the out-queue is
empty for good, and what the device had sent before is read to its end.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from server_relay.effects import Drained
from server_relay.fanout import CATCH_UP_ROOM_BYTES
from sync_core.errors import ProtocolError
from sync_core.limits import FRAME_BYTES_MAX, OUT_QUEUE_BYTES_MAX
from sync_core.wire import ClientFrame, decode_client, join

__all__ = ["Peer"]

_CLOSE_GRACE_S = 5.0
_IN_BYTES_MAX = 64 * 1024
"""Received bytes that wait for the conductor before no further message is read; the last one may go beyond."""
_MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - 8


class Peer:
    """A connection.

    `message_bytes` is the size of the message received last, `read_bytes` and `written_bytes` are those since the
    start. `out_bytes` wait in its out-queue; `on_drained` is called when fewer do, with whether the relay, by what it
    was told last, may believe that there is no room.
    """

    def __init__(self, conn: int, websocket: ServerConnection, on_drained: Callable[["Peer", bool], None]) -> None:
        self.conn = conn
        self.out_bytes = 0
        self.message_bytes = self.read_bytes = self.written_bytes = 0
        self._websocket = websocket
        self._on_drained = on_drained
        self._out: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._in_bytes = 0
        self._closing: tuple[int, str] | None = None
        self._written = False
        self._told_bytes = 0

    @property
    def address(self) -> str:
        """The other side's IP address."""
        address = self._websocket.remote_address
        return str(address[0]) if address else ""

    # --- reading -----------------------------------------------------------------------------------------------------

    async def receive(self) -> list[ClientFrame] | ProtocolError | None:
        """Return the next message's frames, the error if it holds none, None once the connection is gone."""
        await self._may_read.wait()
        try:
            message = await self._websocket.recv()
        except ConnectionClosed:
            return None
        self._handed_over = True
        self._may_read.clear()
        self.message_bytes = len(message)
        self.read_bytes += self.message_bytes
        try:
            return decode_client(message)
        except ProtocolError as error:
            return error

    def taken(self) -> None:
        """The conductor took what had come: more may be read, if the out-queue is not full."""
        self._in_bytes = 0
        self._allow_reading()

    def _allow_reading(self) -> None:
        if self._in_bytes <= _IN_BYTES_MAX and self.out_bytes <= OUT_QUEUE_BYTES_MAX:
            self._may_read.set()

    def report(self) -> Drained:
        """Return how much waits in the out-queue, for the relay."""
        self._told_bytes = self.out_bytes
        return Drained(self.conn, self.out_bytes)

    # --- writing -----------------------------------------------------------------------------------------------------

    def send(self, frames: tuple[bytes, ...]) -> None:
        """Put frames into the out-queue, or drop them if nothing can be written any more."""
        if self._written:
            return
        size = sum(map(len, frames))
        self._out.extend(frames)
        self.out_bytes += size
        self._told_bytes += size
        if self.out_bytes > OUT_QUEUE_BYTES_MAX:
            self._may_read.clear()
        self._ready.set()

    def close(self, code: int, reason: str) -> None:
        """Close the connection once the out-queue is written, or without that after some seconds."""
        if self._closing is None:
            self._closing = (code, reason)
            self._ready.set()
            # Aborting a connection that is closed by then does no harm.
            asyncio.get_running_loop().call_later(_CLOSE_GRACE_S, self._websocket.transport.abort)

    async def write(self) -> None:
        """Write the out-queue, joined into messages, until the connection closes."""
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                while self._out:
                    frames, size = self._next_message()
                    await self._websocket.send(join(frames))
                    self._drained(size)
                if self._closing is not None:
                    await self._websocket.close(*self._closing)
                    return
        except ConnectionClosed:
            pass
        finally:
            self._written = True
            self._out.clear()
            self.out_bytes = 0
            self._allow_reading()

    def _next_message(self) -> tuple[list[bytes], int]:
        frames: list[bytes] = []
        size = 0
        while self._out and (not frames or size + len(self._out[0]) <= _MESSAGE_BYTES_MAX):
            frame = self._out.popleft()
            frames.append(frame)
            size += len(frame)
        return frames, size

    def _drained(self, size: int) -> None:
        self.out_bytes -= size
        self.written_bytes += size
        self._allow_reading()
        self._on_drained(self, self.out_bytes <= CATCH_UP_ROOM_BYTES < self._told_bytes)
