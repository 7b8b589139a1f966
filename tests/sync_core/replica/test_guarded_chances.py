"""Three devices want one payment each of a few steps, and everything goes wrong by chance: nothing is paid twice.

The outside system checks nothing. Whoever settles a doubt tells the truth, as a person who asked the bank does.
"""

from random import Random

import pytest

from sync_core.document.calls import CallBegun, CallRecorded, CallState
from sync_core.errors import SegueError
from sync_core.petitions import ClaimVerdict
from sync_core.replica import commands as c
from tests.sync_core.replica.fleet import TASK, Device, Fleet
from tests.sync_core.replica.guarded import DIGEST, begin_granted

STEPS = ("pay-1", "pay-2", "pay-3")


class World:
    """The devices, what each is in the middle of, and the bank."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.doubted: set[str] = set()
        self.fleet = Fleet(seed)
        self.devices = [self.fleet.add(name) for name in ("phone", "desktop", "tablet")]
        self.devices[0].open()
        self.fleet.settle()
        for device in self.devices[1:]:
            device.open()
        self.begun: dict[tuple[str, str], CallBegun] = {}
        self.paid: dict[str, list[str]] = {step: [] for step in STEPS}

    def ask(self, device: Device, command: c.Command) -> object:
        """Carry out a command; an error, or no answer yet, is an answer too."""
        try:
            return device.ask(command, object)
        except SegueError as error:
            return error
        except KeyError:
            # Nobody answered yet, and whoever asked gives up.
            device.handle(c.Cancel(command.ref))
            return None

    def step(self) -> None:
        """Let one thing happen."""
        device = self.chance.choice(self.devices)
        step = self.chance.choice(STEPS)
        act = self.chance.choices(
            [self.call, self.finish, self.cut, self.crash, self.wait, self.verdict, self.restart],
            [8, 6, 2, 1, 1, 3, 1],
        )[0]
        act(device, step)
        for other in self.devices:
            if other.link is None and self.chance.random() < 0.3:
                other.connect()
        if self.chance.random() < 0.7:
            self.fleet.settle()
        self.check()

    def call(self, device: Device, step: str) -> None:
        """Claim, begin and pay; perhaps lose the link, or the process, before the answer or the intent."""
        if (device.name, step) in self.begun:
            return
        device.hears = self.chance.random() > 0.15
        claimed = self.ask(device, c.ClaimCall(device.ref(), TASK, 1, step, "pay", DIGEST))
        device.hears = True
        if not isinstance(claimed, c.Claimed) or claimed.answer.verdict is not ClaimVerdict.GRANTED:
            if isinstance(claimed, c.Claimed) and claimed.answer.verdict is ClaimVerdict.IN_DOUBT:
                self.doubted.add(step)
            return
        if self.chance.random() < 0.15:
            self.crash(device, step)
            return
        begun = self.ask(device, begin_granted(device.ref(), claimed, step))
        if not isinstance(begun, CallBegun):
            return
        if self.chance.random() < 0.15:
            self.crash(device, step)
            return
        self.begun[device.name, step] = begun
        if self.chance.random() < 0.7:
            self.paid[step].append(device.name)

    def finish(self, device: Device, _step: str) -> None:
        """Say how what runs here ended."""
        for (name, step), begun in list(self.begun.items()):
            if name != device.name:
                continue
            happened = name in self.paid[step]
            unsure = self.chance.random() < 0.2
            ok = happened and not unsure
            result, error = ('"paid"', None) if ok else (None, "Boom")
            end = c.EndCall(device.ref(), TASK, 1, step, begun.attempt, ok, result, error, unsure, begun.token)
            if isinstance(self.ask(device, end), CallRecorded):
                del self.begun[name, step]

    def cut(self, device: Device, _step: str) -> None:
        """Lose the link."""
        device.disconnect()

    def crash(self, device: Device, _step: str) -> None:
        """Lose the process: whatever ran there is nobody's any more."""
        device.crash()
        self.begun = {key: begun for key, begun in self.begun.items() if key[0] != device.name}
        device.connect()
        device.open()

    def wait(self, _device: Device, _step: str) -> None:
        """Let leases end."""
        self.fleet.pass_time(self.chance.choice([1_000, 31_000]))

    def restart(self, _device: Device, _step: str) -> None:
        """Restart the relay on its own disk, or on an empty one."""
        self.fleet.restart_relay(log_lost=self.chance.random() < 0.5)

    def verdict(self, device: Device, step: str) -> None:
        """A person who asked the bank settles a doubt, unless the payment may still be under way."""
        if any(running == step for _, running in self.begun):
            return
        call = device.view.calls.get((1, step))
        if step in self.doubted or (call is not None and call.state is CallState.IN_DOUBT):
            self.doubted.discard(step)
            settle = c.SettleCall(device.ref(), TASK, 1, step, "pay", bool(self.paid[step]))
            self.ask(device, settle)

    def check(self) -> None:
        """Nothing was paid twice."""
        for step, payers in self.paid.items():
            assert len(payers) <= 1, (step, payers)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_goes_wrong_nothing_is_paid_twice_and_everybody_agrees(seed: int) -> None:
    world = World(seed)
    for _ in range(60):
        world.step()
    for device in world.devices:
        if device.link is None:
            device.connect()
    world.fleet.settle()
    for device in world.devices:
        world.finish(device, "")
    world.fleet.settle()
    world.fleet.pass_time(31_000)
    for step in STEPS:
        world.verdict(world.devices[0], step)
    world.fleet.settle()
    world.fleet.assert_converged()
    for device in world.devices:
        assert device.view.calls == world.devices[0].view.calls
        for step in STEPS:
            call = device.view.calls.get((1, step))
            paid = bool(world.paid[step])
            assert (call is not None and call.shown is not None and bool(call.shown.ok)) is paid, (step, call)
