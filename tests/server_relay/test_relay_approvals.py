"""Approvals and held slots at the relay: who may give one, what it is good for, and who writes what is held."""

import pytest

from server_relay.admission import admit_anyone
from server_relay.effects import Written
from server_relay.records import AppendStored
from sync_core.entry import EntryKind, decode_record
from sync_core.errors import StoreFull
from sync_core.frames import Push, Refusal, RefusalCode
from sync_core.petitions import ClaimVerdict, HoldSlot
from sync_core.rulings import Approval, Approved, Granted, Held
from tests.server_relay.harness import Harness
from tests.server_relay.petitioners import DIGEST, OTHER_DIGEST, TASK, TOOL, Petitioner, admit_by_token
from tests.sync_core.updates import entry, note, section, slot, update

VERDICT = ClaimVerdict


@pytest.fixture
def harness() -> Harness:
    return Harness(admit_by_token)


@pytest.fixture
def agent(harness: Harness) -> Petitioner:
    agent = Petitioner(harness, "pc", "anna/write")
    agent.open()
    return agent


@pytest.fixture
def phone(harness: Harness, agent: Petitioner) -> Petitioner:
    return Petitioner(harness, "phone", "ben/approve")


def pay(device: Petitioner, step: str = "pay", **more: object) -> ClaimVerdict:
    """Claim the call that needs an approval; return the verdict."""
    return device.claim(step, needs_approval=True, **more).verdict


# --- approvals --------------------------------------------------------------------------------------------------------


def test_an_approval_is_stored_and_ruled_on_in_one_commit_and_lets_the_call_run_once(
    harness: Harness, agent: Petitioner, phone: Petitioner
) -> None:
    """AC-22."""
    assert pay(agent) is VERDICT.NEEDS_APPROVAL
    harness.batches.clear()
    phone.approve()
    (batch,) = [batch for batch in harness.batches if any(isinstance(effect, Written) for effect in batch)]
    (append,) = [e.write for e in batch if isinstance(e, Written) and isinstance(e.write, AppendStored)]
    assert [row.relay_seq for row in append.entries] == [1, 2]
    assert agent.rulings() == [Approved("pay", 1, TOOL, DIGEST, True, "ben", "phone")]
    granted = agent.claim(needs_approval=True)
    assert granted.verdict is VERDICT.GRANTED
    (ruling,) = agent.rulings()
    assert isinstance(ruling, Granted)
    assert ruling.approved_by == "ben"


@pytest.mark.parametrize("more", [{"arguments_digest": OTHER_DIGEST}, {"tool": "transfer"}, {"step": "other"}])
def test_an_approval_is_good_for_exactly_what_was_shown(
    agent: Petitioner, phone: Petitioner, more: dict[str, str]
) -> None:
    phone.approve()
    assert pay(agent, **more) is VERDICT.NEEDS_APPROVAL
    assert pay(agent) is VERDICT.GRANTED


def test_an_approval_is_used_up_by_its_grant_also_across_restarts(
    harness: Harness, agent: Petitioner, phone: Petitioner
) -> None:
    phone.approve()
    harness.restart()
    agent = Petitioner(harness, "pc", "anna/write")
    granted = agent.claim(needs_approval=True)
    agent.outcome(granted, ok=False, result=None, error="full")
    assert pay(agent) is VERDICT.NEEDS_APPROVAL
    harness.restart()
    agent = Petitioner(harness, "pc", "anna/write")
    assert pay(agent) is VERDICT.NEEDS_APPROVAL
    Petitioner(harness, "phone", "ben/approve").approve()
    assert pay(agent) is VERDICT.GRANTED


def test_a_call_that_was_done_after_an_approval_is_given_back(agent: Petitioner, phone: Petitioner) -> None:
    phone.approve()
    agent.outcome(agent.claim(needs_approval=True))
    answer = agent.claim(needs_approval=True)
    assert (answer.verdict, answer.result) == (VERDICT.DONE, '"paid"')


def test_who_makes_the_call_does_not_approve_it(harness: Harness, agent: Petitioner) -> None:
    own = Petitioner(harness, "tablet", "anna/approve")
    own.approve()
    assert own.rulings() == [Approved("pay", 1, TOOL, DIGEST, True, "anna", "tablet")]
    assert pay(agent) is VERDICT.NEEDS_APPROVAL
    assert pay(Petitioner(harness, "other", "cleo/write")) is VERDICT.GRANTED


