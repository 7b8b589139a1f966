"""The relay's machine: the driver of the one real Relay, its mailbox and its connections."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from server_relay import effects as fx
from server_relay.admission import Grant, Role, admit_anyone
from server_relay.config import RelaySettings
from server_relay.relay import Relay
from sync_core.errors import ProtocolError, SegueError
from sync_core.frames import Login
from sync_core.wire import decode_client, join
from tests.simulation.driver import Driver
from tests.simulation.mailbox_model import MailboxModel
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["RelayHost", "relay_settings"]

_START_MS = 1_790_000_000_000


class RelayHost(Driver[fx.RelayEvent, fx.RelayEffect]):
    """One relay. `clock_skew_ms` is what its clock is wrong by; `readers` are devices that it lets read only; `roles`
    are those of devices that may not do everything."""

    def __init__(self, world: "World", settings: RelaySettings) -> None:
        super().__init__(world.scheduler, world.rng("relay"), world.faults, "relay")
        self.world = world
        self.mailbox = MailboxModel()
        self.settings = settings
        self.clock_skew_ms = 0
        self.relay: Relay | None = None
        self.links: dict[int, Link] = {}
        self.readers: set[str] = set()
        self.roles: dict[str, Role] = {}
        self._next_conn = 0
        self._drained: set[int] = set()

    # --- life ---------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start a fresh Relay on the mailbox; nothing if it is up."""
        if self.up:
            return
        self.start()
        self._drained.clear()
        entropy = Random(f"{self.world.seed} entropy relay {self.life}").randbytes
        self.relay = Relay(self._admit, entropy, self.settings, durable=True)
        self.later(1_000, self._tick)

    def _admit(self, login: Login, now_ms: int) -> Grant:
        grant = admit_anyone(login, now_ms)
        role = Role.READ if login.device in self.readers else self.roles.get(login.device, grant.role)
        return replace(grant, role=role, authenticated=True)

    def die(self) -> None:
        """Lose the process, its connections, and whatever the mailbox had not synced."""
        self.stop()
        self.mailbox.crash(self.rng)
        for link in self.links.values():
            link.relay_died(patience_ms=2_000)
        self.links.clear()
        self.relay = None

    def _tick(self) -> None:
        self.post(fx.Tick())
        self.later(1_000, self._tick)

    @property
    def now_ms(self) -> int:
        """The relay's clock."""
        return _START_MS + self.clock_skew_ms + self.scheduler.now_ms

    # --- connections --------------------------------------------------------------------------------------------------

    def accept(self, link: Link, address: str) -> int:
        """Take a connection and return its number."""
        self._next_conn += 1
        conn = self._next_conn
        self.links[conn] = link
        link.down.progress = partial(self.drained, conn)
        self.post(fx.Connected(conn, address))
        return conn

    def message_arrived(self, conn: int, data: bytes) -> None:
        """A message came on a connection that this life accepted."""
        if conn not in self.links:
            return
        try:
            frames = decode_client(data)
        except ProtocolError as error:
            self.post(fx.Malformed(conn, error.sentence))
            return
        for frame in frames:
            self.post(fx.Received(conn, frame))

    def link_ended(self, conn: int) -> None:
        """The far end is gone, as far as this end can tell."""
        link = self.links.pop(conn, None)
        if link is not None:
            link.close_by_relay()
            self.post(fx.Disconnected(conn))

    def drained(self, conn: int) -> None:
        """The reader took something out of the out-queue; the Relay is told once, with what waits by then."""
        if conn in self.links and conn not in self._drained:
            self._drained.add(conn)
            self.post(fx.Drained(conn, 0))

    # --- the driver ---------------------------------------------------------------------------------------------------

    def _next_batch(self) -> list[fx.RelayEffect]:
        """Some or all waiting events are one turn. What waits in an out-queue is told first, as it is now."""
        assert self.relay is not None
        events = [self._inbox.popleft() for _ in range(min(len(self._inbox), self.rng.randint(1, 8)))]
        told = [fx.Drained(conn, link.down.waiting_bytes) for conn, link in self.links.items() if conn in self._drained]
        self._drained.clear()
        others = [event for event in events if not isinstance(event, fx.Drained)]
        return self._noted(self.relay.turn([*told, *others], self.now_ms))

    def _react(self, event: fx.RelayEvent) -> list[fx.RelayEffect]:
        assert self.relay is not None
        return self.relay.handle(event, self.now_ms)

    def _is_load(self, effect: fx.RelayEffect) -> bool:
        return not isinstance(effect, fx.Written | fx.Send | fx.Close)

    def _load(self, effect: fx.RelayEffect) -> fx.RelayEvent:
        assert not isinstance(effect, fx.Written | fx.Send | fx.Close)
        return self.mailbox.read(effect)

    def _commit(self, effects: Sequence[fx.RelayEffect]) -> bool:
        writes = [effect.write for effect in effects if isinstance(effect, fx.Written)]
        if writes:
            self.world.faults.maybe_full(self.label, self.mailbox)
            self.world.checks.relay_commits(writes)
            self.world.endings.relay_commits(writes)
            self.mailbox.commit(writes)
            self.world.checks.relay_committed(writes)
            self.world.guarded.relay_committed(writes)
        return bool(writes)

    def _commit_failed(self, effects: Sequence[fx.RelayEffect], error: SegueError) -> fx.RelayEvent:
        return fx.CommitFailed(tuple(effects), error)

    def _sync(self) -> None:
        self.mailbox.sync()
        self.world.endings.relay_synced()

    def _crash(self) -> None:
        self.world.crash_relay()

    def _carry_out(self, effects: Sequence[fx.RelayEffect]) -> None:
        out: dict[int, list[bytes]] = {}
        for effect in effects:
            match effect:
                case fx.Send(conn, frames):
                    if conn in self.links:
                        self.world.checks.frames_leave_relay(frames)
                        out.setdefault(conn, []).extend(frames)
                case fx.Close(conn):
                    self._send(conn, out.pop(conn, []))
                    link = self.links.pop(conn, None)
                    if link is not None:
                        link.close_by_relay()
                        self.post(fx.Disconnected(conn))
        for conn, waiting in out.items():
            self._send(conn, waiting)

    def _send(self, conn: int, frames: list[bytes]) -> None:
        link = self.links.get(conn)
        if link is None or not frames:
            return
        if self.world.network.weather.in_order:
            link.down.send(join(frames))
        else:
            for frame in frames:
                link.down.send(join([frame]))


def relay_settings(snapshot_tail_entries: int) -> RelaySettings:
    """Return settings under which short schedules reach snapshots and idle tasks."""
    return RelaySettings(
        db=Path("simulated.db"),
        snapshot_tail_entries=snapshot_tail_entries,
        snapshot_asked_every_ms=2_000,
        safety_window_entries=4,
        idle_task_ms=3_000,
        lease_ms=2_000,
    )
