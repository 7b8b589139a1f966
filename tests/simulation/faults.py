"""What goes wrong in a schedule: a plan drawn from the seed, and the dice that strike batch by batch.

Every schedule draws some kinds of faults and leaves the others out, so that each kind is also seen alone.
"""

from random import Random
from typing import Protocol

import msgspec

from sync_core.errors import SegueError, StoreFull
from tests.simulation.driver import CrashPoint
from tests.simulation.network import Weather

__all__ = ["CALM", "FaultPlan", "Faults", "draw_plan"]


class FaultPlan(msgspec.Struct, frozen=True):
    """Chances per batch (crash, full), or how often in the fault phase (the counts). `skew`: wall clocks are wrong."""

    skew: bool = False
    crash_device: float = 0.0
    crash_relay: float = 0.0
    full_device: float = 0.0
    full_relay: float = 0.0
    slow_sync: float = 0.0
    partitions: int = 0
    cuts: int = 0
    offline_spells: int = 0
    slow_readers: bool = False
    restores: int = 0
    clones: int = 0
    demotions: int = 0
    relay_lost: int = 0
    relay_restored: int = 0
    hostile: tuple[str, ...] = ()
    joiner: bool = False
    weather: Weather = Weather()


CALM = FaultPlan()
"""Nothing goes wrong."""

HOSTILE_KINDS = ("delete_ahead", "overwrite", "text_on_map", "gc_block", "thief", "empty_snapshot", "noise")


def draw_plan(rng: Random) -> FaultPlan:
    """Return a plan: each kind of fault is there or not, at a rate of its own."""

    def sometimes(chance: float) -> bool:
        return rng.random() < chance

    in_order = sometimes(0.65)
    weather = Weather(
        latency_ms=rng.choice(((1, 5), (5, 60), (20, 400))),
        in_order=in_order,
        loss=0.0 if in_order else rng.choice((0.0, 0.05, 0.2)),
        duplication=0.0 if in_order else rng.choice((0.0, 0.1, 0.3)),
        outlive=rng.choice((0.0, 0.5, 0.9)),
    )
    hostile = _draw_hostile(rng) if sometimes(0.2) else ()
    # Whoever speaks first in a new log is believed: a thief, or one who knows a write's key, may then take its place.
    # What is still promised there, convergence and liveness, is seen with the other kinds.
    log_is_safe = not {"thief", "overwrite"} & set(hostile)
    return FaultPlan(
        skew=sometimes(0.5),
        crash_device=rng.choice((0.0, 0.0, 0.01, 0.05)),
        crash_relay=rng.choice((0.0, 0.0, 0.01, 0.03)),
        full_device=rng.choice((0.0, 0.0, 0.0, 0.03)),
        full_relay=rng.choice((0.0, 0.0, 0.0, 0.03)),
        slow_sync=rng.choice((0.0, 0.0, 0.05)),
        partitions=rng.choice((0, 0, 1, 3)),
        cuts=rng.choice((0, 0, 2, 5)),
        offline_spells=rng.choice((0, 1, 2)),
        slow_readers=sometimes(0.15),
        restores=int(sometimes(0.2)),
        clones=int(sometimes(0.12)),
        demotions=int(sometimes(0.1)),
        relay_lost=int(sometimes(0.12) and log_is_safe),
        relay_restored=int(sometimes(0.15) and log_is_safe),
        hostile=hostile,
        joiner=sometimes(0.25),
        weather=weather,
    )


def _draw_hostile(rng: Random) -> tuple[str, ...]:
    kinds = {rng.choice(HOSTILE_KINDS)} | ({"thief"} if rng.random() < 0.4 else set())
    return tuple(sorted(kinds))


class _FailingDisk(Protocol):
    def fail_next(self, error: SegueError) -> None: ...


class Faults:
    """The dice of a schedule. Nothing strikes once `active` is off."""

    def __init__(self, plan: FaultPlan, rng: Random) -> None:
        self.plan = plan
        self.active = True
        self.struck = 0
        self._rng = rng
        self._planned: dict[str, CrashPoint] = {}

    def _strikes(self, chance: float) -> bool:
        struck = self.active and chance > 0 and self._rng.random() < chance
        self.struck += struck
        return struck

    def crash_next(self, label: str, point: CrashPoint) -> None:
        """Let the next batch of a process end in a crash at this point."""
        self._planned[label] = point

    def crash_point(self, label: str) -> CrashPoint | None:
        """Return where in this batch the process dies, mostly nowhere."""
        if label in self._planned:
            return self._planned.pop(label)
        chance = self.plan.crash_relay if label == "relay" else self.plan.crash_device
        return self._rng.choice(list(CrashPoint)) if self._strikes(chance) else None

    def maybe_full(self, label: str, disk: _FailingDisk) -> None:
        """Let the next commit fail, now and then."""
        chance = self.plan.full_relay if label == "relay" else self.plan.full_device
        if self._strikes(chance):
            disk.fail_next(StoreFull("The disk is full."))

    def downtime_ms(self) -> int:
        """Return how long a process that died stays away."""
        return self._rng.randint(20, 3_000)

    def sync_ms(self) -> int:
        """Return how long the next sync takes."""
        if self._strikes(self.plan.slow_sync):
            return self._rng.randint(200, 3_000)
        return self._rng.randint(0, 4)
