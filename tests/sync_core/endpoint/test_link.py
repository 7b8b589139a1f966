"""The link: it comes back by itself, asks for its token anew, and stops only when it is finally refused."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from server_relay.admission import Role
from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from server_relay.tokens import make_token
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.opening import Opening
from sync_core.endpoint.runner import Connected
from sync_core.endpoint.transport import Outbox
from sync_core.errors import ReadOnly, Refused, SyncTimeout
from sync_core.frames import Listing, ListTasks, Login, Receipt, Unfollow, Welcome
from sync_core.frames import Refused as RefusedFrame
from sync_core.replica.changes import LinkState
from sync_core.replica.commands import QueryTasks
from sync_core.replica.effects import LinkDown
from sync_core.wire import decode_client, encode
from tests.sync_core.endpoint.conftest import KEY
from tests.sync_core.endpoint.memory_transport import MemoryConnection, MemoryTransport

QUICK = Backoff(first_s=0.001, cap_s=0.01)
SECRET = "0123456789abcdef0123456789abcdef"


async def until(phone: Endpoint, condition: Callable[[], bool]) -> None:
    """Wait until something that another task brings about is so; it is looked at after each turn of the endpoint."""

    async def look() -> None:
        while not condition():
            await phone.stats()

    await asyncio.wait_for(look(), 30)


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_cap_and_are_spread_over_half_of_it() -> None:
    backoff = Backoff(first_s=0.5, cap_s=30)
    assert [backoff.pause_s(failures, 1.0) for failures in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.pause_s(3, 0.0) == 2
    assert backoff.pause_s(10_000, 0.5) == 22.5


# --- with the test as relay -------------------------------------------------------------------------------------------


def _open(folder: Path, transport: MemoryTransport, **options: object) -> Opening[Endpoint]:
    settings = {"relay": "memory:relay", "backoff": QUICK, "chance": lambda: 0.5, "transport": transport} | options
    return Endpoint.open(folder / "phone.db", subject="acme", device="phone", **settings)  # type: ignore[arg-type]


async def _login(transport: MemoryTransport) -> tuple[MemoryConnection, Login]:
    connection = await transport.accept()
    (login,) = decode_client(await connection.receive())
    assert isinstance(login, Login)
    return connection, login


async def test_it_logs_in_and_says_so(tmp_path: Path) -> None:
    transport = MemoryTransport()
    async with _open(tmp_path, transport, token="secret-1") as phone:
        connection, login = await _login(transport)
        assert (login.subject, login.device, login.token) == ("acme", "phone", "secret-1")
        assert phone.status.link is LinkState.CONNECTING
        await connection.send(encode([Welcome(1, 0, "write", "ann")]))
        await until(phone, lambda: phone.status.link is LinkState.LIVE)


async def test_a_link_that_breaks_comes_back_with_a_fresh_token(tmp_path: Path) -> None:
    transport = MemoryTransport()
    tokens = iter(["one", "two", "three"])
    async with _open(tmp_path, transport, token=lambda: next(tokens), backoff=Backoff(0.1, 0.1)) as phone:
        for expected in ("one", "two"):
            connection, login = await _login(transport)
            assert login.token == expected
            await connection.send(encode([Welcome(1, 0, "write", "ann")]))
            await until(phone, lambda: phone.status.link is LinkState.LIVE)
            connection.hang_up("the cable was pulled")
            await until(phone, lambda: phone.status.link is not LinkState.LIVE)
            assert phone.status.reason == "the cable was pulled"


async def test_a_token_source_that_fails_is_told_and_asked_again(tmp_path: Path) -> None:
    transport = MemoryTransport()
    asked: list[int] = []
    told: list[str] = []

    async def token() -> str:
        asked.append(1)
        await asyncio.sleep(0)
        if len(asked) <= 2:
            raise ConnectionError("the identity provider said secret-token")
        return "fresh"

    async with _open(tmp_path, transport, token=token, backoff=Backoff(0.05, 0.05)) as phone:
        await until(phone, lambda: phone.status.link is LinkState.OFFLINE)
        told.append(phone.status.reason)
        task = await phone.task(KEY, create=True)
        await task.slots.confirm("x", 1)
        assert phone.status.unsent > 0
        _connection, login = await _login(transport)
        assert login.token == "fresh"
    assert told == ["credentials: ConnectionError"]


def _cancelled() -> str:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (lambda: None, "the token has to be text, not None."),
        (lambda: b"secret", "the token has to be text, not bytes."),
        (lambda: "secret\ud800", "the token holds a lone surrogate, which is no text."),
        (_cancelled, "CancelledError"),
    ],
)
async def test_a_token_that_is_none_costs_a_pause_and_not_the_endpoint(
    tmp_path: Path, first: Callable[[], str], told: str
) -> None:
    transport = MemoryTransport()
    sources = iter([first, lambda: "fresh"])
    async with _open(tmp_path, transport, token=lambda: next(sources)(), backoff=Backoff(0.05, 0.05)) as phone:
        await until(phone, lambda: phone.status.link is LinkState.OFFLINE)
        assert phone.status.reason == f"credentials: {told}"
        _connection, login = await _login(transport)
        assert login.token == "fresh"


async def test_no_route_is_told_and_tried_again(tmp_path: Path) -> None:
    transport = MemoryTransport()
    transport.down = True
    async with _open(tmp_path, transport) as phone:
        await until(phone, lambda: phone.status.reason == "nobody is there" and transport.attempts > 2)
        assert phone.status.link is LinkState.OFFLINE
        transport.down = False
        await _login(transport)


async def test_a_final_refusal_ends_the_attempts_and_every_watch(tmp_path: Path) -> None:
    transport = MemoryTransport()
    async with _open(tmp_path, transport) as phone:
        opening = asyncio.ensure_future(phone.task(KEY, create=True).__aenter__())
        connection, _ = await _login(transport)
        await connection.send(encode([RefusedFrame("credentials", "The token was revoked.", "", final=True)]))
        task = await opening
        await until(phone, lambda: phone.status.link is LinkState.REFUSED)
        assert "revoked" in phone.status.reason
        with pytest.raises(Refused, match="revoked"):
            await anext(task.changes())
        with pytest.raises(Refused):
            await phone.synced()
        await task.slots.confirm("x", 1)
        link = phone._link
        assert link is not None
        await until(phone, link._task.done)
        assert transport.attempts == 1


async def test_whoever_watched_or_waited_is_told_of_the_refusal(tmp_path: Path) -> None:
    transport = MemoryTransport()
    transport.down = True
    async with _open(tmp_path, transport) as phone:
        task = await phone.task(KEY, create=True)
        watching = asyncio.ensure_future(anext(task.changes()))
        syncing = asyncio.ensure_future(phone.synced())
        transport.down = False
        connection, _ = await _login(transport)
        await connection.send(encode([RefusedFrame("credentials", "The token was revoked.", "", final=True)]))
        with pytest.raises(Refused):
            await asyncio.wait_for(watching, 30)
        with pytest.raises(Refused):
            await asyncio.wait_for(syncing, 30)


async def test_a_refusal_that_is_not_final_is_tried_again(tmp_path: Path) -> None:
    transport = MemoryTransport()
    async with _open(tmp_path, transport) as phone:
        connection, _ = await _login(transport)
        await connection.send(encode([RefusedFrame("credentials", "The token has expired.", "", final=False)]))
        await _login(transport)
        assert phone.status.link is LinkState.CONNECTING


@pytest.mark.parametrize(
    "message",
    [
        b"\x93\x01\x02",
        b"",
        encode([Unfollow("t")]),
        encode([Receipt("nonsense", b"", 1, 1, 1, 1)]),
        encode([RefusedFrame("a", "b", "c"), RefusedFrame("a", "b", "c")]),
    ],
)
async def test_a_relay_that_talks_nonsense_is_hung_up_on_and_the_work_goes_on(tmp_path: Path, message: bytes) -> None:
    transport = MemoryTransport()
    async with _open(tmp_path, transport) as phone:
        connection, _ = await _login(transport)
        await connection.send(encode([Welcome(1, 0, "write", "ann"), Listing(99, (), False)]))
        await connection.send(message)
        again, _ = await _login(transport)
        await again.send(encode([Welcome(1, 0, "write", "ann")]))
        await until(phone, lambda: phone.status.link is LinkState.LIVE)


async def test_frames_of_an_old_connection_never_reach_the_next_one(tmp_path: Path) -> None:
    transport = MemoryTransport()
    async with _open(tmp_path, transport) as phone:
        connection, _ = await _login(transport)
        await connection.send(encode([Welcome(1, 0, "write", "ann")]))
        await until(phone, lambda: phone.status.link is LinkState.LIVE)
        runner, outbox = phone._runner, Outbox(lambda reason, final: None, lambda: None)
        for item in (QueryTasks(runner.ref()), LinkDown("gone"), Connected("fresh", outbox)):
            runner.post(item)
        assert [type(frame) for frame in decode_client(await outbox.message())] == [Login]


async def test_a_question_to_a_relay_that_goes_away_is_answered_without_it(tmp_path: Path) -> None:
    transport = MemoryTransport()
    async with _open(tmp_path, transport) as phone:
        connection, _ = await _login(transport)
        await connection.send(encode([Welcome(1, 0, "write", "ann")]))
        await until(phone, lambda: phone.status.link is LinkState.LIVE)
        listing = asyncio.ensure_future(anext(phone.tasks()))
        assert isinstance(decode_client(await connection.receive())[0], ListTasks)
        connection.hang_up("gone")
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(listing, 30)


async def test_pauses_start_anew_once_something_was_kept_and_not_after_a_welcome_alone(tmp_path: Path) -> None:
    transport = MemoryTransport()
    transport.down = True
    async with _open(tmp_path, transport) as phone:
        link = phone._link
        assert link is not None
        await until(phone, lambda: link._failures > 3)
        transport.down = False
        connection, _ = await _login(transport)
        assert link._failures > 3
        await connection.send(encode([Welcome(1, 0, "write", "ann")]))
        await until(phone, lambda: phone.status.link is LinkState.LIVE)
        connection.hang_up("the store is full")
        connection, _ = await _login(transport)
        assert link._failures > 4
        await connection.send(encode([Welcome(1, 0, "write", "ann"), Receipt(f"{KEY}:state", b"e" * 16, 1, 1, 1, 1)]))
        await until(phone, lambda: link._failures == 0)


async def test_pauses_start_anew_after_a_connection_that_lasted(tmp_path: Path) -> None:
    transport = MemoryTransport()
    transport.down = True
    async with _open(tmp_path, transport, backoff=Backoff(first_s=0.001, cap_s=0.01, steady_s=0)) as phone:
        link = phone._link
        assert link is not None
        await until(phone, lambda: link._failures > 3)
        transport.down = False
        connection, _ = await _login(transport)
        connection.hang_up("the cable was pulled")
        await _login(transport)
        assert link._failures == 1


async def test_without_a_relay_nothing_can_be_synced_and_that_is_said_at_once(phone: Endpoint) -> None:
    with pytest.raises(SyncTimeout, match="no relay"):
        await phone.synced()
    assert phone.status.link is LinkState.OFFLINE


async def test_waiting_to_be_synced_ends_in_time_and_says_where_the_link_stands(tmp_path: Path) -> None:
    transport = MemoryTransport()
    transport.down = True
    async with _open(tmp_path, transport) as phone:
        await phone.task(KEY, create=True)
        started = time.monotonic()
        with pytest.raises(SyncTimeout, match="offline") as caught:
            await phone.synced(timeout_s=0.05)
        assert isinstance(caught.value, TimeoutError)
        assert time.monotonic() - started < 10


# --- with a real relay that checks tokens -----------------------------------------------------------------------------


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayServer]:
    server = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, secret=SECRET))
    yield server
    await server.close()


def _token(role: Role = Role.WRITE, *, life_s: float = 60, device: str = "phone") -> str:
    expires_s = int(time.time() + life_s)
    return make_token(SECRET, principal="ann", device=device, subject="acme", role=role, expires_s=expires_s)


def _with_token(
    folder: Path,
    relay: RelayServer,
    token: str | Callable[[], str] | Callable[[], Awaitable[str]],
    device: str = "phone",
) -> Opening[Endpoint]:
    url = f"ws://127.0.0.1:{relay.port}"
    return Endpoint.open(
        folder / f"{device}.db", subject="acme", device=device, relay=url, token=token, backoff=Backoff(0.02, 0.1)
    )


async def test_edits_made_while_the_token_was_dead_arrive_once_there_is_a_fresh_one(
    tmp_path: Path, relay: RelayServer
) -> None:
    asked: list[int] = []
    fixed = asyncio.Event()

    async def token() -> str:
        asked.append(1)
        if len(asked) <= 2:
            raise OSError("no answer")
        await fixed.wait()
        return _token()

    async with _with_token(tmp_path, relay, token) as phone:
        task = await phone.task(KEY, create=True)
        for number in range(5):
            await task.slots.confirm("x", number)
        await until(phone, lambda: len(asked) == 3)
        assert phone.status.reason == "credentials: OSError"
        assert phone.status.unsent >= 5
        fixed.set()
        await phone.synced(timeout_s=30)
        assert phone.status.unsent == 0


async def test_a_wrong_token_is_refused_for_good_and_says_why(tmp_path: Path, relay: RelayServer) -> None:
    async with _with_token(tmp_path, relay, "no token at all") as phone:
        await until(phone, lambda: phone.status.link is LinkState.REFUSED)
        assert "no token at all" not in phone.status.reason


async def test_a_device_that_may_only_read_cannot_write(tmp_path: Path, relay: RelayServer) -> None:
    async with _with_token(tmp_path, relay, _token()) as phone:
        await (await phone.task(KEY, create=True)).slots.confirm("x", 1)
        await phone.synced(timeout_s=30)
        reader = _token(Role.READ, device="reader")
        async with _with_token(tmp_path, relay, reader, "reader") as other:
            task = await other.task(KEY)
            assert task.slots["x"].value == 1
            with pytest.raises(ReadOnly):
                await task.slots.confirm("x", 2)