def test_a_rejection_takes_an_earlier_approval_back(harness: Harness, agent: Petitioner, phone: Petitioner) -> None:
    phone.approve()
    Petitioner(harness, "boss", "cleo/admin").approve(approved=False)
    assert pay(agent) is VERDICT.NEEDS_APPROVAL
    phone.approve()
    assert pay(agent) is VERDICT.GRANTED


@pytest.mark.parametrize("role", ["read", "write", "authority"])
def test_a_role_that_may_not_approve_is_refused(harness: Harness, agent: Petitioner, role: str) -> None:
    eve = Petitioner(harness, "eve", f"eve/{role}")
    eve.approve()
    assert eve.refusals() == [RefusalCode.ROLE]
    assert agent.rulings() == []
    assert pay(agent) is VERDICT.NEEDS_APPROVAL


def test_where_nobody_can_tell_who_approves_nobody_does() -> None:
    """In an open relay every device has every role, and is whoever it says."""
    harness = Harness(admit_anyone)
    agent, phone = Petitioner(harness, "pc"), Petitioner(harness, "phone")
    agent.open()
    phone.approve()
    assert phone.refusals() == [RefusalCode.ROLE]
    assert pay(agent) is VERDICT.NEEDS_APPROVAL
    assert agent.claim("other").verdict is VERDICT.GRANTED


def test_an_approval_outside_the_authoritys_stream_is_nothing(harness: Harness, agent: Petitioner) -> None:
    """AC-24: what a document says of an approval is not believed."""
    eve = Petitioner(harness, "eve", "eve/admin")
    said = Approval("pay", 1, TOOL, DIGEST, True)
    for stream, kind in (("state", EntryKind.APPROVAL), ("state", EntryKind.PLAN), ("authority", EntryKind.PLAN)):
        eve.client.push(TASK, eve.entry(said, stream=stream, kind=kind))
    assert {refusal.code for refusal in eve.client.take(Refusal)} <= {RefusalCode.GUARD, RefusalCode.GAP}
    assert pay(agent) is VERDICT.NEEDS_APPROVAL


def test_an_approval_that_is_brought_back_as_recovered_counts_for_nothing(
    harness: Harness, agent: Petitioner, phone: Petitioner
) -> None:
    eve = Petitioner(harness, "eve", "eve/write")
    said = Approval("pay", 1, TOOL, DIGEST, True)
    phone.client.push(TASK, eve.entry(said, stream="authority", kind=EntryKind.APPROVAL), recovered=True)
    assert phone.refusals() == []
    assert agent.rulings() == []
    assert pay(agent) is VERDICT.NEEDS_APPROVAL


def test_an_approval_that_is_sent_again_is_not_ruled_on_again(agent: Petitioner, phone: Petitioner) -> None:
    said = phone.entry(Approval("pay", 1, TOOL, DIGEST, True), stream="authority", kind=EntryKind.APPROVAL)
    phone.client.push(TASK, said)
    assert pay(agent) is VERDICT.GRANTED
    phone.client.push(TASK, said)
    assert agent.kinds() == [Approved, Granted]


def test_approval_and_claim_of_one_turn_are_taken_in_order(
    harness: Harness, agent: Petitioner, phone: Petitioner
) -> None:
    said = phone.entry(Approval("pay", 1, TOOL, DIGEST, True), stream="authority", kind=EntryKind.APPROVAL)
    frames = [agent.claim_frame(needs_approval=True) for _ in range(2)]
    harness.turn(*phone.client.received(Push(TASK, (said,))), *agent.client.received(*frames))
    assert agent.kinds() == [Approved, Granted]


def test_an_approval_leaves_room_for_the_ruling_on_it(agent: Petitioner, phone: Petitioner) -> None:
    for size, codes in ((70_000, [RefusalCode.TOO_LARGE]), (60_000, [])):
        said = Approval("pay", 1, TOOL, DIGEST, True, "r" * size)
        entry = phone.again().entry(said, stream="authority", kind=EntryKind.APPROVAL)
        phone.client.push(TASK, entry)
        assert phone.refusals() == codes
    assert agent.kinds() == [Approved]


def test_an_approval_whose_commit_failed_counts_for_nothing_until_it_comes_again(
    harness: Harness, agent: Petitioner, phone: Petitioner
) -> None:
    said = phone.entry(Approval("pay", 1, TOOL, DIGEST, True), stream="authority", kind=EntryKind.APPROVAL)
    harness.model.fail_next(StoreFull("The disk is full."))
    phone.client.push(TASK, said)
    assert phone.client.receipts() == []
    agent = Petitioner(harness, "pc", "anna/write")
    assert pay(agent) is VERDICT.NEEDS_APPROVAL
    phone.again().client.push(TASK, said)
    assert pay(agent) is VERDICT.GRANTED


