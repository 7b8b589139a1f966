"""Approvals on one device: asked for once, given also offline, and worth nothing without a ruling."""

import pytest

from sync_core.document.approvals import ApprovalState, request_id
from sync_core.entry import (
    Entry,
    EntryKind,
    decode_record,
    encode_record,
)
from sync_core.errors import (
    ReadOnly,
)
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica.changes import ApprovalChanged
from sync_core.rulings import Approval, Approved
from tests.sync_core.replica.fleet import TASK
from tests.sync_core.replica.guarded import ARGUMENTS, AUTHORITY, DIGEST, Guarded
from tests.sync_core.replica.solo import Log


@pytest.fixture
def phone() -> Guarded:
    return Guarded()


def test_an_approval_is_asked_for_once_given_offline_and_counts_by_its_ruling_alone(phone: Guarded) -> None:
    phone.drop_link()
    phone.log_in("approve")
    phone.drop_link()
    for _ in range(2):
        asked = phone.ask(c.RequestApproval(phone.ref(), TASK, 1, "pay", "pay", DIGEST, ARGUMENTS), str)
    assert asked == request_id("pay", 1, "pay", DIGEST)
    assert len(phone.unsent(EntryKind.PLAN)) == 1
    for _ in range(2):
        phone.ask_none(c.GiveApproval(phone.ref(), TASK, asked, True))
    (said,) = phone.unsent(EntryKind.APPROVAL)
    assert decode_record(said.kind, said.payload) == Approval("pay", 1, "pay", DIGEST, True)
    assert phone.view.approvals[asked].state is ApprovalState.WAITING
    phone.log_in("approve")
    phone.heads(*phone.told())
    phone.store_all()
    phone.changes.clear()
    phone.rule(Approved("pay", 1, "pay", DIGEST, True, "bea", "phone"))
    assert phone.view.approvals[asked].state is ApprovalState.APPROVED
    (change,) = phone.changes
    assert change == ApprovalChanged(TASK, phone.view.approvals[asked], False)


def test_a_role_that_may_not_approve_is_told_before_anything_is_written(phone: Guarded) -> None:
    asked = phone.ask(c.RequestApproval(phone.ref(), TASK, 1, "pay", "pay", DIGEST, ARGUMENTS), str)
    with pytest.raises(ReadOnly):
        phone.ask_none(c.GiveApproval(phone.ref(), TASK, asked, True))
    assert phone.unsent(EntryKind.APPROVAL) == []


def test_an_approved_ruling_that_a_device_writes_itself_is_no_ruling(phone: Guarded) -> None:
    """AC-24: the guard refuses it, so it is quarantined wherever it comes from."""
    asked = phone.ask(c.RequestApproval(phone.ref(), TASK, 1, "pay", "pay", DIGEST, ARGUMENTS), str)
    payload = encode_record(Approved("pay", 1, "pay", DIGEST, True, "boss", "thief"))
    forged = Entry(AUTHORITY, 2**41, 1, EntryKind.RULING, payload, "thief", relay_seq=1)
    phone.hear(Log(StreamName.AUTHORITY, (forged,)).frame())
    assert phone.replica.status.quarantined == 1
    assert phone.view.approvals[asked].state is ApprovalState.WAITING
