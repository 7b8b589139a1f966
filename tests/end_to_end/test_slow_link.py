"""SE-16: a slow link is no dead one. What comes through it keeps it, and only silence ends it."""

import asyncio

import pytest
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from sync_core.endpoint.transport import LinkLost, WebsocketTransport

_PING_S = 0.2
_MESSAGE_BYTES = 40_000
_PIECES = 20


class _SlowRelay:
    """Opens the websocket, answers no ping, and drips one large message, piece by piece."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        message = Frame(Opcode.BINARY, bytes(_MESSAGE_BYTES)).serialize(mask=False, extensions=[])
        size = len(message) // _PIECES + 1
        self._drips = [message[at : at + size] for at in range(0, len(message), size)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol()
        while not (events := protocol.events_received()):
            protocol.receive_data(await reader.read(4096))
        protocol.send_response(protocol.accept(events[0]))  # type: ignore[arg-type]
        writer.writelines(protocol.data_to_send())
        for drip in self._drips[: self._pieces]:
            await asyncio.sleep(_PING_S / 2)
            writer.write(drip)
        await reader.read()
        writer.close()


async def _receive(pieces: int) -> bytes | str:
    server = await asyncio.start_server(_SlowRelay(pieces).serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        port = server.sockets[0].getsockname()[1]
        connection = await WebsocketTransport(_PING_S).connect(f"ws://127.0.0.1:{port}")
        try:
            return await connection.receive()
        finally:
            await connection.close()


async def test_a_message_that_takes_five_times_the_bound_of_silence_arrives() -> None:
    assert await _receive(_PIECES) == bytes(_MESSAGE_BYTES)


async def test_silence_ends_the_connection() -> None:
    with pytest.raises(LinkLost):
        await _receive(_PIECES // 2)
