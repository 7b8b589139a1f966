"""The world of one schedule: devices, relay, network, users and faults under one seed; first safety, then liveness.

In the fault phase users work and everything may go wrong; only what must hold at every moment is checked. Then the
world heals: processes come back, the network is clean, users fall silent. From there everything must settle within
`HEAL_MS`, and what then stands on the disks is compared with the journal.
"""

import traceback
from random import Random

import msgspec

from sync_core.errors import (
    Closed,
    InDoubt,
    KeyReused,
    PreconditionFailed,
    Purged,
    ReadOnly,
    SegueError,
    StoreFull,
    TooLarge,
    UnsentWork,
    ValueRefused,
    VersionMismatch,
)
from sync_core.replica.commands import AwaitSynced
from sync_core.replica.core import ReplicaSettings
from tests.simulation.checkers import Checks
from tests.simulation.checks_calls import CallChecks
from tests.simulation.checks_endings import EndingChecks
from tests.simulation.checks_guarded import GuardedChecks
from tests.simulation.clock import Scheduler
from tests.simulation.device import Device
from tests.simulation.disk import DiskModel
from tests.simulation.disk_state import DiskState
from tests.simulation.driver import Violation
from tests.simulation.faults import FaultPlan, Faults
from tests.simulation.journal import Journal
from tests.simulation.network import Link, Network, Pipe, Weather
from tests.simulation.outside import Outside
from tests.simulation.relay_host import RelayHost, relay_settings

__all__ = ["HEAL_MS", "Result", "World"]

HEAL_MS = 60_000
_TOLERATED = (
    Closed,
    InDoubt,
    KeyReused,
    PreconditionFailed,
    Purged,
    ReadOnly,
    StoreFull,
    TooLarge,
    UnsentWork,
    ValueRefused,
    VersionMismatch,
)


class Result(msgspec.Struct, frozen=True):
    """What one schedule came to. `violation` is empty if every promise held."""

    seed: int
    violation: str
    wire_hash: str
    steps: int
    messages: int
    ops: int
    faults: int
    virtual_ms: int


