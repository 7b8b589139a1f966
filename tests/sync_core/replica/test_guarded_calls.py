"""Guarded calls on several devices and the real relay: leases, late reports, lost answers, a lost log."""

import pytest

from sync_core.document.calls import Call, CallBegun, CallRecorded, CallState
from sync_core.errors import InDoubt, SegueError
from sync_core.frames import Push
from sync_core.petitions import ClaimAnswer, ClaimVerdict
from sync_core.replica import commands as c
from sync_core.rulings import SettledBy
from tests.sync_core.replica.fleet import TASK, Device, Fleet
from tests.sync_core.replica.guarded import DIGEST, Guarded, begin_granted

LEASE_MS = 31_000


def two() -> tuple[Fleet, Device, Device]:
    """Two devices with the task open."""
    fleet = Fleet()
    one, other = fleet.add("phone"), fleet.add("desktop")
    one.open()
    fleet.settle()
    other.open()
    return fleet, one, other


def claim(device: Device, step: str = "pay", *, checked: bool = False) -> c.Claimed:
    """Ask for the key of a step that has no record."""
    return device.ask(c.ClaimCall(device.ref(), TASK, 1, step, "pay", DIGEST, checked=checked), c.Claimed)


def begin(device: Device, claimed: c.Claimed) -> CallBegun:
    """Begin a granted attempt."""
    assert claimed.answer.verdict is ClaimVerdict.GRANTED
    return device.ask(begin_granted(device.ref(), claimed), CallBegun)


def end(device: Device, begun: CallBegun, *, ok: bool = True, unsure: bool = False) -> None:
    """Say how it ended."""
    result, error = ('"paid"', None) if ok else (None, "Boom")
    command = c.EndCall(device.ref(), TASK, 1, "pay", begun.attempt, ok, result, error, unsure, begun.token)
    device.ask(command, CallRecorded)


def settle(device: Device, happened: bool) -> None:
    """Say it as a person."""
    device.ask(c.SettleCall(device.ref(), TASK, 1, "pay", "pay", happened), type(None))


def call_of(device: Device) -> Call:
    return device.view.calls[1, "pay"]


def test_a_grant_is_used_and_settled_and_both_devices_show_the_same() -> None:
    fleet, phone, desktop = two()
    end(phone, begin(phone, claim(phone)))
    fleet.settle()
    for device in (phone, desktop):
        call = call_of(device)
        assert (call.state, call.device) == (CallState.DONE, "phone")
        assert call.shown is not None
        assert (call.shown.result, call.shown.settled_by) == ('"paid"', SettledBy.HOLDER)
    recorded = desktop.ask(c.ClaimCall(desktop.ref(), TASK, 1, "pay", "pay", DIGEST), CallRecorded)
    assert recorded.call == call_of(phone)
    fleet.assert_converged()


def test_a_lease_that_ends_leaves_a_doubt_and_never_frees_the_key() -> None:
    fleet, phone, desktop = two()
    begun = begin(phone, claim(phone))
    phone.disconnect()
    assert claim(desktop).answer.verdict is ClaimVerdict.RUNNING
    fleet.pass_time(LEASE_MS)
    assert call_of(desktop).state is CallState.IN_DOUBT
    assert claim(desktop).answer.verdict is ClaimVerdict.IN_DOUBT
    assert call_of(phone).state is CallState.RUNNING
    end(phone, begun)
    phone.connect()
    fleet.settle()
    assert (call_of(desktop).state, call_of(desktop).contradictions) == (CallState.DONE, ())
    fleet.assert_converged()


@pytest.mark.parametrize("verdict", [True, False])
def test_a_late_report_against_a_verdict_is_shown_and_the_verdict_stands(verdict: bool) -> None:
    fleet, phone, desktop = two()
    begun = begin(phone, claim(phone))
    phone.disconnect()
    fleet.pass_time(LEASE_MS)
    settle(desktop, verdict)
    end(phone, begun, ok=not verdict)
    phone.connect()
    fleet.settle()
    for device in (phone, desktop):
        call = call_of(device)
        assert call.shown is not None
        assert (call.shown.ok, call.shown.settled_by) == (verdict, SettledBy.PERSON)
        (contradiction,) = call.contradictions
        assert (contradiction.happened, contradiction.device) == (not verdict, "phone")
    fleet.assert_converged()


def test_a_paused_device_that_comes_back_has_a_token_below_the_next_ones() -> None:
    fleet, phone, desktop = two()
    stale = begin(phone, claim(phone, checked=True))
    phone.disconnect()
    fleet.pass_time(LEASE_MS)
    settle(desktop, False)
    fresh = begin(desktop, claim(desktop, checked=True))
    assert fresh.token > stale.token
    assert fresh.idempotency_key == stale.idempotency_key
    end(desktop, fresh)
    end(phone, stale, ok=False, unsure=True)
    phone.connect()
    fleet.settle()
    assert call_of(phone).state is CallState.DONE
    assert call_of(phone).device == "desktop"
    fleet.assert_converged()


