"""Approvals across devices, slots that the authority holds, and a relay that lost its log: by role and principal."""

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from server_relay.tokens import make_token
from sync_core.document.approvals import ApprovalState, RequestedApproval
from sync_core.document.calls import CallState
from sync_core.document.slots import SlotState
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.secrets import WITHHELD
from sync_core.endpoint.task import Task
from sync_core.errors import InDoubt, NeedsApproval, NeedsAuthority, ReadOnly, TooLarge, ValueRefused
from sync_core.parts import Role
from sync_core.testing import two_endpoints
from tests.sync_core.endpoint.bank import Bank, nothing_happened
from tests.sync_core.endpoint.conftest import KEY

SECRET = "a secret of at least thirty-two bytes, for tests"


class Office:
    """A relay that knows who signs in, and devices of one subject with a role each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.relay: RelayServer
        self.port = 0
        self.ends: list[Endpoint] = []

    async def start(self) -> None:
        """Start the relay, where it was before."""
        self.relay = await serve(RelaySettings(db=self.folder / "relay.db", port=self.port, secret=SECRET))
        self.port = self.relay.port

    async def lose_log(self) -> None:
        """Restart the relay without what it held."""
        await self.relay.close()
        for path in self.folder.glob("relay.db*"):
            path.unlink()
        await self.start()

    async def end(
        self, device: str, role: Role = Role.WRITE, *, principal: str = "", offline: bool = False
    ) -> Endpoint:
        """Open a device on its own file."""
        token = make_token(
            SECRET,
            principal=principal or device,
            device=device,
            subject="acme",
            role=role,
            expires_s=int(time.time()) + 600,
        )
        endpoint = await Endpoint.open(
            self.folder / f"{device}.db",
            subject="acme",
            device=device,
            relay=None if offline else f"ws://127.0.0.1:{self.port}",
            token="" if offline else token,
            backoff=Backoff(0.02, 0.1),
        )
        self.ends.append(endpoint)
        return endpoint

    async def synced(self) -> None:
        """Wait until everybody has what anybody wrote."""
        for _ in range(2):
            for endpoint in self.ends:
                if endpoint.status.link.value != "offline":
                    await endpoint.synced(timeout_s=30)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    office = Office(tmp_path)
    await office.start()
    yield office
    for endpoint in office.ends:
        await endpoint.aclose()
    await office.relay.close()


async def asked(task: Task, bank: Bank, amount: int = 100) -> str:
    """Call for a payment that waits for an approval; return the request."""
    with pytest.raises(NeedsApproval) as caught:
        await task.call("pay", bank.pay_approved, amount)
    assert caught.value.request
    return caught.value.request


def request_of(task: Task, request: str) -> RequestedApproval:
    return next(found for found in task.approvals if found.id == request)


# --- approvals --------------------------------------------------------------------------------------------------------


async def test_a_call_that_was_approved_offline_on_another_device_runs_once(office: Office, bank: Bank) -> None:
    pc = await office.end("pc")
    there = await pc.task(KEY, create=True)
    request = await asked(there, bank)
    assert await asked(there, bank) == request
    phone = await office.end("phone", Role.APPROVE)
    await office.synced()
    here = await phone.task(KEY)
    (shown,) = here.approvals
    assert (shown.id, shown.step, shown.tool, shown.arguments) == (request, "pay", "pay", '{"amount":100}')
    assert (shown.device, shown.state, shown.by) == ("pc", ApprovalState.WAITING, "")
    assert shown.digest == bank.pay_approved.bind((100,), {}).digest
    await phone.aclose()

    phone = await office.end("phone", offline=True)
    await (await phone.task(KEY)).approve(shown)
    await phone.aclose()
    assert bank.paid == []
    assert await asked(there, bank) == request

    phone = await office.end("phone", Role.APPROVE)
    here = await phone.task(KEY)
    office.ends = [pc, phone]
    await office.synced()
    assert (request_of(there, request).state, request_of(there, request).by) == (ApprovalState.APPROVED, "phone")
    assert await asked(there, bank, 200) != request
    assert [await there.call("pay", bank.pay_approved, 100) for _ in range(2)] == ["paid 100"] * 2
    assert bank.amounts == [100]
    await office.synced()
    assert request_of(here, request).state is ApprovalState.USED
    assert here.calls["pay"].state is CallState.DONE


async def test_an_approval_is_used_up_by_one_call(office: Office, bank: Bank) -> None:
    there = await (await office.end("pc")).task(KEY, create=True)
    request = await asked(there, bank)
    boss = await office.end("boss", Role.APPROVE)
    await office.synced()
    here = await boss.task(KEY)
    await here.approve(request)
    await here.approve(request)
    await office.synced()
    bank.fails_before.append(nothing_happened())
    with pytest.raises(Exception, match="bank is closed"):
        await there.call("pay", bank.pay_approved, 100)
    await office.synced()
    assert request_of(there, request).state is ApprovalState.WAITING
    assert await asked(there, bank) == request
    await here.approve(request)
    await office.synced()
    assert await there.call("pay", bank.pay_approved, 100) == "paid 100"


async def test_nobody_approves_a_call_of_their_own(office: Office, bank: Bank) -> None:
    there = await (await office.end("pc", Role.ADMIN, principal="ann")).task(KEY, create=True)
    request = await asked(there, bank)
    phone = await office.end("phone", Role.APPROVE, principal="ann")
    await office.synced()
    await (await phone.task(KEY)).approve(request)
    await there.approve(request)
    await office.synced()
    assert await asked(there, bank) == request
    assert bank.paid == []
    # The caller's own yes does not keep anybody else from saying it.
    boss = await (await office.end("boss", Role.APPROVE)).task(KEY)
    await boss.approve(request)
    await office.synced()
    assert await there.call("pay", bank.pay_approved, 100) == "paid 100"


async def test_the_callers_own_approval_does_not_count_and_says_so(office: Office, bank: Bank) -> None:
    pc = await office.end("pc", Role.APPROVE)
    there = await pc.task(KEY, create=True)
    request = await asked(there, bank)
    await there.approve(request)
    await office.synced()
    with pytest.raises(NeedsApproval, match="The approval of pc does not count for step pay"):
        await there.call("pay", bank.pay_approved, 100)
    assert bank.paid == []
    boss = await office.end("boss", Role.APPROVE)
    await office.synced()
    await (await boss.task(KEY)).approve(request)
    await office.synced()
    assert await there.call("pay", bank.pay_approved, 100) == "paid 100"


async def test_a_rejection_is_told_with_its_reason_and_a_later_yes_counts(office: Office, bank: Bank) -> None:
    there = await (await office.end("pc")).task(KEY, create=True)
    request = await asked(there, bank)
    boss = await office.end("boss", Role.APPROVE)
    await office.synced()
    here = await boss.task(KEY)
    await here.approve(request)
    await office.synced()
    with pytest.raises(TooLarge):
        await here.reject(request, "x" * 1_001)
    await here.reject(request, "Too much.")
    await office.synced()
    assert (request_of(there, request).state, request_of(there, request).reason) == (
        ApprovalState.REJECTED,
        "Too much.",
    )
    with pytest.raises(NeedsApproval, match=r"boss rejected step pay: Too much\."):
        await there.call("pay", bank.pay_approved, 100)
    brief = there.brief()
    assert "Too much." in brief.text
    assert brief.json["approvals"][0]["state"] == "rejected"  # type: ignore[index, call-overload]
    await here.approve(request)
    await office.synced()
    assert await there.call("pay", bank.pay_approved, 100) == "paid 100"
    assert there.brief().json["approvals"] == []


async def test_an_approval_by_somebody_who_may_not_is_never_believed(office: Office, bank: Bank) -> None:
    thief = await office.end("thief")
    task = await thief.task(KEY, create=True)
    request = await asked(task, bank)
    with pytest.raises(ReadOnly, match="the role write"):
        await task.approve(request)
    # It lies about its role, and says in the document that the boss agreed.
    thief._replica._core.session.role = Role.APPROVE
    await task.approve(request)
    await task.slots.confirm("approved_by", "boss")
    await office.synced()
    assert thief.status.set_aside == 1
    assert request_of(task, request).state is ApprovalState.WAITING
    assert await asked(task, bank) == request
    assert bank.paid == []


async def test_an_open_relay_takes_no_approval_because_nobody_signed_in(tmp_path: Path, bank: Bank) -> None:
    async with two_endpoints(tmp_path) as ends:
        task = await ends.phone.task(KEY, create=True)
        request = await asked(task, bank)
        await ends.synced()
        other = await ends.desktop.task(KEY)
        with contextlib.suppress(ReadOnly):
            await other.approve(request)
        await ends.synced()
        assert request_of(task, request).state is ApprovalState.WAITING
        assert await asked(task, bank) == request
    assert bank.paid == []


async def test_without_a_link_the_approval_is_asked_for_and_then_the_call_waits(office: Office, bank: Bank) -> None:
    pc = await office.end("pc", offline=True)
    task = await pc.task(KEY, create=True)
    request = await asked(task, bank)
    assert request_of(task, request).state is ApprovalState.WAITING
    assert "pay" not in task.calls
    await pc.aclose()
    boss = await office.end("boss", Role.APPROVE)
    pc = await office.end("pc")
    office.ends = [pc, boss]
    task = await pc.task(KEY)
    await office.synced()
    await (await boss.task(KEY)).approve(request)
    await office.synced()
    await pc.aclose()
    pc = await office.end("pc", offline=True)
    task = await pc.task(KEY)
    with pytest.raises(NeedsAuthority):
        await task.call("pay", bank.pay_approved, 100)
    assert task.calls["pay"].requires == ("authority",)
    assert bank.paid == []


# --- slots that the authority holds -----------------------------------------------------------------------------------


async def test_a_held_slot_is_written_through_the_authority_by_those_who_may(office: Office) -> None:
    server = await office.end("server", Role.AUTHORITY)
    phone = await office.end("phone")
    task = await server.task(KEY, create=True)
    slot = await task.slots.declare("price", ask="Which price?", schema={"type": "integer"}, held_by="authority")
    assert (slot.held, slot.state) == (True, SlotState.MISSING)
    with pytest.raises(ValueRefused):
        await task.slots.confirm("price", "dear")
    slot = await task.slots.confirm("price", 7)
    assert (slot.value, slot.held, slot.candidates[0].author) == (7, True, "server")
    await office.synced()
    there = await phone.task(KEY)
    assert (there.slots["price"].value, there.slots["price"].held) == (7, True)
    assert "held by the authority" in there.brief().text
    with pytest.raises(ReadOnly):
        await there.slots.confirm("price", 8)
    with pytest.raises(ValueRefused, match="no proposals"):
        await there.slots.propose("price", 8)
    with pytest.raises(NeedsAuthority):
        await there.slots.clear("price")
    assert (await task.slots.confirm("price", 9)).value == 9
    await office.synced()
    assert there.slots["price"].value == 9


async def test_a_held_slot_takes_nothing_offline_and_nothing_is_stored(office: Office) -> None:
    server = await office.end("server", Role.AUTHORITY)
    await (await server.task(KEY, create=True)).slots.declare("price", ask="?", held_by="authority")
    await office.synced()
    await server.aclose()
    server = await office.end("server", offline=True)
    task = await server.task(KEY)
    before = (await server.stats()).store.entries
    with pytest.raises(NeedsAuthority):
        await task.slots.confirm("price", 7)
    with pytest.raises(NeedsAuthority):
        await task.slots.declare("other", ask="?", held_by="authority")
    assert (await server.stats()).store.entries == before
    assert task.slots["price"].state is SlotState.MISSING
    assert "other" not in task.slots


async def test_a_candidate_from_before_is_no_value_of_a_held_slot(office: Office) -> None:
    server = await office.end("server", Role.AUTHORITY)
    task = await server.task(KEY, create=True)
    await task.slots.confirm("price", 1)
    slot = await task.slots.declare("price", ask="?", held_by="authority")
    assert (slot.state, slot.candidates, slot.proposals) == (SlotState.MISSING, (), ())


async def test_a_secret_value_that_the_authority_holds_leaves_in_no_export(office: Office) -> None:
    server = await office.end("server", Role.AUTHORITY)
    task = await server.task(KEY, create=True)
    await task.slots.declare("iban", ask="?", secret=True, held_by="authority")
    await task.slots.confirm("iban", "DE02120300000000202051")
    await task.notes.write("worklog", "nothing")
    assert "set" in task.brief().text
    lines = [line async for line in server.export(KEY)]
    assert "DE0212" not in str(lines)
    assert WITHHELD in str(lines)


# --- a lost log -------------------------------------------------------------------------------------------------------


async def test_after_a_lost_log_nothing_is_granted_before_somebody_says_so(office: Office, bank: Bank) -> None:
    phone = await office.end("phone", Role.ADMIN)
    task = await phone.task(KEY, create=True)
    assert await task.call("first", bank.pay, 1) == "paid 1"
    await office.synced()
    await office.lose_log()
    await phone.synced(timeout_s=10)
    assert await task.call("first", bank.pay, 1) == "paid 1"
    with pytest.raises(InDoubt, match="lost"):
        await task.call("second", bank.pay, 2)
    await task.settle("second", happened=False)
    assert await task.call("second", bank.pay, 2) == "paid 2"
    with pytest.raises(InDoubt):
        await task.call("third", bank.pay, 3)
    newer = await phone.task(KEY, version=2)
    assert await newer.call("third", bank.pay, 3) == "paid 3"
    assert bank.amounts == [1, 2, 3]


async def test_an_admin_lifts_the_barrier_for_the_whole_subject(office: Office, bank: Bank) -> None:
    phone, clerk = await office.end("phone", Role.ADMIN), await office.end("clerk")
    task = await clerk.task(KEY, create=True)
    assert await task.call("book", bank.book, "LIS") == "B-1"
    await office.synced()
    await office.lose_log()
    await clerk.synced(timeout_s=10)
    with pytest.raises(InDoubt):
        await task.call("other", bank.book, "ROM")
    with pytest.raises(ReadOnly, match="the role write"):
        await clerk.lift_barrier()
    await phone.synced(timeout_s=10)
    await phone.lift_barrier()
    assert await task.call("book", bank.book, "LIS") == "B-1"
    assert len(bank.paid) == 1
