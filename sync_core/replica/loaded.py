"""What of a task is in memory only while it is at work: thousands of tasks may be followed that are not."""

from collections import deque

import msgspec

from sync_core.document.document import TaskDocument
from sync_core.document.view import TaskView
from sync_core.entry import Entry, Snapshot
from sync_core.ids import StreamName
from sync_core.replica.core import Core
from sync_core.replica.outbox import Outbox
from sync_core.replica.transfers import Transfers
from sync_core.replica.writes import TaskImage

__all__ = ["Agenda", "Loaded", "Rewrite"]


class Rewrite(msgspec.Struct, frozen=True):
    """Operations to be written again under a new writer id: own entries of `writer` from this number on.

    `refused` was set aside or quarantined: what it did is left out. `lost` are own entries of the log that a closed
    writer kept out.
    """

    stream: str
    writer: int
    from_seq: int
    refused: Entry | None = None
    lost: tuple[Entry, ...] = ()


class Agenda:
    """What is to be done at the next reading of the task, with all that the store holds of it at hand.

    `rewrites`: own operations to be written again. `bring_back`: merged content to be put into the outbox (rule J).
    `compactions`: commands to be answered once the stored updates are merged. `doubted`: the stream whose digest
    another device contradicted. `snapshot_wanted`: the stream of which the relay wants a snapshot. `offers_to_check`:
    the streams of which another device offered one. `to_compact`: the conversation went, so what is left is merged.
    """

    __slots__ = ("bring_back", "compactions", "doubted", "offers_to_check", "rewrites", "snapshot_wanted", "to_compact")

    def __init__(self) -> None:
        self.rewrites: list[Rewrite] = []
        self.bring_back = False
        self.compactions: list[int] = []
        self.doubted: StreamName | None = None
        self.snapshot_wanted: StreamName | None = None
        self.offers_to_check: list[StreamName] = []
        self.to_compact = False


class Loaded:
    """A task's document and what belongs to it.

    `view` was announced last; `jumped`: one stream was moved ahead of the others by a snapshot, and the view is not
    announced until all have reached the heads. `image` is what was read and waits for the bytes of recovered snapshots:
    `snapshots` are at hand, `snapshots_asked` are being fetched. `arrived` are places in the order of their arrival;
    `moved` streams have consumed some, and their positions are to be written. `own_writers` are all of this device,
    `running` the attempts that execute right now, `pinned` the text and relay time of each note's last pin, `offers`
    own snapshots that are on their way to the relay.
    """

    __slots__ = (
        "agenda",
        "arrived",
        "document",
        "image",
        "jumped",
        "moved",
        "offers",
        "outbox",
        "own_writers",
        "pinned",
        "running",
        "snapshots",
        "snapshots_asked",
        "transfers",
        "view",
    )

    def __init__(self, core: Core, task: str) -> None:
        self.document: TaskDocument | None = None
        self.view: TaskView | None = None
        self.jumped = False
        self.image: TaskImage | None = None
        self.outbox = Outbox()
        self.transfers = Transfers(core, task)
        self.agenda = Agenda()
        self.arrived: deque[tuple[StreamName, int]] = deque()
        self.moved: set[StreamName] = set()
        self.own_writers: set[int] = set()
        self.running: set[str] = set()
        self.pinned: dict[str, tuple[str, int]] = {}
        self.snapshots: dict[str, bytes] = {}
        self.snapshots_asked: set[str] = set()
        self.offers: dict[str, Snapshot] = {}
