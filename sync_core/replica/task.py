"""One followed task on this device: its streams, outbox and, while it is needed, its document.

Invariants:
1. The document holds exactly the entries up to each stream's cursor plus those of the outbox.
2. An own entry is in the document before it is in the outbox, and in the store before it is sent.
"""

from collections.abc import Iterable

import msgspec

from sync_core.completion import WriterTables
from sync_core.document.document import TaskDocument, Touched
from sync_core.document.view import TaskView
from sync_core.entry import Entry, EntryKind
from sync_core.ids import StreamName, split_stream
from sync_core.replica.changes import Change
from sync_core.replica.core import Core
from sync_core.replica.effects import Announce, LoadTask
from sync_core.replica.follow import Follow
from sync_core.replica.loaded import Agenda, Loaded
from sync_core.replica.outbox import Key, Outbox
from sync_core.replica.stream import OwnPlace, StreamReplica
from sync_core.replica.telling import changes_of, difference
from sync_core.replica.transfers import Transfers
from sync_core.replica.writes import (
    FollowedTask,
    PutEntry,
    SetPosition,
)

__all__ = ["Opening", "TaskReplica"]

# One for all: thousands of tasks may be followed.
_NO_DEVICES: frozenset[str] = frozenset()
_NO_KEYS: frozenset[Key] = frozenset()


class Opening(msgspec.Struct, frozen=True):
    """A command that waits until the task may be opened."""

    ref: int
    create: bool
    version: int | None
    write: bool
    deadline_ms: int


