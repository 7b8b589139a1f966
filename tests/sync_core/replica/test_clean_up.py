"""A completed task loses its conversation, an old one expires; a device that was away brings nothing of it back."""

from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from sync_core.document.view import CompletionState
from sync_core.entry import EntryKind
from sync_core.errors import Purged, VersionMismatch
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import EntrySetAside, HistoryChanged, TaskPurged
from tests.sync_core.replica.ending_devices import (
    GRACE_S,
    aside,
    at_relay,
    cleaning,
    complete,
    held,
    pair,
    purge,
    reopen,
    say,
    sweep,
)
from tests.sync_core.replica.fleet import TASK


def test_after_a_clean_up_every_device_keeps_all_but_the_conversation() -> None:
    fleet, phone, desktop = cleaning()
    complete(phone)
    fleet.settle()
    sweep(fleet, 2 * GRACE_S)
    for device in (phone, desktop):
        view = device.view
        assert view.history == ()
        assert view.completion.state is CompletionState.COMPLETED
        assert (view.slots["amount"].value, view.notes["worklog"].text) == (5, "started\n")
        assert HistoryChanged(TASK, local=False) in device.changes
        kept = {stream.stream: stream for stream in device.disk.load_task(TASK).streams}
        assert kept[f"{TASK}:history"].entries == ()
        assert kept[f"{TASK}:state"].document
    assert phone.disk.stats().blobs == 1, "the result of the call"
    assert fleet.relay.model.stats().blobs == 1
    fleet.assert_converged()
    phone.crash()
    phone.connect()
    fleet.settle()
    assert phone.open().history == ()


def test_a_device_that_was_away_over_a_clean_up_brings_nothing_back() -> None:
    fleet, phone, desktop = cleaning()
    desktop.disconnect()
    complete(phone)
    fleet.settle()
    say(desktop, "unsent")
    desktop.append("worklog", "also unsent\n")
    desktop.crash()
    desktop.handle(e.LinkFailed("no route"))
    desktop.open()
    sweep(fleet, 2 * GRACE_S)
    assert phone.view.history == ()
    desktop.connect()
    fleet.settle()
    assert desktop.view.history == phone.view.history == ()
    assert aside(desktop) == [(EntryKind.HISTORY, "tombstone")]
    assert EntrySetAside(TASK, f"{TASK}:history", 1, "tombstone") in desktop.changes
    assert phone.view.notes["worklog"].text == "started\nalso unsent\n"
    assert phone.view.completion.state is CompletionState.COMPLETED_WHILE_EDITED
    fleet.assert_converged()
    say(desktop, "a new word")
    fleet.settle()
    assert [item.message for item in phone.view.history] == ['"a new word"']
    fleet.assert_converged()


def test_a_result_whose_entry_was_not_sent_before_the_clean_up_is_sent_again() -> None:
    fleet, phone, desktop = cleaning()
    complete(phone)
    fleet.settle()
    phone.disconnect()
    phone.call("late", "z" * 10_000)
    phone.connect()
    before = fleet.relay.model.stats().blobs
    while fleet.relay.model.stats().blobs == before:
        fleet.exchange(phone)
    phone.disconnect()
    fleet.settle()
    assert desktop.view.calls[1, "late"].attempts[0].ok is None
    sweep(fleet, 2 * GRACE_S)
    assert fleet.relay.model.stats().blobs == 1
    phone.connect()
    fleet.settle()
    fleet.pass_time(4_000)
    blob = desktop.view.calls[1, "late"].attempts[0].blob
    assert blob is not None
    assert desktop.ask(c.FetchBlob(desktop.ref(), TASK, blob), bytes) == b'"' + b"z" * 10_000 + b'"'


def test_an_expired_task_is_gone_everywhere_and_says_why() -> None:
    fleet, phone, desktop = pair(RelaySettings(db=Path("unused"), task_ttl_s=GRACE_S))
    desktop.disconnect()
    desktop.confirm("amount", 1)
    sweep(fleet, 2 * GRACE_S)
    assert phone.changes[-1] == TaskPurged(TASK, 1, "expired", 0)
    assert at_relay(fleet) == held(phone) == 0
    assert held(desktop) > 0, "without a link nothing expires"
    desktop.connect()
    fleet.settle()
    assert desktop.changes[-1] == TaskPurged(TASK, 1, "expired", 1)
    with pytest.raises(Purged, match="expired"):
        desktop.open()
    with pytest.raises(VersionMismatch):
        reopen(desktop, 3)
        reopen(desktop, 2)


@pytest.mark.parametrize("years", [-10, 10])
def test_a_devices_own_clock_ends_nothing(years: int) -> None:
    fleet, phone, desktop = cleaning()
    purge(phone)
    fleet.settle()
    reopen(phone)
    desktop.open()
    complete(phone)
    fleet.settle()
    for device in (phone, desktop):
        device.wall_ms += years * 365 * 24 * 3_600_000
    say(phone, "still here")
    fleet.pass_time(10_000)
    for device in (phone, desktop):
        assert [item.message for item in device.view.history] == ['"still here"']
        assert len(device.disk.tombstones()) == 1
        assert device.view.completion.state is CompletionState.COMPLETED
    fleet.assert_converged()
