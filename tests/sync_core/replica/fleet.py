"""Devices on one relay, without a network or a clock of their own: real Replicas, the real Relay, model disks.

Frames are carried by `settle`, in order, until nobody says anything more. A device can lose its link, its process or
its disk; the relay can lose its process or its log.
"""

from collections.abc import Iterable
from random import Random
from typing import TypeVar

from server_relay.config import RelaySettings
from sync_core.document.calls import CallBegun
from sync_core.document.document import TaskDocument
from sync_core.document.slots import CandidateStatus, Slot, SlotDefinition
from sync_core.document.view import TaskView
from sync_core.entry import Effect
from sync_core.errors import SegueError
from sync_core.ids import StreamName, new_writer
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import Change
from sync_core.replica.core import ReplicaSettings
from sync_core.replica.replica import Replica
from sync_core.values import canonical
from sync_core.wire import ClientFrame, RelayFrame
from tests.server_relay.harness import Client, Harness
from tests.simulation.disk import DiskModel
from tests.simulation.mailbox_model import MailboxModel

__all__ = ["TASK", "Device", "Fleet"]

TASK = "expense/TRIP-118"
T = TypeVar("T")


class Device:
    """One device: a disk that outlives its process, a Replica, and maybe a link."""

    def __init__(self, fleet: "Fleet", name: str, disk: DiskModel | None = None) -> None:
        self.fleet = fleet
        self.name = name
        self.disk = disk or DiskModel()
        self.link: Client | None = None
        self.hears = True
        self.wall_ms = 1_790_000_000_000
        self.log: list[e.Effect] = []
        self.changes: list[Change] = []
        self.boot()

    # --- life ---------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start a new process on the disk."""
        entropy = self.fleet.random.randbytes
        settings = ReplicaSettings(has_relay=True)
        self.replica = Replica("acme", self.name, entropy, self.disk.followed_tasks(), settings, self.disk.tombstones())
        self.outgoing: list[ClientFrame] = []
        self.replies: dict[int, object] = {}
        self.views: dict[str, TaskView] = {}
        self.refs = 0

    def crash(self) -> None:
        """Lose the process and the link; the disk stays."""
        if self.link is not None:
            self.link.leave()
            self.link = None
        self.boot()

    def connect(self) -> "Device":
        """Log in at the relay."""
        self.link = self.fleet.relay.connect()
        self.handle(e.LinkUp(""))
        return self

    def disconnect(self) -> None:
        """Lose the link; whatever was not delivered is gone."""
        if self.link is not None:
            self.link.leave()
        self.link = None
        self.outgoing.clear()
        self.handle(e.LinkDown())
        self.handle(e.LinkFailed("no route"))

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: c.Command | e.Event) -> list[e.Effect]:
        """Hand one event over and carry out what it comes to; return the first effects."""
        effects = self.replica.handle(event, self.fleet.now_ms, self.wall_ms)
        self.carry_out(effects)
        return effects

    def carry_out(self, effects: Iterable[e.Effect]) -> None:
        """Commit, then do the rest in order, then answer what was asked of the disk."""
        effects = tuple(effects)
        self.log += effects
        writes = [effect.write for effect in effects if isinstance(effect, e.Written)]
        try:
            if writes:
                self.disk.commit(writes)
        except SegueError as error:
            self.handle(e.CommitFailed(effects, error))
            return
        for effect in effects:
            self._carry_out(effect)
        for effect in effects:
            if (answer := self._load(effect)) is not None:
                self.handle(answer)

    def _carry_out(self, effect: e.Effect) -> None:
        match effect:
            case e.Reply(ref=ref, value=value):
                self.replies[ref] = value
            case e.Fail(ref=ref, error=error):
                self.replies[ref] = error
            case e.SendFrame(frame=frame):
                self.outgoing.append(frame)
            case e.Announce(view=view, changes=changes):
                self.views[view.task] = view
                self.changes += changes

    def _load(self, effect: e.Effect) -> e.Event | None:
        match effect:
            case e.LoadTask(task=task):
                return e.TaskLoaded(self.disk.load_task(task))
            case e.LoadBlob(task=task, sha256=sha256):
                return e.BlobLoaded(task, sha256, self.disk.load_blob(task, sha256))
            case e.LoadBase(task=task, note=note, sha256=sha256):
                return e.BaseLoaded(task, note, sha256, self.disk.load_base(task, note, sha256))
        return None

    # --- what a program does ------------------------------------------------------------------------------------------

    def ref(self) -> int:
        """Return a fresh reference."""
        self.refs += 1
        return self.refs

    def ask(self, command: c.Command, answer: type[T]) -> T:
        """Carry out a command, letting the relay answer; return its reply or raise its error."""
        self.handle(command)
        if command.ref not in self.replies:
            self.fleet.settle()
        reply = self.replies.pop(command.ref)
        if isinstance(reply, SegueError):
            raise reply
        assert isinstance(reply, answer), reply
        return reply

    def open(self, task: str = TASK, *, create: bool = True) -> TaskView:
        """Open the task."""
        view = self.ask(c.OpenTask(self.ref(), task, create), TaskView)
        self.views[task] = view
        return view

    def declare(self, name: str) -> Slot:
        """Declare a slot of text."""
        return self.ask(c.DeclareSlot(self.ref(), TASK, name, SlotDefinition(f"Which {name}?")), Slot)

    def confirm(self, name: str, value: object, read: Slot | None = None) -> Slot:
        """Confirm a value; without `read`, nothing that is there counts as read."""
        token = frozenset() if read is None else read.token
        text = canonical(value)
        return self.ask(c.WriteSlot(self.ref(), TASK, name, text, CandidateStatus.CONFIRMED, token), Slot)

    def append(self, name: str, text: str) -> None:
        """Append to a note."""
        self.ask(c.AppendNote(self.ref(), TASK, name, text), object)

    def begin(self, step: str, digest: str = "d", effect: Effect = Effect.READ) -> object:
        """Ask for a step."""
        return self.ask(c.BeginCall(self.ref(), TASK, 1, step, "tool", effect, digest, "{}"), object)

    def call(self, step: str, result: str) -> None:
        """Run a step that was never run."""
        begun = self.begin(step)
        assert isinstance(begun, CallBegun)
        self.ask(c.EndCall(self.ref(), TASK, 1, step, begun.attempt, True, canonical(result)), object)

    @property
    def view(self) -> TaskView:
        """The task as it was announced last."""
        return self.views[TASK]

    def digests(self, task: str = TASK) -> dict[StreamName, tuple[int, bytes]]:
        """Return (cursor, digest) of each stream, from the disk alone."""
        image = self.disk.load_task(task)
        found = {}
        for stream in image.streams:
            name = StreamName(stream.stream.rpartition(":")[2])
            random = Random(1).randbytes
            document = TaskDocument("acme", task, self.name, new_writer(random), random)
            document.load(stream.document, [entry for entry in stream.entries if entry.relay_seq is not None])
            digest = document.digest(name, {row.writer: row for row in stream.writers})
            found[name] = (stream.cursor, digest)
        return found

    @property
    def waiting(self) -> int:
        """How many entries have no number on this disk."""
        return sum(followed.waiting for followed in self.disk.followed_tasks())


