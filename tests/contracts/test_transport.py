"""The transport seam: websockets, and the fake that stands in for them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Frame, Opcode

from sync_core.endpoint.transport import LinkLost, Transport, WebsocketTransport
from sync_core.limits import FRAME_BYTES_MAX
from tests.contracts.transport_suite import FarEnd, TransportSuite
from tests.sync_core.endpoint.memory_transport import MemoryTransport


class _Wire:
    def __init__(self, transport: Transport, url: str, nowhere: str, accept: Callable[[], Awaitable[FarEnd]]) -> None:
        self.transport = transport
        self.url = url
        self.nowhere = nowhere
        self.accept = accept


class TestMemoryTransport(TransportSuite):
    @pytest.fixture
    async def wire(self) -> _Wire:
        transport = MemoryTransport()
        return _Wire(transport, "memory:relay", "nowhere:", transport.accept)


class _ServerEnd:
    def __init__(self, connection: ServerConnection, let_go: asyncio.Event) -> None:
        self._connection = connection
        self._let_go = let_go

    async def send(self, message: bytes) -> None:
        await self._connection.send(message)

    async def receive(self) -> bytes | str:
        return await self._connection.recv()

    async def close(self) -> None:
        await self._connection.close(1000, "good-bye")
        self._let_go.set()


class TestWebsocketTransport(TransportSuite):
    @pytest.fixture
    async def wire(self) -> AsyncIterator[_Wire]:
        arrived: asyncio.Queue[FarEnd] = asyncio.Queue()

        async def take(connection: ServerConnection) -> None:
            let_go = asyncio.Event()
            arrived.put_nowait(_ServerEnd(connection, let_go))
            closed = asyncio.ensure_future(connection.wait_closed())
            await asyncio.wait({closed, asyncio.ensure_future(let_go.wait())}, return_when=asyncio.FIRST_COMPLETED)

        async with serve(take, "127.0.0.1", 0, compression=None, max_size=FRAME_BYTES_MAX) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            yield _Wire(WebsocketTransport(), f"ws://127.0.0.1:{port}", f"ws://127.0.0.1:{_free_port()}", arrived.get)

    async def test_the_reason_of_the_far_end_is_told(self, wire: _Wire) -> None:
        near = await wire.transport.connect(wire.url)
        await (await wire.accept()).close()
        with pytest.raises(LinkLost, match="good-bye"):
            await near.receive()

    async def test_a_message_over_the_bound_ends_the_connection(self, wire: _Wire) -> None:
        near = await wire.transport.connect(wire.url)
        far = await wire.accept()
        await far.send(bytes(FRAME_BYTES_MAX + 1))
        with pytest.raises(LinkLost):
            await near.receive()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_connection_that_was_closed_behind_a_full_buffer_is_a_lost_link_and_nothing_else() -> None:
    let_go = asyncio.Event()

    async def take(connection: ServerConnection) -> None:
        await let_go.wait()
        await connection.wait_closed()

    async with serve(take, "127.0.0.1", 0, compression=None, max_queue=1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        connection = await WebsocketTransport().connect(f"ws://127.0.0.1:{port}")
        socket = connection._socket  # type: ignore[attr-defined]
        message = Frame(Opcode.BINARY, bytes(FRAME_BYTES_MAX)).serialize(mask=True)
        while not socket.transport.get_write_buffer_size():
            socket.transport.write(message)
        socket.transport.close()
        let_go.set()
        await socket.wait_closed()
        with pytest.raises(LinkLost):
            await connection.send(b"x")
        await connection.close()
