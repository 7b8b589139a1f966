"""The load: many websocket clients on one epoll loop over raw sockets, without a client library.

It is cheap on purpose. While it only counts, frames are walked by length and markers are found with one expression per
received chunk, so that one core of Python reads several hundred thousand messages a second. Frames are masked with a
zero key, which is legal, and which the server unmasks all the same.
"""

import base64
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable

from tests.benchmarks.peers.dialects import Dialect
from tests.benchmarks.peers.yjs import MARK

__all__ = ["NOW", "Client", "Load"]

NOW = time.perf_counter

_PING, _CLOSE, _PONG = 9, 8, 10


class Client:
    """One connection. `synced` once it has what was there; `answered` counts answers to a barrier, `receipts` acks.

    `counting`: messages are counted and their markers collected in `chunks`, as (time, markers), and not looked into.
    `on_body` is told every document or update that came, while it is not counting; `body` is the last one.
    """

    def __init__(self, load: "Load", room: str, number: int, state: bytes | None) -> None:
        self.load = load
        self.room = room
        self.number = number
        self.state = state
        self.writer: object = None
        self.key = f"k{number}"
        self.seq = 0
        self.began = NOW()
        self.synced = self.counting = self.closed = False
        self.error = ""
        self.answered = self.receipts = self.messages = self.bytes = 0
        self.chunks: list[tuple[float, list[bytes]]] = []
        self.body = b""
        self.on_body: Callable[[bytes], None] = lambda body: None
        # What the dialect of Segue keeps of its place in the task's streams.
        self.cursors: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        self.snapshot = bytearray()
        self.tail = 0
        self._phase = "connecting"
        self._in = b""
        self._out = bytearray()
        self._fragments = b""

    def got(self, body: bytes) -> None:
        """Note a document or an update that came."""
        self.body = body
        self.on_body(body)

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, payload: bytes, opcode: int = 2) -> None:
        """Send one message."""
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | opcode, 0x80 | size))
        elif size < 65_536:
            head = struct.pack(">BBH", 0x80 | opcode, 0xFE, size)
        else:
            head = struct.pack(">BBQ", 0x80 | opcode, 0xFF, size)
        self._send_bytes(head + b"\0\0\0\0" + payload)

    def _send_bytes(self, data: bytes) -> None:
        if self.closed:
            return
        if self._out:
            self._out += data
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.fail(f"send: {error}")
            return
        if sent < len(data):
            self._out += data[sent:]
            self.load.poller.modify(self.fd, select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> None:
        """Send what the socket did not take before."""
        if self._phase == "connecting":
            self._connected()
            return
        try:
            del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError as error:
            self.fail(f"send: {error}")
            return
        if not self._out and not self.closed:
            self.load.poller.modify(self.fd, select.EPOLLIN)

    def connect(self) -> None:
        """Begin to connect."""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = self.socket.fileno()
        refused = self.socket.connect_ex(self.load.address)
        if refused not in (0, errno.EINPROGRESS):
            self.socket.close()
            self.closed, self.error = True, os.strerror(refused)
            return
        self.load.clients[self.fd] = self
        self.load.poller.register(self.fd, select.EPOLLIN | select.EPOLLOUT)

    def _connected(self) -> None:
        refused = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if refused:
            self.fail(os.strerror(refused))
            return
        self._phase = "handshake"
        self.load.poller.modify(self.fd, select.EPOLLIN)
        key = base64.b64encode(os.urandom(16)).decode()
        host, port = self.load.address
        path = self.load.path.format(room=self.room)
        self._send_bytes(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def fail(self, why: str) -> None:
        """Close it, and keep why."""
        if not self.closed:
            self.error = self.error or why
            self.close()

    def close(self) -> None:
        """Close the socket; nothing more is told."""
        if self.closed:
            return
        self.closed = True
        self.load.clients.pop(self.fd, None)
        self.load.poller.unregister(self.fd)
        self.socket.close()

    # --- receiving ----------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Take what the socket has."""
        try:
            data = self.socket.recv(262_144)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(f"recv: {error}")
            return
        if not data:
            self.fail("closed by the server")
            return
        self.bytes += len(data)
        self._in += data
        if self._phase == "handshake" and not self._shake_hands():
            return
        if self.counting:
            self._count()
        else:
            self._read()

    def _shake_hands(self) -> bool:
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            return False
        if b" 101 " not in self._in.split(b"\r\n", 1)[0] + b" ":
            self.fail("handshake: " + self._in[:60].decode("latin1"))
            return False
        self._phase = "open"
        self._in = self._in[end + 4 :]
        self.load.dialect.on_open(self)
        return True

    def _frame(self, at: int) -> tuple[int, int, int] | None:
        """Return (first byte, start, end) of the frame at a place; None if it is not here whole."""
        data = self._in
        if len(data) - at < 2:
            return None
        size, start = data[at + 1], at + 2
        if size == 126:
            size, start = int.from_bytes(data[start : start + 2], "big"), start + 2
        elif size == 127:
            size, start = int.from_bytes(data[start : start + 8], "big"), start + 8
        return (data[at], start, start + size) if len(data) >= start + size and len(data) >= start else None

    def _count(self) -> None:
        """Walk the frames by their lengths; without a call per frame, because this loop is what bounds the load."""
        data, at, count = self._in, 0, 0
        size = len(data)
        while size - at >= 2:
            length, start = data[at + 1], at + 2
            if length == 126:
                length, start = int.from_bytes(data[start : start + 2], "big"), start + 2
            elif length == 127:
                length, start = int.from_bytes(data[start : start + 8], "big"), start + 8
            if size - start < length:
                break
            if data[at] & 15 <= 2:
                count += 1
            else:
                self._control(data[at] & 15, data[start : start + length])
            at = start + length
        if at and not self.closed:
            self.messages += count
            marks = MARK.findall(data, 0, at)
            if marks:
                self.chunks.append((NOW(), marks))
                self.load.marks += len(marks)
            self._in = data[at:]

    def _read(self) -> None:
        at = 0
        while not self.closed and (found := self._frame(at)) is not None:
            first, start, end = found
            body, at = self._in[start:end], end
            if first & 15 > 2:
                self._control(first & 15, body)
                continue
            self._fragments += body
            if first & 0x80:
                body, self._fragments = self._fragments, b""
                self.messages += 1
                self.load.dialect.on_message(self, body)
        self._in = self._in[at:]

    def _control(self, opcode: int, body: bytes) -> None:
        if opcode == _PING:
            self.send(body, _PONG)
        elif opcode == _CLOSE:
            self.fail(f"closed with {body[:40]!r}")


class Load:
    """All clients of one server."""

    def __init__(self, host: str, port: int, path: str, dialect: Dialect) -> None:
        self.address = (host, port)
        self.path = path
        self.dialect = dialect
        self.poller = select.epoll()
        self.clients: dict[int, Client] = {}
        self.marks = 0

    def open(self, room: str, number: int = 0, state: bytes | None = None) -> Client:
        """Begin to open one client."""
        client = Client(self, room, number, state)
        client.connect()
        return client

    def open_all(self, rooms: Iterable[str], first: int = 0, timeout_s: float = 60.0) -> list[Client]:
        """Open one client per room, at most 64 at once, and wait until all are in sync."""
        clients: list[Client] = []
        pending: list[Client] = []
        names = list(rooms)
        end = NOW() + timeout_s
        while (pending or len(clients) < len(names)) and NOW() < end:
            while len(clients) < len(names) and len(pending) < 64:
                client = self.open(names[len(clients)], first + len(clients))
                clients.append(client)
                pending.append(client)
            self.poll(0.05)
            pending = [client for client in pending if not client.synced and not client.closed]
        bad = [client.error or "not in sync" for client in clients if not client.synced]
        if bad or len(clients) < len(names):
            raise RuntimeError(f"{len(bad)} of {len(names)} connections failed: {bad[:1]}")
        return clients

    def poll(self, timeout_s: float) -> None:
        """Let sockets be read and written for a moment."""
        for fd, event in self.poller.poll(timeout_s, 512):
            client = self.clients.get(fd)
            if client is None:
                continue
            if event & select.EPOLLIN:
                client.receive()
            elif event & (select.EPOLLHUP | select.EPOLLERR):
                client.fail("hang-up")
            if event & select.EPOLLOUT and not client.closed:
                client.flush()

    def run_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Poll until `done`; returns whether it came to that in time."""
        end = NOW() + timeout_s
        while not done():
            left = end - NOW()
            if left <= 0:
                return False
            self.poll(min(left, 0.05))
        return True

    def run_for(self, seconds: float) -> None:
        """Poll for some time."""
        self.run_until(lambda: False, seconds)

    def barrier(self, client: Client, timeout_s: float = 60.0) -> None:
        """Wait until the server has answered something behind all that this client sent."""
        wanted = client.answered + 1
        self.dialect.barrier(client)
        if not self.run_until(lambda: client.answered >= wanted or client.closed, timeout_s) or client.closed:
            raise RuntimeError(f"barrier: {client.error or 'no answer in time'}")

    def close(self) -> None:
        """Close every client."""
        for client in list(self.clients.values()):
            client.close()
