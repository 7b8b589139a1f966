"""Devices that work in groups on a few tasks, whatever happens to their links, and what must be there at the end."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import msgspec

from sync_core import Endpoint
from sync_core.endpoint.link import Backoff

__all__ = ["Fleet", "Verdict"]

GROUP = 4
TASKS_OF_GROUP = 3
_NOTE = "worklog"


class Verdict(msgspec.Struct, frozen=True):
    """What was found after everything was healed. `faults` are sentences, the first few."""

    tasks: int
    lines: int
    lines_missing: int
    lines_twice: int
    tasks_apart: int
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether everybody converged and every write is there once."""
        return not (self.lines_missing or self.lines_twice or self.tasks_apart)


class Fleet:
    """All devices. `written` counts their writes."""

    def __init__(self, folder: Path, relay: str, size: int, chance: Random) -> None:
        self.written = 0
        self._folder = folder
        self._relay = relay
        self._chance = chance
        self._size = size
        self._devices: list[Endpoint] = []
        self._stack = AsyncExitStack()
        self._lines: dict[str, set[str]] = {}
        self._works = True

    async def start(self) -> None:
        """Open every device."""
        for number in range(self._size):
            self._devices.append(await self._open(f"device-{number:04}"))

    async def _open(self, name: str) -> Endpoint:
        opening = Endpoint.open(
            self._folder / f"{name}.db",
            subject="soak",
            device=name,
            relay=self._relay,
            backoff=Backoff(first_s=0.2, cap_s=2.0),
        )
        return await self._stack.enter_async_context(opening)

    async def close(self) -> None:
        """Close every device."""
        await self._stack.aclose()

    def keys(self, number: int) -> list[str]:
        """Return the tasks of a device's group."""
        return [f"soak/group-{number // GROUP}/task-{task}" for task in range(TASKS_OF_GROUP)]

    async def work(self, pause_s: float) -> None:
        """Have every device write, with pauses of about `pause_s` seconds, until `rest`."""
        async with asyncio.TaskGroup() as group:
            for number, device in enumerate(self._devices):
                group.create_task(self._work_on(number, device, pause_s))

    def rest(self) -> None:
        """Have every device stop after what it is at."""
        self._works = False

    async def _work_on(self, number: int, device: Endpoint, pause_s: float) -> None:
        count = 0
        while self._works:
            key = self._chance.choice(self.keys(number))
            # A handle for a few writes: what is held for it must be given back.
            async with device.task(key, create=True) as task:
                for _ in range(self._chance.randrange(1, 6)):
                    await asyncio.sleep(pause_s * self._chance.uniform(0.5, 1.5))
                    count += 1
                    line = f"{device.device} {count}"
                    await task.notes.append(_NOTE, f"{line}\n")
                    self._lines.setdefault(key, set()).add(line)
                    await task.slots.confirm(f"last_{number % GROUP}", count)
                    self.written += 2

    async def judge(self, timeout_s: float) -> Verdict:
        """Wait until everybody is in sync, then compare every device, and one that reads all for the first time, with
        what was written."""
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*(device.synced() for device in self._devices))
            newcomer = await self._open("newcomer")
            missing = twice = apart = 0
            faults: list[str] = []
            for first in range(0, self._size, GROUP):
                group = [*self._devices[first : first + GROUP], newcomer]
                for key in self.keys(first):
                    if key not in self._lines:
                        continue
                    contents = [await self._content(device, key) for device in group]
                    lines = contents[-1][0].splitlines()
                    absent = self._lines[key] - set(lines)
                    missing += len(absent)
                    twice += len(lines) - len(set(lines))
                    apart += any(content != contents[0] for content in contents)
                    if absent or any(content != contents[0] for content in contents):
                        faults.append(f"{key}: {len(absent)} lines missing, {len(set(map(str, contents)))} contents")
        total = sum(map(len, self._lines.values()))
        return Verdict(len(self._lines), total, missing, twice, apart, tuple(faults[:5]))

    async def _content(self, device: Endpoint, key: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Open a task, which waits for all that the relay has of it, and return what it says."""
        async with device.task(key) as task:
            slots = sorted((name, str(slot.value)) for name, slot in task.view.slots.items())
            return task.view.notes[_NOTE].text, tuple(slots)
