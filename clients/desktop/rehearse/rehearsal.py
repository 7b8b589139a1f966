"""A whole rehearsal: a relay, lanes of devices that play the runs side by side, and then the figures from the files."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from clients.desktop.rehearse.devices import Device, store_of
from clients.desktop.rehearse.evidence import Evidence
from clients.desktop.rehearse.figures import Figures, figures_of
from clients.desktop.rehearse.logs import Ask, Execution, LineLog, read_lines
from clients.desktop.rehearse.outside import OutsideSystem, read_outside
from clients.desktop.rehearse.player import Player
from clients.desktop.rehearse.recording import Run
from clients.desktop.rehearse.relay_process import running_relay
from clients.desktop.rehearse.rules import ToolRule
from clients.desktop.rehearse.schedule import Faults, Move, schedule
from clients.desktop.rehearse.stand_ins import StandIns, tool_shapes
from clients.desktop.rehearse.stores import read_stored

__all__ = ["LANES", "Plan", "count", "rehearse"]

LANES = 4
"""Runs that are played side by side; each lane has devices of its own."""

_OUTSIDE = "outside.db"


class Plan(msgspec.Struct, frozen=True):
    """What is rehearsed. `devices` is how many take part in each run."""

    runs: tuple[Run, ...]
    rules: Mapping[str, ToolRule]
    devices: int
    seed: int
    faults: Faults

    def moves(self, run: Run) -> tuple[Move, ...]:
        """Return where each call of a run goes; the same each time."""
        return schedule(run, self.rules, self.devices, self.seed, self.faults)


async def rehearse(plan: Plan, folder: Path, called: Callable[[], None]) -> Figures:
    """Play every run in `folder`, which is empty, and return the figures; `called` is told after every call.

    Raises what a device raises that the rehearsal did not plan.
    """
    lanes = [plan.runs[number::LANES] for number in range(min(LANES, len(plan.runs)))]
    numbers = itertools.count(1)
    async with running_relay(folder, not plan.faults.without_authority) as relay:
        try:
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(_play(plan, lane, relay, folder, numbers, called))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
    return await count(plan, folder)


async def count(plan: Plan, folder: Path) -> Figures:
    """Return the figures of a plan that was played in `folder`, from the files that lie there."""
    stored = {
        run.number: [await read_stored(store_of(folder, run, name), name, run) for name in _names(plan)]
        for run in plan.runs
    }
    executions = read_lines(folder / "executions.jsonl", Execution)
    asks = read_lines(folder / "asks.jsonl", Ask)
    spells = sum(move.offline for run in plan.runs for move in plan.moves(run))
    evidence = Evidence(stored, executions, asks, read_outside(folder / _OUTSIDE))
    return figures_of(plan.runs, plan.rules, evidence, not plan.faults.without_authority, spells)


def _names(plan: Plan) -> list[str]:
    return [f"device-{number + 1}" for number in range(plan.devices)]


async def _play(
    plan: Plan, runs: tuple[Run, ...], relay: str, folder: Path, numbers: Iterator[int], called: Callable[[], None]
) -> None:
    """Play the runs of one lane, one after the other."""
    executions = LineLog[Execution](folder / "executions.jsonl")
    asks = LineLog[Ask](folder / "asks.jsonl")
    shapes = tool_shapes(plan.runs)
    async with AsyncExitStack() as stack:
        stack.callback(executions.close)
        stack.callback(asks.close)
        devices: list[Device] = []
        for name in _names(plan):
            outside = OutsideSystem(folder / _OUTSIDE)
            stack.callback(outside.close)
            device = Device(name, folder, relay, StandIns(name, executions, outside, shapes, plan.rules))
            stack.push_async_callback(device.close)
            devices.append(device)
        player = Player(devices, plan.rules, not plan.faults.without_authority, asks, numbers, called)
        for run in runs:
            await player.play(run, plan.moves(run))
