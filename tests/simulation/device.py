"""A device: the driver of one real Replica, its disk, its clocks, its connection and the programs that run on it."""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from sync_core.document.view import TaskView
from sync_core.errors import SegueError
from sync_core.frames import Unfollow
from sync_core.replica import effects as fx
from sync_core.replica.commands import Cancel, CloseTask, Command, OpenTask
from sync_core.replica.core import ReplicaSettings
from sync_core.replica.replica import Replica
from sync_core.replica.writes import DropTask
from sync_core.wire import ClientFrame, decode_relay, encode
from tests.simulation.clock import DeviceClock
from tests.simulation.disk import DiskModel
from tests.simulation.driver import Driver, Violation
from tests.simulation.journal import Op
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.workload import User
    from tests.simulation.world import World

__all__ = ["Device", "DeviceEvent"]

DeviceEvent = fx.Event | Command


class Device(Driver[DeviceEvent, fx.Effect]):
    """One store file and whoever has it open. `name` is what it logs in as: two live clones share one name."""

    def __init__(self, world: "World", label: str, name: str, disk: DiskModel, settings: ReplicaSettings) -> None:
        super().__init__(world.scheduler, world.rng(f"device {label}"), world.faults, label)
        self.world = world
        self.name = name
        self.disk = disk
        self.settings = settings
        self.clock = DeviceClock(world.scheduler, world.rng(f"clock {label}"), world.faults.plan.skew)
        self.users: list[User] = []
        self.views: dict[str, TaskView] = {}
        self.executing: set[tuple[str, int, str]] = set()
        self.link: Link | None = None
        self._out: Link | None = None
        self._fresh_links: deque[Link] = deque()
        self.replica: Replica | None = None
        self.slow_reader = False
        self.wants_link = True
        self._answers: dict[int, tuple[Callable[[object], None], Callable[[SegueError], None]]] = {}
        self._announced: dict[str, TaskView] = {}
        self._closing: dict[int, str] = {}
        self._opening: dict[int, str] = {}
        self._gone: set[str] = set()
        self._tick_ms = self.rng.choice((400, 900, 1_500))

    # --- life ---------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Open the store with a fresh Replica, begin to connect, and start the programs; nothing if it is up."""
        if self.up:
            return
        self.start()
        self.clock.reboot()
        entropy = Random(f"{self.world.seed} entropy {self.label} {self.life}").randbytes
        self.replica = Replica(
            self.world.subject, self.name, entropy, self.disk.followed_tasks(), self.settings, self.disk.tombstones()
        )
        self.views = {}
        self.executing.clear()
        self._answers = {}
        self._out = None
        self._fresh_links.clear()
        self.later(self.rng.randint(0, self._tick_ms), self._tick)
        self.later(self.rng.randint(0, 100), self._connect)
        for user in self.users:
            user.start()

    def die(self) -> None:
        """Lose the process and whatever the disk had not synced; bytes that were sent may go on."""
        self.stop()
        self.disk.crash(self.rng)
        if self.link is not None:
            self.link.device_died(patience_ms=20_000)
        self.link = None
        self.replica = None

    def shut_down(self) -> None:
        """Stop for good or for a while, in order: everything committed is safe."""
        self.disk.sync()
        self.die()

    def _tick(self) -> None:
        if not any(isinstance(event, fx.Tick) for event in self._inbox):
            self.post(fx.Tick())
        self.later(self._tick_ms, self._tick)

    # --- commands -----------------------------------------------------------------------------------------------------

    def next_ref(self) -> int:
        """Return a ref that no other command of the world has."""
        return self.world.next_ref()

    def command(self, command: Command, done: Callable[[object], None], failed: Callable[[SegueError], None]) -> None:
        """Ask the Replica; one of the two is called, unless the device dies first."""
        self._answers[command.ref] = (done, failed)
        if isinstance(command, CloseTask):
            self._closing[command.ref] = command.task
        elif isinstance(command, OpenTask):
            self._opening[command.ref] = command.task
        self.post(command)

    @property
    def unanswered(self) -> int:
        """How many commands have had no answer yet."""
        return len(self._answers)

    def cancel(self, ref: int) -> None:
        """Give up waiting for a reply."""
        self._answers.pop(ref, None)
        self.post(Cancel(ref))

    def tag(self, ref: int, op: Op) -> None:
        """Say which op a command carries out, so that its entries can be found."""
        self.world.checks.tagged(self, ref, op)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self.link is not None or not self.wants_link:
            return
        link = self.world.open_link(self)
        if link is None:
            self.post(fx.LinkFailed("no route"))
            self._connect_later()
            return
        self.link = link
        self._fresh_links.append(link)
        self.post(fx.LinkUp(""))

    def _connect_later(self) -> None:
        fast = self.world.healing
        self.later(self.rng.randint(50, 300 if fast else 2_500), self._connect)

    def message_arrived(self, link: Link, data: bytes) -> None:
        """A message of the relay came on this link."""
        if link is self.link:
            for frame in decode_relay(data):
                self.post(fx.FrameReceived(frame))

    def link_ended(self, link: Link) -> None:
        """The link broke, or the relay closed it."""
        if link is self.link:
            self.link.close_by_device()
            self.link = None
            self.post(fx.LinkDown())
            self._connect_later()

    def unplug(self) -> None:
        """Go offline: hang up and do not connect until `plug`."""
        self.wants_link = False
        self._drop_link()

    def plug(self) -> None:
        """Go online again."""
        self.wants_link = True
        self._connect_later()

    def _drop_link(self) -> None:
        if self.link is not None:
            self.link.close_by_device()
            self.link = None
            self.post(fx.LinkDown())

    # --- the driver ---------------------------------------------------------------------------------------------------

    def _react(self, event: DeviceEvent) -> list[fx.Effect]:
        assert self.replica is not None
        if isinstance(event, fx.LinkUp):
            self._out = self._fresh_links.popleft()
        elif isinstance(event, fx.LinkDown):
            self._out = None
        self.world.checks.before_event(self, event)
        effects = self.replica.handle(event, self.clock.mono_ms, self.clock.wall_ms)
        self.world.checks.after_event(self, event, effects)
        return effects

    def _stands_alone(self, event: DeviceEvent) -> bool:
        # Frames that were made for the old connection leave, or are dropped, before the new one is known.
        return isinstance(event, fx.LinkUp | fx.LinkDown)

    def _is_load(self, effect: fx.Effect) -> bool:
        return isinstance(effect, fx.LoadTask | fx.LoadBlob | fx.LoadBase)

    def _load(self, effect: fx.Effect) -> DeviceEvent:
        match effect:
            case fx.LoadTask():
                return fx.TaskLoaded(self.disk.load_task(effect.task))
            case fx.LoadBlob():
                return fx.BlobLoaded(effect.task, effect.sha256, self.disk.load_blob(effect.task, effect.sha256))
            case fx.LoadBase():
                state = self.disk.load_base(effect.task, effect.note, effect.sha256)
                return fx.BaseLoaded(effect.task, effect.note, effect.sha256, state)
        raise AssertionError(effect)

    def _commit(self, effects: Sequence[fx.Effect]) -> bool:
        writes = [effect.write for effect in effects if isinstance(effect, fx.Written)]
        if writes:
            self.world.faults.maybe_full(self.label, self.disk)
            self.world.checks.device_commits(self, writes)
            self.disk.commit(writes)
            self.world.checks.device_committed(self, writes)
            for write in writes:
                if isinstance(write, DropTask):
                    self._forget(write.task)
        return bool(writes)

    def _forget(self, task: str) -> None:
        """Whoever had a handle of an evicted or purged task has none any more."""
        self._gone.add(task)
        self.views.pop(task, None)
        for user in self.users:
            user.open.pop(task, None)

    def _commit_failed(self, effects: Sequence[fx.Effect], error: SegueError) -> DeviceEvent:
        return fx.CommitFailed(tuple(effects), error)

    def _sync(self) -> None:
        self.disk.sync()

    def _crash(self) -> None:
        self.world.crash_device(self)

    def _carry_out(self, effects: Sequence[fx.Effect]) -> None:
        frames: list[ClientFrame] = []
        self._announced = {}
        for effect in effects:
            match effect:
                case fx.SendFrame():
                    self.world.checks.frame_leaves_device(self, effect.frame)
                    frames.append(effect.frame)
                case fx.Announce():
                    self.world.checks.announced(self, effect)
                    self._announced[effect.view.task] = effect.view
                    self.views[effect.view.task] = effect.view
                case fx.Reply():
                    self.world.checks.synced_replied(self, effect.ref)
                    # A handle that is given back sees nothing of what comes behind it in the same batch.
                    self._announced.pop(self._closing.pop(effect.ref, ""), None)
                    self._opening.pop(effect.ref, None)
                    answer = self._answers.pop(effect.ref, None)
                    if answer is not None:
                        answer[0](effect.value)
                case fx.Fail():
                    # Nor does one that could not be opened, unless another one is open.
                    task = self._opening.pop(effect.ref, "")
                    if not any(task in user.open for user in self.users):
                        self._announced.pop(task, None)
                    answer = self._answers.pop(effect.ref, None)
                    if answer is not None:
                        answer[1](effect.error)
                case fx.HangUp():
                    self._send(frames)
                    frames = []
                    if effect.final:
                        raise Violation(f"{self.label} was refused for good: {effect.reason}")
                    self._drop_link()
                    self._connect_later()
        self._send(frames)

    def _carried_out(self) -> None:
        # A document that is being read anew is announced once it is there.
        unread = {effect.task for effect in self._loads if isinstance(effect, fx.LoadTask)} | self._gone
        shown = {task: view for task, view in self._announced.items() if task not in unread}
        self._gone.clear()
        self.world.checks.views_shown(self, shown)

    def _send(self, frames: list[ClientFrame]) -> None:
        if self._out is None or not frames:
            return
        if self.world.network.weather.in_order:
            self._out.up.send(encode(frames))
        else:
            for frame in frames:
                self._out.up.send(encode([frame]), fence=isinstance(frame, Unfollow))
