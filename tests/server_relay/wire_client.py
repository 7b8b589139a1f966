"""A raw client of the wire: frames out, frames in, nothing clever; and entries made by hand."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from sync_core.entry import Entry, EntryKind, HistoryItem, encode_record
from sync_core.frames import WIRE_VERSION, Entries, Hello, Login, Push, Receipt, Welcome
from sync_core.wire import ClientFrame, RelayFrame, decode_relay, encode

__all__ = ["WireClient", "history_entry"]

F = TypeVar("F")


def history_entry(task: str, writer: int, writer_seq: int, device: str, text: str = "{}") -> Entry:
    """Return an entry of the history stream: a small one that needs no document."""
    item = HistoryItem(f"{writer:x}-{writer_seq}", "run", 1, writer_seq, message=text)
    return Entry(f"{task}:history", writer, writer_seq, EntryKind.HISTORY, encode_record(item), device)


class WireClient:
    """One connection. `frames` holds what came and was not asked for yet."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket
        self.frames: deque[RelayFrame] = deque()

    @classmethod
    async def open(cls, port: int, device: str, *, subject: str = "acme", token: str = "") -> "WireClient":
        """Connect and log in."""
        client = await cls.raw(port)
        await client.send(Login(WIRE_VERSION, subject, device, token))
        await client.next(Welcome)
        return client

    @classmethod
    async def raw(cls, port: int) -> "WireClient":
        """Connect only."""
        return cls(await connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, proxy=None))

    async def __aenter__(self) -> "WireClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.websocket.close()

    async def send(self, *frames: ClientFrame) -> None:
        """Send frames as one message."""
        await self.websocket.send(encode(frames))

    async def follow(self, task: str) -> None:
        """Say Hello from the start."""
        await self.send(Hello(task))

    async def push(self, task: str, *entries: Entry) -> None:
        """Push entries."""
        await self.send(Push(task, entries))

    async def next(self, kind: type[F], wanted: Callable[[F], bool] = lambda frame: True, timeout_s: float = 30) -> F:
        """Return the next frame of a kind that is wanted; others are dropped."""
        async with asyncio.timeout(timeout_s):
            while True:
                while self.frames:
                    frame = self.frames.popleft()
                    if isinstance(frame, kind) and wanted(frame):
                        return frame
                self.frames.extend(decode_relay(await self.websocket.recv()))

    async def receipts(self, count: int, timeout_s: float = 30) -> list[Receipt]:
        """Collect receipts until they cover this many entries."""
        found: list[Receipt] = []
        while count > 0:
            receipt = await self.next(Receipt, timeout_s=timeout_s)
            count -= receipt.last_seq - receipt.first_seq + 1
            found.append(receipt)
        return found

    async def entries(self, count: int, timeout_s: float = 30) -> list[Entry]:
        """Collect this many entries."""
        found: list[Entry] = []
        while len(found) < count:
            found += (await self.next(Entries, timeout_s=timeout_s)).entries
        return found

    async def closed(self, timeout_s: float = 30) -> int | None:
        """Wait until the relay closed the connection; return the close code. Frames before it are kept."""
        async with asyncio.timeout(timeout_s):
            try:
                while True:
                    self.frames.extend(decode_relay(await self.websocket.recv()))
            except ConnectionClosed:
                return self.websocket.close_code
