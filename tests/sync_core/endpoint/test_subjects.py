"""Subjects isolate; a user's id, a principal's name or a device's name does not (AC-30a)."""

import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from server_relay.tokens import make_token
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.opening import Opening
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import StoreUnusable, TaskNotFound
from sync_core.frames import WIRE_VERSION, BlobMissing, BlobWanted, Heads, Hello, Listing, ListTasks, Login, Refused
from sync_core.keys import idempotency_key
from sync_core.parts import Role
from tests.server_relay.wire_client import WireClient
from tests.sync_core.endpoint.conftest import KEY

SECRET = "a secret of at least thirty-two bytes, for tests"
LARGE = "x" * 5_000
MARK = "only acme may read this"


@tool(effect=Effect.READ)
def read_large() -> str:
    return LARGE


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayServer]:
    server = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, secret=SECRET))
    yield server
    await server.close()


def token(subject: str) -> str:
    """The same person on the same device, in every subject."""
    expires_s = int(time.time()) + 600
    return make_token(SECRET, principal="ann", device="phone", subject=subject, role=Role.ADMIN, expires_s=expires_s)


def opened(folder: Path, relay: RelayServer, subject: str) -> Opening[Endpoint]:
    return Endpoint.open(
        folder / f"{subject}.db",
        subject=subject,
        device="phone",
        relay=f"ws://127.0.0.1:{relay.port}",
        token=token(subject),
        backoff=Backoff(0.02, 0.1),
        tools=[read_large],
    )


async def write(endpoint: Endpoint, mark: str) -> None:
    async with endpoint.task(KEY, create=True) as task:
        await task.slots.confirm("user_id", "user-1")
        await task.slots.confirm("mark", mark)
        await task.notes.write("worklog", mark)
        await task.history.append({"role": "user", "content": mark, "metadata": {"user_id": "user-1"}})
        await task.call("read", read_large)
        await task.hand_over(mark)
    await endpoint.synced(timeout_s=30)


async def test_two_subjects_with_the_same_person_device_and_task_read_nothing_of_each_other(
    tmp_path: Path, relay: RelayServer
) -> None:
    async with opened(tmp_path, relay, "acme") as acme, opened(tmp_path, relay, "beta") as beta:
        await write(acme, MARK)
        with pytest.raises(TaskNotFound):
            await beta.task(KEY)
        assert [info.key async for info in beta.tasks()] == []
        await write(beta, "only beta")
        async with acme.task(KEY) as mine, beta.task(KEY) as theirs:
            assert mine.slots["user_id"].value == theirs.slots["user_id"].value == "user-1"
            assert (mine.slots["mark"].value, theirs.slots["mark"].value) == (MARK, "only beta")
            assert theirs.handover is not None
            assert (theirs.handover.text, theirs.handover.conflicts) == ("only beta", ())
            assert len(theirs.view.history) == len(theirs.calls) == 1
        exported = str([line async for line in beta.export(KEY)])
        assert MARK not in exported
    assert MARK.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("beta.db*"))
    assert MARK.encode() in b"".join(path.read_bytes() for path in tmp_path.glob("acme.db*"))


async def test_a_raw_client_of_one_subject_gets_no_head_no_listing_and_no_blob_of_another(
    tmp_path: Path, relay: RelayServer
) -> None:
    async with opened(tmp_path, relay, "acme") as acme:
        await write(acme, MARK)
    sha256 = hashlib.sha256(f'"{LARGE}"'.encode()).hexdigest()
    async with await WireClient.open(relay.port, "phone", subject="acme", token=token("acme")) as own:
        await own.send(Hello(KEY), ListTasks(1))
        assert (await own.next(Heads)).known
        assert [task.task for task in (await own.next(Listing)).tasks] == [KEY]
    async with await WireClient.open(relay.port, "phone", subject="beta", token=token("beta")) as other:
        await other.send(Hello(KEY), ListTasks(1), BlobWanted(KEY, sha256))
        heads = await other.next(Heads)
        assert (heads.known, heads.streams) == (False, ())
        assert (await other.next(Listing)).tasks == ()
        await other.send(BlobWanted(KEY, sha256))
        assert (await other.next(BlobMissing)).sha256 == sha256


async def test_a_token_opens_its_own_subject_alone(relay: RelayServer) -> None:
    async with await WireClient.raw(relay.port) as eve:
        await eve.send(Login(WIRE_VERSION, "acme", "phone", token("beta")))
        assert (await eve.next(Refused)).final


async def test_a_file_of_one_subject_is_not_opened_for_another(tmp_path: Path) -> None:
    async with Endpoint.open(tmp_path / "x.db", subject="acme", device="phone") as acme:
        await write_alone(acme)
    before = (tmp_path / "x.db").read_bytes()
    with pytest.raises(StoreUnusable) as refused:
        await Endpoint.open(tmp_path / "x.db", subject="beta", device="phone")
    assert MARK not in str(refused.value)
    assert (tmp_path / "x.db").read_bytes() == before


async def write_alone(endpoint: Endpoint) -> None:
    async with endpoint.task(KEY, create=True) as task:
        await task.slots.confirm("mark", MARK)


def test_the_same_call_of_two_subjects_has_two_keys() -> None:
    assert idempotency_key("acme", KEY, 1, "pay") != idempotency_key("beta", KEY, 1, "pay")