class Fleet:
    """Devices and their relay. Everything is seeded."""

    def __init__(self, seed: int = 7, settings: RelaySettings | None = None) -> None:
        self.random = Random(seed)
        self.relay = Harness(seed=seed, settings=settings)
        self.now_ms = 1_000
        self.devices: list[Device] = []

    def add(self, name: str, *, online: bool = True, disk: DiskModel | None = None) -> Device:
        """Add a device with an empty disk, or with this one."""
        device = Device(self, name, disk)
        self.devices.append(device)
        if online:
            device.connect()
            self.settle()
        else:
            device.handle(e.LinkFailed("no route"))
        return device

    def restart_relay(self, *, log_lost: bool = False) -> None:
        """Restart the relay, all links die; with an empty log if it was lost."""
        if log_lost:
            self.relay.model = MailboxModel()
        for device in self.devices:
            device.link = None
        self.relay.restart()
        for device in self.devices:
            device.outgoing.clear()
            device.handle(e.LinkDown())

    def settle(self, rounds: int = 200) -> None:
        """Carry frames until nobody has anything to say."""
        for _ in range(rounds):
            if not sum(self.exchange(device) for device in self.devices):
                return
        raise AssertionError("the devices and their relay never come to rest")

    def exchange(self, device: Device) -> int:
        """Carry what a device has to say, and what it is answered; return how many frames that were."""
        if device.link is None:
            return 0
        frames, device.outgoing = device.outgoing, []
        for frame in frames:
            device.link.send(frame)
        self.relay.drain()
        answers: list[RelayFrame] = list(device.link.frames)
        device.link.frames.clear()
        if device.hears:
            for answer in answers:
                device.handle(e.FrameReceived(answer))
        return len(frames) + (len(answers) if device.hears else 0)

    def pass_time(self, ms: int) -> None:
        """Let time pass in ticks of 200 ms."""
        for _ in range(ms // 200):
            self.now_ms += 200
            self.relay.tick(200)
            for device in self.devices:
                device.handle(e.Tick())
            self.settle()

    def assert_converged(self) -> None:
        """All devices hold the same content at the same places, and nothing waits."""
        first, *others = [device.digests() for device in self.devices]
        assert all(digests == first for digests in others)
        assert [device.waiting for device in self.devices] == [0] * len(self.devices)
