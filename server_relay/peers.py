"""One websocket connection as the server sees it: websockets' own protocol under a transport of the loop, no streams.

A message costs no task and no wake-up of its own: what the socket had is parsed and decoded at once, what is sent goes
to the transport, or waits here while that is full. What waits of a connection for the conductor is bounded, and nothing
is read while its out-queue is full: so what a device can make the relay hold is bounded in both directions. A stranger
may send small messages only, until it was answered; and the first answer is a welcome, or the last.
"""

import asyncio
import fcntl
import struct
import termios
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from socket import socket
from time import monotonic
from typing import Protocol, cast

from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from server_relay.doors import Door
from server_relay.effects import Drained, Malformed, Received
from server_relay.fanout import CATCH_UP_ROOM_BYTES
from server_relay.logs import silent_logger
from sync_core.errors import ProtocolError
from sync_core.limits import FRAME_BYTES_MAX, LOGIN_MESSAGE_BYTES_MAX, OUT_QUEUE_BYTES_MAX
from sync_core.wire import decode_client, join

__all__ = ["Owner", "Peer", "messages_of"]

_OPENING_S = 5.0
_CLOSE_GRACE_S = 5.0
_PING_S = 10.0
_SILENCE_S = 20.0
"""A connection from which nothing came, and to which nothing moved, for so long is cut."""
_IN_BYTES_MAX = 64 * 1024
"""Received bytes that wait for the conductor before nothing more is read; what one read brought may go beyond."""
_TRANSPORT_BYTES_MAX = 64 * 1024
"""Bytes that the transport may hold before what follows waits here."""
_MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - 8
_PARSED_BYTES = 16 * 1024
"""How much of what was read is parsed at a time, so that a flood of small frames is seen soon."""
_SMALL_BYTES = 512
_SMALL_FRAMES_MAX = 1_000
"""Pings, pongs, small fragments and malformed messages between two ticks: each costs about as much as a frame does."""