class TaskReplica:
    """A task's state on this device: its places, why it is here, and, while it is at work, its content.

    `writer` is the id that this opening writes under, `rewritten` names entries that were written again once already.
    `waiting` counts entries without a number; `set_aside`, `quarantined` and `diverged_from` are for the status.
    """

    __slots__ = (
        "_loaded",
        "cannot_bring_back",
        "core",
        "diverged_from",
        "follow",
        "followed",
        "handles",
        "key",
        "loading",
        "openings",
        "quarantined",
        "rewritten",
        "set_aside",
        "streams",
        "waiting",
        "writer",
    )

    def __init__(self, core: Core, key: str) -> None:
        self.core = core
        self.key = key
        self.writer = core.writer
        self.streams: dict[StreamName, StreamReplica] = {}
        self.follow = Follow()
        self.followed = False
        self.handles = 0
        self.openings: tuple[Opening, ...] = ()
        self.loading = False
        self.waiting = 0
        self.set_aside = 0
        self.quarantined = 0
        self.diverged_from: frozenset[str] = _NO_DEVICES
        self.rewritten: frozenset[Key] = _NO_KEYS
        self.cannot_bring_back = False
        self._loaded: Loaded | None = None

    # --- what is in memory only while the task is at work -------------------------------------------------------------

    @property
    def loaded(self) -> Loaded:
        """What belongs to the document, made at first use and given back when the task is no longer at work."""
        if self._loaded is None:
            self._loaded = Loaded(self.core, self.key)
        return self._loaded

    @property
    def document(self) -> TaskDocument | None:
        """The document, None while it is not in memory."""
        return self._loaded.document if self._loaded is not None else None

    @document.setter
    def document(self, document: TaskDocument | None) -> None:
        self.loaded.document = document

    @property
    def view(self) -> TaskView | None:
        """The view that was announced last, None before the first one."""
        return self._loaded.view if self._loaded is not None else None

    @property
    def outbox(self) -> Outbox:
        """What the relay has not stored; empty while the document is not in memory, see `waiting`."""
        return self.loaded.outbox

    @property
    def transfers(self) -> Transfers:
        """Blobs on their way."""
        return self.loaded.transfers

    @property
    def agenda(self) -> Agenda:
        """What is to be done at the next reading."""
        return self.loaded.agenda

    # --- state --------------------------------------------------------------------------------------------------------

    def stream(self, name: StreamName) -> StreamReplica:
        """Return a stream's state, made at first use."""
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = StreamReplica(self.key, name)
        return stream

    def stream_of(self, stream_id: str) -> StreamReplica:
        """Return the state of a stream by its id."""
        return self.stream(split_stream(stream_id)[1])

    @property
    def behind(self) -> bool:
        """Whether something that the relay spoke of is not merged here."""
        return any(stream.behind for stream in self.streams.values())

    @property
    def has_content(self) -> bool:
        """Whether this device holds anything of the task."""
        return len(self.outbox) > 0 or any(stream.cursor or stream.compacted for stream in self.streams.values())

    @property
    def at_work(self) -> bool:
        """Whether more of the task than its places is in memory, or asked for."""
        moves = self._loaded is not None and not self._loaded.transfers.idle
        return self.document is not None or self.needed or moves

    @property
    def needed(self) -> bool:
        """Whether the document is needed beyond the event in hand."""
        return bool(self.handles or self.openings or self.loading)

    @property
    def has_gap(self) -> bool:
        """Whether a stream waits for something that should have come before."""
        return any(stream.has_gap for stream in self.streams.values())

    @property
    def has_held(self) -> bool:
        """Whether places wait that arrived early."""
        return any(stream.held for stream in self.streams.values())

    @property
    def must_bring_back(self) -> bool:
        """Whether merged content of an earlier log is not in this log yet, and is not on its way (rule J)."""
        on_its_way = any(entry.kind is EntryKind.SNAPSHOT for entry in self.outbox.recovered.values())
        if on_its_way or self.cannot_bring_back:
            return False
        return any(not stream.compacted_is_in_log for stream in self.streams.values())

    def take_places(self, followed: FollowedTask) -> None:
        """Take the places of a followed task, without its content."""
        self.followed = True
        self.waiting = followed.waiting
        for place in followed.streams:
            stream = self.stream_of(place.stream)
            stream.epoch, stream.cursor, stream.chain = place.epoch, place.cursor, place.chain

    def forget_unwritten(self) -> None:
        """A commit failed: what was only in memory is void, the store is read again."""
        self.loaded.moved.clear()
        self.loaded.agenda.rewrites.clear()
        self.loaded.pinned.clear()
        self.loaded.snapshots.clear()
        self.loaded.snapshots_asked.clear()
        self.loading = False
        self.follow.leave()
        self.follow.hello_number += 1
        self.drop_arrived()

    def recount(self) -> None:
        """Bring the count of waiting entries up to date."""
        if self.document is not None:
            self.waiting = len(self.outbox)

    def tick(self) -> None:
        """Repeat what had no answer."""
        self.transfers.tick()
        if self.document is None or not self.core.session.logged_in or self.follow.known is None:
            return
        follow, now_ms = self.follow, self.core.now_ms
        if follow.resend:
            follow.resend = False
            self.outbox.restart()
        self.outbox.restart_if_silent(now_ms)
        follow.ask_again_if_stuck(self.behind, now_ms, self.core.settings)

    def unload(self) -> None:
        """Give everything back but the places."""
        self.recount()
        self._loaded = None
        for stream in self.streams.values():
            stream.writers = {}
            stream.snapshot_writers = ()
            stream.drop_held()

    def reload(self) -> None:
        """Drop the document and read it again; what was consumed so far is written before."""
        self.write_positions()
        self.document = None
        if not self.loading:
            self.loading = True
            self.core.emit(LoadTask(self.key))

    def arrive(self, stream: StreamReplica, place: int, item: Entry | OwnPlace) -> None:
        """Hold a place; places are consumed in the order of their arrival, across the task's streams."""
        if stream.place(place, item):
            self.loaded.arrived.append((stream.name, place))

    def start_over(self) -> None:
        """Say Hello again, and take nothing before it is answered."""
        self.follow.known = None
        self.follow.hello_again = True
        self.drop_arrived()

    def leave_session(self) -> None:
        """What the relay said is over with the session."""
        self.follow.leave()
        self.drop_arrived()
        for stream in self.streams.values():
            stream.offer_checked = ""

    def drop_arrived(self) -> None:
        """Forget what arrived in a session that is over: the next one begins at the cursors."""
        if self._loaded is not None:
            self._loaded.arrived.clear()
        for stream in self.streams.values():
            stream.drop_held()
            stream.head = stream.cursor

    # --- own entries --------------------------------------------------------------------------------------------------

    def append(
        self, name: StreamName, kind: EntryKind, payload: bytes, *, writer: int | None = None, blob: str | None = None
    ) -> Entry:
        """Write an own entry: durable with the next commit, then sent. The document holds its content already."""
        stream = self.stream(name)
        author = self.writer if writer is None else writer
        entry = Entry(
            stream.id,
            author,
            stream.number_local(author),
            kind,
            payload,
            self.core.device,
            self.core.wall_ms,
            blob,
        )
        self.loaded.own_writers.add(author)
        self.core.write(PutEntry(entry, own=True))
        self.outbox.add(entry)
        return entry

    # --- telling ------------------------------------------------------------------------------------------------------

    def write_positions(self) -> None:
        """Make durable how far the streams were consumed."""
        if self._loaded is None:
            return
        for name in sorted(self._loaded.moved):
            stream = self.streams[name]
            self.core.write(SetPosition(stream.id, stream.epoch, stream.cursor, stream.chain))
        self._loaded.moved.clear()

    @property
    def tables(self) -> WriterTables:
        """The writer tables, by stream."""
        return {name: stream.writers.values() for name, stream in self.streams.items()}

    @property
    def is_judged_anew(self) -> bool:
        """Whether the completion that was announced is one no more, by what got its place since."""
        if self.document is None or self.view is None or not self.view.completed:
            return False
        return self.document.judged(self.view, self.tables) != self.view

    def announce(self, touched: Iterable[Touched], *, local: bool) -> None:
        """Announce the new view and what changed in it.

        A snapshot moves one stream ahead of the others: what others wrote then shows once all have reached the heads.
        """
        assert self.document is not None
        view = self.document.judged(self.document.view(), self.tables)
        if self.loaded.jumped and not local:
            if self.behind:
                return
            self.loaded.jumped = False
            touched = [difference(self.view, view)] if self.view is not None else touched
        if self.view is not None and self.view.completion != view.completion:
            touched = [*touched, Touched(completed=True)]
        changes = changes_of(self.key, view, touched, local=local)
        self.loaded.view = view
        if self.handles or self.openings:
            self.core.emit(Announce(view, changes))

    def announce_difference(self, before: TaskView) -> None:
        """Announce what differs from an earlier view: the document was built anew."""
        assert self.document is not None
        now = self.document.judged(self.document.view(), self.tables)
        self.announce([difference(before, now)], local=False)

    def tell(self, changes: tuple[Change, ...]) -> None:
        """Tell the watchers something that changes no view."""
        if self.view is not None and self.handles:
            self.core.emit(Announce(self.view, changes))
