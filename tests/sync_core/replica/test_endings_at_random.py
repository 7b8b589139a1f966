"""Purges, clean-ups and new beginnings in any order, with lost links, crashes and lost or restored relays: at the end
all devices agree, nothing waits for ever, and what was purged stays away."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from server_relay.config import RelaySettings
from sync_core.document.view import TaskCompletion
from sync_core.errors import Closed, NotSyncedYet, Purged, SegueError, TaskNotFound, VersionMismatch
from sync_core.ids import StreamName, stream_id
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from tests.simulation.mailbox_model import MailboxModel
from tests.sync_core.replica.ending_devices import GRACE_S, purge, reopen, say
from tests.sync_core.replica.fleet import TASK, Device, Fleet

SEEDS, STEPS = 40, 60
EXPECTED = (Purged, Closed, NotSyncedYet, TaskNotFound, VersionMismatch)


class Chaos:
    """A fleet to which everything happens. `highest` is the highest version that anybody purged."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.fleet = Fleet(seed, RelaySettings(db=Path("unused"), clean_up_grace_s=GRACE_S))
        self.devices = [self.fleet.add(name) for name in ("phone", "desktop", "tablet")]
        self.backup = self.fleet.relay.model.image()
        self.version = 1

    def step(self) -> None:
        device = self.rng.choice(self.devices)
        act = self.rng.choice(
            (
                self.write,
                self.write,
                self.write,
                self.talk,
                self.talk,
                self.open,
                self.open,
                self.open_higher,
                self.complete,
                self.purge,
                self.link,
                self.link,
                self.crash,
                self.sweep,
                self.relay,
            )
        )
        with suppress(*EXPECTED):
            act(device)
        if self.rng.random() < 0.7:
            self.fleet.settle()

    def write(self, device: Device) -> None:
        device.confirm(self.rng.choice(("a", "b")), self.rng.randint(0, 9))

    def talk(self, device: Device) -> None:
        say(device, "x" * self.rng.choice((5, 90_000)))

    def open(self, device: Device) -> None:
        reopen(device, None, create=self.rng.random() < 0.7)

    def open_higher(self, device: Device) -> None:
        self.version += 1
        reopen(device, self.version)

    def complete(self, device: Device) -> None:
        version = device.views[TASK].version if TASK in device.views else 1
        device.ask(c.CompleteTask(device.ref(), TASK, version), TaskCompletion)

    def purge(self, device: Device) -> None:
        if self.rng.random() < 0.4:
            purge(device)

    def link(self, device: Device) -> None:
        if device.link is None:
            device.connect()
        else:
            device.disconnect()

    def crash(self, device: Device) -> None:
        device.crash()
        device.handle(e.LinkFailed("no route"))

    def sweep(self, _device: Device) -> None:
        for _ in range(2):
            self.fleet.relay.tick(GRACE_S * 1000 + 1)
        self.fleet.settle()

    def relay(self, _device: Device) -> None:
        luck = self.rng.random()
        if luck < 0.3:
            self.backup = self.fleet.relay.model.image()
        elif luck < 0.5:
            self.fleet.restart_relay(log_lost=self.rng.random() < 0.3)
        elif luck < 0.6:
            self.fleet.restart_relay()
            self.fleet.relay.model = MailboxModel()
            self.fleet.relay.model.restore(self.backup)
        for device in self.devices:
            if device.link is None:
                device.handle(e.LinkFailed("no route"))

    def end(self) -> None:
        """Everybody comes back, and stays."""
        for device in self.devices:
            device.disconnect()
            device.connect()
        for _ in range(4):
            self.fleet.settle()
            self.fleet.pass_time(4_000)


def digests(device: Device) -> dict[StreamName, bytes]:
    """What a device shows of each stream of which it has read anything."""
    places = {stream.stream: stream.cursor for stream in device.disk.load_task(TASK).streams}
    shown = device.replica.live_digests(TASK)
    return {name: digest for name, digest in shown.items() if places.get(stream_id(TASK, name))}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_at_the_end_all_devices_agree_and_nothing_waits(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.step()
    chaos.end()
    assert [device.waiting for device in chaos.devices] == [0, 0, 0]
    held = {}
    for device in chaos.devices:
        try:
            held[device.name] = device.open(create=False)
        except SegueError as error:
            held[device.name] = error.code
    chaos.fleet.settle()
    views = [device.views[TASK] if not isinstance(held[device.name], str) else None for device in chaos.devices]
    gone = {code for code in held.values() if isinstance(code, str)}
    assert gone <= {"purged", "task_not_found"}
    assert gone == set() or all(view is None for view in views), held
    if not gone:
        first, *others = [digests(device) for device in chaos.devices]
        assert all(other == first for other in others)
    else:
        assert chaos.fleet.relay.model.stats().entries == 0
