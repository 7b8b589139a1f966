"""Who has not signed in, and who asks for what is not there, at full number: nothing of it stays (SE-21)."""

import asyncio
import contextlib
import gc
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from sync_core.frames import Heads, Hello, Receipt
from sync_core.limits import LOGIN_MESSAGE_BYTES_MAX
from tests.server_relay.wire_client import WireClient, history_entry

TASK, PHONE = "expense/TRIP-118", 700_001
STRANGERS, OPENS = 1_000, 10_000
FLOOD_BYTES = 10 * 1024 * 1024
_CHUNK = bytes(64 * 1024)
_HANDSHAKE = (
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_MASKED = 0x80


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayServer]:
    server = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, idle_task_ms=200, login_timeout_ms=60_000))
    yield server
    await server.close()


async def flood(port: int, header: bytes) -> bool:
    """Open a websocket and send 10 MB behind this header of a frame, unless it is closed before; return whether it
    opened in time."""
    opened = False
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        writer.write(_HANDSHAKE.encode())
        await reader.readuntil(b"\r\n\r\n")
        opened = True
        answer = asyncio.ensure_future(reader.read(1_024))
        try:
            writer.write(header)
            for _ in range(FLOOD_BYTES // len(_CHUNK)):
                writer.write(_CHUNK)
                await writer.drain()
                if answer.done():
                    break
        finally:
            # An error that nobody took would be logged, and what is logged counts as held.
            await asyncio.wait([answer])
            answer.exception()
    writer.transport.abort()
    return opened


async def held(relay: RelayServer) -> tuple[int, int, int, int]:
    """What is there of connections, sockets, asyncio tasks and timers, once the relay has seen who left."""
    async with asyncio.timeout(30):
        while (metrics := await relay.metrics()).sockets or metrics.connections:  # noqa: ASYNC110 (nobody tells when)
            await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    return metrics.connections, metrics.sockets, len(asyncio.all_tasks()), len(timers)


def allocated_blocks() -> int:
    """How many blocks of memory are in use: what is held of a connection or a task is dozens."""
    gc.collect()
    return sys.getallocatedblocks()


async def test_a_flood_before_login_costs_its_senders_their_sockets_and_nothing_stays(relay: RelayServer) -> None:
    header = struct.pack("!BBQ", 0x82, _MASKED | 127, FLOOD_BYTES)
    await asyncio.gather(*(flood(relay.port, header) for _ in range(20)))
    before = await held(relay)
    blocks_before = allocated_blocks()
    opened = sum(await asyncio.gather(*(flood(relay.port, header) for _ in range(STRANGERS))))
    assert await held(relay) == before
    assert allocated_blocks() - blocks_before < 5 * STRANGERS
    metrics = await relay.metrics()
    assert metrics.counts["refused_too_large"] == 20 + opened
    assert opened > STRANGERS // 2
    # Of 10 GB next to nothing was read.
    assert metrics.read_bytes < STRANGERS * 512 * 1024
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        await phone.next(Receipt)


async def test_small_messages_before_login_end_the_connection_at_the_first(relay: RelayServer) -> None:
    frame = struct.pack("!BBHI", 0x82, _MASKED | 126, LOGIN_MESSAGE_BYTES_MAX, 0)
    await flood(relay.port, frame)
    await held(relay)
    assert (await relay.metrics()).counts["refused_protocol"] == 1


async def test_opens_of_documents_that_are_not_there_leave_nothing(relay: RelayServer) -> None:
    async def ask(count: int) -> tuple[int, int, int, int]:
        async with await WireClient.open(relay.port, "phone") as phone:
            for number in range(count):
                await phone.send(Hello(f"nothing/{number}"))
                assert not (await phone.next(Heads)).known
        async with asyncio.timeout(30):
            while (await relay.metrics()).tasks_held:  # noqa: ASYNC110 (nobody tells when)
                await asyncio.sleep(0)
        return await held(relay)

    before = await ask(OPENS // 2)
    blocks_before = allocated_blocks()
    assert await ask(OPENS // 2) == before
    assert allocated_blocks() - blocks_before < OPENS // 2
