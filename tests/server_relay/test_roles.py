"""Roles at the relay: a reader's frame of any kind changes nothing (RS-23, SE-22); each part takes its roles alone."""

import time
from pathlib import Path
from typing import get_args

import pytest

from server_relay.admission import Grant
from server_relay.config import RelaySettings
from server_relay.server import serve
from server_relay.tokens import make_token
from sync_core.entry import (
    CallIntent,
    Completion,
    Effect,
    Entry,
    EntryKind,
    HandOver,
    HistoryItem,
    Plan,
    VersionDecision,
    encode_record,
)
from sync_core.frames import (
    BlobAbsent,
    BlobPiece,
    BlobWanted,
    DigestAt,
    Entries,
    Heads,
    Hello,
    Listing,
    ListTasks,
    Login,
    Purge,
    Push,
    Refusal,
    RefusalCode,
    SnapshotConfirmed,
    SnapshotOffer,
    Unfollow,
)
from sync_core.ids import AUTHORITY_DEVICE, StreamName
from sync_core.parts import KINDS_OF_STREAM, PARTS, Role
from sync_core.petitions import Claim, HoldSlot, LiftBarrier, SettleDoubt
from sync_core.rulings import Approval, Held
from sync_core.wire import ClientFrame
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import WireClient, history_entry
from tests.sync_core.updates import section, slot, update

TASK = "expense/TRIP-118"
PHONE, EVE = 700_001, 900_009
SHA = "a" * 64
DIGEST = "d" * 64
STATE = f"{TASK}:state"

PAYLOADS: dict[EntryKind, bytes] = {
    EntryKind.UPDATE: update(section(EVE, 0, slot())),
    EntryKind.CALL: encode_record(CallIntent("pay", 1, "bank", Effect.READ, DIGEST, "a" * 16, 1)),
    EntryKind.PLAN: encode_record(Plan("scan", 1, "read_invoice", "{}", 1)),
    EntryKind.VERSION: encode_record(VersionDecision(9, "eve")),
    EntryKind.COMPLETION: encode_record(Completion(1, "eve")),
    EntryKind.HISTORY: encode_record(HistoryItem("i" * 16, "r" * 16, 1, 0, "{}")),
    EntryKind.HANDOVER: encode_record(HandOver(1, "From eve.")),
    EntryKind.APPROVAL: encode_record(Approval("pay", 1, "bank", DIGEST, True)),
    EntryKind.RULING: encode_record(Held("limit", "eve", "eve", "1")),
    EntryKind.SNAPSHOT: b"",
}


def by_role(login: Login, now_ms: int) -> Grant:
    """A token is a role."""
    return Grant(f"principal of {login.device}", login.device, login.subject, Role(login.token))


def entry_of(kind: EntryKind, device: str = "eve") -> Entry:
    """An entry of a kind that is well made."""
    stream = next(name for name, kinds in KINDS_OF_STREAM.items() if kind in kinds)
    blob = SHA if kind is EntryKind.SNAPSHOT else None
    return Entry(f"{TASK}:{stream.value}", EVE, 1, kind, PAYLOADS[kind], device, blob=blob)


FRAMES: dict[type, list[ClientFrame]] = {
    Push: [
        *(Push(TASK, (entry_of(kind),)) for kind in EntryKind),
        *(Push(TASK, (entry_of(kind),), recovered=True) for kind in EntryKind),
        Push(TASK, (entry_of(EntryKind.RULING, AUTHORITY_DEVICE),)),
        Push(TASK, (entry_of(EntryKind.RULING, AUTHORITY_DEVICE),), recovered=True),
        Push(TASK, (entry_of(EntryKind.HISTORY, "phone"),)),
        Push("new/task", (Entry("new/task:state", EVE, 1, EntryKind.VERSION, PAYLOADS[EntryKind.VERSION], "eve"),)),
    ],
    BlobPiece: [BlobPiece(TASK, SHA, 0, 4, b"abcd")],
    BlobAbsent: [BlobAbsent(TASK, SHA)],
    SnapshotOffer: [SnapshotOffer(STATE, b"", 1, bytes(32), SHA)],
    SnapshotConfirmed: [SnapshotConfirmed(STATE, b"", SHA, bytes(32))],
    DigestAt: [DigestAt(STATE, b"", 1, bytes(32))],
    Purge: [Purge(TASK, 1), Purge(TASK, 1, recovered=True)],
    Claim: [Claim(TASK, 1, 1, "pay", "bank", DIGEST, "a" * 16)],
    SettleDoubt: [SettleDoubt(TASK, 1, 1, "pay", "bank", True)],
    HoldSlot: [HoldSlot(TASK, 1, "limit", "1"), HoldSlot(TASK, 1, "limit")],
    LiftBarrier: [LiftBarrier(TASK, 1)],
}
ONLY_ASKS = {Login, Hello, Unfollow, BlobWanted, ListTasks}


@pytest.fixture
def harness() -> Harness:
    return Harness(by_role)


def busy(harness: Harness) -> Client:
    """A device that wrote and follows; what it was sent so far is taken."""
    phone = harness.login("phone", token="admin")
    phone.hello(TASK)
    phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
    version = Entry(STATE, PHONE, 1, EntryKind.VERSION, encode_record(VersionDecision(1, "phone")), "phone")
    phone.push(TASK, version)
    phone.frames.clear()
    return phone


def test_every_kind_of_frame_and_of_entry_is_tried() -> None:
    assert set(get_args(ClientFrame)) == set(FRAMES) | ONLY_ASKS
    assert set(PAYLOADS) == set(EntryKind)


