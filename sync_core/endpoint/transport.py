"""The seam to the network: connect, send a message, receive a message, close; and the bounded queue in front of it.

Implementations: `WebsocketTransport`, and the tests' fake in memory. `tests/contracts` holds the suite that each must
pass.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Protocol, cast
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidURI
from websockets.uri import parse_uri

from sync_core.checked import check_text
from sync_core.errors import ValueRefused
from sync_core.limits import FRAME_BYTES_MAX
from sync_core.wire import join

__all__ = [
    "LINK_QUEUE_BYTES_MAX",
    "Connection",
    "LinkLost",
    "Outbox",
    "Transport",
    "WebsocketTransport",
    "check_address",
]

LINK_QUEUE_BYTES_MAX = 32 * 1024 * 1024
"""Bytes that may wait for one connection: room for what many tasks, written to while offline, have in flight."""

_ARRAY_HEAD_BYTES = 5
_OPEN_TIMEOUT_S = 5
_CLOSE_TIMEOUT_S = 2
_PING_S = 10.0
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class LinkLost(Exception):
    """No connection came about, or it ended; the text says why and holds no credential."""


class Connection(Protocol):
    """One open connection. `send` and `receive` may run side by side, each by one caller at a time."""

    async def send(self, message: bytes) -> None:
        """Send one message, waiting while the other side does not read; raises `LinkLost`."""

    async def receive(self) -> bytes | str:
        """Return the next message; raises `LinkLost` once the connection ended."""

    async def close(self) -> None:
        """End the connection; idempotent."""


class Transport(Protocol):
    """Makes connections."""

    async def connect(self, url: str) -> Connection:
        """Return an open connection; raises `LinkLost` if none comes about within 5 s."""


def check_address(relay: str) -> str:
    """Return a relay's address; raises `ValueRefused` for one at which no websocket can ever be."""
    url = check_text(relay, "relay")
    try:
        # A port out of range is a ValueError, and so is a host name that has no form on the wire.
        host = parse_uri(url).host
        host.encode("idna")
    except (InvalidURI, ValueError):
        host = "\0"
    if not host.isprintable() or any(char.isspace() for char in url):
        raise ValueRefused("relay is not a ws:// or wss:// address.", hint="For example ws://127.0.0.1:8700.")
    return url


_logger = logging.getLogger("segue.link.websockets")
# At the level DEBUG the library shows the bytes of frames, and those hold tokens and values.
_logger.setLevel(logging.CRITICAL + 1)


class WebsocketTransport:
    """Connections over websockets, with the settings of the design's rule H.

    A ping is sent every `ping_s` seconds. A connection on which not one byte comes for twice as long is over; on a slow
    link the answer waits behind much else, and whatever comes says that the relay is there.
    """

    def __init__(self, ping_s: float = _PING_S) -> None:
        self._ping_s = ping_s

    async def connect(self, url: str) -> Connection:
        """Return an open connection; raises `LinkLost` if none comes about within 5 s."""
        try:
            socket = await connect(
                url,
                compression=None,
                logger=_logger,
                max_size=FRAME_BYTES_MAX,
                max_queue=2,
                open_timeout=_OPEN_TIMEOUT_S,
                close_timeout=_CLOSE_TIMEOUT_S,
                ping_interval=self._ping_s,
                ping_timeout=None,
                create_connection=_ListenedTo,
                # A proxy of the environment cannot reach this machine's own loopback.
                proxy=None if urlsplit(url).hostname in _LOOPBACK else True,
            )
        except Exception as error:
            # Name resolution, TLS and a server that is no relay raise many things: each is no connection, this time.
            raise LinkLost(f"no connection to the relay ({type(error).__name__})") from None
        return _WebsocketConnection(cast(_ListenedTo, socket), 2 * self._ping_s)


class _ListenedTo(ClientConnection):
    """Remembers when the last byte came: a large message is not there before its end."""

    heard_s = 0.0

    def data_received(self, data: bytes) -> None:
        self.heard_s = monotonic()
        super().data_received(data)


class _WebsocketConnection:
    def __init__(self, socket: _ListenedTo, silence_s: float) -> None:
        self._socket = socket
        self._silence_s = silence_s
        self._watch = asyncio.get_running_loop().call_later(silence_s, self._listen)

    def _listen(self) -> None:
        """Cut the connection if nothing was heard for too long, unless nothing is read here at present."""
        now_s = monotonic()
        if not self._socket.transport.is_reading():
            self._socket.heard_s = now_s
        silent_s = now_s - self._socket.heard_s
        if silent_s >= self._silence_s:
            self._socket.transport.abort()
        elif not self._socket.transport.is_closing():
            pause_s = self._silence_s - silent_s
            self._watch = asyncio.get_running_loop().call_later(pause_s, self._listen)

    async def send(self, message: bytes) -> None:
        try:
            await self._socket.send(message)
        except ConnectionClosed as closed:
            raise _lost(closed) from None
        except AttributeError:
            # Under Python 3.11 aborting a transport fails if it was closed while its buffer was full.
            raise LinkLost("the connection broke") from None

    async def receive(self) -> bytes | str:
        try:
            return await self._socket.recv()
        except ConnectionClosed as closed:
            raise _lost(closed) from None

    async def close(self) -> None:
        self._watch.cancel()
        with suppress(AttributeError):
            await self._socket.close()


def _lost(closed: ConnectionClosed) -> LinkLost:
    if closed.rcvd is None:
        return LinkLost("the connection broke")
    return LinkLost(closed.rcvd.reason or f"the relay closed the connection ({closed.rcvd.code})")


class Outbox:
    """Encoded frames that wait for one connection; those of one loop turn leave as one message.

    `hang_up(reason, final)` ends that connection; a relay that does not read is hung up on. `renew()` has a fresh token
    asked for while it stands.
    """

    def __init__(
        self, hang_up: Callable[[str, bool], None], renew: Callable[[], None], bytes_max: int = LINK_QUEUE_BYTES_MAX
    ) -> None:
        self.hang_up = hang_up
        self.renew = renew
        self._bytes_max = bytes_max
        self._frames: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._full = False
        self._filled = asyncio.Event()

    def put(self, frame: bytes) -> None:
        """Queue an encoded frame; past the bound it and all later ones are dropped, and the connection ends."""
        if self._full:
            return
        if self._waiting_bytes + len(frame) > self._bytes_max:
            self._full = True
            self.hang_up("the relay does not read", False)
            return
        self._frames.append(frame)
        self._waiting_bytes += len(frame)
        self._filled.set()

    async def message(self) -> bytes:
        """Wait for a frame, then return as many as fit one message, in order."""
        await self._filled.wait()
        taken = [self._frames.popleft()]
        size = _ARRAY_HEAD_BYTES + len(taken[0])
        while self._frames and size + len(self._frames[0]) <= FRAME_BYTES_MAX:
            taken.append(self._frames.popleft())
            size += len(taken[-1])
        self._waiting_bytes -= sum(map(len, taken))
        if not self._frames:
            self._filled.clear()
        return join(taken)
