"""Propagation: from a write on the phone, through the relay, to a change told on the desktop, each a process.

Three commits and two hops lie on that way. The floor is one commit and one round trip of bare websockets.
"""

import itertools
import os
import time
from functools import partial
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect

from tests.benchmarks.devices import SYNC_S, TASK, open_device, overwrite
from tests.benchmarks.figures import Figure, Scale, interleaved, timed
from tests.benchmarks.floors import PAYLOAD_BYTES, BareWriter
from tests.benchmarks.processes import line_of
from tests.benchmarks.servers import echo_server, relay_server
from tests.benchmarks.watcher import watching_desktop

__all__ = ["run"]


async def run(scale: Scale, folder: Path) -> list[Figure]:
    """Return the time from a write's call to the told change, by what the task held before."""
    async with (
        BareWriter.open(folder / "bare.db") as bare,
        echo_server() as echo,
        connect(echo, compression=None, proxy=None) as socket,
    ):
        return [await _propagation(scale, folder, size, bare, socket) for size in scale.sizes]


async def _propagation(scale: Scale, folder: Path, size: int, bare: BareWriter, socket: ClientConnection) -> Figure:
    own = folder / str(size)
    own.mkdir()
    message = os.urandom(PAYLOAD_BYTES)
    async with (
        relay_server(own / "relay.db") as relay,
        open_device(own, "phone", relay) as phone,
        phone.task(TASK, create=True) as task,
    ):
        await overwrite(task, size)
        await phone.synced(timeout_s=SYNC_S)
        async with watching_desktop(own, relay) as told:
            places = itertools.count()

            async def floor() -> None:
                await bare.write()
                await socket.send(message)
                await socket.recv()

            async def carry() -> float:
                started_ns = time.monotonic_ns()
                await task.slots.confirm("cost_center", f"CC-{next(places)}")
                return (int(await line_of(told)) - started_ns) / 1e9

            floor_s, value_s = await interleaved(scale.samples, (partial(timed, floor), carry))
    return Figure("phone to desktop, p50", size, "writes before", "ms", value_s * 1e3, floor_s * 1e3, 4)
