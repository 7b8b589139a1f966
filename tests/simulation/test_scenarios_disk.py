"""Scenarios of disks: restored, copied, full, damaged, and crashes at every point of a batch."""

import msgspec
import pytest

from sync_core.errors import StoreDamaged, StoreFull
from sync_core.replica import commands as c
from sync_core.replica.writes import AsideEntry, PutEntry, StreamImage
from tests.simulation import peek
from tests.simulation.device import Device
from tests.simulation.driver import CrashPoint
from tests.simulation.mailbox_model import MailboxModel
from tests.simulation.script import STATE, TASK, Script, hostile_entry


def test_a_restored_store_file_gets_its_own_later_work_back_and_writes_under_a_fresh_id() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    old = phone.disk.image()
    script.append(phone, "later than the copy\n")
    script.settle()
    used = {entry.writer for entry in peek.entries_of(phone.disk, TASK) if entry.device == "phone"}
    phone.die()
    phone.disk.restore(old)
    script.world.checks.disk_replaced()
    phone.boot()
    script.open(phone, create=False)
    script.append(phone, "after the restore\n")
    view = script.settle()
    fresh = {entry.writer for entry in peek.entries_of(phone.disk, TASK) if entry.device == "phone"} - used
    assert len(fresh) == 1
    assert sorted(view.notes["worklog"].text.splitlines()) == ["after the restore", "later than the copy"]


def test_two_live_clones_of_one_store_file_keep_the_edits_of_both() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    phone.unplug()
    script.append(phone, "before the copy\n")
    clone = script.world.add_device("phone", "phone'", phone.disk.image())
    clone.boot()
    script.open(clone)
    script.append(clone, "by the clone\n")
    script.append(phone, "by the phone\n")
    view = script.settle()
    assert sorted(view.notes["worklog"].text.splitlines()) == ["before the copy", "by the clone", "by the phone"]


def test_rs_13_a_disk_that_is_full_at_any_commit_costs_that_write_only() -> None:
    for skipped in range(8):
        script = Script("phone", "desktop")
        phone, _ = script.open_both()
        kept = []
        for number in range(8):
            if number == skipped:
                phone.disk.fail_next(StoreFull("The disk is full."))
            try:
                script.append(phone, f"line {number}\n")
                kept.append(f"line {number}")
            except StoreFull:
                pass
            script.wait(20)
        assert len(kept) >= 7
        assert script.settle().notes["worklog"].text.splitlines() == kept


def test_an_eviction_that_a_full_disk_refuses_leaves_the_task_as_it_was() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    script.append(phone, "before\n")
    script.settle()
    script.ask(phone, c.CloseTask(script.ref(), TASK))
    phone.disk.fail_next(StoreFull("The disk is full."))
    with pytest.raises(StoreFull):
        script.ask(phone, c.EvictTask(script.ref(), TASK))
    script.open(phone, create=False)
    script.append(phone, "after\n")
    assert script.settle().notes["worklog"].text == "before\nafter\n"


@pytest.mark.parametrize("seed", range(4))
def test_what_was_read_around_a_failed_commit_is_not_taken_for_the_state_of_later(seed: int) -> None:
    script = Script("phone", "desktop", seed=seed, snapshot_tail_entries=6)
    phone, _ = script.open_both()
    script.ask(phone, c.OpenTask(script.ref(), "claim/77", create=True))
    script.settle()
    phone.die()
    phone.boot()
    script.ask(phone, c.OpenTask(script.ref(), "claim/77"))
    phone.disk.fail_next(StoreFull("The disk is full."))
    for command in (c.AppendNote(script.ref(), "claim/77", "worklog", "x"), c.OpenTask(script.ref(), TASK)):
        phone.command(command, lambda value: None, lambda error: None)
    script.wait(5_000)
    for number in range(8):
        script.append(phone, f"line {number}\n")
        script.synced(phone)
    assert script.settle().notes["worklog"].text == "".join(f"line {number}\n" for number in range(8))


def test_what_only_a_reader_still_has_of_a_lost_log_waits_for_its_role() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    script.append(desktop, "by the desktop\n")
    script.append(phone, "by the phone\n")
    before = script.settle()
    desktop.unplug()
    script.world.relay.die()
    script.world.relay.mailbox = MailboxModel()
    script.world.relay.readers.add("phone")
    script.world.checks.disk_replaced()
    script.world.relay.boot()
    script.wait(20_000)
    assert quarantined(phone) == ()
    assert script.view(phone) == before
    assert script.settle() == before


@pytest.mark.parametrize("point", list(CrashPoint))
def test_a_crash_at_any_point_of_a_batch_loses_nothing_that_was_answered(point: CrashPoint) -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    answered = []
    for number in range(6):
        script.world.faults.crash_next(phone.label, point)
        replies: list[object] = []
        command = c.AppendNote(script.ref(), TASK, "worklog", f"line {number}\n")
        phone.command(command, replies.append, lambda error: None)
        script.until(lambda: not phone.up)
        if replies:
            answered.append(f"line {number}")
        script.until(lambda: phone.up)
        script.open(phone)
    lines = script.settle().notes["worklog"].text.splitlines() if answered else []
    assert set(answered) <= set(lines)
    assert len(set(lines)) == len(lines)


def test_se_08_a_damaged_row_is_fetched_again() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    for number in range(6):
        script.append(phone, f"line {number}\n")
    before = script.settle()
    row = next(entry for entry in peek.entries_of(desktop.disk, TASK) if entry.relay_seq == 4)
    desktop.die()
    desktop.disk.damage_entry(row.stream, row.writer, row.writer_seq)
    desktop.boot()
    script.open(desktop)
    assert script.settle() == before


def test_se_08_a_damaged_merged_row_is_fetched_again() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    for number in range(6):
        script.append(phone, f"line {number}\n")
    before = script.settle()
    script.ask(desktop, c.OpenTask(script.ref(), TASK))
    script.ask(desktop, c.CompactTask(script.ref(), TASK))
    desktop.die()
    desktop.disk.damage_document(STATE)
    desktop.boot()
    script.open(desktop)
    assert script.settle() == before


def test_a_damaged_row_that_was_never_sent_is_reported_loudly_and_nothing_is_overwritten() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    phone.unplug()
    script.append(phone, "never sent\n")
    stream, writer, number = peek.waiting_of(phone.disk, TASK)[-1]
    phone.die()
    phone.disk.damage_entry(stream, writer, number)
    phone.boot()
    with pytest.raises(StoreDamaged):
        script.open(phone)
    assert peek.payload_of(phone.disk, stream, writer, number) is not None


def test_se_24_a_poisonous_row_in_a_store_is_quarantined_and_the_rest_of_the_task_loads() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    script.append(phone, "line\n")
    script.settle()
    desktop.unplug()
    place = max(entry.relay_seq or 0 for entry in peek.entries_of(desktop.disk, TASK) if entry.stream == STATE)
    poison = msgspec.structs.replace(hostile_entry(2**40, b"\x01\x01\x07\x00\x28\x00"), relay_seq=place + 1)
    desktop.die()
    desktop.disk.commit([PutEntry(poison, own=False)])
    desktop.disk.sync()
    desktop.boot()
    script.open(desktop)
    assert script.view(desktop).notes["worklog"].text == "line\n"
    assert [aside.entry.writer for aside in quarantined(desktop)] == [2**40]


def stored_state(device: Device) -> StreamImage:
    return next(stream for stream in device.disk.load_task(TASK).streams if stream.stream == STATE)


def quarantined(device: Device) -> tuple[AsideEntry, ...]:
    return stored_state(device).quarantined
