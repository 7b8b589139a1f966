"""One connection as the server sees it, over a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from server_relay.config import RelaySettings
from server_relay.doors import Door
from server_relay.effects import Malformed, Received
from server_relay.peers import Peer, messages_of
from sync_core.frames import Refused, Unfollow, Welcome
from sync_core.limits import FRAME_BYTES_MAX, LOGIN_MESSAGE_BYTES_MAX, OUT_QUEUE_BYTES_MAX
from sync_core.wire import encode, encode_frame

_MORE_THAN_SOCKETS_HOLD = 64 * 1024 * 1024
_UNFOLLOW = encode([Unfollow("a")])
_REQUEST = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Owner:
    """Keeps what it is told, and wakes whoever waits for it."""

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.events: list[Received | Malformed] = []
        self.size_bytes = self.room_told = 0
        self.gone = False
        self._news = asyncio.Event()

    def arrived(self, peer: Peer) -> None:
        self.peer = peer
        self._news.set()

    def opened(self, peer: Peer) -> None:
        self._news.set()

    def received(self, peer: Peer, events: list[Received | Malformed], size_bytes: int) -> None:
        self.events += events
        self.size_bytes += size_bytes
        self._news.set()

    def has_room(self, peer: Peer) -> None:
        self.room_told += 1
        self._news.set()

    def left(self, peer: Peer) -> None:
        self.gone = True
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                self._news.clear()
                await self._news.wait()


class Pair:
    """A peer and the device at its other end."""

    def __init__(self, owner: Owner, peer: Peer, device: ClientConnection) -> None:
        self.owner, self.peer, self.device = owner, peer, device


@asynccontextmanager
async def _connected(folder: Path) -> AsyncIterator[Pair]:
    owner = Owner()
    door = Door(RelaySettings(db=folder / "relay.db"))
    server = await asyncio.get_running_loop().create_server(lambda: Peer(1, door, owner), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None, proxy=None) as device:
        await owner.until(lambda: owner.peer is not None and owner.peer.opened)
        assert owner.peer is not None
        yield Pair(owner, owner.peer, device)
        server.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with _connected(tmp_path) as pair:
        pair.peer.send(messages_of([encode_frame(Welcome(1, 0, "write", "anna"))]))
        await pair.device.recv()
        yield pair


async def test_what_a_device_sends_is_decoded_and_its_size_counts_once(pair: Pair) -> None:
    message = encode([Unfollow("a"), Unfollow("b")])
    await pair.device.send(message)
    await pair.owner.until(lambda: len(pair.owner.events) == 2)
    assert pair.owner.events == [Received(1, Unfollow("a"), len(message)), Received(1, Unfollow("b"), 0)]


async def test_a_message_in_fragments_is_one_message(pair: Pair) -> None:
    await pair.device.send([_UNFOLLOW[:3], _UNFOLLOW[3:]])
    await pair.owner.until(lambda: bool(pair.owner.events))
    assert pair.owner.events == [Received(1, Unfollow("a"), len(_UNFOLLOW))]


async def test_fragments_without_a_byte_are_none(pair: Pair) -> None:
    await pair.device.send([b"", _UNFOLLOW[:3], *[b""] * 900, _UNFOLLOW[3:], b""])
    await pair.owner.until(lambda: bool(pair.owner.events))
    assert pair.owner.events == [Received(1, Unfollow("a"), len(_UNFOLLOW))]


async def test_text_is_malformed_whole_or_in_fragments(pair: Pair) -> None:
    await pair.device.send("text")
    await pair.device.send(["te", "xt"])
    await pair.owner.until(lambda: len(pair.owner.events) == 2)
    assert all(isinstance(event, Malformed) for event in pair.owner.events)


async def test_a_message_beyond_the_bound_ends_the_connection(pair: Pair) -> None:
    with pytest.raises(ConnectionClosed) as closed:
        await pair.device.send(bytes(FRAME_BYTES_MAX + 1))
        await pair.device.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    await pair.owner.until(lambda: pair.owner.gone)
    assert pair.owner.events == [Malformed(1, f"A message exceeds {FRAME_BYTES_MAX} bytes.", "too_large")]


@pytest.fixture
async def stranger(tmp_path: Path) -> AsyncIterator[Pair]:
    async with _connected(tmp_path) as pair:
        yield pair


@pytest.mark.parametrize("fragments", [1, 3])
async def test_a_stranger_sends_small_messages_only(stranger: Pair, fragments: int) -> None:
    small, large = bytes(LOGIN_MESSAGE_BYTES_MAX), bytes(LOGIN_MESSAGE_BYTES_MAX // fragments + 1)
    await stranger.device.send(small)
    with pytest.raises(ConnectionClosed) as closed:
        await stranger.device.send([large] * fragments if fragments > 1 else large)
        await asyncio.wait_for(stranger.device.recv(), 10)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    await stranger.owner.until(lambda: stranger.owner.gone)
    assert [event.reason for event in stranger.owner.events if isinstance(event, Malformed)] == [
        "protocol",
        "too_large",
    ]


async def test_messages_of_one_chunk_are_each_judged_as_a_strangers(stranger: Pair) -> None:
    login = encode([Unfollow("a")])
    frames = [Frame(Opcode.BINARY, data).serialize(mask=True) for data in (login, login, bytes(30_000))]
    stranger.device.transport.write(b"".join(frames))
    await stranger.owner.until(lambda: len(stranger.owner.events) == 3)
    assert [type(event) for event in stranger.owner.events] == [Received, Received, Malformed]


async def test_who_was_answered_may_send_large_messages(stranger: Pair) -> None:
    stranger.peer.send(messages_of([encode_frame(Welcome(1, 0, "write", "anna"))]))
    await stranger.device.recv()
    await stranger.device.send(encode([Unfollow("x" * 200_000)]))
    await stranger.owner.until(lambda: bool(stranger.owner.events))
    assert isinstance(stranger.owner.events[0], Received)
    stranger.peer.taken(stranger.owner.size_bytes)


async def test_pings_that_nobody_reads_the_answers_of_fill_no_memory(stranger: Pair) -> None:
    device, peer = stranger.device, stranger.peer
    device.transport.pause_reading()
    pings = Frame(Opcode.PING, bytes(125)).serialize(mask=True) * 400
    sent_bytes = 0
    while peer._reading:
        device.transport.write(pings)
        sent_bytes += len(pings)
        await asyncio.sleep(0)
        # As if a second had passed: more of them at once would end the connection.
        peer.tick(0)
        assert sent_bytes < 4 * _MORE_THAN_SOCKETS_HOLD
    assert peer.out_bytes < 2 * OUT_QUEUE_BYTES_MAX
    device.transport.abort()


@pytest.mark.parametrize(
    "flood", [Frame(Opcode.PING, b""), Frame(Opcode.PONG, b""), Frame(Opcode.BINARY, b"", fin=False)]
)
async def test_a_flood_of_small_frames_ends_the_connection(pair: Pair, flood: Frame) -> None:
    small = flood.serialize(mask=True)
    if flood.opcode is Opcode.BINARY:
        small += Frame(Opcode.CONT, b"", fin=False).serialize(mask=True) * 40_000
    else:
        small *= 40_000
    pair.device.transport.write(small)
    await pair.owner.until(lambda: pair.owner.gone)
    assert pair.owner.events == [Malformed(1, "Too many small frames came.", "small_frames")]


async def test_a_message_without_a_frame_is_malformed(pair: Pair) -> None:
    await pair.device.send(encode([]))
    await pair.owner.until(lambda: bool(pair.owner.events))
    assert pair.owner.events == [Malformed(1, "A message holds no frame.")]
    assert pair.owner.size_bytes == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "elsewhere"])
@pytest.mark.parametrize("early", [b"\xff\xff", Frame(Opcode.CLOSE, b"").serialize(mask=True)])
async def test_frames_that_come_with_the_request_are_cut_off_without_a_trace(
    pair: Pair, early: bytes, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = pair.device.remote_address
    reader, writer = await asyncio.open_connection(*address)
    writer.write(_REQUEST.replace(b"127.0.0.1", host.encode()) + early)
    with suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert not caplog.records


async def test_no_more_is_read_than_the_conductor_takes(pair: Pair) -> None:
    big = encode([Unfollow("x" * 60_000)])
    sending = asyncio.create_task(asyncio.wait_for(_send_all(pair.device, [big] * 200), 30))
    for _ in range(200):
        await pair.owner.until(lambda: bool(pair.owner.events))
        assert len(pair.owner.events) <= 8
        pair.owner.events.clear()
        pair.peer.taken(pair.owner.size_bytes)
        pair.owner.size_bytes = 0
        if sending.done():
            break
    await sending


async def _send_all(device: ClientConnection, messages: list[bytes]) -> None:
    for message in messages:
        await device.send(message)


async def test_nothing_is_read_while_the_out_queue_is_full_and_room_is_told_once_there_is(pair: Pair) -> None:
    pair.device.transport.pause_reading()
    pair.peer.send(messages_of([bytes(200_000)] * 300))
    assert pair.peer.report().out_bytes > OUT_QUEUE_BYTES_MAX
    await pair.device.send(_UNFOLLOW)
    assert not pair.owner.events and not pair.owner.room_told
    pair.device.transport.resume_reading()
    received = 0
    async with asyncio.timeout(30):
        while received < 300:
            received += len(await pair.device.recv()) // 200_000
    await pair.owner.until(lambda: bool(pair.owner.events) and pair.owner.room_told > 0)
    assert pair.peer.report().out_bytes == 0
    assert pair.peer.written_bytes > 300 * 200_000


async def test_a_device_that_is_gone_before_it_read_is_let_go(pair: Pair) -> None:
    pair.device.transport.pause_reading()
    pair.peer.send((bytes(_MORE_THAN_SOCKETS_HOLD),))
    assert pair.peer.out_bytes > OUT_QUEUE_BYTES_MAX
    pair.device.transport.abort()
    await pair.owner.until(lambda: pair.owner.gone)
    pair.peer.send((b"too late",))
    assert not pair.peer.out_bytes


async def test_closing_waits_for_the_out_queue(pair: Pair) -> None:
    pair.peer.send(messages_of([bytes(200_000)] * 20))
    pair.peer.close(4000, "enough")
    sizes = [len(await pair.device.recv()) for _ in range(20)]
    assert sum(sizes) > 20 * 200_000
    with pytest.raises(ConnectionClosed) as closed:
        await pair.device.recv()
    assert closed.value.rcvd is not None and (closed.value.rcvd.code, closed.value.rcvd.reason) == (4000, "enough")
    await pair.owner.until(lambda: pair.owner.gone)


async def test_silence_is_pinged_and_then_cut(pair: Pair) -> None:
    loop = asyncio.get_running_loop()
    # A raw socket answers no ping: the device's reading stops.
    pair.device.transport.pause_reading()
    now_s = loop.time()
    pair.peer.tick(now_s)
    pair.peer.tick(now_s + 11)
    assert not pair.owner.gone
    pair.peer.tick(now_s + 22)
    await pair.owner.until(lambda: pair.owner.gone)


async def test_an_answered_ping_keeps_a_silent_connection(pair: Pair) -> None:
    now_s = asyncio.get_running_loop().time()
    for at in range(0, 60, 11):
        pair.peer.tick(now_s + at)
        await (await pair.device.ping())
    assert not pair.owner.gone


async def test_what_moves_on_a_slow_link_is_not_cut_while_it_moves(pair: Pair) -> None:
    """SE-16: the answer to a ping waits behind a long queue; that the queue grows shorter says enough."""
    pair.device.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    pair.device.transport.pause_reading()
    pair.peer.send(messages_of([bytes(400_000)]))
    now_s = asyncio.get_running_loop().time()
    pair.peer.tick(now_s)
    pair.peer.tick(now_s + 11)
    pair.device.transport.resume_reading()
    async with asyncio.timeout(30):
        await pair.device.recv()
    pair.peer.tick(now_s + 22)
    assert not pair.owner.gone


def test_frames_are_joined_into_messages_within_the_bound() -> None:
    one = encode_frame(Unfollow("a"))
    assert messages_of([one, one]) == (b"\x82" + bytes((1 + 2 * len(one), 0x92)) + one + one,)
    assert [len(message) for message in messages_of([bytes(150_000)] * 3)] == [150_011] * 3


async def test_a_stranger_that_was_refused_is_a_stranger_still(stranger: Pair) -> None:
    stranger.peer.send(messages_of([encode_frame(Refused("protocol_error", "No login came in time.", ""))]))
    stranger.peer.close(1008, "protocol_error")
    stranger.device.transport.write(Frame(Opcode.BINARY, bytes(100_000)).serialize(mask=True))
    await stranger.owner.until(lambda: stranger.owner.gone)
    assert not [event for event in stranger.owner.events if isinstance(event, Received)]
    assert [event.reason for event in stranger.owner.events if isinstance(event, Malformed)] == ["too_large"]
