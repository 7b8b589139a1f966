"""One connection as the server sees it, over a real socket."""

import asyncio

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from server_relay.peers import Peer
from sync_core.frames import Unfollow
from sync_core.limits import OUT_QUEUE_BYTES_MAX
from sync_core.wire import encode

_MORE_THAN_SOCKETS_HOLD = 64 * 1024 * 1024


async def test_a_device_that_is_gone_before_it_read_is_read_to_its_end() -> None:
    read: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def handle(websocket: ServerConnection) -> None:
        peer = Peer(1, websocket, lambda peer, has_room_again: None)
        peer.send((bytes(_MORE_THAN_SOCKETS_HOLD),))
        assert peer.out_bytes > OUT_QUEUE_BYTES_MAX
        writer = asyncio.create_task(peer.write())
        count = 0
        async with asyncio.timeout(30):
            while await peer.receive() is not None:
                count += 1
                peer.taken()
            await writer
        peer.send((b"too late",))
        read.set_result(count if not peer.out_bytes else -1)

    async with serve(handle, "127.0.0.1", 0, compression=None) as server, asyncio.timeout(30):
        port = next(iter(server.sockets)).getsockname()[1]
        device = await connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, proxy=None)
        device.transport.pause_reading()
        for _ in range(2):
            await device.send(encode([Unfollow("a")]))
        device.transport.abort()
        assert 0 <= await read <= 2
