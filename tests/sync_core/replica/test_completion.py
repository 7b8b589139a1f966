"""Completing a task: it counts once the relay stored it, the first stands, and nothing unread is passed over."""

import msgspec
import pytest

from sync_core.document.view import CompletionState, TaskCompletion
from sync_core.errors import VersionMismatch
from sync_core.replica import commands as c
from sync_core.replica.changes import Completed
from tests.sync_core.replica.fleet import TASK, Device, Fleet

OPEN, COMPLETING, COMPLETED, EDITED = CompletionState


def complete(device: Device, version: int = 1) -> TaskCompletion:
    return device.ask(c.CompleteTask(device.ref(), TASK, version), TaskCompletion)


def state(device: Device) -> CompletionState:
    return device.view.completion.state


def pair() -> tuple[Fleet, Device, Device]:
    """Two devices with the task open and nothing to say."""
    fleet = Fleet()
    phone, desktop = fleet.add("phone"), fleet.add("desktop")
    phone.open()
    phone.confirm("amount", 5)
    fleet.settle()
    desktop.open()
    desktop.confirm("place", "Bonn")
    fleet.settle()
    return fleet, phone, desktop


def test_it_counts_once_the_relay_stored_it() -> None:
    fleet, phone, desktop = pair()
    phone.disconnect()
    assert complete(phone) == TaskCompletion(COMPLETING, "phone", "phone")
    assert not phone.view.completed
    assert complete(phone).state is COMPLETING
    assert phone.waiting == 1
    phone.changes.clear()
    phone.connect()
    fleet.settle()
    assert state(phone) is state(desktop) is COMPLETED
    assert Completed(TASK, local=False) in phone.changes
    phone.crash()
    assert phone.connect().open().completion == TaskCompletion(COMPLETED, "phone", "phone")


def test_the_first_in_the_relays_order_stands() -> None:
    fleet, phone, desktop = pair()
    phone.disconnect()
    complete(phone)
    complete(desktop)
    fleet.settle()
    phone.connect()
    fleet.settle()
    assert phone.view.completion == desktop.view.completion == TaskCompletion(COMPLETED, "desktop", "desktop")
    fleet.assert_converged()


def test_what_another_device_wrote_unread_is_told_and_settled_by_completing_again() -> None:
    fleet, phone, desktop = pair()
    phone.disconnect()
    complete(phone)
    desktop.confirm("amount", 6)
    fleet.settle()
    phone.connect()
    fleet.settle()
    assert state(phone) is state(desktop) is EDITED
    assert phone.view.completed
    assert complete(desktop).author == "phone"
    fleet.settle()
    assert phone.view.completion == desktop.view.completion == TaskCompletion(COMPLETED, "phone", "phone")


def test_a_late_edit_of_another_device_is_told_an_own_one_is_none() -> None:
    fleet, phone, desktop = pair()
    complete(phone)
    phone.confirm("note", "mine")
    fleet.settle()
    assert state(desktop) is COMPLETED
    desktop.confirm("place", "Köln")
    fleet.settle()
    assert state(phone) is state(desktop) is EDITED


def test_a_higher_version_opens_the_task_again() -> None:
    fleet, phone, desktop = pair()
    complete(phone)
    fleet.settle()
    desktop.ask(c.OpenTask(desktop.ref(), TASK, False, 2), object)
    fleet.settle()
    assert state(phone) is state(desktop) is OPEN
    with pytest.raises(VersionMismatch):
        complete(phone, 1)
    complete(phone, 2)
    fleet.settle()
    assert state(desktop) is COMPLETED


def test_a_compaction_changes_no_verdict() -> None:
    fleet, phone, desktop = pair()
    complete(phone)
    fleet.settle()
    desktop.ask(c.CompactTask(desktop.ref(), TASK), object)
    assert state(desktop) is COMPLETED
    phone.disconnect()
    desktop.confirm("place", "Köln")
    fleet.settle()
    desktop.ask(c.CompactTask(desktop.ref(), TASK), object)
    phone.connect()
    fleet.settle()
    assert state(phone) is state(desktop) is EDITED


def test_a_lost_log_changes_no_verdict() -> None:
    fleet, phone, desktop = pair()
    complete(phone)
    fleet.settle()
    fleet.restart_relay(log_lost=True)
    for device in (phone, desktop):
        device.connect()
    fleet.settle()
    assert state(phone) is state(desktop) is COMPLETED


def test_a_view_is_a_picture_with_its_completion() -> None:
    _, phone, _ = pair()
    assert msgspec.structs.replace(phone.view, completion=TaskCompletion(EDITED, "a", "a")).completed
