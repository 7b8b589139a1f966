"""Devices that share a task which is going to end: what they do, and what is left of it here and at the relay."""

from pathlib import Path

from server_relay.config import RelaySettings
from sync_core.document.view import TaskCompletion, TaskView
from sync_core.entry import EntryKind
from sync_core.replica import commands as c
from tests.sync_core.replica.fleet import TASK, Device, Fleet

__all__ = [
    "GRACE_S",
    "LONG",
    "aside",
    "at_relay",
    "cleaning",
    "complete",
    "held",
    "pair",
    "purge",
    "reopen",
    "say",
    "sweep",
]

GRACE_S = 3_600
LONG = "x" * 100_000
"""A message that becomes a blob."""


def pair(settings: RelaySettings | None = None) -> tuple[Fleet, Device, Device]:
    """A phone and a desktop that share a task with slots, a note, a call and a conversation."""
    fleet = Fleet(settings=settings)
    phone, desktop = fleet.add("phone"), fleet.add("desktop")
    phone.open()
    phone.confirm("amount", 5)
    phone.append("worklog", "started\n")
    phone.call("scan", "r" * 10_000)
    say(phone, "hello", LONG)
    fleet.settle()
    desktop.open()
    desktop.confirm("place", "Bonn")
    fleet.settle()
    return fleet, phone, desktop


def cleaning() -> tuple[Fleet, Device, Device]:
    return pair(RelaySettings(db=Path("unused"), clean_up_grace_s=GRACE_S))


def say(device: Device, *messages: str) -> None:
    device.ask(c.AppendHistory(device.ref(), TASK, tuple(f'"{message}"' for message in messages)), tuple)


def purge(device: Device) -> None:
    device.ask(c.PurgeTask(device.ref(), TASK), object)


def complete(device: Device) -> None:
    device.ask(c.CompleteTask(device.ref(), TASK, device.view.version), TaskCompletion)


def reopen(device: Device, version: int | None = 2, *, create: bool = True) -> TaskView:
    view = device.ask(c.OpenTask(device.ref(), TASK, create, version), TaskView)
    device.views[TASK] = view
    return view


def sweep(fleet: Fleet, seconds: int) -> None:
    """Let time pass at the relay, and what is due then happen."""
    for _ in range(2):
        fleet.relay.tick(seconds * 1000)
        fleet.relay.tick(fleet.relay.settings.sweep_every_ms)
        fleet.settle()


def aside(device: Device) -> list[tuple[EntryKind, str]]:
    streams = device.disk.load_task(TASK).streams
    return [(kept.entry.kind, kept.code) for stream in streams for kept in stream.set_aside]


def held(device: Device) -> int:
    """How many entries and merged rows of the task the disk holds, without what was set aside."""
    streams = device.disk.load_task(TASK).streams
    return sum(len(stream.entries) + bool(stream.document) for stream in streams)


def at_relay(fleet: Fleet) -> int:
    return fleet.relay.model.stats().entries
