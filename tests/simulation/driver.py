"""What every driver does, in virtual time: take events, commit, sync, then carry the other effects out in order.

A batch is one or more events. Its writes are one commit; the commit is safe once it is synced, some milliseconds later;
only then come the other effects. A crash may strike between any two of these steps. A read that the core asks for is
answered after the batch's commit, before any other event.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random
from typing import Generic, Protocol, TypeVar

from sync_core.errors import SegueError
from tests.simulation.clock import Scheduler

__all__ = ["BatchFaults", "CrashPoint", "Driver", "Violation"]

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


class Violation(Exception):
    """A promise was broken: the run ends here."""


class CrashPoint(StrEnum):
    """Where in a batch a crash strikes."""

    BEFORE_COMMIT = "before commit"
    BEFORE_SYNC = "before sync"
    BEFORE_EFFECTS = "before effects"
    AMONG_EFFECTS = "among effects"


class BatchFaults(Protocol):
    """Decides, seeded, what happens to a batch of a driver; nothing does once it is not `active`."""

    active: bool

    def crash_point(self, label: str) -> CrashPoint | None:
        """Return where a crash strikes, if it does."""

    def sync_ms(self) -> int:
        """Return how long the disk takes to sync."""


class Driver(Generic[EventT, EffectT]):
    """One process: a pure core, its disk, and the queue between the world and the core."""

    def __init__(self, scheduler: Scheduler, rng: Random, faults: BatchFaults, label: str) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.faults = faults
        self.label = label
        self.life = 0
        self.up = False
        self._inbox: deque[EventT] = deque()
        self._loads: deque[EffectT] = deque()
        self._busy = False
        self._woken = False
        self._paused_until_ms = 0

    # --- what a kind of process fills in ------------------------------------------------------------------------------

    def _react(self, event: EventT) -> list[EffectT]:
        """Hand one event to the core."""
        raise NotImplementedError

    def _stands_alone(self, event: EventT) -> bool:
        """Whether all earlier effects must be carried out before this event is handled."""
        return False

    def _is_load(self, effect: EffectT) -> bool:
        raise NotImplementedError

    def _load(self, effect: EffectT) -> EventT:
        """Read the disk and return the answer."""
        raise NotImplementedError

    def _commit(self, effects: Sequence[EffectT]) -> bool:
        """Commit the writes among the effects; return whether there were any. Keeps none if it raises `SegueError`."""
        raise NotImplementedError

    def _commit_failed(self, effects: Sequence[EffectT], error: SegueError) -> EventT:
        """Return the event that tells the core of a failed commit."""
        raise NotImplementedError

    def _sync(self) -> None:
        raise NotImplementedError

    def _carry_out(self, effects: Sequence[EffectT]) -> None:
        raise NotImplementedError

    def _carried_out(self) -> None:
        """All effects of a batch were carried out."""

    def _crash(self) -> None:
        """Lose everything that is not synced, and come back later."""
        raise NotImplementedError

    # --- the queue ----------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be handled or to be synced."""
        return not self._inbox and not self._busy and not self._loads

    def post(self, event: EventT) -> None:
        """Queue an event; dropped while the process is down."""
        if self.up:
            self._inbox.append(event)
            self._wake()

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run an action after a while, unless the process has died since; a paused one runs it when it goes on."""
        life = self.life

        def run() -> None:
            if self.life != life or not self.up:
                return
            if self.paused:
                self.scheduler.after(max(1, self._paused_until_ms - self.scheduler.now_ms), run)
            else:
                action()

        self.scheduler.after(delay_ms, run)

    @property
    def paused(self) -> bool:
        """Whether the process stands still: it is not dead, and it knows nothing of the time that passes."""
        return self.scheduler.now_ms < self._paused_until_ms

    def pause(self, duration_ms: int) -> None:
        """Let the process stand still for a while, as a laptop does whose lid is shut; what arrives waits."""
        self._paused_until_ms = max(self._paused_until_ms, self.scheduler.now_ms + duration_ms)

    def start(self) -> None:
        """Begin a new life with empty queues."""
        self.life += 1
        self.up = True
        self._inbox.clear()
        self._loads.clear()
        self._busy = False
        self._woken = False
        self._paused_until_ms = 0

    def stop(self) -> None:
        """End this life: nothing that was queued or being committed goes on."""
        self.life += 1
        self.up = False
        self._inbox.clear()
        self._loads.clear()

    def _wake(self) -> None:
        if not self._busy and not self._woken:
            self._woken = True
            self.later(0, self._pump)

    def _pump(self) -> None:
        self._woken = False
        if not self._busy and self._inbox:
            self._finish(self._next_batch())

    def _next_batch(self) -> list[EffectT]:
        """Take one or more waiting events; return their effects."""
        batch: list[EffectT] = []
        for _ in range(self.rng.randint(1, 4)):
            batch += self._take(self._inbox.popleft())
            if self._loads or not self._inbox or self._stands_alone(self._inbox[0]):
                break
        return batch

    def _take(self, event: EventT) -> list[EffectT]:
        return self._noted(self._react(event))

    def _noted(self, effects: list[EffectT]) -> list[EffectT]:
        self._loads.extend(effect for effect in effects if self._is_load(effect))
        return effects

    def _finish(self, batch: list[EffectT]) -> None:
        """Commit a batch; its effects follow at once, or after the sync if anything was written."""
        point = self.faults.crash_point(self.label)
        if point is CrashPoint.BEFORE_COMMIT:
            self._crash()
            return
        try:
            wrote = self._commit(batch)
        except SegueError as error:
            asked = list(self._loads)
            self._loads.clear()
            told = self._take(self._commit_failed(batch, error))
            self._loads.extend(asked)
            self._finish(told)
            return
        if point is CrashPoint.BEFORE_SYNC:
            self._crash()
            return
        if wrote:
            self._busy = True
            self.later(self.faults.sync_ms(), lambda: self._synced(batch, point))
        else:
            self._effects(batch, point)

    def _synced(self, batch: list[EffectT], point: CrashPoint | None) -> None:
        self._sync()
        self._busy = False
        self._effects(batch, point)

    def _effects(self, batch: list[EffectT], point: CrashPoint | None) -> None:
        if not self.faults.active:
            point = None
        if point is CrashPoint.BEFORE_EFFECTS:
            self._crash()
            return
        if point is CrashPoint.AMONG_EFFECTS:
            self._carry_out(batch[: self.rng.randint(0, len(batch))])
            self._crash()
            return
        self._carry_out(batch)
        self._carried_out()
        if self._loads:
            self._busy = True
            self.later(0, self._answer_load)
        elif self._inbox:
            self._wake()

    def _answer_load(self) -> None:
        self._busy = False
        self._finish(self._take(self._load(self._loads.popleft())))