def test_an_answer_that_was_lost_is_given_again_as_the_same_grant() -> None:
    fleet, phone, desktop = two()
    phone.hears = False
    command = c.ClaimCall(phone.ref(), TASK, 1, "pay", "pay", DIGEST)
    phone.handle(command)
    fleet.settle()
    phone.hears = True
    phone.disconnect()
    phone.connect()
    fleet.settle()
    end(phone, begin(phone, claim(phone)))
    fleet.settle()
    (attempt,) = call_of(desktop).attempts
    assert attempt.ok


def test_an_attempt_whose_answer_was_lost_for_longer_than_its_lease_is_freed_by_its_own_device() -> None:
    fleet, phone, desktop = two()
    phone.hears = False
    phone.handle(c.ClaimCall(phone.ref(), TASK, 1, "pay", "pay", DIGEST))
    fleet.settle()
    phone.hears = True
    phone.disconnect()
    fleet.pass_time(LEASE_MS)
    assert call_of(desktop).state is CallState.IN_DOUBT
    phone.connect()
    fleet.settle()
    end(phone, begin(phone, claim(phone)))
    fleet.settle()
    assert [attempt.ok for attempt in call_of(desktop).attempts] == [False, True]
    assert call_of(desktop).state is CallState.DONE


@pytest.mark.parametrize("written", [True, False], ids=["intent", "no intent"])
def test_a_device_that_crashed_under_a_grant_is_in_doubt_from_its_next_session_on(written: bool) -> None:
    fleet, phone, desktop = two()
    claimed = claim(phone)
    if written:
        begin(phone, claimed)
    phone.crash()
    phone.connect()
    phone.open()
    assert claim(phone).answer.verdict is ClaimVerdict.IN_DOUBT
    fleet.settle()
    for device in (phone, desktop):
        assert call_of(device).state is CallState.IN_DOUBT
    settle(phone, True)
    assert call_of(phone).state is CallState.RESULT_UNAVAILABLE


def test_after_a_lost_log_what_was_done_stays_done_and_the_rest_is_in_doubt() -> None:
    fleet, phone, desktop = two()
    end(phone, begin(phone, claim(phone)))
    fleet.settle()
    before = {device.name: call_of(device) for device in (phone, desktop)}
    fleet.restart_relay(log_lost=True)
    phone.connect()
    desktop.connect()
    fleet.settle()
    fleet.pass_time(2_000)
    for device in (phone, desktop):
        assert call_of(device) == before[device.name]
    assert claim(desktop, "other").answer.verdict is ClaimVerdict.IN_DOUBT
    fleet.assert_converged()


def test_a_doubt_that_only_the_old_log_knew_comes_back_as_a_doubt() -> None:
    fleet, phone, desktop = two()
    end(phone, begin(phone, claim(phone)), ok=False, unsure=True)
    fleet.settle()
    fleet.restart_relay(log_lost=True)
    desktop.connect()
    fleet.settle()
    with pytest.raises(SegueError):
        desktop.ask(c.SettleCall(desktop.ref(), TASK, 1, "else", "", True), type(None))
    assert claim(desktop).answer.verdict is ClaimVerdict.IN_DOUBT
    settle(desktop, True)
    phone.connect()
    fleet.settle()
    assert call_of(phone).state is CallState.RESULT_UNAVAILABLE
    fleet.assert_converged()


def test_a_device_without_a_link_says_what_it_knows() -> None:
    fleet, phone, desktop = two()
    begin(phone, claim(phone))
    fleet.settle()
    desktop.disconnect()
    with pytest.raises(InDoubt):
        desktop.ask(c.ClaimCall(desktop.ref(), TASK, 1, "pay", "pay", DIGEST), c.Claimed)


def test_what_a_device_brought_back_is_vouched_for_in_its_own_file_as_in_all_others() -> None:
    fleet, phone, desktop = two()
    claim(phone)
    fleet.settle()
    fleet.restart_relay(log_lost=True)
    for device in (desktop, phone):
        device.connect()
        fleet.settle()
    images = [device.disk.load_task(TASK) for device in (phone, desktop)]
    rows = [[entry for stream in image.streams for entry in stream.entries] for image in images]
    assert rows[0] == rows[1]
    assert {entry.vouched_by for entry in rows[0]} == {"desktop"}


def test_a_late_grant_of_a_task_that_was_evicted_meanwhile_writes_nothing() -> None:
    phone = Guarded()
    ref = phone.claim()
    phone.handle(c.EvictTask(phone.ref(), TASK))
    assert isinstance(phone.error(ref), SegueError)
    phone.handle(c.OpenTask(phone.ref(), TASK))
    phone.forget()
    phone.hear(ClaimAnswer(TASK, ref, ClaimVerdict.GRANTED, "key", 1))
    assert (phone.unsent(), phone.sent(Push)) == ([], [])
