"""Scenarios of real products, played by real Replicas on the real Relay (numbers as in the project's issues)."""

from dataclasses import dataclass

import msgspec
import pytest

from server_relay.effects import LoadTask, TaskLoaded
from sync_core.document.calls import CallBegun, CallRecorded, CallState
from sync_core.document.slots import SlotState
from sync_core.entry import Effect, Entry, EntryKind
from sync_core.errors import KeyReused, NotSyncedYet, StoreDamaged, StoreFull, Unforeseen, UnsentWork
from sync_core.frames import DigestAt, Entries, Heads, Hello, Push, StreamHead
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import LinkState, LogChanged
from sync_core.replica.writes import PutEntry, SetWriter
from tests.sync_core.replica.fleet import TASK, Device, Fleet


@dataclass
class Pair:
    fleet: Fleet
    phone: Device
    desktop: Device


@pytest.fixture
def pair() -> Pair:
    fleet = Fleet()
    phone, desktop = fleet.add("phone"), fleet.add("desktop")
    phone.open()
    desktop.open()
    fleet.settle()
    return Pair(fleet, phone, desktop)


def fill(device: Device, slots: int = 20) -> None:
    for number in range(slots):
        device.confirm(f"slot{number}", number)
    device.append("worklog", f"written by {device.name}\n")
    device.call(f"step-{device.name}", "done")


def test_a_write_is_returned_before_it_is_answered_announced_or_sent(pair: Pair) -> None:
    effects = pair.phone.handle(c.AppendNote(99, TASK, "n", "x"))
    kinds = [type(effect) for effect in effects]
    assert kinds.index(e.Written) < kinds.index(e.Announce) < kinds.index(e.Reply) < kinds.index(e.SendFrame)


def test_se_01_a_lost_relay_log_comes_back_from_the_devices_once(pair: Pair) -> None:
    fill(pair.phone)
    fill(pair.desktop, 0)
    pair.fleet.settle()
    pair.fleet.restart_relay(log_lost=True)
    pair.phone.handle(e.LinkFailed("no route"))
    pair.phone.append("worklog", "while the relay was down\n")
    for device in (pair.phone, pair.desktop):
        device.connect()
        pair.fleet.settle()
    pair.fleet.pass_time(5_000)
    pair.fleet.assert_converged()
    assert {slot.state for slot in pair.desktop.view.slots.values()} == {SlotState.CONFIRMED}
    text = pair.desktop.view.notes["worklog"].text
    assert sorted(text.splitlines()) == ["while the relay was down", "written by desktop", "written by phone"]
    assert any(isinstance(change, LogChanged) for change in pair.desktop.changes)


def test_se_01_merged_rows_come_back_too_with_the_calls_they_passed(pair: Pair) -> None:
    fill(pair.phone)
    pair.fleet.settle()
    for device in (pair.phone, pair.desktop):
        device.ask(c.CompactTask(device.ref(), TASK), object)
    pair.fleet.restart_relay(log_lost=True)
    for device in (pair.phone, pair.desktop):
        device.connect()
        pair.fleet.settle()
    pair.fleet.pass_time(5_000)
    tablet = pair.fleet.add("tablet")
    view = tablet.open(create=False)
    assert view.slots["slot7"].value == 7
    assert view.calls[1, "step-phone"].state is CallState.DONE
    assert view.notes["worklog"].text == "written by phone\n"


def test_a_restored_relay_whose_head_has_grown_loses_nothing(pair: Pair) -> None:
    pair.phone.append("n", "one\n")
    pair.fleet.settle()
    backup = pair.fleet.relay.model.image()
    pair.phone.append("n", "two\n")
    pair.fleet.settle()
    pair.desktop.disconnect()
    pair.fleet.restart_relay()
    pair.fleet.relay.model.restore(backup)
    pair.fleet.relay.restart()
    tablet = pair.fleet.add("tablet")
    tablet.open()
    for number in range(5):
        tablet.append("n", f"tablet {number}\n")
    pair.fleet.settle()
    for device in (pair.phone, pair.desktop):
        device.connect()
        pair.fleet.settle()
    pair.fleet.pass_time(5_000)
    pair.fleet.assert_converged()
    assert sorted(pair.desktop.view.notes["n"].text.split()) == sorted(
        ["one", "two", "tablet", "0", "tablet", "1", "tablet", "2", "tablet", "3", "tablet", "4"]
    )


