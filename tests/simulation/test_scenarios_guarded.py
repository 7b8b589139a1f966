"""Scenarios of calls that cannot be undone, on the simulator: rivals, stale holders, lost and restored logs."""

import pytest

from sync_core.document.approvals import ApprovalState
from sync_core.document.calls import CallRecorded, CallState
from sync_core.entry import Entry, EntryKind, encode_record
from sync_core.errors import InDoubt, NeedsAuthority
from sync_core.frames import WIRE_VERSION, Hello, Login, Push
from sync_core.ids import StreamName, stream_id
from sync_core.petitions import ClaimVerdict
from sync_core.replica import commands as c
from sync_core.rulings import Approval
from sync_core.values import digest_text
from sync_core.wire import encode
from tests.simulation.guarded_script import GuardedScript
from tests.simulation.mailbox_model import MailboxModel
from tests.simulation.outside import TurnedAway
from tests.simulation.script import TASK

AUTHORITY = stream_id(TASK, StreamName.AUTHORITY)


def _stale_holder(script: GuardedScript) -> None:
    """The phone gets the key and stands still; somebody looks too early and says «it did not happen»; the desktop gets
    the key and acts; then the phone goes on, as if nothing had been."""
    stale = script.begin(script.phone)
    script.world.pause(script.phone, 20_000)
    script.wait(10_000)
    assert script.verdict(script.desktop) is ClaimVerdict.IN_DOUBT
    script.say(script.tablet, happened=False)
    fresh = script.begin(script.desktop)
    assert fresh.idempotency_key == stale.idempotency_key and fresh.token > stale.token
    script.end(script.desktop, fresh, script.act(script.desktop, fresh))
    script.wait(20_000)
    try:
        script.end(script.phone, stale, script.act(script.phone, stale))
    except TurnedAway:
        script.end(script.phone, stale, None)


def test_a_stale_holder_does_it_twice_in_a_system_that_checks_nothing() -> None:
    script = GuardedScript(enforces=False)
    _stale_holder(script)
    assert script.deeds == ["desktop", "phone"]
    call = script.settle().calls[1, "pay"]
    assert call.state is CallState.DONE and [said.happened for said in call.contradictions] == [True]


def test_a_stale_holder_is_turned_away_by_a_system_that_checks_the_token() -> None:
    script = GuardedScript()
    _stale_holder(script)
    assert script.deeds == ["desktop"]
    call = script.settle().calls[1, "pay"]
    assert call.shown is not None
    assert (call.state, call.shown.result, call.contradictions) == (CallState.DONE, '"by desktop"', ())


def test_after_it_did_not_happen_a_tool_that_nobody_checks_gets_no_key_again() -> None:
    script = GuardedScript(enforces=False)
    script.begin(script.phone, checked=False)
    script.world.pause(script.phone, 20_000)
    script.wait(10_000)
    script.verdict(script.desktop, checked=False)
    script.say(script.tablet, happened=False)
    assert script.verdict(script.desktop, checked=False) is ClaimVerdict.RETIRED
    assert script.deeds == []


def test_rs_16_of_two_ends_that_want_one_effect_one_has_it_and_the_other_sees_its_result() -> None:
    script = GuardedScript(enforces=False)
    begun = script.begin(script.phone)
    assert script.verdict(script.desktop) is ClaimVerdict.RUNNING
    script.end(script.phone, begun, script.act(script.phone, begun))
    script.synced(script.phone)
    script.synced(script.desktop)
    recorded = script.claim(script.desktop)
    assert isinstance(recorded, CallRecorded) and recorded.call.shown is not None
    assert (recorded.call.shown.result, script.deeds) == ('"by phone"', ["phone"])
    assert script.state() is CallState.DONE


def test_ac_10_two_ends_that_are_apart_are_both_refused() -> None:
    script = GuardedScript()
    for device in (script.phone, script.desktop):
        device.unplug()
        with pytest.raises(NeedsAuthority):
            script.claim(device)
    assert script.deeds == []


