"""A task ends: purged or cleaned up. A device that was away brings nothing back and keeps what it never sent."""

import pytest

from sync_core.entry import EntryKind
from sync_core.errors import Closed, NotSyncedYet, Purged, StoreFull
from sync_core.frames import Heads, Purge
from sync_core.limits import TOMBSTONE_KEEP_MS, TOMBSTONES_MAX
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import TaskPurged
from sync_core.replica.writes import PutTombstone, Tombstone
from tests.simulation.mailbox_model import MailboxModel
from tests.sync_core.replica.ending_devices import LONG, aside, at_relay, held, pair, purge, reopen, say
from tests.sync_core.replica.fleet import TASK, Fleet
from tests.sync_core.replica.solo import Solo


def test_a_purge_empties_every_device_that_listens_and_leaves_tombstones() -> None:
    fleet, phone, desktop = pair()
    purge(phone)
    fleet.settle()
    assert at_relay(fleet) == held(phone) == held(desktop) == 0
    assert aside(phone) == aside(desktop) == []
    for device in (phone, desktop):
        (tombstone,) = device.disk.tombstones()
        assert (tombstone.version, tombstone.reason, tombstone.told) == (1, "purged", True)
        assert device.changes[-1] == TaskPurged(TASK, 1, "purged", 0)
        assert device.disk.stats().blobs == 0


def test_open_handles_show_the_last_view_and_refuse_every_further_command() -> None:
    fleet, phone, desktop = pair()
    before = desktop.view
    purge(phone)
    fleet.settle()
    assert desktop.view == before
    with pytest.raises(Purged, match="gone"):
        desktop.confirm("amount", 6)
    with pytest.raises(Purged):
        desktop.ask(c.ReadNote(desktop.ref(), TASK, "worklog"), object)
    with pytest.raises(Closed):
        desktop.ask(c.ReadNote(desktop.ref(), "other", "worklog"), object)


def test_a_device_that_was_away_brings_nothing_back_and_keeps_its_unsent_edits_aside() -> None:
    fleet, phone, desktop = pair()
    desktop.disconnect()
    desktop.confirm("amount", 7)
    say(desktop, "late", LONG + "!")
    purge(phone)
    fleet.settle()
    desktop.connect()
    fleet.settle()
    assert at_relay(fleet) == held(desktop) == 0
    assert sorted(aside(desktop)) == [
        (EntryKind.HISTORY, "tombstone"),
        (EntryKind.HISTORY, "tombstone"),
        (EntryKind.UPDATE, "tombstone"),
    ]
    assert desktop.changes[-1] == TaskPurged(TASK, 1, "purged", 3)
    assert desktop.replica.status.set_aside == 3
    assert desktop.replica.status.unsent == 0
    assert desktop.disk.stats().blobs == 1, "the blob that an unsent entry names is kept"
    desktop.crash()
    assert desktop.replica.status.set_aside == 3
    desktop.connect()
    fleet.settle()
    with pytest.raises(Purged, match="3 unsent entries"):
        desktop.open()


def test_a_closed_task_is_dropped_too_and_its_unsent_work_kept() -> None:
    fleet, phone, desktop = pair()
    desktop.disconnect()
    desktop.confirm("amount", 7)
    desktop.crash()
    purge(phone)
    fleet.settle()
    desktop.connect()
    fleet.settle()
    assert held(desktop) == 0
    assert aside(desktop) == [(EntryKind.UPDATE, "tombstone")]
    assert desktop.replica.status.set_aside == 1


def test_a_purge_without_a_link_counts_here_at_once_and_there_with_the_next_login() -> None:
    fleet, phone, desktop = pair()
    phone.disconnect()
    phone.confirm("amount", 6)
    purge(phone)
    assert held(phone) == 0
    assert aside(phone) == [(EntryKind.UPDATE, "tombstone")]
    assert not phone.disk.tombstones()[0].told
    with pytest.raises(Purged):
        phone.open()
    phone.crash()
    phone.connect()
    synced = phone.ref()
    phone.handle(c.AwaitSynced(synced))
    assert synced not in phone.replies
    fleet.settle()
    sent = [effect.frame for effect in phone.log if isinstance(effect, e.SendFrame)]
    assert [frame.recovered for frame in sent if isinstance(frame, Purge)] == [False]
    assert phone.replies[synced] is None
    assert at_relay(fleet) == held(desktop) == 0
    assert phone.disk.tombstones()[0].told


