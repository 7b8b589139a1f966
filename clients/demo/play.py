"""The story as its parent directs it: which process runs when, which one is killed, who waits for whom."""

from contextlib import AsyncExitStack

import msgspec

from clients.demo.narrator import Narrator
from clients.demo.people import Person
from clients.demo.processes import DemoProcess, ProcessLife
from clients.demo.story import DESKTOP, PHONE, RELAY, TASK, Breakage, DemoFiles

__all__ = ["play"]


class _RelayReady(msgspec.Struct):
    """The relay's first line: where it listens."""

    port: int


class _Company:
    """Starts processes, and ends by force at the end whatever still runs."""

    def __init__(self, files: DemoFiles, narrator: Narrator, stack: AsyncExitStack) -> None:
        self._files = files
        self._narrator = narrator
        self._stack = stack
        self._address = ""
        self.processes: list[DemoProcess] = []

    async def relay(self) -> DemoProcess:
        """Start the relay on a free port of this machine and learn where it listens."""
        store = str(self._files.store(RELAY))
        relay = await self._start(RELAY, ["server_relay", "--db", store, "--port", "0", "--json"])
        ready = relay.decoded(await relay.line("the relay"), _RelayReady)
        self._address = f"ws://127.0.0.1:{ready.port}"
        self._narrator.line(RELAY, f"process {relay.pid} listens at {self._address}, with a file of its own.")
        return relay

    async def device(self, name: str, act: str) -> DemoProcess:
        """Start a device's process; it opens the device's own file."""
        arguments = [f"clients.demo.{name}", act, "--folder", str(self._files.folder), "--relay", self._address]
        device = await self._start(name, arguments)
        self._narrator.line(name, f"process {device.pid} starts.")
        return device

    async def _start(self, name: str, arguments: list[str]) -> DemoProcess:
        process = await DemoProcess.start(name, ["-m", *arguments], self._files.errors(name), self._narrator)
        self._stack.push_async_callback(process.clean_up)
        self.processes.append(process)
        return process


async def play(
    files: DemoFiles, person: Person, narrator: Narrator, breakage: Breakage | None
) -> tuple[ProcessLife, ...]:
    """Play the whole story; returns the lives of all processes, in the order of their starts.

    Raises `ProcessFailed` if a process ends early, is silent for too long, or cannot be killed. None is left running.
    """
    async with AsyncExitStack() as stack:
        company = _Company(files, narrator, stack)
        narrator.chapter("1. A phone begins a travel claim")
        relay = await company.relay()
        await _killed_phone(company, person, narrator)
        narrator.chapter(f"2. A desktop goes on with {TASK}")
        desktop = await company.device(DESKTOP, breakage or "go-on")
        await desktop.until("went on", person)
        phone = await company.device(PHONE, "return")
        await phone.until("caught up", person)
        narrator.chapter("3. Both work apart, with no link")
        await _in_turn("apart", "worked apart", (phone, desktop), person)
        narrator.chapter("4. Together again")
        await _in_turn("together", "together", (phone, desktop), person)
        await _in_turn("look", "looked", (phone, desktop), person)
        await _in_turn("settle", "settled", (phone,), person)
        for device in (desktop, phone):
            device.tell("finish")
            await device.until_end(person)
        await relay.stop()
        narrator.line(RELAY, "has stored everything; all processes have ended.")
        return tuple(process.life() for process in company.processes)


async def _killed_phone(company: _Company, person: Person, narrator: Narrator) -> None:
    """The phone works until everything it wrote is stored at the relay; then nothing may save it."""
    phone = await company.device(PHONE, "begin")
    await phone.until("waiting", person)
    await phone.kill()
    narrator.line(PHONE, f"process {phone.pid} is killed with SIGKILL; its pid is gone.")


async def _in_turn(cue: str, mark: str, devices: tuple[DemoProcess, ...], person: Person) -> None:
    for device in devices:
        device.tell(cue)
        await device.until(mark, person)