def test_rs_05_what_was_committed_but_not_sent_is_sent_after_a_restart_under_the_same_number(pair: Pair) -> None:
    pair.phone.disconnect()
    pair.phone.append("n", "written offline\n")
    written = next(
        x.write.entry
        for x in pair.phone.log
        if isinstance(x, e.Written) and isinstance(x.write, PutEntry) and x.write.entry.kind is EntryKind.UPDATE
    )
    pair.phone.crash()
    pair.phone.connect()
    pair.fleet.settle()
    sent = [
        entry
        for x in pair.phone.log
        if isinstance(x, e.SendFrame) and isinstance(x.frame, Push)
        for entry in x.frame.entries
    ]
    assert (written.writer, written.writer_seq) in {(entry.writer, entry.writer_seq) for entry in sent}
    assert pair.desktop.view.notes["n"].text == "written offline\n"
    assert pair.phone.waiting == 0


def test_rs_07_a_device_that_hears_nothing_sends_again_and_is_stored_once(pair: Pair) -> None:
    pair.phone.hears = False
    pair.phone.append("n", "heard once\n")
    # A link on which nothing comes for so long is cut by the transport.
    pair.fleet.pass_time(20_000)
    assert pair.phone.waiting == 1
    pair.phone.hears = True
    pair.fleet.pass_time(20_000)
    pair.fleet.assert_converged()
    assert pair.desktop.view.notes["n"].text == "heard once\n"


def test_se_08_a_device_with_a_hole_in_its_file_fetches_what_is_missing_again(pair: Pair) -> None:
    fill(pair.phone, 6)
    pair.fleet.settle()
    pair.desktop.crash()
    state = pair.desktop.disk._current._streams[TASK][f"{TASK}:state"]
    foreign = next(key for key, row in state.rows.items() if row.entry.relay_seq == 5)
    del state.rows[foreign]
    pair.desktop.connect()
    pair.desktop.open()
    pair.fleet.pass_time(2_000)
    pair.fleet.assert_converged()
    assert pair.desktop.view.slots == pair.phone.view.slots


def test_se_24_a_poisonous_row_in_the_own_store_is_quarantined_and_the_rest_loads(pair: Pair) -> None:
    pair.phone.confirm("a", 1)
    pair.fleet.settle()
    image = pair.phone.disk.load_task(TASK)
    state = next(stream for stream in image.streams if stream.stream.endswith(":state"))
    poison = Entry(
        state.stream, 9_999_999, 1, EntryKind.UPDATE, b"\x01\x01\x07\x00garbage", "mallory", 0, relay_seq=state.cursor
    )
    pair.phone.disk.commit([PutEntry(poison, own=False)])
    pair.phone.crash()
    pair.phone.handle(e.LinkFailed("no route"))
    view = pair.phone.open()
    assert view.slots["a"].value == 1
    assert pair.phone.replica.status.quarantined == 1


def test_se_30_a_finished_call_is_reused_by_a_device_that_had_it_planned(pair: Pair) -> None:
    pair.desktop.ask(c.PlanCall(pair.desktop.ref(), TASK, 1, "scan", "tool", "{}", ("files",)), object)
    pair.fleet.settle()
    pair.phone.disconnect()
    pair.phone.call("scan", "found")
    pair.phone.connect()
    pair.fleet.settle()
    pair.fleet.restart_relay()
    for device in (pair.phone, pair.desktop):
        device.connect()
    pair.fleet.settle()
    answer = pair.desktop.begin("scan")
    assert isinstance(answer, CallRecorded)
    assert answer.call.shown is not None
    assert answer.call.shown.result == '"found"'
    assert len(answer.call.attempts) == 1
    assert isinstance(pair.desktop.begin("another"), CallBegun)


def test_rs_18_a_thousand_recorded_calls_are_answered_from_the_record_after_merge_and_restart(pair: Pair) -> None:
    for number in range(1_000):
        pair.phone.call(f"s{number}", str(number))
    pair.fleet.settle()
    pair.desktop.crash()
    pair.desktop.connect()
    pair.desktop.open()
    answers = [pair.desktop.begin(f"s{number}") for number in range(1_000)]
    assert all(isinstance(answer, CallRecorded) for answer in answers)


