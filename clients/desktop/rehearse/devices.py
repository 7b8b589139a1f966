"""The devices of a rehearsal: endpoints with a file each, a network that can be cut, and a crash that drops them."""

import asyncio
from pathlib import Path

from clients.desktop.rehearse.recording import Run
from clients.desktop.rehearse.stand_ins import Asking, StandIns
from sync_core import Backoff, Endpoint, Message, PlannedCall, Task
from sync_core.endpoint.points import CallPoint, Crashed
from sync_core.endpoint.transport import Connection, LinkLost, WebsocketTransport
from sync_core.testing import crash_at

__all__ = ["PATIENCE_S", "CuttableNetwork", "Device", "store_of"]

PATIENCE_S = 60.0
"""How long a device waits for the relay before the rehearsal gives up, seconds."""

_BACKOFF = Backoff(first_s=0.02, cap_s=0.1)
"""Loopback is back at once, so a device that returns need not wait long for its next attempt."""


def store_of(folder: Path, run: Run, device: str) -> Path:
    """Return where a device keeps its file of a run; each run is a subject of its own, so it has files of its own."""
    return folder / f"{run.subject}-{device}.db"


class CuttableNetwork:
    """Connections over websockets that end, and do not come back, while the network is cut; sending can be held up."""

    def __init__(self) -> None:
        self._network = WebsocketTransport()
        self._open: list[Connection] = []
        self._may_send = asyncio.Event()
        self._may_send.set()
        self.is_cut = False

    async def connect(self, url: str) -> Connection:
        """Return an open connection; raises `LinkLost` while the network is cut."""
        if self.is_cut:
            raise LinkLost("offline, as scheduled")
        connection = await self._network.connect(url)
        if self.is_cut:
            await connection.close()
            raise LinkLost("offline, as scheduled")
        self._open.append(connection)
        return _Holdable(connection, self._may_send)

    async def cut(self) -> None:
        """End every connection and refuse new ones."""
        self.is_cut = True
        while self._open:
            await self._open.pop().close()

    def hold(self) -> None:
        """Let nothing more out, although connections stand."""
        self._may_send.clear()

    def release(self) -> None:
        """Let messages out again."""
        self._may_send.set()

    def restore(self) -> None:
        """Let connections come about again."""
        self.is_cut = False


class _Holdable:
    """A connection whose messages wait while sending is held up."""

    def __init__(self, connection: Connection, may_send: asyncio.Event) -> None:
        self._connection = connection
        self._may_send = may_send

    async def send(self, message: bytes) -> None:
        await self._may_send.wait()
        await self._connection.send(message)

    async def receive(self) -> bytes | str:
        return await self._connection.receive()

    async def close(self) -> None:
        await self._connection.close()


class Device:
    """One device: its file of a run outlives every opening of its endpoint. It works on one run at a time."""

    def __init__(self, name: str, folder: Path, relay: str, stand_ins: StandIns) -> None:
        self.name = name
        self.network = CuttableNetwork()
        self._folder = folder
        self._relay = relay
        self._stand_ins = stand_ins
        self._run: Run | None = None
        self._endpoint: Endpoint | None = None
        self._task: Task | None = None

    async def begin(self, run: Run) -> None:
        """Take part in a run from here on, and no longer in the one before."""
        await self.close()
        self._run = run

    async def task(self, *, create: bool = False) -> Task:
        """Return this device's handle of the run's task, opening endpoint and task as far as they are not open."""
        if self._task is None:
            self._task = await (await self._opened()).task(self._playing().task, create=create)
        return self._task

    async def synced(self) -> None:
        """Wait until the relay has all of this device's work, and this device all of the relay's."""
        await (await self._opened()).synced(timeout_s=PATIENCE_S)

    async def ask(self, pending: PlannedCall, asking: Asking, kill: CallPoint | None) -> Message | None:
        """Run a pending call, or die at a point of it; returns its tool message, or None if the device died."""
        task = await self.task()
        self._stand_ins.asking = asking
        if kill is CallPoint.AFTER_RECORD:
            # From the effect on nothing leaves, or the record would be gone before the device is.
            self._stand_ins.executed = self.network.hold
        try:
            if kill is None:
                return await task.run(pending)
            with crash_at(kill.value):
                return await task.run(pending)
        except Crashed:
            self._endpoint = self._task = None
            return None
        finally:
            self._stand_ins.asking = self._stand_ins.executed = None
            self.network.release()

    async def call_again(self, pending: PlannedCall, asking: Asking) -> object:
        """Ask for a call by its step and return the result; what is recorded must not run."""
        task = await self.task()
        self._stand_ins.asking = asking
        try:
            tool, values = self._stand_ins.bound(asking.call)
            return await task.call(pending.step, tool, *values)
        finally:
            self._stand_ins.asking = None

    async def close(self) -> None:
        """Close the endpoint; the file stays."""
        if self._endpoint is not None:
            await self._endpoint.aclose()
        self._endpoint = self._task = None

    def _playing(self) -> Run:
        assert self._run is not None, "a device begins a run before anything else"
        return self._run

    async def _opened(self) -> Endpoint:
        if self._endpoint is None:
            run = self._playing()
            self._endpoint = await Endpoint.open(
                store_of(self._folder, run, self.name),
                subject=run.subject,
                device=self.name,
                relay=self._relay,
                tools=self._stand_ins.tools,
                backoff=_BACKOFF,
                transport=self.network,
            )
        return self._endpoint
