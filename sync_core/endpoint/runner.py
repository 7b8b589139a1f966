"""The one conductor: events and commands go in through one queue, effects come out in order.

A turn takes what the queue holds, lets the Replica handle each item, makes everything it wrote durable in one commit,
and only then answers callers, announces views and sends frames. Turns follow one another without a timer, so a lone
write is committed at once and writes that arrive during a commit share the next one. Only the store is awaited.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from sync_core.context.store import Store
from sync_core.document.view import TaskView
from sync_core.endpoint.gauges import Latencies
from sync_core.endpoint.transport import Outbox
from sync_core.errors import Closed, ProtocolError, SegueError, ValueRefused
from sync_core.frames import Push, Receipt
from sync_core.replica.changes import Change, Status
from sync_core.replica.commands import Cancel, CloseTask, Command
from sync_core.replica.effects import (
    Announce,
    BaseLoaded,
    BlobLoaded,
    CommitFailed,
    Effect,
    Event,
    Fail,
    FrameReceived,
    HangUp,
    LinkDown,
    LinkUp,
    LoadBase,
    LoadBlob,
    LoadTask,
    RenewToken,
    Reply,
    SendFrame,
    StatusIs,
    TaskLoaded,
    Tick,
    Written,
)
from sync_core.replica.replica import Replica
from sync_core.replica.writes import Write
from sync_core.wire import RelayFrame, encode_frame

__all__ = ["Connected", "Listener", "Received", "Runner", "StoreRead"]

_INBOX_BYTES_MAX = 1024 * 1024
"""Received bytes that may wait to be handled before the link stops reading."""

_TICK_S = 0.2

T = TypeVar("T")
_Load = LoadTask | LoadBlob | LoadBase


class Connected(msgspec.Struct, frozen=True):
    """A connection stands; frames for it go to this queue."""

    token: str
    outbox: Outbox


class Received(msgspec.Struct, frozen=True):
    """The frames of one message of the relay."""

    frames: tuple[RelayFrame, ...]
    size_bytes: int


class StoreRead(msgspec.Struct, frozen=True):
    """A read of the store by somebody else than the Replica; its turn comes like any other's."""

    read: Callable[[Store], Awaitable[object]]
    answer: asyncio.Future[object]


class Listener(Protocol):
    """Who is told, after the commit, what is now so. Its methods return at once and raise nothing."""

    def announced(self, view: TaskView, changes: tuple[Change, ...]) -> None:
        """The durable view of a task is now this."""

    def status_is(self, status: Status) -> None:
        """The endpoint's status is now this."""

    def ended(self, error: SegueError) -> None:
        """The runner stopped for a failure; nothing more will be told."""


_Item = Command | Event | Connected | Received | StoreRead


