"""Devices that work in groups on one task after another, whatever happens to their links, and what must be there."""

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import msgspec

from sync_core import Endpoint, UnsentWork
from sync_core.endpoint.link import Backoff

__all__ = ["Fleet", "Verdict"]

GROUP = 4
_KEPT_TASKS = 2
"""Tasks that a device keeps besides the one that it works on."""
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

    def __init__(self, folder: Path, relay: str, size: int, task_s: float, chance: Random) -> None:
        """`task_s` is how long a group works on one task."""
        self.written = 0
        self._folder = folder
        self._relay = relay
        self._chance = chance
        self._size = size
        self._task_s = task_s
        self._began_s = 0.0
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

    async def work(self, pause_s: float) -> None:
        """Have every device write, with pauses of about `pause_s` seconds, until `rest`."""
        self._began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, device in enumerate(self._devices):
                group.create_task(self._work_on(number, device, pause_s))

    def rest(self) -> None:
        """Have every device stop after what it is at."""
        self._works = False

    def _key(self, number: int) -> str:
        """Return the task that a device's group has now: each is worked on for a while, then the next one."""
        generation = int((time.monotonic() - self._began_s) / self._task_s)
        return f"soak/group-{number // GROUP}/task-{generation}"

    async def _work_on(self, number: int, device: Endpoint, pause_s: float) -> None:
        count = 0
        left: deque[str] = deque()
        while self._works:
            key = self._key(number)
            async with device.task(key, create=True) as task:
                while self._works and self._key(number) == key:
                    await asyncio.sleep(pause_s * self._chance.uniform(0.5, 1.5))
                    count += 1
                    line = f"{device.device} {count}"
                    await task.notes.append(_NOTE, f"{line}\n")
                    self._lines.setdefault(key, set()).add(line)
                    await task.slots.confirm(f"last_{number % GROUP}", count)
                    self.written += 2
            left.append(key)
            if len(left) > _KEPT_TASKS:
                await self._evict(device, left)

    async def _evict(self, device: Endpoint, left: deque[str]) -> None:
        """Forget the oldest task, so that what a device holds is bounded; what the relay lacks is kept."""
        try:
            await device.evict(left[0])
        except UnsentWork:
            return
        left.popleft()

    async def judge(self, timeout_s: float) -> Verdict:
        """Wait until everybody is in sync, then compare every device, and one that reads all for the first time, with
        what was written."""
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(*(device.synced() for device in self._devices))
            newcomer = await self._open("newcomer")
            missing = twice = apart = 0
            faults: list[str] = []
            for key, wanted in self._lines.items():
                first = int(key.split("/")[1].removeprefix("group-")) * GROUP
                # Whoever forgot the task meanwhile fetches it again.
                group = [newcomer, *self._devices[first : first + GROUP]]
                contents = [await self._content(device, key) for device in group]
                lines = contents[0][0].splitlines()
                absent = wanted - set(lines)
                differ = any(content != contents[0] for content in contents)
                missing += len(absent)
                twice += len(lines) - len(set(lines))
                apart += differ
                if absent or differ:
                    faults.append(f"{key}: {len(absent)} lines missing, {len(set(map(str, contents)))} contents")
        total = sum(map(len, self._lines.values()))
        return Verdict(len(self._lines), total, missing, twice, apart, tuple(faults[:5]))

    async def _content(self, device: Endpoint, key: str) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """Open a task, which waits for all that the relay has of it, and return what it says, and its digest."""
        async with device.task(key) as task:
            slots = sorted((name, str(slot.value)) for name, slot in task.view.slots.items())
            return task.view.notes[_NOTE].text, tuple(slots), str((await device.stored(key)).digest)