def messages_of(frames: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return encoded frames joined into websocket messages, ready for any number of connections."""
    messages: list[bytes] = []
    start, size = 0, 0
    for at, frame in enumerate(frames):
        if at > start and size + len(frame) > _MESSAGE_BYTES_MAX:
            messages.append(_message(frames[start:at]))
            start, size = at, 0
        size += len(frame)
    messages.append(_message(frames[start:]))
    return tuple(messages)


def _message(frames: Iterable[bytes]) -> bytes:
    return Frame(Opcode.BINARY, join(list(frames))).serialize(mask=False, extensions=[])


class Owner(Protocol):
    """Whom a connection tells what happens to it."""

    def arrived(self, peer: "Peer") -> None:
        """There is a socket, which is no websocket yet."""

    def opened(self, peer: "Peer") -> None:
        """The websocket is open."""

    def received(self, peer: "Peer", events: list[Received | Malformed], size_bytes: int) -> None:
        """Messages of this size came; nothing beyond a bound is read before they are `taken`."""

    def has_room(self, peer: "Peer") -> None:
        """The out-queue has room again, where the relay, by what it was told last, may believe that there is none."""

    def left(self, peer: "Peer") -> None:
        """The socket is closed."""


class Peer(asyncio.Protocol):
    """A connection. `opened` once it is a websocket; `read_bytes` and `written_bytes` are those since the start."""

    def __init__(self, conn: int, door: Door, owner: Owner) -> None:
        self.conn = conn
        self.opened = False
        self.address = ""
        self.read_bytes = self.written_bytes = 0
        self._door = door
        self._owner = owner
        self._protocol = ServerProtocol(origins=door.origins, max_size=LOGIN_MESSAGE_BYTES_MAX, logger=silent_logger())
        self._is_stranger = True
        self._counted = False
        self._out: deque[bytes] = deque()
        self._queued_bytes = 0
        self._told_bytes = 0
        self._in_bytes = 0
        self._reading = True
        self._writable = True
        self._fragments: bytearray | None = None
        self._small_frames = 0
        self._closing: tuple[int, str] | None = None
        self._deadline_s: float | None = monotonic() + _OPENING_S
        self._moved_s = monotonic()
        self._heard = False
        self._pinged = False
        self._unsent_bytes = 0

    @property
    def out_bytes(self) -> int:
        """How much waits to be written."""
        return self._queued_bytes + self._transport.get_write_buffer_size()

    # --- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A socket was accepted: it is counted, or cut off before anything is read from it."""
        # The loop's own transports need not be of asyncio's classes: uvloop's are not.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._counted = self._door.lets_in(self.address)
        if not self._counted:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_TRANSPORT_BYTES_MAX)
        self._owner.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._out.clear()
        self._queued_bytes = 0
        if self._counted:
            self._door.left(self.address)
            self._owner.left(self)

    def tick(self, now_s: float) -> None:
        """Cut the connection if it did not open or close in time, or neither side has moved a byte for long; ping it
        in between. Who reads nothing while much waits for it is the relay's to judge."""
        self._small_frames = 0
        if self._deadline_s is not None:
            if now_s >= self._deadline_s:
                self._transport.abort()
        elif self._heard or not self._reading:
            self._heard = self._pinged = False
            self._moved_s = now_s
        elif now_s - self._moved_s >= _PING_S:
            unsent_bytes = self._unacknowledged_bytes()
            if unsent_bytes < self._unsent_bytes:
                self._moved_s = now_s - _PING_S
            elif now_s - self._moved_s >= _SILENCE_S:
                self._transport.abort()
                return
            self._unsent_bytes = unsent_bytes
            if not self._pinged:
                self._pinged = True
                self._protocol.send_ping(b"")
                self._flush()

    def _unacknowledged_bytes(self) -> int:
        """How much the other side's machine has not taken yet: a slow link moves, though no answer comes through it."""
        unsent_bytes = self.out_bytes
        connected: socket | None = self._transport.get_extra_info("socket")
        if connected is not None:
            with suppress(OSError, ValueError):
                held = fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4))
                unsent_bytes += struct.unpack("i", held)[0]
        return unsent_bytes

    # --- reading -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the socket had."""
        self._heard = True
        self.read_bytes += len(data)
        protocol = self._protocol
        if self._is_stranger and self.written_bytes and self._closing is None:
            self._is_stranger = False
            protocol.max_message_size = FRAME_BYTES_MAX
        events: list[Received | Malformed] = []
        before_bytes = self._in_bytes
        for start in range(0, len(data), _PARSED_BYTES):
            protocol.receive_data(data if len(data) <= _PARSED_BYTES else data[start : start + _PARSED_BYTES])
            for event in protocol.events_received():
                if isinstance(event, Frame):
                    self._take(event, events)
                elif isinstance(event, Request):
                    self._shake_hands(event)
            if self._small_frames > _SMALL_FRAMES_MAX:
                protocol.fail(CloseCode.POLICY_VIOLATION, "too many small frames")
                events.append(Malformed(self.conn, "Too many small frames came.", "small_frames"))
                break
        if protocol.writes:
            self._flush()
            # What it is answered at once, as pongs are, waits in the out-queue like all else.
            self._throttle()
            if isinstance(protocol.parser_exc, PayloadTooBig):
                sentence = f"A message exceeds {protocol.max_message_size} bytes."
                events.append(Malformed(self.conn, sentence, "too_large"))
            if self._small_frames > _SMALL_FRAMES_MAX or (self._is_stranger and events and protocol.parser_exc):
                # Nobody reads on for a stranger, or in a flood, only to throw it away.
                self._end()
        if events:
            self._owner.received(self, events, self._in_bytes - before_bytes)
            self._throttle()

    def eof_received(self) -> None:
        """The other side has sent all; the transport closes."""
        self._protocol.receive_eof()
        self._flush()

    def _shake_hands(self, request: Request) -> None:
        if self._protocol.writes:
            # Frames came with the request, and are answered, or ended all, before there is a websocket.
            self._transport.abort()
            return
        response = self._door.refusal(self._protocol, request) or self._protocol.accept(request)
        self._protocol.send_response(response)
        if self._protocol.state is State.OPEN:
            self.opened = True
            self._deadline_s = None
            self._owner.opened(self)

    def _take(self, frame: Frame, events: list[Received | Malformed]) -> None:
        """Decode a message once it is whole."""
        if frame.opcode not in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            self._small_frames += 1
            return
        message = bytes(frame.data)
        if self._fragments is not None or not frame.fin:
            # One array: a fragment without a byte costs nothing, however many come.
            self._fragments = self._fragments if self._fragments is not None else bytearray()
            self._fragments += message
            if not frame.fin:
                self._small_frames += len(message) < _SMALL_BYTES
                return
            message, self._fragments = bytes(self._fragments), None
        size = len(message)
        self._in_bytes += size
        try:
            # What a text message says does not matter.
            frames = decode_client("" if frame.opcode is Opcode.TEXT else message)
            if not frames:
                # Nobody would take it, and so nobody would count it.
                raise ProtocolError("A message holds no frame.")
        except ProtocolError as error:
            self._small_frames += 1
            events.append(Malformed(self.conn, error.sentence))
            return
        for one in frames:
            events.append(Received(self.conn, one, size))
            # The size counts once, with the first frame of the message.
            size = 0

    def taken(self, size_bytes: int) -> None:
        """The conductor took so much of what had come: more may be read, if the out-queue is not full."""
        self._in_bytes -= size_bytes
        self._throttle()

    def _throttle(self) -> None:
        may_read = self._in_bytes <= _IN_BYTES_MAX and self.out_bytes <= OUT_QUEUE_BYTES_MAX
        if may_read is self._reading or self._transport.is_closing():
            return
        self._reading = may_read
        if may_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- writing -----------------------------------------------------------------------------------------------------

    def report(self) -> Drained:
        """Return how much waits in the out-queue, for the relay."""
        self._told_bytes = self.out_bytes
        return Drained(self.conn, self._told_bytes)

    def send(self, messages: Sequence[bytes]) -> None:
        """Put whole websocket messages into the out-queue, or drop them if nothing can be written any more."""
        if self._protocol.state is not State.OPEN or self._transport.is_closing():
            return
        size = sum(map(len, messages))
        self._told_bytes += size
        if self._out or not self._writable or len(messages) > 1 or self._told_bytes > CATCH_UP_ROOM_BYTES:
            self._out += messages
            self._queued_bytes += size
            self._write()
        else:
            # Most of what is sent is one small message to who reads.
            self.written_bytes += size
            self._transport.write(messages[0])

    def close(self, code: int, reason: str) -> None:
        """Close the connection once the out-queue is written, or without that after some seconds."""
        if self._closing is None:
            self._closing = (code, reason)
            self._deadline_s = monotonic() + _CLOSE_GRACE_S
            if self.opened:
                self._write()
            else:
                self._transport.abort()

    def pause_writing(self) -> None:
        """The transport is full."""
        self._writable = False

    def resume_writing(self) -> None:
        """The transport has room."""
        self._writable = True
        self._write()

    def _write(self) -> None:
        """Hand the out-queue to the transport as far as that takes it; then close, if that is asked for."""
        if self._protocol.state is not State.OPEN:
            self._out.clear()
            self._queued_bytes = 0
        while self._out and self._writable:
            message = self._out.popleft()
            self._queued_bytes -= len(message)
            self.written_bytes += len(message)
            self._transport.write(message)
        if self._closing is not None and not self._out and self._protocol.state is State.OPEN:
            self._protocol.send_close(*self._closing)
            self._flush()
        self._throttle()
        if self.out_bytes <= CATCH_UP_ROOM_BYTES < self._told_bytes:
            self._owner.has_room(self)

    def _flush(self) -> None:
        """Write what the protocol has to say: the handshake, pongs, the end. A closing socket has not for ever."""
        for data in self._protocol.data_to_send():
            if self._transport.is_closing():
                break
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._end()
        if self._deadline_s is None and self._protocol.state is not State.OPEN:
            self._deadline_s = monotonic() + _CLOSE_GRACE_S

    def _end(self) -> None:
        """Close the transport once all is written. asyncio's one for TLS is of no use any more after a second time."""
        if not self._transport.is_closing():
            self._transport.close()