# --- held slots -------------------------------------------------------------------------------------------------------


def write(device: Petitioner, name: str = "limit", seq: int = 1, clock: int = 0, root: str = "slots") -> None:
    """Push an update that sets a slot, under a writer of its own."""
    writer = 900_000 + device.writer
    data = update(section(writer, clock, slot(key=f"{name}/0123456789abcdef", root=root)))
    device.client.push(TASK, entry(writer, seq, data, device.device))


def test_a_held_slot_is_refused_to_everybody_who_writes_it_into_the_document(
    harness: Harness, agent: Petitioner
) -> None:
    assert agent.hold("limit") == ""
    assert agent.rulings() == [Held("limit", "anna", "pc")]
    for device in (agent, Petitioner(harness, "boss", "cleo/admin")):
        write(device)
        assert device.refusals() == [RefusalCode.HELD_BY_AUTHORITY]
        write(device, "limit2")
        assert device.refusals() == []


def test_what_lies_beside_a_held_slot_is_written_as_ever(agent: Petitioner) -> None:
    agent.hold("limit")
    write(agent, root="slotdefs")
    writer = 900_000 + agent.writer
    agent.client.push(TASK, entry(writer, 2, update(section(writer, 1, note("limit/1"))), "pc"))
    assert agent.refusals() == []


def test_only_the_authoritys_roles_write_a_held_slot(harness: Harness, agent: Petitioner) -> None:
    clerk, boss = Petitioner(harness, "clerk", "dora/authority"), Petitioner(harness, "boss", "cleo/admin")
    agent.hold("limit")
    assert [device.hold("limit", "1") for device in (agent, Petitioner(harness, "p", "ben/approve"))] == ["role"] * 2
    assert [device.hold("limit", value) for device, value in ((clerk, "100"), (boss, "200"))] == ["", ""]
    assert agent.rulings() == [
        Held("limit", "anna", "pc"),
        Held("limit", "dora", "clerk", "100"),
        Held("limit", "cleo", "boss", "200"),
    ]


def test_asking_again_holds_nothing_anew_and_takes_no_value_away(harness: Harness, agent: Petitioner) -> None:
    clerk = Petitioner(harness, "clerk", "dora/authority")
    assert clerk.hold("limit", "100") == ""
    assert agent.hold("limit") == ""
    assert [ruling for ruling in agent.rulings() if isinstance(ruling, Held)] == [Held("limit", "dora", "clerk", "100")]


def test_a_value_that_is_none_is_not_held(harness: Harness, agent: Petitioner) -> None:
    clerk = Petitioner(harness, "clerk", "dora/authority")
    assert clerk.hold("limit", '"' + "x" * 5_000 + '"') == "too_large"
    assert agent.rulings() == []
    write(agent)
    assert agent.refusals() == []
    clerk.client.send(HoldSlot(TASK, 99, "limit", "{not json"))
    assert clerk.client.closed is not None


def test_a_slot_stays_held_after_a_restart_and_a_lost_log(harness: Harness, agent: Petitioner) -> None:
    agent.hold("limit")
    for _ in range(2):
        harness.restart()
        back = Petitioner(harness, "pc", "anna/write")
        write(back)
        assert back.refusals() == [RefusalCode.HELD_BY_AUTHORITY]
        harness.model.mark_restored(harness.entropy.randbytes, harness.now_ms)


def test_what_was_written_before_and_is_brought_back_is_taken(harness: Harness, agent: Petitioner) -> None:
    agent.hold("limit")
    writer = 990_001
    old = entry(writer, 1, update(section(writer, 0, slot(key="limit/0123456789abcdef"))), "phone", relay_seq=1)
    agent.client.push(TASK, old, recovered=True)
    assert agent.refusals() == []


def test_a_bounded_number_of_slots_is_held(agent: Petitioner) -> None:
    codes = [agent.hold(f"s{number}") for number in range(257)]
    assert (set(codes[:256]), codes[256]) == ({""}, "limit")


def test_a_hold_that_is_not_stored_holds_nothing(harness: Harness, agent: Petitioner) -> None:
    harness.model.fail_next(StoreFull("The disk is full."))
    with pytest.raises(ValueError, match="not enough values"):
        agent.hold("limit")
    back = Petitioner(harness, "pc", "anna/write")
    write(back)
    assert back.refusals() == []
    assert [decode_record(e.kind, e.payload) for e in back.client.entries() if e.kind is EntryKind.RULING] == []
