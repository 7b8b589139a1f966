"""The relay over real sockets: garbage, origins, slow and full stores, slow readers, the drain."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server_relay.config import RelaySettings
from server_relay.effects import RelayAnswer, RelayRead
from server_relay.mailbox.mailbox import Mailbox
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.records import MailboxStats, MailboxWrite, StoredEntry
from server_relay.server import GOING_AWAY, RelayServer, serve
from server_relay.sessions import CLOSE_POLICY, CLOSE_TRY_LATER
from sync_core.entry import Entry, EntryKind
from sync_core.errors import SegueError, StoreFull
from sync_core.frames import Entries, Hello, Login, Push, Receipt, Refusal, RefusalCode, Refused
from sync_core.ids import Entropy, StreamName
from sync_core.limits import FRAME_BYTES_MAX
from sync_core.wire import encode
from tests.contracts.mailbox_suite import append, start
from tests.server_relay.wire_client import WireClient, history_entry

TASK = "expense/TRIP-118"
PHONE, DESKTOP = 700_001, 800_002


class TroubledMailbox:
    """A mailbox that lets the test hold its commits back, or fail them."""

    durable = True

    def __init__(self, inner: Mailbox) -> None:
        self.inner = inner
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.waiting = asyncio.Event()
        self.failures: list[SegueError] = []
        self.sizes: list[int] = []

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        self.waiting.set()
        await self.open_gate.wait()
        self.sizes.append(len(writes))
        if self.failures:
            raise self.failures.pop(0)
        await self.inner.commit(writes)

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        return await self.inner.read(reads)

    async def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        await self.inner.mark_restored(entropy, now_ms)

    async def stats(self) -> MailboxStats:
        return await self.inner.stats()

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    return RelaySettings(db=tmp_path / "relay.db", port=0)


@pytest.fixture
async def relay(settings: RelaySettings) -> AsyncIterator[RelayServer]:
    server = await serve(settings)
    yield server
    await server.close()


@pytest.fixture
async def mailbox(settings: RelaySettings) -> TroubledMailbox:
    return TroubledMailbox(await SqliteMailbox.open(settings.db))


@pytest.fixture
async def troubled(settings: RelaySettings, mailbox: TroubledMailbox) -> AsyncIterator[RelayServer]:
    server = await serve(settings, mailbox)
    yield server
    mailbox.open_gate.set()
    await server.close()


async def test_an_entry_walks_from_one_device_to_the_other(relay: RelayServer) -> None:
    async with await WireClient.open(relay.port, "phone") as phone, await WireClient.open(relay.port, "desk") as desk:
        await desk.follow(TASK)
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        assert (await phone.next(Receipt)).first_relay_seq == 1
        assert [entry.device for entry in await desk.entries(1)] == ["phone"]


async def test_entries_of_one_message_are_one_message_to_the_reader(relay: RelayServer) -> None:
    async with await WireClient.open(relay.port, "phone") as phone, await WireClient.open(relay.port, "desk") as desk:
        await desk.follow(TASK)
        await phone.follow(TASK)
        pushes = [Push(TASK, (history_entry(TASK, PHONE, seq, "phone"),)) for seq in range(1, 51)]
        await phone.send(*pushes)
        assert len((await desk.next(Entries)).entries) == 50
        receipt = await phone.next(Receipt)
        assert (receipt.first_seq, receipt.last_seq) == (1, 50)


async def test_the_log_is_there_after_a_restart(settings: RelaySettings, relay: RelayServer) -> None:
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, *(history_entry(TASK, PHONE, seq, "phone") for seq in range(1, 301)))
        await phone.receipts(300)
    await relay.close()
    again = await serve(settings)
    async with await WireClient.open(again.port, "desk") as desk:
        await desk.follow(TASK)
        assert [entry.writer_seq for entry in await desk.entries(300)] == list(range(1, 301))
    await again.close()


# --- broken and poisonous (SE-24) -------------------------------------------------------------------------------------


async def sends(port: int, message: str | bytes, login: bool = True) -> int | None:
    """Send one raw message; return the close code."""
    client = await (WireClient.open(port, "eve") if login else WireClient.raw(port))
    async with client:
        await client.websocket.send(message)
        return await client.closed()


@pytest.mark.parametrize(
    "message",
    ["text", b"", b"\xc1", b"\x91", encode([Hello(TASK)])[:-1], b"\x91\x92\xa4none\x01", b"\xdd\xff\xff\xff\xff"],
)
@pytest.mark.parametrize("login", [True, False])
async def test_a_malformed_message_costs_its_sender_the_socket(
    relay: RelayServer, message: str | bytes, login: bool
) -> None:
    assert await sends(relay.port, message, login) == CLOSE_POLICY


async def test_random_bytes_and_mutated_frames_harm_nobody_else(relay: RelayServer) -> None:
    rng = Random(5)
    good = encode([Hello(TASK), Push(TASK, (history_entry(TASK, DESKTOP, 1, "eve"),))])
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.follow(TASK)
        for _ in range(60):
            mutant = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                mutant[rng.randrange(len(mutant))] = rng.randrange(256)
            async with await WireClient.open(relay.port, "eve") as eve:
                await eve.websocket.send(bytes(rng.choice([mutant, rng.randbytes(50)])))
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        await phone.next(Receipt)


async def test_a_message_beyond_the_bound_is_cut_off(relay: RelayServer) -> None:
    assert await sends(relay.port, bytes(FRAME_BYTES_MAX + 1)) == 1009


async def test_a_poisonous_update_is_refused_and_its_sender_told(relay: RelayServer) -> None:
    async with await WireClient.open(relay.port, "eve") as eve:
        for payload in (b"\x01\x01", Random(1).randbytes(100), b"\x00" * 50_000):
            await eve.push(TASK, Entry(f"{TASK}:state", PHONE, 1, EntryKind.UPDATE, payload, "eve"))
            assert (await eve.next(Refusal)).code is RefusalCode.GUARD
        await eve.push(TASK, history_entry(TASK, PHONE, 1, "eve"))
        await eve.next(Receipt)


async def test_a_poisonous_row_in_the_store_is_passed_on_to_be_judged_and_the_rest_loads(
    settings: RelaySettings,
) -> None:
    mailbox = await SqliteMailbox.open(settings.db)
    poison = Entry(f"{TASK}:history", 9, 1, EntryKind.UPDATE, b"poison", "eve", relay_seq=1)
    row = StoredEntry(1, StreamName.HISTORY, 1, 9, 1, b"h" * 32, b"c" * 16, msgspec.msgpack.encode(poison))
    await mailbox.commit([start(row.name), append(row)])
    await mailbox.close()
    relay = await serve(settings)
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        await phone.next(Receipt)
        await phone.follow(TASK)
        assert [entry.payload for entry in await phone.entries(2)][:1] == [b"poison"]
    await relay.close()


# --- who may connect (rule H, RS-25) ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "https://app.example.evil.org", "https://app.example:444", "http://[::1]"],
)
async def test_a_browser_of_another_origin_is_refused(settings: RelaySettings, origin: str) -> None:
    relay = await serve(replace(settings, origins=("https://app.example",)))
    with pytest.raises(InvalidStatus) as caught:
        await connect(f"ws://127.0.0.1:{relay.port}", origin=origin, proxy=None)  # type: ignore[arg-type]
    assert caught.value.response.status_code == 403
    async with connect(f"ws://127.0.0.1:{relay.port}", origin="https://app.example", proxy=None):  # type: ignore[arg-type]
        pass
    await relay.close()


async def test_a_request_for_another_host_is_refused(relay: RelayServer, settings: RelaySettings) -> None:
    for host, welcome in (("rebound.example", False), ("localhost", True), ("127.0.0.1:1", True), ("[::1]:80", True)):
        status = await _status(relay.port, host)
        assert status == (101 if welcome else 403), host


async def _status(port: int, host: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [
        "GET / HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "", "",
    ]  # fmt: skip
    writer.write("\r\n".join(lines).encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


# --- stores in trouble ------------------------------------------------------------------------------------------------


async def test_work_that_reached_a_slow_store_is_seen_by_all_who_come_later(
    troubled: RelayServer, mailbox: TroubledMailbox
) -> None:
    """SE-03."""
    mailbox.waiting.clear()
    mailbox.open_gate.clear()
    phone = await WireClient.open(troubled.port, "phone")
    await phone.push(TASK, *(history_entry(TASK, PHONE, seq, "phone") for seq in range(1, 6)))
    await mailbox.waiting.wait()
    await phone.websocket.close()
    later = [await WireClient.raw(troubled.port) for _ in range(3)]
    for number, client in enumerate(later):
        await client.send(Login(1, "acme", f"d{number}"), Hello(TASK))
    mailbox.open_gate.set()
    for client in later:
        assert [entry.writer_seq for entry in await client.entries(5)] == [1, 2, 3, 4, 5]
        await client.websocket.close()


async def test_no_receipt_comes_before_its_commit_and_what_waits_is_one_commit(
    troubled: RelayServer, mailbox: TroubledMailbox
) -> None:
    """SE-26."""
    clients = [await WireClient.open(troubled.port, f"d{number}") for number in range(8)]
    await clients[0].follow(TASK)
    mailbox.open_gate.clear()
    mailbox.waiting.clear()
    await clients[0].push(TASK, history_entry(TASK, PHONE, 1, "d0"))
    await mailbox.waiting.wait()
    for number, client in enumerate(clients[1:], 1):
        await client.push(TASK, history_entry(TASK, PHONE + number, 1, f"d{number}"))
    with pytest.raises(TimeoutError):
        await clients[0].next(Receipt, timeout_s=0.3)
    mailbox.open_gate.set()
    for client in clients:
        assert len(await client.receipts(1)) == 1
    assert len(mailbox.sizes) <= 3
    for client in clients:
        await client.websocket.close()


async def test_what_one_device_pushes_meanwhile_is_one_commit(troubled: RelayServer, mailbox: TroubledMailbox) -> None:
    async with await WireClient.open(troubled.port, "phone") as phone:
        mailbox.open_gate.clear()
        for seq in range(1, 11):
            await phone.push(TASK, history_entry(TASK, PHONE, seq, "phone"))
        mailbox.open_gate.set()
        await phone.receipts(10)
    assert len(mailbox.sizes) <= 3


async def test_a_full_disk_is_a_retryable_close_and_over_when_space_returns(
    troubled: RelayServer, mailbox: TroubledMailbox
) -> None:
    mailbox.failures = [StoreFull("The disk is full.")] * 2
    entry = history_entry(TASK, PHONE, 1, "phone")
    for _ in range(2):
        async with await WireClient.open(troubled.port, "phone") as phone:
            await phone.push(TASK, entry)
            assert await phone.closed() == CLOSE_TRY_LATER
            assert not [frame for frame in phone.frames if isinstance(frame, Receipt)]
    async with await WireClient.open(troubled.port, "phone") as phone:
        await phone.push(TASK, entry)
        assert (await phone.next(Receipt)).first_relay_seq == 1
    assert (await troubled.metrics()).counts["commits_failed"] == 2


# --- readers and the end ----------------------------------------------------------------------------------------------


async def test_a_reader_that_does_not_read_holds_nobody_up_and_catches_up(relay: RelayServer) -> None:
    """SE-17, small."""
    text = f'"{"x" * 40_000}"'
    async with await WireClient.open(relay.port, "phone") as phone, await WireClient.open(relay.port, "slow") as slow:
        await slow.follow(TASK)
        for seq in range(1, 401):
            await phone.push(TASK, history_entry(TASK, PHONE, seq, "phone", text))
            await phone.receipts(1)
        # Catching up goes on as soon as there is room; waiting for a tick each time would take a minute.
        async with asyncio.timeout(30):
            assert [entry.writer_seq for entry in await slow.entries(400)] == list(range(1, 401))


async def test_a_connection_that_does_not_log_in_is_refused(settings: RelaySettings) -> None:
    relay = await serve(replace(settings, login_timeout_ms=100))
    async with await WireClient.raw(relay.port) as stranger:
        assert await stranger.closed() == CLOSE_POLICY
        assert [frame.code for frame in stranger.frames if isinstance(frame, Refused)] == ["protocol_error"]
    await relay.close()


async def test_a_stop_finishes_the_commit_and_says_going_away(troubled: RelayServer, mailbox: TroubledMailbox) -> None:
    phone = await WireClient.open(troubled.port, "phone")
    mailbox.waiting.clear()
    mailbox.open_gate.clear()
    await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
    await mailbox.waiting.wait()
    stopping = asyncio.create_task(troubled.close())
    mailbox.open_gate.set()
    assert await phone.closed() == GOING_AWAY
    assert len([frame for frame in phone.frames if isinstance(frame, Receipt)]) == 1
    await stopping
    with pytest.raises((OSError, ConnectionClosed)):
        await WireClient.raw(troubled.port)
    await troubled.close()


async def test_a_stop_does_not_wait_for_a_device_that_goes_on_sending(settings: RelaySettings) -> None:
    """A stop that waited would take two seconds every time; a busy machine slows one or another."""
    spans = []
    for writer in (700_001, 700_002, 700_003):
        mailbox = TroubledMailbox(await SqliteMailbox.open(settings.db))
        relay = await serve(settings, mailbox)
        async with await WireClient.open(relay.port, "phone") as phone:
            mailbox.waiting.clear()
            mailbox.open_gate.clear()
            for seq in range(1, 21):
                await phone.push(TASK, history_entry(TASK, writer, seq, "phone"))
            await mailbox.waiting.wait()
            mailbox.open_gate.set()
            started = time.monotonic()
            await relay.close()
            spans.append(time.monotonic() - started)
            assert await phone.closed() == GOING_AWAY
    assert min(spans) < 1.5


async def test_the_relay_tells_its_figures(relay: RelayServer) -> None:
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        await phone.next(Receipt)
        metrics = await relay.metrics()
    assert (metrics.connections, metrics.tasks_held, metrics.mailbox.entries) == (1, 1, 1)
    assert metrics.counts["entries_stored"] == 1
    assert not metrics.clock_suspended
