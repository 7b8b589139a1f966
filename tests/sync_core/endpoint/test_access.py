"""Who may only read writes nothing: not by any method, not with any role, and nothing leaves the process (AC-18)."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from server_relay.tokens import make_token
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.opening import Opening
from sync_core.endpoint.stored import StoredTask
from sync_core.endpoint.task import Task
from sync_core.endpoint.transport import Connection, WebsocketTransport
from sync_core.entry import EntryKind
from sync_core.errors import NeedsApproval, ReadOnly
from sync_core.frames import BlobWanted, DigestAt, Hello, ListTasks, Login, Unfollow
from sync_core.parts import PARTS, Role
from sync_core.replica.session import Session
from sync_core.wire import ClientFrame, decode_client
from tests.sync_core.endpoint.conftest import KEY
from tests.sync_core.endpoint.writing import READS, RUNS, WRITES, awaited_methods, look, pay

SECRET = "a secret of at least thirty-two bytes, for tests"
SAYS_NOTHING = (Login, Hello, Unfollow, BlobWanted, ListTasks, DigestAt)
"""Frames by which a device changes nothing at the relay."""


class Tap:
    """A network that keeps the frames that were sent."""

    def __init__(self) -> None:
        self.frames: list[ClientFrame] = []

    async def connect(self, url: str) -> Connection:
        return _Tapped(self, await WebsocketTransport().connect(url))


class _Tapped:
    def __init__(self, tap: Tap, connection: Connection) -> None:
        self._tap = tap
        self._connection = connection

    async def send(self, message: bytes) -> None:
        self._tap.frames += decode_client(message)
        await self._connection.send(message)

    async def receive(self) -> bytes | str:
        return await self._connection.receive()

    async def close(self) -> None:
        await self._connection.close()


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayServer]:
    RUNS.clear()
    server = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, secret=SECRET))
    yield server
    await server.close()


def opened(folder: Path, relay: RelayServer, device: str, role: Role, tap: Tap | None = None) -> Opening[Endpoint]:
    token = make_token(
        SECRET, principal=device, device=device, subject="acme", role=role, expires_s=int(time.time()) + 600
    )
    return Endpoint.open(
        folder / f"{device}.db",
        subject="acme",
        device=device,
        relay=f"ws://127.0.0.1:{relay.port}",
        token=token,
        transport=tap,
        backoff=Backoff(0.02, 0.1),
        tools=[look],
    )


@pytest.fixture
async def phone(tmp_path: Path, relay: RelayServer) -> AsyncIterator[Endpoint]:
    """A device that wrote of everything."""
    async with opened(tmp_path, relay, "phone", Role.ADMIN) as endpoint:
        task = await endpoint.task(KEY, create=True)
        await task.slots.declare("amount", ask="How much?")
        await task.slots.propose("amount", 1)
        await task.notes.write("worklog", "a")
        await task.history.append({"role": "user", "content": "go"})
        await endpoint.synced(timeout_s=30)
        yield endpoint


def test_every_public_method_that_is_awaited_is_known_as_a_read_or_a_write() -> None:
    assert awaited_methods() == READS | set(WRITES)


@pytest.mark.parametrize("write", WRITES)
async def test_a_handle_that_may_only_read_writes_nothing_and_sends_nothing(
    tmp_path: Path, relay: RelayServer, phone: Endpoint, write: str
) -> None:
    tap = Tap()
    async with opened(tmp_path, relay, "reader", Role.WRITE, tap) as reader:
        task = await reader.task(KEY, access="read")
        before, stored = await reader.stored(KEY), (await relay.metrics()).counts["entries_stored"]
        with pytest.raises(ReadOnly) as refused:
            await WRITES[write](task)
        assert refused.value.status == 403
        assert "Open a new session" in refused.value.hint
        await reader.synced(timeout_s=30)
        assert await reader.stored(KEY) == before
        assert reader.status.set_aside == 0
        assert RUNS == []
    assert [frame for frame in tap.frames if not isinstance(frame, SAYS_NOTHING)] == []
    assert (await relay.metrics()).counts["entries_stored"] == stored
    assert (await phone.stored(KEY)).digest == before.digest


@pytest.mark.parametrize("write", WRITES)
async def test_a_device_whose_role_may_only_read_writes_nothing_though_its_handle_may(
    tmp_path: Path, relay: RelayServer, phone: Endpoint, write: str
) -> None:
    tap = Tap()
    async with opened(tmp_path, relay, "reader", Role.READ, tap) as reader:
        task = await reader.task(KEY)
        read = await task.notes.read("worklog")
        before = await reader.stored(KEY)
        with pytest.raises(ReadOnly, match="the role read"):
            if write == "Notes.merge":
                await task.notes.merge("worklog", "x", base=read)
            elif write == "Task.restore":
                await _delete_then_restore(phone, reader, task)
            else:
                await WRITES[write](task)
        await reader.synced(timeout_s=30)
        assert reader.status.unsent == reader.status.set_aside == 0
        if write != "Task.restore":
            assert await reader.stored(KEY) == before
    assert [frame for frame in tap.frames if not isinstance(frame, SAYS_NOTHING)] == []


async def _delete_then_restore(phone: Endpoint, reader: Endpoint, task: Task) -> None:
    """There must be something to bring back, or nothing would be written at all."""
    place = next(stream.cursor for stream in (await task.replay()).streams if stream.stream.value == "state")
    async with phone.task(KEY) as deleting:
        await deleting.slots.clear("amount", read=deleting.slots["amount"])
    await phone.synced(timeout_s=30)
    await reader.synced(timeout_s=30)
    await task.restore(place)


# --- the table of parts, row by row -----------------------------------------------------------------------------------

WRITE_OF_PART: dict[str, Callable[[Endpoint, Task], Awaitable[object]]] = {
    "slots": lambda _, task: task.slots.confirm("amount", 3),
    "notes": lambda _, task: task.notes.append("worklog", "b"),
    "calls": lambda _, task: task.call("step", look, 1),
    "plan": lambda _, task: task.plan("later", look, number=1),
    "version": lambda endpoint, task: _decide(endpoint),
    "completion": lambda _, task: task.complete(),
    "history": lambda _, task: task.history.append({"role": "user", "content": "hello"}),
    "handover": lambda _, task: task.hand_over("All is done."),
    "approvals": lambda _, task: task.approve(next(iter(task.approvals)).id),
}
NO_WRITE_OF_ITS_OWN = {"rulings", "snapshots"}
PATHS = {part.name: f"{part.name}/amount" if part.item else part.name for part in PARTS}


async def _decide(endpoint: Endpoint) -> None:
    async with endpoint.task(KEY, version=2):
        pass


def test_every_row_of_the_table_has_its_write() -> None:
    assert {part.name for part in PARTS} == set(WRITE_OF_PART) | NO_WRITE_OF_ITS_OWN


@pytest.mark.parametrize("role", list(Role))
async def test_each_part_takes_a_write_of_the_roles_in_its_row_alone_and_explains_it_so(
    tmp_path: Path, relay: RelayServer, phone: Endpoint, role: Role
) -> None:
    async with phone.task(KEY) as asking:
        with pytest.raises(NeedsApproval):
            await asking.call("pay", pay, 1)
    await phone.synced(timeout_s=30)
    async with opened(tmp_path, relay, "other", role) as other:
        task = await other.task(KEY)
        # The version goes last, because it ends what this handle may do.
        for part in sorted(PARTS, key=lambda part: part.name == "version"):
            told = task.explain(PATHS[part.name])
            assert told.roles == tuple(sorted(part.roles))
            assert told.may_write is (role in part.roles), told
            if part.name in NO_WRITE_OF_ITS_OWN:
                continue
            if role in part.roles:
                await WRITE_OF_PART[part.name](other, task)
                continue
            await other.synced(timeout_s=30)
            before = await other.stored(KEY)
            with pytest.raises(ReadOnly):
                await WRITE_OF_PART[part.name](other, task)
            assert await other.stored(KEY) == before
        await other.synced(timeout_s=30)
        assert other.status.set_aside == 0


@pytest.mark.parametrize("role", list(Role))
def test_what_has_no_write_of_its_own_is_refused_by_the_same_table(role: Role) -> None:
    session = Session(has_relay=True)
    session.check_may_write(EntryKind.RULING)
    session.role = role
    for part in PARTS:
        if role in part.roles:
            session.check_may_write(part.kind)
        else:
            with pytest.raises(ReadOnly):
                session.check_may_write(part.kind)


# --- a reader that does not keep to it (AC-20) ------------------------------------------------------------------------


async def test_what_a_hostile_reader_wrote_into_its_own_file_is_refused_and_reaches_nobody(
    tmp_path: Path, relay: RelayServer, phone: Endpoint
) -> None:
    async with opened(tmp_path, relay, "eve", Role.READ) as eve:
        before = await _synced_copy(eve)
    # Without a link nothing tells the program what its role is: it edits its document as it likes.
    async with Endpoint.open(tmp_path / "eve.db", subject="acme", device="eve") as eve:
        task = await eve.task(KEY)
        for write in (part for name, part in WRITE_OF_PART.items() if name not in ("version", "approvals")):
            await write(eve, task)
        assert (await eve.stored(KEY)).digest != before.digest
    stored = (await relay.metrics()).counts["entries_stored"]
    async with opened(tmp_path, relay, "eve", Role.READ) as eve:
        await eve.synced(timeout_s=30)
        assert await _synced_copy(eve) == before
        assert eve.status.set_aside >= 7
        assert eve.status.unsent == 0
        told = [line async for line in eve.export(KEY) if line["standing"] == "set_aside"]
        assert {line["code"] for line in told} == {"role"}
    metrics = await relay.metrics()
    assert metrics.counts["entries_stored"] == stored
    assert metrics.counts["refused_role"] >= 7
    assert await _synced_copy(phone) == before


async def _synced_copy(endpoint: Endpoint) -> StoredTask:
    async with endpoint.task(KEY):
        await endpoint.synced(timeout_s=30)
        return await endpoint.stored(KEY)
