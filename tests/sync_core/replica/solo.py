"""A device whose relay is the test: what the relay says is handed over frame by frame, what is sent is looked at."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from sync_core.entry import CHAIN_START, Entry, EntryKind, chain_next, entry_hash
from sync_core.frames import WIRE_VERSION, Entries, Heads, Hello, Receipt, StreamHead, Welcome
from sync_core.ids import StreamName, stream_id
from sync_core.replica import effects as e
from sync_core.replica.writes import TaskImage
from sync_core.wire import RelayFrame
from tests.simulation.disk import DiskModel
from tests.sync_core.replica.fleet import TASK, Device, Fleet

__all__ = ["EPOCH", "STATE", "Log", "Solo", "log_of", "numbered"]

STATE = stream_id(TASK, StreamName.STATE)
EPOCH = b"epoch-01"
T = TypeVar("T")


class Log(msgspec.Struct):
    """What a relay holds of one stream of the task."""

    name: StreamName
    entries: tuple[Entry, ...]
    epoch: bytes = EPOCH

    @property
    def id(self) -> str:
        """The stream's id."""
        return stream_id(TASK, self.name)

    @property
    def head(self) -> StreamHead:
        """What the relay says of it."""
        return StreamHead(self.name, self.epoch, len(self.entries))

    def frame(self, first: int = 1, last: int | None = None) -> Entries:
        """The entries of some places."""
        return Entries(self.id, self.epoch, self.entries[first - 1 : last])

    def chain(self, place: int) -> bytes:
        """The chain at a place."""
        chain = CHAIN_START
        for entry in self.entries[:place]:
            chain = chain_next(chain, entry_hash(entry))
        return chain


def log_of(work: Callable[[Device], None], *names: str) -> dict[StreamName, Log]:
    """Return the log after devices (`author` without names) did some work, each in turn, on a task that they share."""
    fleet = Fleet(seed=99)
    for name in names or ("author",):
        device = fleet.add(name)
        device.open()
        work(device)
        fleet.settle()
    image = fleet.devices[0].disk.load_task(TASK)
    logs = [Log(StreamName(stream.stream.rpartition(":")[2]), stream.entries) for stream in image.streams]
    return {log.name: log for log in logs}


def numbered(entry: Entry, place: int) -> Entry:
    """The entry as the relay stores it at a place."""
    return msgspec.structs.replace(entry, relay_seq=place)


class Solo(Device):
    """A device named `phone` with a disk of its own, logged in once `log_in` was called."""

    def __init__(self, disk: DiskModel | None = None, *, seed: int = 7) -> None:
        super().__init__(Fleet(seed), "phone", disk)

    # --- the relay's part ---------------------------------------------------------------------------------------------

    def log_in(self, role: str = "write", *, authority: bool = True) -> "Solo":
        """Stand on a link, welcomed in this role."""
        self.handle(e.LinkUp(""))
        self.hear(Welcome(WIRE_VERSION, 1_000, role, "somebody", authority))
        return self

    def hear(self, *frames: RelayFrame) -> None:
        """Take frames, one by one."""
        for frame in frames:
            self.handle(e.FrameReceived(frame))

    def heads(self, *heads: StreamHead, task: str = TASK, known: bool = True) -> None:
        """Answer the last Hello of the task."""
        number = [hello.number for hello in self.sent(Hello) if hello.task == task][-1]
        self.hear(Heads(task, known, heads, 2_000, number))

    def receipt(self, first: Entry, last: Entry | None = None, *, place: int, epoch: bytes = EPOCH) -> None:
        """Say that entries are stored, the first of them at a place; their content was compared."""
        seq = (last or first).writer_seq
        self.hear(Receipt(first.stream, epoch, first.writer, first.writer_seq, seq, place))

    def drop_link(self) -> None:
        """The link is gone, and no other comes about."""
        self.handle(e.LinkDown())
        self.handle(e.LinkFailed("no route"))

    def wait(self, ms: int) -> None:
        """Let time pass, with a tick every 200 ms."""
        for _ in range(ms // 200):
            self.fleet.now_ms += 200
            self.handle(e.Tick())

    # --- what came of it ----------------------------------------------------------------------------------------------

    def sent(self, kind: type[T]) -> list[T]:
        """All frames of a kind that were sent since `forget`."""
        frames = [effect.frame for effect in self.log if isinstance(effect, e.SendFrame)]
        return [frame for frame in frames if isinstance(frame, kind)]

    def written(self, kind: type[T]) -> list[T]:
        """All writes of a kind since `forget`."""
        writes = [effect.write for effect in self.log if isinstance(effect, e.Written)]
        return [write for write in writes if isinstance(write, kind)]

    def count(self, kind: type[e.Effect]) -> int:
        """How many effects of a kind there were since `forget`."""
        return sum(isinstance(effect, kind) for effect in self.log)

    def forget(self) -> None:
        """Look only at what comes from here on; what was sent is kept for `heads`."""
        self.log = [x for x in self.log if isinstance(x, e.SendFrame) and isinstance(x.frame, Hello)]
        self.changes.clear()

    @property
    def image(self) -> TaskImage:
        """What the disk holds of the task."""
        return self.disk.load_task(TASK)

    def unsent(self, kind: EntryKind | None = None) -> list[Entry]:
        """The own entries without a number, in their order."""
        held = {(e.stream, e.writer, e.writer_seq): e for stream in self.image.streams for e in stream.entries}
        return [held[key] for key in self.image.unsent if kind in (None, held[key].kind)]

    def cursor(self, name: StreamName = StreamName.STATE) -> int:
        """Where the disk says that a stream was read to."""
        return next((s.cursor for s in self.image.streams if s.stream == stream_id(TASK, name)), 0)
