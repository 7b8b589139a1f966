"""The load of `segue relay bench`: devices that speak the wire, write slots that the guard lets pass, and time what
comes back.

What is offered and not yet receipted is bounded: a relay that is slower than the load holds it back, and that is
counted. Latencies count from when an update was due, so a relay that falls behind cannot hide it.
"""

import asyncio
import json
import re
import time
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from sync_core.entry import Entry, EntryKind
from sync_core.frames import (
    WIRE_VERSION,
    Entries,
    Heads,
    Hello,
    Login,
    Purge,
    Push,
    Receipt,
    Refusal,
    Refused,
)
from sync_core.ids import StreamName, stream_id
from sync_core.limits import FRAME_BYTES_MAX
from sync_core.wire import decode_relay, encode

__all__ = ["Device", "LoadFailed", "Tally", "slot_update"]

_SAMPLES_MAX = 1_000_000
_JOINED_MAX = 64
_DUE = re.compile(rb'"v":"([0-9]{20}):')
_STAMP_BYTES = 22
_EXCEEDED = re.compile("too many ([a-z]+) in a minute")
_NO_TOKEN = "No token was sent: sign the devices' tokens with --auth FILE or --private-key FILE."
_LIMITS = "Its setting {name}_per_minute_max bounds that: raise it for the time of the bench, or offer less."
_CONNECTIONS = " Its settings connections_per_address_max and connections_max bound them."


class LoadFailed(Exception):
    """A device could not go on; the text is a sentence."""


class Tally:
    """What all devices together did. Latencies are in milliseconds; beyond a million only their count goes on."""

    def __init__(self) -> None:
        self.offered = self.receipted = self.delivered = self.refused = self.held_back = self.stored_bytes = 0
        self.receipt_ms = array("d")
        self.propagation_ms = array("d")

    def receipt(self, due_ns: int, now_ns: int, size_bytes: int) -> None:
        """Note that an update is stored."""
        self.receipted += 1
        self.stored_bytes += size_bytes
        if len(self.receipt_ms) < _SAMPLES_MAX:
            self.receipt_ms.append((now_ns - due_ns) / 1e6)

    def delivery(self, due_ns: int, now_ns: int) -> None:
        """Note that another device's update came."""
        self.delivered += 1
        if len(self.propagation_ms) < _SAMPLES_MAX:
            self.propagation_ms.append((now_ns - due_ns) / 1e6)


