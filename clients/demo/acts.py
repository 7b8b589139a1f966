"""What both devices do alike: go online and offline, work apart, come back, show a conflict."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from clients.demo.conflict import competing_values, is_conflict
from clients.demo.stage import Stage
from clients.demo.story import COST_CENTER, SUBJECT, TASK, WORKLOG, DemoFiles
from clients.demo.tools import TravelTools
from clients.demo.transcript import LineKind
from sync_core import Endpoint, Slot, Task

__all__ = ["SYNC_S", "Act", "opened", "perform", "show_conflict", "work_apart"]

SYNC_S = 10.0
"""How long a device waits for `synced()`, seconds."""

Act = Callable[[Stage, TravelTools, str], Awaitable[None]]
"""One process of a device, from its start to its end; the text is the relay's address."""


@asynccontextmanager
async def opened(stage: Stage, tools: TravelTools, relay: str | None) -> AsyncIterator[Endpoint]:
    """Open this device's own store: with a link to the relay, or with none, as when no network is in reach."""
    stage.transcript.add(LineKind.OFFLINE if relay is None else LineKind.ONLINE)
    async with Endpoint.open(
        stage.files.store(stage.device),
        subject=SUBJECT,
        device=stage.device,
        relay=relay,
        tools=[tools.read_invoice, tools.check_policy],
    ) as endpoint:
        yield endpoint


async def work_apart(stage: Stage, tools: TravelTools, cost_centers: tuple[str, str], line: str) -> str:
    """Offline: confirm another cost centre and add a line to the work log; return the log as this end knows it then.

    Of the two cost centres the first one is taken that is not there already.
    """
    async with opened(stage, tools, relay=None) as endpoint, endpoint.task(TASK, access="write") as task:
        read = task.slots[COST_CENTER]
        cost_center = next(other for other in cost_centers if other != read.value)
        await task.slots.confirm(COST_CENTER, cost_center, read=read)
        stage.said(f"is offline; its user changes the cost centre from {read.value} to {cost_center}.")
        note = await task.notes.read(WORKLOG)
        written = await task.notes.write(WORKLOG, f"{note.text}{line}\n", content_sha256=note.content_sha256)
        stage.said(f"adds a line to the same work log: «{line}».")
        return written.text


def show_conflict(stage: Stage, task: Task) -> Slot:
    """Show the user the competing values of the cost centre, and return the slot as it was shown."""
    slot = task.slots[COST_CENTER]
    if is_conflict(slot):
        values = competing_values(slot)
        stage.transcript.add(LineKind.CONFLICT, slot=COST_CENTER, values=values)
        stage.said(f"shows a conflict, nothing is chosen by itself: {' or '.join(values)}.")
    return slot


def perform(device: str, acts: Mapping[str, Act]) -> None:
    """Run the act that the command line names: `python -m clients.demo.<device> ACT --folder DIR --relay URL`."""
    parser = argparse.ArgumentParser(description=f"The {device}'s process of the demo; `segue demo` starts it.")
    parser.add_argument("act", choices=sorted(acts))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--relay", required=True)
    given = parser.parse_args()
    files = DemoFiles(given.folder)
    asyncio.run(_perform(acts[given.act], Stage(device, files), TravelTools(device, files.executions), given.relay))


async def _perform(act: Act, stage: Stage, tools: TravelTools, relay: str) -> None:
    await act(stage, tools, relay)
    stage.transcript.add(LineKind.STOPPED)
