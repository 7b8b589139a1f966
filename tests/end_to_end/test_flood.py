"""RS-33, SE-17 with a real relay process: one reads nothing, one sends at line rate, and nobody else is worse off."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from server_relay.sessions import CLOSE_TRY_LATER
from tests.server_relay.wire_client import WireClient, history_entry

TASK, FLOODER = "expense/TRIP-118", 700_001
_SOCKETS = 30
_MEMORY_OF_SOCKET_BYTES = 1_500_000
_ENTRIES_PER_MINUTE = 1_600
_TEXT = f'"{"x" * 4_000}"'


@asynccontextmanager
async def relay_process(db: Path) -> AsyncIterator[tuple[int, int]]:
    """Run a relay; give its port and its process id."""
    bound = ("--entries-per-minute-max", str(_ENTRIES_PER_MINUTE))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "server_relay", "--db", str(db), "--port", "0", "--json", *bound, stdout=PIPE
    )
    try:
        assert process.stdout is not None
        yield json.loads(await process.stdout.readline())["port"], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
async def test_a_flood_and_a_reader_that_does_not_read_cost_a_bounded_amount(tmp_path: Path) -> None:
    async with relay_process(tmp_path / "relay.db") as (port, pid), AsyncExitStack() as stack, asyncio.timeout(90):
        clients = [await stack.enter_async_context(await WireClient.open(port, f"d{n}")) for n in range(_SOCKETS)]
        for client in clients:
            await client.follow(TASK)
        flooder, deaf, *others = clients
        deaf.websocket.transport.pause_reading()
        before = memory_bytes(pid)
        reading = [asyncio.ensure_future(other.entries(_ENTRIES_PER_MINUTE)) for other in others]
        sending = asyncio.ensure_future(_flood(flooder))
        most = 0
        while not all(one.done() for one in reading):
            await asyncio.sleep(0.05)
            most = max(most, memory_bytes(pid))
        # Everybody else has got all that the flooder was allowed, in order.
        for one in reading:
            assert [entry.writer_seq for entry in one.result()][:_ENTRIES_PER_MINUTE] == list(
                range(1, _ENTRIES_PER_MINUTE + 1)
            )
        assert most - before < _SOCKETS * _MEMORY_OF_SOCKET_BYTES
        assert await sending == CLOSE_TRY_LATER
        # Who reads again gets the rest on the connection that it had.
        deaf.websocket.transport.resume_reading()
        assert len(await deaf.entries(_ENTRIES_PER_MINUTE)) >= _ENTRIES_PER_MINUTE


async def _flood(flooder: WireClient) -> int | None:
    try:
        for start in range(1, 3 * _ENTRIES_PER_MINUTE, 16):
            batch = [history_entry(TASK, FLOODER, seq, "d0", _TEXT) for seq in range(start, start + 16)]
            await flooder.push(TASK, *batch)
    except ConnectionClosed:
        pass
    return await flooder.closed()