def test_rs_19_the_same_step_with_other_arguments_is_refused_with_both_digests(pair: Pair) -> None:
    pair.phone.call("pay", "done")
    pair.fleet.settle()
    with pytest.raises(KeyReused) as caught:
        pair.desktop.begin("pay", digest="other")
    assert (caught.value.recorded_digest, caught.value.given_digest) == ("d", "other")


def test_rs_12_clocks_ten_years_off_change_nothing_but_what_is_displayed() -> None:
    def play(skew_ms: int) -> tuple[object, ...]:
        fleet = Fleet()
        phone, desktop = fleet.add("phone"), fleet.add("desktop")
        desktop.wall_ms += skew_ms
        phone.open()
        desktop.open()
        phone.confirm("a", "phone")
        desktop.confirm("a", "desktop")
        fleet.settle()
        desktop.wall_ms -= 2 * skew_ms
        desktop.append("n", "x")
        fleet.pass_time(3_000)
        slot = phone.view.slots["a"]
        return (
            slot.state,
            [(found.value, found.n, found.author) for found in slot.candidates],
            phone.view.notes["n"].text,
        )

    ten_years_ms = 10 * 365 * 24 * 3_600_000
    assert play(0) == play(ten_years_ms) == play(-ten_years_ms)


def test_a_restored_store_file_writes_under_a_fresh_id_and_keeps_both_sides(pair: Pair) -> None:
    pair.phone.append("n", "before the backup\n")
    pair.fleet.settle()
    backup = pair.phone.disk.image()
    pair.phone.append("n", "after the backup\n")
    pair.fleet.settle()
    pair.phone.crash()
    pair.phone.disk.restore(backup)
    pair.phone.boot()
    pair.phone.handle(e.LinkFailed("no route"))
    pair.phone.open()
    pair.phone.append("n", "after the restore\n")
    pair.phone.connect()
    pair.fleet.pass_time(4_000)
    pair.fleet.assert_converged()
    lines = pair.desktop.view.notes["n"].text.splitlines()
    assert sorted(lines) == ["after the backup", "after the restore", "before the backup"]


def test_a_full_disk_refuses_with_a_type_keeps_order_and_recovers_without_restart(pair: Pair) -> None:
    pair.phone.append("n", "one\n")
    pair.phone.disk.fail_next(StoreFull("full"))
    with pytest.raises(StoreFull):
        pair.phone.append("n", "two\n")
    pair.phone.append("n", "three\n")
    pair.fleet.pass_time(4_000)
    pair.fleet.assert_converged()
    assert pair.desktop.view.notes["n"].text == "one\nthree\n"


def test_other_content_at_the_same_place_is_shown_as_diverged_and_never_hidden(pair: Pair) -> None:
    pair.phone.append("n", "one\n")
    pair.fleet.settle()
    image = pair.desktop.disk.load_task(TASK)
    state = next(stream for stream in image.streams if stream.stream.endswith(":state"))
    claim = DigestAt(state.stream, state.epoch, state.cursor, bytes(32), "phone")
    pair.desktop.handle(e.FrameReceived(claim))
    assert pair.desktop.replica.status.diverged == (TASK,)


def test_an_evicted_task_needs_no_receipt_and_comes_back_under_another_writer(pair: Pair) -> None:
    pair.phone.disconnect()
    pair.phone.append("n", "unsent\n")
    with pytest.raises(UnsentWork):
        pair.phone.ask(c.EvictTask(pair.phone.ref(), TASK), object)
    pair.phone.connect()
    pair.fleet.settle()
    pair.phone.ask(c.EvictTask(pair.phone.ref(), TASK), object)
    assert pair.phone.disk.load_task(TASK).streams == ()
    before = {entry.writer for stream in pair.desktop.disk.load_task(TASK).streams for entry in stream.entries}
    pair.phone.open()
    pair.phone.append("n", "again\n")
    pair.fleet.settle()
    after = {entry.writer for stream in pair.desktop.disk.load_task(TASK).streams for entry in stream.entries}
    assert len(after - before) == 1
    pair.fleet.assert_converged()