def test_a_purged_task_opens_only_with_a_higher_version_and_under_a_fresh_writer() -> None:
    fleet, phone, desktop = pair()
    writers = {entry.writer for stream in phone.disk.load_task(TASK).streams for entry in stream.entries}
    purge(phone)
    fleet.settle()
    for version in (None, 1):
        with pytest.raises(Purged):
            reopen(phone, version)
    with pytest.raises(Purged):
        reopen(desktop, 2, create=False)
    view = reopen(phone)
    assert (view.version, view.slots, view.history) == (2, {}, ())
    phone.confirm("amount", 1)
    fleet.settle()
    assert desktop.open(create=False).version == 2
    assert desktop.view.slots["amount"].value == 1
    entries = [entry for stream in phone.disk.load_task(TASK).streams for entry in stream.entries]
    assert writers.isdisjoint({entry.writer for entry in entries})
    fleet.assert_converged()
    desktop.crash()
    desktop.connect()
    fleet.settle()
    assert desktop.open(create=False).slots["amount"].value == 1


def test_it_is_purged_and_begun_anew_without_a_link() -> None:
    fleet, phone, desktop = pair()
    phone.disconnect()
    purge(phone)
    reopen(phone)
    phone.confirm("amount", 9)
    phone.connect()
    fleet.settle()
    assert desktop.changes[-1] == TaskPurged(TASK, 1, "purged", 0)
    assert list(desktop.open().slots) == ["amount"]
    assert desktop.view.slots["amount"].value == 9
    fleet.assert_converged()


def test_a_device_that_was_away_longer_finds_the_task_begun_anew() -> None:
    fleet, phone, desktop = pair()
    desktop.disconnect()
    desktop.confirm("amount", 7)
    purge(phone)
    reopen(phone)
    phone.confirm("amount", 9)
    fleet.settle()
    desktop.connect()
    fleet.settle()
    assert aside(desktop) == [(EntryKind.UPDATE, "tombstone")]
    assert list(desktop.open(create=False).slots) == ["amount"]
    assert desktop.view.slots["amount"].value == 9
    fleet.assert_converged()


def test_a_purge_of_a_lower_version_than_was_decided_elsewhere_is_void() -> None:
    fleet, phone, desktop = pair()
    phone.disconnect()
    purge(phone)
    reopen(desktop, 2, create=False)
    fleet.settle()
    phone.connect()
    fleet.settle()
    assert at_relay(fleet) > 0
    assert phone.disk.tombstones() == ()
    assert phone.open(create=False).version == 2
    assert phone.view.slots["place"].value == "Bonn"
    fleet.assert_converged()


def test_who_decided_a_higher_version_without_a_link_begins_it_anew_after_the_purge() -> None:
    fleet, phone, desktop = pair()
    desktop.disconnect()
    reopen(desktop, 2, create=False)
    desktop.confirm("amount", 8)
    purge(phone)
    fleet.settle()
    desktop.connect()
    fleet.settle()
    assert at_relay(fleet) == held(desktop) == 0
    assert [kind for kind, _ in aside(desktop)] == [EntryKind.VERSION, EntryKind.UPDATE]
    with pytest.raises(Purged):
        desktop.confirm("amount", 8)
    assert reopen(desktop, 2).slots == {}
    desktop.confirm("amount", 8)
    fleet.settle()
    assert phone.open(create=False).slots["amount"].value == 8


def test_a_relay_without_the_tombstone_learns_it_before_anything_comes_back() -> None:
    """It was restored from a backup of before the purge, or lost its file."""
    for lost in (False, True):
        fleet, phone, desktop = pair()
        backup = fleet.relay.model.image()
        desktop.disconnect()
        desktop.confirm("amount", 7)
        purge(phone)
        fleet.settle()
        fleet.restart_relay()
        fleet.relay.model = MailboxModel()
        if not lost:
            fleet.relay.model.restore(backup)
        phone.connect()
        first = [frame for frame in phone.outgoing if not hasattr(frame, "token")]
        fleet.settle()
        assert first == []
        desktop.connect()
        fleet.settle()
        assert at_relay(fleet) == held(desktop) == 0
        assert aside(desktop) == [(EntryKind.UPDATE, "tombstone")]


