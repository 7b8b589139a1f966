"""From a seed to a whole schedule: who works on what, with which mix, and when which disaster strikes."""

from functools import partial
from random import Random

from msgspec.structs import replace

from sync_core.parts import Role
from tests.simulation.device import Device
from tests.simulation.disk_state import DiskState
from tests.simulation.faults import FaultPlan, draw_plan
from tests.simulation.hostile import Hostile
from tests.simulation.mailbox_model import MailboxModel
from tests.simulation.mailbox_state import MailboxState
from tests.simulation.workload import TASKS, User, WorkMix
from tests.simulation.world import Result, World

__all__ = ["build", "run_seed"]

_NAMES = ("phone", "desktop", "tablet", "server")
_ROLES = {
    "phone": Role.APPROVE,
    "desktop": Role.WRITE,
    "tablet": Role.ADMIN,
    "server": Role.AUTHORITY,
    "laptop": Role.WRITE,
    "mallory": Role.WRITE,
}
"""Who may do what where calls are guarded; everywhere else everybody may do everything."""


def run_seed(seed: int) -> Result:
    """Run the schedule of a seed."""
    world, fault_ms = build(seed)
    return world.run(fault_ms)


def build(seed: int) -> tuple[World, int]:
    """Return the world of a seed, with everything arranged that will happen, and how long its fault phase is (ms)."""
    rng = Random(f"{seed} schedule")
    plan = draw_plan(rng)
    tail_entries = rng.choice((6, 12, 1_000))
    tasks = TASKS[: rng.choice((1, 1, 2, 3))]
    mix = _draw_mix(rng)
    guarded = Random(f"{seed} guarded")
    enforces = guarded.random() < 0.5
    if guarded.random() < 0.2:
        _guard(mix, guarded, enforces)
        if guarded.random() < 0.2:
            plan = replace(plan, hostile=(*plan.hostile, "forger"))
    endings = Random(f"{seed} endings")
    if endings.random() < 0.15:
        mix.endings = endings.choice((1.0, 3.0))
        # A purge is said once in a session, and Push and Purge keep their order: no websocket does otherwise.
        mix.purges = endings.choice((0.0, 0.2, 0.5)) if plan.weather.in_order else 0.0
        mix.versions = mix.versions or endings.choice((0.0, 0.2))
    world = World(seed, plan, snapshot_tail_entries=tail_entries, thorough=seed % 16 == 0, outside_enforces=enforces)
    if mix.guarded:
        world.relay.roles = dict(_ROLES)
    fault_ms = rng.choice((4_000, 8_000, 14_000))
    world.relay.boot()
    for name in _NAMES[: rng.randint(2, 4)]:
        device = world.add_device(name)
        _add_users(world, device, rng, tasks, mix)
        device.slow_reader = plan.slow_readers and rng.random() < 0.5
        world.scheduler.after(rng.randint(0, fault_ms // 3), device.boot)
    _arrange(world, rng, plan, tasks, mix, fault_ms)
    return world, fault_ms


def _draw_mix(rng: Random) -> WorkMix:
    def weight() -> float:
        return rng.choice((0.0, 1.0, 3.0))

    return WorkMix(
        slots=1.0 + weight(),
        notes=weight(),
        calls=weight(),
        history=weight(),
        handles=rng.choice((0.0, 0.5, 1.0)),
        upkeep=rng.choice((0.0, 0.5)),
        think_ms=rng.choice(((0, 50), (0, 600), (200, 1_500))),
        stale=rng.choice((0.0, 0.3, 0.8)),
        versions=rng.choice((0.0, 0.0, 0.0, 0.1)),
        conflicts=rng.choice((0.0, 0.0, 0.0, 0.1)),
        blobs=rng.choice((0.0, 0.1, 0.4)),
    )


def _guard(mix: WorkMix, rng: Random, enforces: bool) -> None:
    """Let calls that cannot be undone be a part of the work; tools that nobody checks mostly do not claim to be."""
    mix.guarded = rng.choice((3.0, 10.0, 40.0))
    mix.think_ms = rng.choice(((0, 50), (0, 300), (100, 800)))
    mix.checked = enforces or rng.random() < 0.3
    mix.kills = rng.choice((0.0, 0.03, 0.1))
    mix.pauses = rng.choice((0.0, 0.03, 0.15))
    mix.lies = rng.choice((0.0, 0.0, 0.2))


def _add_users(world: World, device: Device, rng: Random, tasks: tuple[str, ...], mix: WorkMix) -> None:
    for number in range(rng.choice((1, 1, 1, 2))):
        user_rng = world.rng(f"user {device.label} {number}")
        budget = rng.randint(3, 12) * (2 if mix.guarded else 1)
        device.users.append(User(device, user_rng, tasks, mix, budget))


def _arrange(world: World, rng: Random, plan: FaultPlan, tasks: tuple[str, ...], mix: WorkMix, fault_ms: int) -> None:
    """Put the plan's disasters at their times. Each looks at the world as it is when its time comes."""

    def when() -> int:
        return rng.randint(fault_ms // 10, fault_ms)

    devices = list(world.devices)
    for _ in range(plan.partitions):
        device, way, long_ms = rng.choice(devices), rng.choice(("up", "down")), rng.choice((500, 4_000, 20_000))
        world.scheduler.after(when(), partial(world.partition, device, way, long_ms))
    for _ in range(plan.cuts):
        world.scheduler.after(when(), partial(_cut, rng.choice(devices)))
    for _ in range(plan.offline_spells):
        world.scheduler.after(when(), partial(_offline, world, rng.choice(devices), rng.randint(500, fault_ms)))
    for _ in range(plan.restores):
        taken_ms, restored_ms = sorted((when(), when()))
        _arrange_restore(world, rng.choice(devices), taken_ms, restored_ms)
    for _ in range(plan.clones):
        world.scheduler.after(when(), partial(_clone, world, rng, rng.choice(devices), tasks, mix))
    for _ in range(plan.demotions):
        device = rng.choice(devices)
        world.scheduler.after(when(), partial(_demote, world, device.name, rng.randint(500, fault_ms)))
    for _ in range(plan.relay_lost):
        world.scheduler.after(when(), partial(_lose_relay, world))
    for _ in range(plan.relay_restored):
        stays_away = rng.choice(devices) if rng.random() < 0.6 else None
        taken_ms, restored_ms = sorted((when(), when()))
        _arrange_relay_restore(world, taken_ms, restored_ms, stays_away)
    for kind in plan.hostile:
        hostile = Hostile(world, kind, tasks, rng.choice(devices).name)
        world.scheduler.after(when() // 2, hostile.start)
    if plan.skew:
        for device in devices:
            world.scheduler.after(when(), device.clock.step)
    if plan.joiner:
        joiner = world.add_device("laptop")
        joiner.users.append(User(joiner, world.rng("user laptop"), tasks, mix, budget=len(tasks) + 2))
        world.scheduler.after(fault_ms - 1, joiner.boot)


def _cut(device: Device) -> None:
    if device.link is not None:
        device.link.cut(patience_ms=1_000)


def _offline(world: World, device: Device, long_ms: int) -> None:
    if device.up:
        device.unplug()
    world.scheduler.after(long_ms, device.plug)


def _demote(world: World, name: str, long_ms: int) -> None:
    """The device may only read for a while: what it has not sent yet is refused for good, and set aside."""
    world.relay.readers.add(name)
    world.reconnect(name)

    def promote() -> None:
        world.relay.readers.discard(name)
        world.reconnect(name)

    world.scheduler.after(long_ms, promote)


def _arrange_restore(world: World, device: Device, taken_ms: int, restored_ms: int) -> None:
    """A store file is copied, and much later put back."""
    images: list[DiskState] = []

    def take() -> None:
        images.append(device.disk.image())

    def restore() -> None:
        if device.up:
            device.die()
        device.disk.restore(images[0])
        world.checks.disk_replaced()
        world.later_boot(device)

    world.scheduler.after(taken_ms, take)
    world.scheduler.after(restored_ms, restore)


def _clone(world: World, rng: Random, device: Device, tasks: tuple[str, ...], mix: WorkMix) -> None:
    """A store file is copied, and both copies run, under one device name."""
    clone = world.add_device(device.name, f"{device.label}'", device.disk.image())
    _add_users(world, clone, rng, tasks, mix)
    clone.boot()


def _lose_relay(world: World) -> None:
    """The relay's disk is gone; it starts empty."""
    world.crash_relay()
    world.relay.mailbox = MailboxModel()
    world.checks.disk_replaced()
    world.guarded.relay_lost()


def _arrange_relay_restore(world: World, taken_ms: int, restored_ms: int, stays_away: Device | None) -> None:
    """The relay's file is put back from an old copy, while one device is away: its cursor may then lie below a head
    that has grown anew past it."""
    images: list[MailboxState] = []

    def take() -> None:
        images.append(world.relay.mailbox.image())

    def restore() -> None:
        world.crash_relay()
        world.relay.mailbox.restore(images[0])
        if world.relay.roles:
            # Whoever guards calls restores as the manual says: the file is marked before a relay starts on it.
            world.relay.mailbox.mark_restored(world.rng("restored").randbytes, world.scheduler.now_ms)
            world.guarded.relay_lost()
        world.checks.disk_replaced()
        if stays_away is not None:
            _offline(world, stays_away, 5_000)

    world.scheduler.after(taken_ms, take)
    world.scheduler.after(restored_ms, restore)