class Device:
    """One connection that follows one task and writes to it."""

    def __init__(self, tally: Tally, subject: str, task: str, name: str, writer: int, size_bytes: int) -> None:
        """`size_bytes` is that of a slot's value."""
        self._tally = tally
        self._subject = subject
        self._task = task
        self._stream = stream_id(task, StreamName.STATE)
        self._name = name
        self._writer = writer
        self._padding = "x" * max(0, size_bytes - _STAMP_BYTES)
        self._token = ""
        self._seq = 0
        self._waiting: deque[tuple[int, int, int]] = deque()
        """What has no receipt yet: its number, when it was due, the size of its update."""
        self._room = asyncio.Event()
        self._ready = asyncio.Event()
        self._heads: Heads | None = None
        self._failure = ""

    @property
    def waiting(self) -> int:
        """How many updates wait for their receipt."""
        return len(self._waiting)

    async def open(self, url: str, token: str) -> None:
        """Connect, log in and follow the task; raises `LoadFailed`."""
        try:
            async with asyncio.timeout(10):
                self._socket = await connect(url, compression=None, max_size=FRAME_BYTES_MAX, max_queue=64, proxy=None)
                self._reading = asyncio.ensure_future(self._read(self._socket))
                self._token = token
                login = Login(WIRE_VERSION, self._subject, self._name, token)
                await self._socket.send(encode([login, Hello(self._task)]))
                await self._ready.wait()
        except (OSError, TimeoutError, WebSocketException) as error:
            raise LoadFailed(self._failure or f"There is no relay at {url} ({type(error).__name__}).") from None
        self._check()

    async def close(self) -> None:
        """End the connection; idempotent."""
        with suppress(AttributeError):
            self._reading.cancel()
            await self._socket.close()

    def _check(self) -> None:
        if self._failure:
            raise LoadFailed(self._failure)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def write(self, due_ns: Sequence[int]) -> None:
        """Send one update for each moment at which one was due, joined; raises `LoadFailed`."""
        for start in range(0, len(due_ns), _JOINED_MAX):
            part = due_ns[start : start + _JOINED_MAX]
            entries = tuple(self._entry(due) for due in part)
            self._waiting.extend(
                (entry.writer_seq, due, len(entry.payload)) for entry, due in zip(entries, part, strict=True)
            )
            try:
                await self._socket.send(encode([Push(self._task, entries)]))
            except ConnectionClosed:
                raise LoadFailed(self._failure or "The relay closed a connection.") from None
        self._check()

    async def settled(self) -> None:
        """Wait until nothing waits for its receipt; raises `LoadFailed`."""
        while self._waiting:
            self._room.clear()
            self._check()
            await self._room.wait()
        self._check()

    async def write_on(self, until_s: float) -> None:
        """Keep a window of joined updates under way until a moment of the monotonic clock; raises `LoadFailed`."""
        while time.monotonic() < until_s:
            now_ns = time.monotonic_ns()
            self._tally.offered += _JOINED_MAX
            await self.write([now_ns] * _JOINED_MAX)
            await self.settled()

    def _entry(self, due_ns: int) -> Entry:
        clock, self._seq = self._seq, self._seq + 1
        update = slot_update(self._writer, clock, ((f"load_{self._writer}", f"{due_ns:020}:{self._padding}"),))
        at_ms = time.time_ns() // 1_000_000
        return Entry(self._stream, self._writer, self._seq, EntryKind.UPDATE, update, self._name, at_ms)

    async def purge(self) -> None:
        """Delete the task at the relay; raises `LoadFailed`."""
        self._ready.clear()
        try:
            await self._socket.send(encode([Hello(self._task)]))
            await asyncio.wait_for(self._ready.wait(), 10)
            epochs = tuple(stream.epoch for stream in self._heads.streams) if self._heads is not None else ()
            self._ready.clear()
            await self._socket.send(encode([Purge(self._task, 1, epochs)]))
            await asyncio.wait_for(self._ready.wait(), 10)
        except (ConnectionClosed, TimeoutError):
            raise LoadFailed(f"The task {self._task} was not purged.") from None

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for message in socket:
                now_ns = time.monotonic_ns()
                for frame in decode_relay(message):
                    self._take(frame, now_ns)
        except ConnectionClosed as closed:
            reason = closed.rcvd.reason if closed.rcvd is not None else ""
            advice = _CONNECTIONS if reason == "too many connections" else ""
            self._fail(f"The relay closed a connection{f' ({reason})' if reason else ''}.{advice}")
        else:
            self._fail("The relay closed a connection.")

    def _fail(self, sentence: str) -> None:
        self._failure = self._failure or sentence
        self._room.set()
        self._ready.set()

    def _take(self, frame: msgspec.Struct, now_ns: int) -> None:
        match frame:
            case Entries():
                for entry in frame.entries:
                    if entry.writer == self._writer:
                        self._stored(entry.writer_seq, now_ns)
                    else:
                        found = _DUE.search(entry.payload)
                        if found is not None:
                            self._tally.delivery(int(found[1]), now_ns)
            case Receipt() if frame.writer == self._writer:
                self._stored(frame.last_seq, now_ns)
            case Heads():
                self._heads = frame
                self._ready.set()
            case Refusal():
                self._tally.refused += 1
                self._fail(frame.sentence)
            case Refused():
                exceeded = _EXCEEDED.search(frame.sentence)
                advice = _LIMITS.format(name=exceeded[1]) if exceeded is not None else frame.hint
                if frame.code == "credentials" and not self._token:
                    advice = _NO_TOKEN
                self._fail(" ".join(part for part in (frame.sentence, advice) if part))

    def _stored(self, seq: int, now_ns: int) -> None:
        while self._waiting and self._waiting[0][0] <= seq:
            _, due_ns, size_bytes = self._waiting.popleft()
            self._tally.receipt(due_ns, now_ns, size_bytes)
        self._room.set()


def slot_update(writer: int, clock: int, slots: Sequence[tuple[str, str]]) -> bytes:
    """Return the update that confirms slots, by (name, plain text), as an endpoint makes it.

    `clock` is the writer's next one; each slot takes one, and each key of the document is set once.
    """
    structs = bytearray()
    for number, (name, value) in enumerate(slots, clock):
        text = json.dumps({"n": 1, "s": "confirmed", "v": value}, separators=(",", ":")).encode()
        key = f"{name}/{number:016x}".encode()
        structs += b"\x28\x01" + _varbytes(b"slots") + _varbytes(key) + b"\x01\x77" + _varbytes(text)
    return b"\x01" + _varuint(len(slots)) + _varuint(writer) + _varuint(clock) + bytes(structs) + b"\x00"


def _varuint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varbytes(data: bytes) -> bytes:
    return _varuint(len(data)) + data