class World:
    """Everything of one schedule; scripts may also drive it step by step."""

    subject = "acme"

    def __init__(
        self,
        seed: int,
        plan: FaultPlan,
        *,
        snapshot_tail_entries: int = 12,
        thorough: bool = False,
        outside_enforces: bool = True,
    ) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.faults = Faults(plan, self.rng("faults"))
        self.network = Network(self.scheduler, self.rng("network"), plan.weather)
        self.journal = Journal()
        self.outside = Outside(enforces=outside_enforces)
        self.checks = Checks(self, thorough)
        self.calls = CallChecks(self)
        self.guarded = GuardedChecks(self)
        self.endings = EndingChecks(self)
        self.relay = RelayHost(self, relay_settings(snapshot_tail_entries))
        self.devices: list[Device] = []
        self.quiet = False
        self.healing = False
        self._unsynced: set[str] = set()
        self._settled = False
        self._blocked: dict[str, set[str]] = {}
        self._ref = 0

    def rng(self, name: str) -> Random:
        """Return the source of randomness of one part of the world."""
        return Random(f"{self.seed} {name}")

    def next_ref(self) -> int:
        """Return a fresh command reference."""
        self._ref += 1
        return self._ref

    def tolerate(self, error: SegueError) -> None:
        """Let an error pass that a user must live with; any other one breaks a promise."""
        if not isinstance(error, _TOLERATED):
            raise Violation(f"a user got {type(error).__name__}: {error.sentence}")

    # --- building -----------------------------------------------------------------------------------------------------

    def add_device(self, name: str, label: str | None = None, image: DiskState | None = None) -> Device:
        """Add a device, switched off; `image` is what stands on its disk."""
        disk = DiskModel()
        if image is not None:
            disk.restore(image)
        compact = self.rng(f"settings {label or name}").choice((4, 20, 1_000))
        settings = ReplicaSettings(has_relay=True, compact_entries=compact, loaded_idle_tasks_max=1)
        device = Device(self, label or name, name, disk, settings)
        self.devices.append(device)
        return device

    # --- links --------------------------------------------------------------------------------------------------------

    def open_link(self, device: Device) -> Link | None:
        """Return a fresh connection of a device with the relay, or None if there is no way."""
        if not self.relay.up or self._blocked.get(device.label):
            return None
        return self.link_to_relay(device.label, device.message_arrived, device.link_ended, device.slow_reader)

    def link_to_relay(self, label, arrived, ended, slow: bool = False) -> Link:  # type: ignore[no-untyped-def]
        """Connect anyone who speaks the wire: `arrived(link, data)` and `ended(link)` are called at this end."""
        relay = self.relay
        up = Pipe(
            self.network,
            f"{label}>",
            lambda data: relay.message_arrived(conn, data),
            lambda: relay.link_ended(conn),
        )
        down = Pipe(self.network, f">{label}", lambda data: arrived(link, data), lambda: ended(link))
        down.slow = slow
        link = Link(up, down)
        conn = relay.accept(link, f"10.0.0.{len(label)}")
        return link

    def reconnect(self, name: str) -> None:
        """Cut the links of all devices that log in under a name."""
        for device in self.devices:
            if device.name == name and device.link is not None:
                device.link.cut(patience_ms=200)

    def partition(self, device: Device, direction: str, duration_ms: int) -> None:
        """Block one direction (`up`, `down`) for a while; both ends give up a link that is silent for 8 s."""
        blocked = self._blocked.setdefault(device.label, set())
        blocked.add(direction)
        link = device.link
        if link is not None:
            (link.up if direction == "up" else link.down).stall()
            self.scheduler.after(8_000, lambda: self._give_up(device, link, direction))
        self.scheduler.after(duration_ms, lambda: self.reunite(device, direction))

    def reunite(self, device: Device, direction: str) -> None:
        """End a partition; what was held back goes on."""
        self._blocked.get(device.label, set()).discard(direction)
        if device.link is not None:
            (device.link.up if direction == "up" else device.link.down).resume()

    def _give_up(self, device: Device, link: Link, direction: str) -> None:
        if device.link is link and direction in self._blocked.get(device.label, ()):
            link.cut(patience_ms=2_000)

    # --- crashes ------------------------------------------------------------------------------------------------------

    def crash_device(self, device: Device) -> None:
        """Kill a device; it comes back after a while."""
        if device.up:
            device.die()
            self.later_boot(device)

    def later_boot(self, device: Device) -> None:
        """Let a device come back after a while."""

        self.scheduler.after(self.faults.downtime_ms(), device.boot)

    def pause(self, device: Device, duration_ms: int) -> None:
        """Let a device stand still; the relay gives its link up where that takes long."""
        link = device.link
        device.pause(duration_ms)

        def give_up() -> None:
            if device.paused and device.link is link and link is not None:
                link.cut(patience_ms=500)

        self.scheduler.after(self.faults.downtime_ms(), give_up)

    def crash_relay(self) -> None:
        """Kill the relay; it comes back after a while."""
        if self.relay.up:
            self.relay.die()
            self.scheduler.after(self.faults.downtime_ms(), self.relay.boot)

    # --- phases -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """From now on nothing goes wrong: everything comes back, the network is clean, users fall silent."""
        self.quiet = self.healing = True
        self.faults.active = False
        readers, self.relay.readers = self.relay.readers, set()
        for name in sorted(readers):
            self.reconnect(name)
        self.network.weather = Weather(latency_ms=(1, 10))
        for device in self.devices:
            for direction in ("up", "down"):
                self.reunite(device, direction)
            device.slow_reader = False
            if device.link is not None:
                device.link.down.slow = False
            device.boot()
            if not device.wants_link:
                device.plug()
        self.relay.boot()
        for device in self.devices:
            self._ask_synced(device)

    def _ask_synced(self, device: Device) -> None:
        """`synced()` must be answered, too."""
        self._unsynced.add(device.label)

        def refused(error: SegueError) -> None:
            raise Violation(f"synced() failed on {device.label}: {error.sentence}")

        device.command(AwaitSynced(self.next_ref()), lambda _: self._unsynced.discard(device.label), refused)

    def settle(self) -> bool:
        """Run until all is quiet and every followed task stands at the relay's head; False if it never does."""
        self._settled = False

        def look() -> None:
            if not self._unsynced and self.checks.settled():
                self._settled = True
            else:
                self.scheduler.after(250, look)

        self.scheduler.after(250, look)
        return self.scheduler.run(self.scheduler.now_ms + HEAL_MS, lambda: self._settled)

    def run(self, fault_ms: int) -> Result:
        """Run both phases and the final checks."""
        violation = ""
        try:
            self.scheduler.run(fault_ms)
            self.heal()
            if not self.settle():
                waiting = f"synced() unanswered on {sorted(self._unsynced)}" if self._unsynced else "messages fly"
                raise Violation(f"not settled {HEAL_MS} ms after the heal: {self.checks.unsettled() or waiting}")
            self.checks.final()
        except Violation as found:
            violation = str(found)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)
            last = next((frame for frame in reversed(where) if "/tests/" not in frame.filename), where[-1])
            short = last.filename.rsplit("/", 2)
            violation = f"{type(error).__name__}: {error} at {'/'.join(short[-2:])}:{last.lineno} in {last.name}"
        return self.result(violation)

    def result(self, violation: str) -> Result:
        """Return what the schedule came to."""
        return Result(
            seed=self.seed,
            violation=violation,
            wire_hash=self.network.wire_hash,
            steps=self.scheduler.steps,
            messages=self.network.messages,
            ops=len(self.journal.ops),
            faults=self.faults.struck + self.network.faults,
            virtual_ms=self.scheduler.now_ms,
        )