def test_what_came_back_before_a_tombstone_did_goes_again() -> None:
    fleet, phone, desktop = pair()
    desktop.disconnect()
    purge(phone)
    fleet.settle()
    fleet.restart_relay(log_lost=True)
    desktop.connect()
    fleet.settle()
    assert at_relay(fleet) > 0
    phone.connect()
    fleet.settle()
    assert at_relay(fleet) == held(desktop) == 0


def test_a_tombstone_does_not_stop_what_was_begun_anew_from_coming_back_to_a_relay_that_lost_it() -> None:
    fleet, phone, desktop = pair()
    purge(desktop)
    fleet.settle()
    reopen(phone)
    phone.confirm("amount", 9)
    fleet.settle()
    fleet.restart_relay(log_lost=True)
    desktop.connect()
    fleet.settle()
    assert fleet.relay.model.stats().entries == 0
    phone.connect()
    fleet.settle()
    assert desktop.open(create=False).version == 2
    assert desktop.view.slots["amount"].value == 9
    assert aside(phone) == []
    fleet.assert_converged()


def test_a_disk_that_refuses_a_purge_leaves_the_task_as_it_was() -> None:
    _, phone, _ = pair()
    phone.disk.fail_next(StoreFull("The disk is full."))
    with pytest.raises(StoreFull):
        purge(phone)
    assert phone.disk.tombstones() == ()
    assert phone.confirm("amount", 6).value is None or held(phone) > 0
    assert phone.open().version == 1


def test_tombstones_are_bounded_and_age_in_relay_time() -> None:
    fleet = Fleet()
    phone = fleet.add("phone", online=False)
    made = [Tombstone(f"t/{number}", 1, "purged", told=True) for number in range(TOMBSTONES_MAX)]
    phone.disk.commit([PutTombstone(tombstone) for tombstone in made])
    phone.crash()
    phone.handle(e.LinkFailed("no route"))
    phone.open()
    purge(phone)
    assert len(phone.disk.tombstones()) == TOMBSTONES_MAX
    assert TASK in {tombstone.task for tombstone in phone.disk.tombstones()}
    phone.connect()
    fleet.settle()
    assert {tombstone.relay_time_ms for tombstone in phone.disk.tombstones()} == {fleet.relay.now_ms}
    phone.disconnect()
    fleet.relay.tick(TOMBSTONE_KEEP_MS + 1)
    fleet.relay.tick(fleet.relay.settings.sweep_every_ms)
    phone.connect()
    fleet.settle()
    assert phone.disk.tombstones() == ()
    assert phone.open().version == 1


def test_a_relay_that_does_not_admit_the_device_to_the_task_is_not_told_for_ever() -> None:
    phone = Solo()
    phone.drop_link()
    phone.open()
    purge(phone)
    phone.log_in()
    synced = phone.ref()
    phone.handle(c.AwaitSynced(synced))
    assert synced not in phone.replies
    phone.hear(Heads(TASK, False, (), 2_000))
    assert phone.replies[synced] is None
    assert phone.disk.tombstones()[0].told


def test_without_tombstones_nothing_more_is_said_at_login() -> None:
    _, phone, _ = pair()
    phone.disconnect()
    phone.log.clear()
    phone.connect()
    assert not [effect for effect in phone.log if isinstance(effect, e.SendFrame) and isinstance(effect.frame, Purge)]


def test_a_task_that_was_never_read_here_is_remembered_as_purged() -> None:
    fleet, phone, _ = pair()
    purge(phone)
    tablet = fleet.add("tablet")
    for create in (False, True):
        with pytest.raises(Purged):
            tablet.open(create=create)
    tablet.disconnect()
    with pytest.raises(Purged):
        tablet.open()
    with pytest.raises(NotSyncedYet):
        tablet.open("other", create=False)
