"""A whole rehearsal: a relay, lanes of devices that play the runs side by side, and then the figures from the files."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from clients.desktop.rehearse.devices import Device
from clients.desktop.rehearse.figures import Figures, figures_of
from clients.desktop.rehearse.logs import Ask, Execution, LineLog, read_lines
from clients.desktop.rehearse.player import Player
from clients.desktop.rehearse.recording import Run
from clients.desktop.rehearse.relay_process import running_relay
from clients.desktop.rehearse.schedule import Faults, Move, schedule
from clients.desktop.rehearse.stand_ins import tool_shapes
from clients.desktop.rehearse.stores import StoredRun, read_stored
from sync_core.entry import Effect

__all__ = ["LANES", "Plan", "count", "rehearse"]

LANES = 4
"""Runs that are played side by side; each lane has devices of its own."""


class Plan(msgspec.Struct, frozen=True):
    """What is rehearsed. `devices` is how many take part in each run."""

    runs: tuple[Run, ...]
    effects: Mapping[str, Effect]
    devices: int
    seed: int
    faults: Faults

    def moves(self, run: Run) -> tuple[Move, ...]:
        """Return where each call of a run goes; the same each time."""
        return schedule(run, self.effects, self.devices, self.seed, self.faults)


class _Lane(msgspec.Struct, frozen=True):
    runs: tuple[Run, ...]
    stores: dict[str, Path]


async def rehearse(plan: Plan, folder: Path, called: Callable[[], None]) -> Figures:
    """Play every run in `folder`, which is empty, and return the figures; `called` is told after every call.

    Raises what a device raises that the rehearsal did not plan.
    """
    lanes = _lanes(plan, folder)
    numbers = itertools.count(1)
    async with running_relay(folder) as relay:
        try:
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(_play(plan, lane, relay, folder, numbers, called))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
    return await count(plan, folder)


async def count(plan: Plan, folder: Path) -> Figures:
    """Return the figures of a plan that was played in `folder`, from the files that lie there."""
    stored: dict[int, list[StoredRun]] = defaultdict(list)
    for lane in _lanes(plan, folder):
        for name, store in lane.stores.items():
            found = await read_stored(store, name, tuple(run.task for run in lane.runs))
            for run in lane.runs:
                stored[run.number].append(found[run.task])
    executions = read_lines(folder / "executions.jsonl", Execution)
    asks = read_lines(folder / "asks.jsonl", Ask)
    spells = sum(move.offline for run in plan.runs for move in plan.moves(run))
    return figures_of(plan.runs, plan.effects, stored, executions, asks, spells)


def _lanes(plan: Plan, folder: Path) -> list[_Lane]:
    lanes = []
    for number in range(min(LANES, len(plan.runs))):
        names = [f"device-{number + 1}-{device + 1}" for device in range(plan.devices)]
        lanes.append(_Lane(plan.runs[number::LANES], {name: folder / f"{name}.db" for name in names}))
    return lanes


async def _play(
    plan: Plan, lane: _Lane, relay: str, folder: Path, numbers: Iterator[int], called: Callable[[], None]
) -> None:
    executions = LineLog[Execution](folder / "executions.jsonl")
    asks = LineLog[Ask](folder / "asks.jsonl")
    shapes = tool_shapes(plan.runs)
    async with AsyncExitStack() as stack:
        stack.callback(executions.close)
        stack.callback(asks.close)
        devices: list[Device] = []
        for name, store in lane.stores.items():
            device = Device(name, store, relay, executions, shapes, plan.effects)
            stack.push_async_callback(device.close)
            devices.append(device)
        player = Player(devices, asks, numbers, called)
        for run in lane.runs:
            await player.play(run, plan.moves(run))