@pytest.mark.parametrize(
    "frame", [frame for frames in FRAMES.values() for frame in frames], ids=lambda frame: type(frame).__name__
)
def test_a_readers_frame_changes_nothing_and_reaches_nobody(harness: Harness, frame: ClientFrame) -> None:
    phone = busy(harness)
    reader = harness.login("eve", token="read")
    before, writes = reader.hello(TASK).streams, len(harness.writes)
    assert len(reader.entries()) == 2
    reader.frames.clear()
    reader.send(frame)
    harness.tick(60_000)
    assert len(harness.writes) == writes
    assert phone.frames == []
    if isinstance(frame, Push):
        assert [refusal.code for refusal in reader.take(Refusal)] == [RefusalCode.ROLE]
        assert reader.closed is None
    again = harness.login("again", token="read")
    assert again.hello(TASK).streams == before
    harness.restart()
    assert harness.login("after", token="read").hello(TASK).streams == before


async def test_no_frame_of_a_readers_socket_moves_a_head_not_even_over_a_restart(tmp_path: Path) -> None:
    """RS-23, over real sockets and on a real store: each frame on a connection of its own, then all on one."""
    secret = "a secret of more than thirty-two bytes"
    settings = RelaySettings(db=tmp_path / "relay.db", port=0, secret=secret)

    def token(device: str, role: Role) -> str:
        return make_token(
            secret, principal=device, device=device, subject="acme", role=role, expires_s=int(time.time()) + 600
        )

    async def heads(port: int) -> Heads:
        async with await WireClient.open(port, "watcher", token=token("watcher", Role.READ)) as watcher:
            await watcher.send(Hello("new/task"), Hello(TASK))
            told = {heads.task: heads for heads in (await watcher.next(Heads), await watcher.next(Heads))}
            assert not told["new/task"].known
            return told[TASK]

    relay = await serve(settings)
    async with await WireClient.open(relay.port, "phone", token=token("phone", Role.ADMIN)) as phone:
        version = Entry(STATE, PHONE, 1, EntryKind.VERSION, encode_record(VersionDecision(1, "phone")), "phone")
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"), version)
        await phone.receipts(2)
        before = await heads(relay.port)
        every = [frame for listed in FRAMES.values() for frame in listed]
        for frame in every:
            async with await WireClient.open(relay.port, "eve", token=token("eve", Role.READ)) as eve:
                await eve.send(Hello(TASK), frame)
                await eve.next(Heads)
        async with await WireClient.open(relay.port, "eve", token=token("eve", Role.READ)) as eve:
            for frame in every:
                await eve.send(frame)
            await eve.send(ListTasks(1))
            assert [listed.task for listed in (await eve.next(Listing)).tasks] == [TASK]
            told = [frame.code for frame in eve.frames if isinstance(frame, Refusal)]
            assert set(told) <= {RefusalCode.ROLE}
        assert (await heads(relay.port)).streams == before.streams
        assert (await relay.metrics()).mailbox.entries == 2
    await relay.close()
    restarted = await serve(settings)
    assert (await heads(restarted.port)).streams == before.streams
    await restarted.close()


def test_a_readers_entries_are_refused_one_by_one_also_among_many(harness: Harness) -> None:
    busy(harness)
    reader = harness.login("eve", token="read")
    entries = [history_entry(TASK, EVE, seq, "eve") for seq in (1, 2, 3)]
    reader.push(TASK, *entries)
    refusals = reader.take(Refusal)
    assert [(refusal.writer_seq, refusal.code) for refusal in refusals] == [(n, RefusalCode.ROLE) for n in (1, 2, 3)]
    assert "read only" in refusals[0].sentence


REFUSED = [(part.kind, role) for part in PARTS for role in Role if role not in part.roles]


@pytest.mark.parametrize(("kind", "role"), sorted(set(REFUSED)), ids=str)
def test_each_row_of_the_table_is_refused_to_the_roles_that_are_not_in_it(
    harness: Harness, kind: EntryKind, role: Role
) -> None:
    phone = busy(harness)
    other = harness.login("eve", token=role.value)
    writes = len(harness.writes)
    other.push(TASK, entry_of(kind))
    codes = [refusal.code for refusal in other.take(Refusal)]
    # Whoever may write is refused a ruling by the guard already: no device may make one.
    by_guard = kind is EntryKind.RULING and role.may_write
    assert codes == [RefusalCode.GUARD if by_guard else RefusalCode.ROLE]
    assert len(harness.writes) == writes
    assert phone.take(Entries) == []


TAKEN = [(part.kind, role) for part in PARTS for role in part.roles if part.kind is not EntryKind.SNAPSHOT]


@pytest.mark.parametrize(("kind", "role"), sorted(set(TAKEN)), ids=str)
def test_and_is_taken_from_those_that_are(harness: Harness, kind: EntryKind, role: Role) -> None:
    busy(harness)
    other = harness.login("eve", token=role.value)
    other.push(TASK, entry_of(kind))
    assert other.take(Refusal) == []
    assert other.receipts()


def test_a_role_that_is_refused_one_kind_is_not_refused_the_others(harness: Harness) -> None:
    busy(harness)
    other = harness.login("eve", token="write")
    approvals = [entry_of(EntryKind.APPROVAL), Entry(f"{TASK}:authority", EVE, 2, EntryKind.APPROVAL, b"", "eve")]
    other.push(TASK, *approvals, entry_of(EntryKind.HANDOVER))
    # The writer's later entry of that stream is passed over: it could only be refused for the hole.
    assert [(refusal.writer_seq, refusal.code) for refusal in other.take(Refusal)] == [(1, RefusalCode.ROLE)]
    assert other.receipts() == [(EVE, 1, 1)]
    assert StreamName.AUTHORITY not in {head.name for head in other.hello(TASK).streams}