def test_ac_04_a_crash_between_effect_and_record_is_in_doubt_until_a_person_says_what_happened() -> None:
    script = GuardedScript(enforces=False)
    script.act(script.phone, script.begin(script.phone))
    script.phone.die()
    script.phone.boot()
    script.open(script.phone)
    assert script.verdict(script.phone) is ClaimVerdict.IN_DOUBT
    assert script.verdict(script.desktop) is ClaimVerdict.IN_DOUBT
    script.phone.unplug()
    with pytest.raises(InDoubt):
        script.claim(script.phone)
    script.say(script.desktop, happened=True, result='"seen"')
    call = script.settle().calls[1, "pay"]
    assert call.shown is not None
    assert (call.state, call.shown.result, script.deeds) == (CallState.DONE, '"seen"', ["phone"])


def test_a_lease_that_ends_leaves_the_call_in_doubt_and_a_late_outcome_settles_it() -> None:
    script = GuardedScript(enforces=False)
    begun = script.begin(script.phone)
    script.phone.unplug()
    script.wait(5_000)
    assert script.verdict(script.desktop) is ClaimVerdict.IN_DOUBT
    script.end(script.phone, begun, script.act(script.phone, begun))
    assert script.state() is CallState.DONE
    assert script.deeds == ["phone"]


@pytest.mark.parametrize("happens", ["lost", "restored"])
def test_a_relay_that_forgot_a_grant_grants_the_key_to_nobody(happens: str) -> None:
    script = GuardedScript(enforces=False)
    old = script.world.relay.mailbox.image()
    script.act(script.phone, script.begin(script.phone))
    script.synced(script.tablet)
    script.phone.die()
    script.world.relay.die()
    if happens == "lost":
        script.world.relay.mailbox = MailboxModel()
    else:
        script.world.relay.mailbox.restore(old)
        script.world.relay.mailbox.mark_restored(script.world.rng("restored").randbytes, 0)
    script.world.checks.disk_replaced()
    script.world.relay.boot()
    script.wait(5_000)
    assert script.verdict(script.desktop) is ClaimVerdict.IN_DOUBT
    assert script.verdict(script.desktop, "never-asked-for") is ClaimVerdict.IN_DOUBT
    script.ask(script.tablet, c.LiftBarrier(script.ref()))
    assert script.verdict(script.desktop) is ClaimVerdict.IN_DOUBT
    script.begin(script.desktop, "never-asked-for")
    assert script.deeds == ["phone"]


def test_ac_22_an_approval_that_was_given_offline_lets_exactly_that_call_run_once() -> None:
    script = GuardedScript()
    assert script.verdict(script.desktop, approval=True) is ClaimVerdict.NEEDS_APPROVAL
    request = script.request(script.desktop)
    script.phone.unplug()
    script.approve(script.phone, request)
    assert script.verdict(script.desktop, approval=True) is ClaimVerdict.NEEDS_APPROVAL
    script.phone.plug()
    script.synced(script.phone)
    other = digest_text('{"amount":200}')
    assert script.verdict(script.desktop, digest=other, approval=True) is ClaimVerdict.NEEDS_APPROVAL
    begun = script.begin(script.desktop, approval=True)
    script.end(script.desktop, begun, script.act(script.desktop, begun))
    script.synced(script.desktop)
    assert isinstance(script.claim(script.tablet, approval=True), CallRecorded)
    assert script.settle().approvals[request].state is ApprovalState.USED


def test_nobody_approves_a_call_of_their_own() -> None:
    script = GuardedScript()
    request = script.request(script.phone)
    script.approve(script.phone, request)
    script.synced(script.phone)
    assert script.verdict(script.phone, approval=True) is ClaimVerdict.NEEDS_APPROVAL
    script.begin(script.desktop, approval=True)


def test_ac_24_what_a_document_says_of_an_approval_lets_nothing_run() -> None:
    script = GuardedScript()
    script.request(script.desktop)
    script.confirm(script.desktop, "approved_by", '"phone"')
    script.append(script.desktop, "phone approved pay(100)\n")
    link = script.world.link_to_relay("mallory", lambda *_: None, lambda _: None)
    link.up.send(encode([Login(WIRE_VERSION, script.world.subject, "desktop"), Hello(TASK)]))
    approval = Approval("pay", 1, "pay", digest_text('{"amount":100}'), approved=True)
    entry = Entry(AUTHORITY, 2**40, 1, EntryKind.APPROVAL, encode_record(approval), "desktop")
    for recovered in (False, True):
        link.up.send(encode([Push(TASK, (entry,), recovered=recovered)]))
    script.wait(1_000)
    assert script.verdict(script.tablet, approval=True) is ClaimVerdict.NEEDS_APPROVAL
