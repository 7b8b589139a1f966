"""The network: links of two pipes each, and what can go wrong on them.

Two weathers exist. In order, a pipe is what a websocket is: first in first out, nothing lost while the link lives; a
partition holds bytes back, and a link that dies loses them, or lets them arrive long after their sender is gone. Out of
order, every message may be lost, come twice or overtake: worse than any websocket, and the promises that do not speak
of order across streams must hold all the same.
"""

import hashlib
from collections.abc import Callable
from random import Random

import msgspec

from tests.simulation.clock import Scheduler

__all__ = ["Link", "Network", "Pipe", "Weather"]


class Weather(msgspec.Struct, frozen=True):
    """How messages travel. Latency in ms; loss, duplication and outliving as chances; slow readers take `slow_ms`."""

    latency_ms: tuple[int, int] = (1, 20)
    in_order: bool = True
    loss: float = 0.0
    duplication: float = 0.0
    outlive: float = 0.5
    slow_ms: tuple[int, int] = (50, 500)


class Network:
    """All links, the weather, and the running hash of every byte that was delivered."""

    def __init__(self, scheduler: Scheduler, rng: Random, weather: Weather) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.weather = weather
        self.in_flight = 0
        self.messages = 0
        self.faults = 0
        self._hash = hashlib.sha256()

    def delivered(self, label: str, data: bytes) -> None:
        """Note a delivered message in the wire hash."""
        self.messages += 1
        self._hash.update(f"{self.scheduler.now_ms} {label} {len(data)}\n".encode())
        self._hash.update(data)

    @property
    def wire_hash(self) -> str:
        """SHA-256 of every message in delivery order, with its time and its pipe."""
        return self._hash.hexdigest()

    def latency(self) -> int:
        """Return one message's latency in ms."""
        low, high = self.weather.latency_ms
        return self.rng.randint(low, high)

    def happens(self, chance: float) -> bool:
        """Return whether a fault of this chance strikes now."""
        struck = chance > 0 and self.rng.random() < chance
        self.faults += struck
        return struck


class Pipe:
    """One direction of a link. `deliver` takes a message at the far end, `ended` is called once after the last."""

    def __init__(
        self, network: Network, label: str, deliver: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        self.network = network
        self.label = label
        self.slow = False
        self.progress: Callable[[], None] | None = None
        self._deliver = deliver
        self._ended = ended
        self._generation = 0
        self._last_ms = 0
        self._fence_ms = 0
        self._stalled: list[bytes | None] | None = None
        self.waiting_bytes = 0
        self._finished = False
        self._deaf = False

    def send(self, data: bytes, *, fence: bool = False) -> None:
        """Put a message on its way, unless this direction was ended.

        A `fence` arrives, and is overtaken by nothing, whatever the weather: no answer would ever show that it was.
        """
        if self._finished:
            return
        self.waiting_bytes += len(data)
        if fence and self._stalled is None:
            self._in_order(data)
            self._fence_ms = self._last_ms
        else:
            self._put(data)

    def finish(self) -> None:
        """End this direction after what was sent."""
        if not self._finished:
            self._finished = True
            self._put(None)

    def die(self, patience_ms: int) -> None:
        """End this direction without a word: bytes in flight are lost or outlive their sender.

        The far end notices within `patience_ms` of the last of them.
        """
        if self._finished:
            return
        network = self.network
        self._finished = True
        stalled, self._stalled = self._stalled, None
        if network.rng.random() < network.weather.outlive:
            for data in stalled or ():
                self._put(data)
        else:
            self._generation += 1
            network.faults += 1
        self._last_ms = max(self._last_ms, network.scheduler.now_ms) + network.rng.randint(0, patience_ms)
        self._put(None)

    def stall(self) -> None:
        """Hold everything back from now on: a partition in this direction."""
        if self._stalled is None:
            self._stalled = []

    def resume(self) -> None:
        """Let what was held back go on."""
        stalled, self._stalled = self._stalled, None
        for data in stalled or ():
            self._put(data)

    def deafen(self) -> None:
        """The reader is gone: whatever arrives is dropped, and nobody is told."""
        self._deaf = True

    def _put(self, data: bytes | None) -> None:
        network, weather = self.network, self.network.weather
        if self._stalled is not None:
            if weather.in_order or data is None:
                self._stalled.append(data)
            else:
                network.faults += 1
            return
        if weather.in_order or data is None:
            self._in_order(data)
            return
        if network.happens(weather.loss):
            self.waiting_bytes -= len(data)
            return
        for _ in range(2 if network.happens(weather.duplication) else 1):
            delay_ms = max(network.latency(), self._fence_ms - network.scheduler.now_ms)
            self._last_ms = max(self._last_ms, network.scheduler.now_ms + delay_ms)
            self._schedule(delay_ms, data)

    def _in_order(self, data: bytes | None) -> None:
        network = self.network
        due_ms = max(self._last_ms, network.scheduler.now_ms + network.latency())
        if self.slow and data is not None:
            due_ms += network.rng.randint(*network.weather.slow_ms)
        self._last_ms = due_ms
        self._schedule(due_ms - network.scheduler.now_ms, data)

    def _schedule(self, delay_ms: int, data: bytes | None) -> None:
        generation = self._generation
        self.network.in_flight += 1
        self.network.scheduler.after(delay_ms, lambda: self._arrive(generation, data))

    def _arrive(self, generation: int, data: bytes | None) -> None:
        self.network.in_flight -= 1
        if data is None:
            if not self._deaf:
                self._deaf = True
                self._ended()
            return
        if generation != self._generation:
            return
        self.waiting_bytes = max(0, self.waiting_bytes - len(data))
        if self._deaf:
            return
        self.network.delivered(self.label, data)
        self._deliver(data)
        if self.progress is not None:
            self.progress()


class Link:
    """A connection: `up` to the relay, `down` to the device. Each end closes its own side."""

    def __init__(self, up: Pipe, down: Pipe) -> None:
        self.up = up
        self.down = down

    def close_by_device(self) -> None:
        """The device hangs up: what it sent still arrives, what comes is dropped."""
        self.up.finish()
        self.down.deafen()

    def close_by_relay(self) -> None:
        """The relay closes: what it sent still arrives, what comes is dropped."""
        self.down.finish()
        self.up.deafen()

    def device_died(self, patience_ms: int) -> None:
        """The device is gone; its bytes may outlive it, and the relay notices late."""
        self.down.deafen()
        self.up.die(patience_ms)

    def relay_died(self, patience_ms: int) -> None:
        """The relay is gone; its bytes may outlive it, and the device notices late."""
        self.up.deafen()
        self.down.die(patience_ms)

    def cut(self, patience_ms: int) -> None:
        """The connection breaks between two living ends."""
        self.up.die(patience_ms)
        self.down.die(patience_ms)