def test_own_work_that_was_never_sent_and_is_damaged_is_said_loudly(pair: Pair) -> None:
    pair.phone.disconnect()
    pair.phone.append("n", "only here\n")
    image = pair.phone.disk.load_task(TASK)
    damaged = [
        msgspec.structs.replace(stream, damaged=((stream.entries[-1].writer, stream.entries[-1].writer_seq, None),))
        for stream in image.streams
    ]
    pair.phone.crash()
    pair.phone.handle(e.LinkFailed("no route"))
    effects = pair.phone.replica.handle(c.OpenTask(1, TASK), 1, 1)
    assert any(isinstance(effect, e.LoadTask) for effect in effects)
    answer = pair.phone.replica.handle(e.TaskLoaded(msgspec.structs.replace(image, streams=tuple(damaged))), 2, 2)
    assert any(isinstance(effect, e.Fail) and isinstance(effect.error, StoreDamaged) for effect in answer)


def test_documents_of_tasks_without_a_handle_are_given_back(pair: Pair) -> None:
    pair.phone.ask(c.CloseTask(pair.phone.ref(), TASK), object)
    pair.desktop.append("n", "x")
    pair.fleet.pass_time(1_000)
    assert pair.phone.replica.loaded == 0
    assert pair.phone.open().notes["n"].text == "x"


def test_the_relay_learns_nothing_of_an_irreversible_call_without_an_authority(pair: Pair) -> None:
    pair.phone.outgoing.clear()
    with pytest.raises(Exception, match=r".") as caught:
        pair.phone.begin("pay", effect=Effect.IRREVERSIBLE)
    assert getattr(caught.value, "code", "") == "needs_authority"
    assert pair.phone.outgoing == []


def test_a_lost_link_is_offline_and_says_so(pair: Pair) -> None:
    pair.phone.disconnect()
    assert pair.phone.replica.status.link is LinkState.OFFLINE
    assert not any(isinstance(x, e.Written) and isinstance(x.write, SetWriter) for x in pair.phone.handle(e.Tick()))


def test_a_command_that_fails_inside_fails_alone_and_leaves_nothing(pair: Pair) -> None:
    pair.phone.append("n", "one\n")
    with pytest.raises(Unforeseen):
        pair.phone.ask(c.AppendNote(pair.phone.ref(), TASK, "n", 5), object)  # type: ignore[arg-type]
    pair.phone.append("n", "two\n")
    pair.fleet.pass_time(4_000)
    pair.fleet.assert_converged()
    assert pair.desktop.view.notes["n"].text == "one\ntwo\n"


def test_a_task_near_the_bound_of_its_writes_is_shown_as_growing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sync_core.replica.tally.TASK_WRITES_WARNING", 3)
    for number in range(3):
        assert pair.phone.replica.status.growing == ()
        pair.phone.confirm(f"slot{number}", number)
    assert pair.phone.replica.status.growing == (TASK,)


def test_an_offer_that_came_while_a_device_was_behind_is_checked_once_it_has_caught_up(pair: Pair) -> None:
    pair.fleet.relay.settings = msgspec.structs.replace(pair.fleet.relay.settings, snapshot_tail_entries=5)
    pair.fleet.restart_relay()
    for device in (pair.phone, pair.desktop):
        device.connect()
    pair.fleet.settle()
    for number in range(8):
        pair.phone.confirm(f"slot{number}", number)
    pair.fleet.pass_time(10_000)
    stored = pair.fleet.relay.model.read(LoadTask("acme", TASK))
    assert isinstance(stored, TaskLoaded)
    assert any(stream.usable is not None for stream in stored.image.streams)


def test_a_task_of_which_a_first_reading_was_cut_off_is_not_opened_as_if_it_were_whole(pair: Pair) -> None:
    pair.phone.append("n", "early\n")
    pair.fleet.settle()
    tablet = pair.fleet.add("tablet")
    tablet.handle(c.OpenTask(1, TASK))
    frames = [x.frame for x in tablet.log if isinstance(x, e.SendFrame)]
    assert any(isinstance(frame, Hello) for frame in frames)
    image = pair.desktop.disk.load_task(TASK)
    state = next(stream for stream in image.streams if stream.stream.endswith(":state"))
    heads = Heads(TASK, True, (StreamHead(StreamName.STATE, state.epoch, state.cursor + 1),), 0, answers=1)
    tablet.handle(e.FrameReceived(heads))
    tablet.handle(e.FrameReceived(Entries(state.stream, state.epoch, state.entries)))
    tablet.disconnect()
    assert isinstance(tablet.replies.pop(1), NotSyncedYet)
    for create in (False, True):
        with pytest.raises(NotSyncedYet):
            tablet.open(create=create)
    tablet.connect()
    assert tablet.open(create=False).notes["n"].text == "early\n"