class Runner:
    """Drives one Replica over one Store; `latencies` are of what it waited for."""

    def __init__(self, replica: Replica, store: Store, listener: Listener) -> None:
        self.latencies = Latencies()
        self._replica = replica
        self._store = store
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._refs = itertools.count(1)
        self._queue: deque[_Item] = deque()
        self._replies: dict[int, asyncio.Future[object]] = {}
        self._effects: list[Effect] = []
        self._writes: list[Write] = []
        self._outbox: Outbox | None = None
        self._inbox_bytes = 0
        self._room: asyncio.Future[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._stopping = False
        self._ended: SegueError | None = None
        self._now_ms = self._wall_ms = 0
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        self._task = self._loop.create_task(self._run(), name="segue-runner")

    # --- what goes in -------------------------------------------------------------------------------------------------

    def ref(self) -> int:
        """Return a fresh reference for a command."""
        return next(self._refs)

    def post(self, item: _Item) -> None:
        """Queue an item that nobody waits for; one that comes after the end is dropped."""
        if self._ended is not None:
            return
        self._queue.append(item)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def ask(self, command: Command, answer: type[T]) -> T:
        """Carry a command out and return its reply, which is an `answer`; raises its error, or `Closed`.

        A caller that is cancelled while it waits takes back what can be taken back; a write is kept whole.
        """
        return _checked(await self._awaited(command), answer)

    async def tell(self, command: Command) -> None:
        """Carry a command out whose reply is empty; raises its error, or `Closed`."""
        await self._awaited(command)

    def submit(self, command: Command) -> asyncio.Future[object]:
        """Queue a command and return the future of its reply; raises `Closed` on an endpoint that ended."""
        self._check_open()
        future: asyncio.Future[object] = self._loop.create_future()
        self._replies[command.ref] = future
        self.post(command)
        return future

    async def _awaited(self, command: Command) -> object:
        future = self.submit(command)
        try:
            return await future
        except asyncio.CancelledError:
            self._take_back(command.ref, future)
            raise

    def _take_back(self, ref: int, future: asyncio.Future[object]) -> None:
        """Nobody waits for this command any more; its answer may have come just when the caller gave up."""
        if self._replies.pop(ref, None) is not None:
            self.post(Cancel(ref))
        elif future.done() and not future.cancelled() and future.exception() is None:
            self._give_back(future.result())

    def _give_back(self, value: object) -> None:
        """An answer that nobody took: of an opened task nobody else would give the handle back."""
        if isinstance(value, TaskView):
            self.post(CloseTask(self.ref(), value.task))

    async def read(self, read: Callable[[Store], Awaitable[T]], answer: type[T]) -> T:
        """Read the store between two turns and return what `read` returned; raises its error, or `Closed`."""
        self._check_open()
        future: asyncio.Future[object] = self._loop.create_future()
        self.post(StoreRead(read, future))
        return _checked(await future, answer)

    async def received(self, frames: tuple[RelayFrame, ...], size_bytes: int) -> None:
        """Queue a message of the relay; waits while too many bytes of earlier ones are unhandled."""
        self._inbox_bytes += size_bytes
        self.post(Received(frames, size_bytes))
        if self._inbox_bytes > _INBOX_BYTES_MAX:
            self._room = self._loop.create_future()
            await self._room

    def _check_open(self) -> None:
        if self._ended is not None or self._stopping:
            raise self._ended or Closed("The endpoint is closed.")

    def _tick(self) -> None:
        self.post(Tick())
        self._ticker = self._loop.call_later(_TICK_S, self._tick)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._queue or not self._stopping:
                if not self._queue:
                    self._wake = self._loop.create_future()
                    await self._wake
                await self._turn()
        except BaseException as error:
            self._end("The endpoint stopped after an internal error.", error)
            raise
        self._end("The endpoint is closed.", None)

    async def _turn(self) -> None:
        # Time is read once for all that one turn handles.
        self._now_ms = time.monotonic_ns() // 1_000_000
        self._wall_ms = time.time_ns() // 1_000_000
        received_bytes = 0
        for _ in range(len(self._queue)):
            item = self._queue.popleft()
            if isinstance(item, Received):
                received_bytes += item.size_bytes
                await self._take_frames(item.frames)
            elif isinstance(item, StoreRead):
                await self._serve(item)
            elif isinstance(item, (Connected, LinkDown)):
                await self._change_link(item)
            else:
                await self._handle(item)
        await self._commit()
        self._inbox_bytes -= received_bytes
        if self._room is not None and self._inbox_bytes <= _INBOX_BYTES_MAX:
            if not self._room.done():
                self._room.set_result(None)
            self._room = None

    async def _take_frames(self, frames: tuple[RelayFrame, ...]) -> None:
        """Handle what the relay sent; a frame that is out of turn or malformed inside costs the connection."""
        for frame in frames:
            if self._outbox is None:
                return
            if isinstance(frame, Receipt):
                self.latencies.received(frame, time.monotonic_ns())
            try:
                await self._handle(FrameReceived(frame))
            except (ProtocolError, ValueRefused) as error:
                self._outbox.hang_up(error.sentence, False)
                return

    async def _handle(self, event: Event | Command) -> None:
        """Let the Replica handle one event; what it asks of the store is read and handed over before any other."""
        loads: list[_Load] = []
        for effect in self._replica.handle(event, self._now_ms, self._wall_ms):
            if isinstance(effect, (LoadTask, LoadBlob, LoadBase)):
                loads.append(effect)
                continue
            self._effects.append(effect)
            if isinstance(effect, Written):
                self._writes.append(effect.write)
        for load in loads:
            # A read sees what was written before it.
            await self._commit()
            await self._handle(await self._load(load))

    async def _load(self, load: _Load) -> Event:
        if isinstance(load, LoadTask):
            return TaskLoaded(await self._store.load_task(load.task))
        if isinstance(load, LoadBlob):
            return BlobLoaded(load.task, load.sha256, await self._store.load_blob(load.task, load.sha256))
        state = await self._store.load_base(load.task, load.note, load.sha256)
        return BaseLoaded(load.task, load.note, load.sha256, state)

    async def _commit(self) -> None:
        """Make what was collected durable, then carry out the rest of it in order."""
        effects, writes = self._effects, self._writes
        self._effects, self._writes = [], []
        if writes:
            began_ns = time.monotonic_ns()
            try:
                await self._store.commit(writes)
                self.latencies.committed(time.monotonic_ns() - began_ns)
            except SegueError as error:
                await self._handle(CommitFailed(tuple(effects), error))
                await self._commit()
                return
        for effect in effects:
            # Most effects are writes, and those are done.
            if not isinstance(effect, Written):
                self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            self._reply(effect)
        elif isinstance(effect, Announce):
            self._listener.announced(effect.view, effect.changes)
        elif isinstance(effect, SendFrame) and self._outbox is not None:
            if isinstance(effect.frame, Push):
                self.latencies.pushed(effect.frame, time.monotonic_ns())
            self._outbox.put(encode_frame(effect.frame))
        elif isinstance(effect, Fail):
            future = self._replies.pop(effect.ref, None)
            if future is not None and not future.done():
                future.set_exception(effect.error)
        elif isinstance(effect, StatusIs):
            self._listener.status_is(effect.status)
        elif isinstance(effect, HangUp) and self._outbox is not None:
            self._outbox.hang_up(effect.reason, effect.final)
        elif isinstance(effect, RenewToken) and self._outbox is not None:
            self._outbox.renew()

    def _reply(self, reply: Reply) -> None:
        future = self._replies.pop(reply.ref, None)
        value = reply.value
        if isinstance(value, TaskView):
            self._listener.announced(value, ())
        if future is not None and not future.done():
            future.set_result(value)
        else:
            self._give_back(value)

    async def _serve(self, request: StoreRead) -> None:
        await self._commit()
        try:
            value = await request.read(self._store)
        except Exception as error:
            # Whatever it is, it is the asker's: nothing of the Replica's is lost with a read.
            if not request.answer.done():
                request.answer.set_exception(error)
            return
        if not request.answer.done():
            request.answer.set_result(value)

    async def _change_link(self, item: Connected | LinkDown) -> None:
        # Frames that were made for the old connection leave, or are dropped, before the new one is known.
        await self._commit()
        self.latencies.disconnected()
        if isinstance(item, Connected):
            self._outbox = item.outbox
            await self._handle(LinkUp(item.token))
        else:
            self._outbox = None
            await self._handle(item)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish what is queued, then stop; whoever still waits gets `Closed`. Raises what stopped the runner."""
        self._stopping = True
        self.post(Tick())
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def abort(self) -> None:
        """Stop as a crash would: nothing queued is handled, nobody is answered but with `Closed`."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _end(self, sentence: str, cause: BaseException | None) -> None:
        self._ticker.cancel()
        self._outbox = None
        if isinstance(cause, SegueError):
            self._ended = cause
        else:
            self._ended = Closed(sentence)
            self._ended.__cause__ = cause
        if self._room is not None:
            self._room.cancel()
        for future in (*self._replies.values(), *(i.answer for i in self._queue if isinstance(i, StoreRead))):
            if not future.done():
                future.set_exception(self._ended)
        self._replies.clear()
        self._queue.clear()
        if cause is not None:
            self._listener.ended(self._ended)


def _checked(value: object, answer: type[T]) -> T:
    if not isinstance(value, answer):
        raise TypeError(f"The replica answered with a {type(value).__name__} where a {answer.__name__} was due.")
    return value
