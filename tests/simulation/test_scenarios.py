"""Scenarios of the catalogue that need time, a network and disks; scripted on the simulator."""

import pytest

from sync_core.document.calls import CallBegun, CallRecorded, CallState
from sync_core.document.slots import SlotState
from sync_core.entry import Effect
from sync_core.frames import WIRE_VERSION, Hello, Login, Push, Refusal
from sync_core.ids import new_writer
from sync_core.replica import commands as c
from sync_core.wire import decode_relay, encode
from tests.simulation import peek
from tests.simulation.device import Device
from tests.simulation.faults import FaultPlan
from tests.simulation.hostile import delete_ahead
from tests.simulation.mailbox_model import MailboxModel
from tests.simulation.network import Link
from tests.simulation.script import STATE, TASK, Script, hostile_entry


def stored(script: Script) -> int:
    """Return how many entries the relay's log of the task holds."""
    return len(peek.mailbox_log(script.world.relay.mailbox, script.world.subject, TASK))


def _last_writer(device: Device) -> tuple[int, int]:
    """Return the writer of the device's newest update, and its next clock."""
    rows = peek.streams_of(device.disk, TASK)[STATE].writers.values()
    row = max((row for row in rows if row.device == device.name), key=lambda row: row.next_clock)
    return row.writer, row.next_clock


def call(script: Script, device: Device, step: str, effect: Effect = Effect.READ) -> CallBegun | CallRecorded:
    begin = c.BeginCall(script.ref(), TASK, 1, step, "lookup", effect, "0" * 64, "{}")
    value = script.ask(device, begin)
    assert isinstance(value, CallBegun | CallRecorded)
    return value


def finish(script: Script, device: Device, step: str, begun: CallBegun, result: str) -> None:
    script.ask(device, c.EndCall(script.ref(), TASK, 1, step, begun.attempt, True, result))


def test_ac_11_two_confirmed_values_written_apart_stand_as_a_conflict_everywhere() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    phone.unplug()
    script.confirm(phone, "cost_center", '"CC-1042"')
    script.confirm(desktop, "cost_center", '"CC-2000"')
    slot = script.settle().slots["cost_center"]
    assert slot.state is SlotState.CONFLICTED
    assert {candidate.text for candidate in slot.candidates} == {'"CC-1042"', '"CC-2000"'}
    assert {candidate.author for candidate in slot.candidates} == {"phone", "desktop"}


@pytest.mark.parametrize("seed", range(5))
def test_se_29_a_late_joiner_and_a_restarted_relay_see_the_same_conflict(seed: int) -> None:
    script = Script("phone", "desktop", seed=seed)
    phone, desktop = script.open_both()
    phone.unplug()
    desktop.unplug()
    script.confirm(phone, "budget", "5")
    script.confirm(desktop, "budget", "5.0")
    script.world.crash_relay()
    phone.plug()
    desktop.plug()
    script.synced(phone)
    script.synced(desktop)
    joiner = script.boot("laptop")
    script.open(joiner, create=False)
    slot = script.settle().slots["budget"]
    assert slot.state is SlotState.CONFLICTED
    resolved = script.confirm(joiner, "budget", "5", slot.token)
    assert resolved.state is SlotState.CONFIRMED
    assert script.settle().slots["budget"].state is SlotState.CONFIRMED


def test_rs_05_what_was_committed_and_never_sent_is_sent_after_the_restart_under_its_number() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    phone.unplug()
    script.confirm(phone, "cost_center", '"CC-1042"')
    waiting = peek.waiting_of(phone.disk, TASK)
    phone.die()
    phone.plug()
    phone.boot()
    view = script.settle()
    assert view.slots["cost_center"].value == "CC-1042"
    for stream, writer, number in waiting:
        assert peek.mailbox_place(script.world.relay.mailbox, script.world.subject, stream, writer, number)


def test_rs_07_a_device_that_hears_nothing_for_ten_minutes_is_stored_once() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    script.settle()
    before = stored(script)
    script.world.partition(phone, "down", 600_000)
    for number in range(5):
        script.append(phone, f"line {number}\n")
    script.wait(600_000)
    view = script.settle()
    assert stored(script) == before + 5
    assert view.notes["worklog"].text == "".join(f"line {number}\n" for number in range(5))


def test_se_01_a_relay_that_lost_its_log_gets_everything_back_once() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    for number in range(10):
        script.confirm(phone if number % 2 else desktop, f"slot{number}", str(number))
    script.append(phone, "written before\n")
    script.settle()
    script.world.relay.die()
    script.world.relay.mailbox = MailboxModel()
    script.world.checks.disk_replaced()
    script.append(phone, "written while it was away\n")
    script.world.relay.boot()
    view = script.settle()
    assert [view.slots[f"slot{number}"].value for number in range(10)] == list(range(10))
    assert sorted(view.notes["worklog"].text.splitlines()) == ["written before", "written while it was away"]


def test_rule_j_work_of_a_killed_phone_survives_the_loss_of_the_relay() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    script.confirm(phone, "cost_center", '"CC-1042"')
    script.settle()
    phone.die()
    script.world.devices.remove(phone)
    script.world.relay.die()
    script.world.relay.mailbox = MailboxModel()
    script.world.checks.disk_replaced()
    script.world.relay.boot()
    script.wait(10_000)
    newcomer = script.boot("laptop")
    script.open(newcomer, create=False)
    slot = script.settle().slots["cost_center"]
    assert (slot.value, slot.candidates[0].author) == ("CC-1042", "phone")


def test_rule_j_a_restored_relay_whose_head_grew_past_a_cursor_is_found_out() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    script.settle()
    old = script.world.relay.mailbox.image()
    script.append(phone, "after the copy\n")
    script.settle()
    phone.unplug()
    script.world.relay.die()
    script.world.relay.mailbox.restore(old)
    script.world.checks.disk_replaced()
    script.world.relay.boot()
    for number in range(4):
        script.append(desktop, f"grown {number}\n")
    script.wait(5_000)
    view = script.settle()
    lines = view.notes["worklog"].text.splitlines()
    assert sorted(lines) == ["after the copy", *(f"grown {number}" for number in range(4))]


def test_rs_11_snapshots_and_compaction_while_a_device_is_away_change_nothing() -> None:
    script = Script("phone", "desktop", "tablet", snapshot_tail_entries=6)
    phone, desktop = script.open_both()
    tablet = script.devices["tablet"]
    script.open(tablet, create=False)
    script.settle()
    tablet.unplug()
    for number in range(20):
        script.confirm(phone if number % 2 else desktop, f"slot{number % 4}", str(number))
        script.append(desktop, f"line {number}\n")
    script.synced(phone)
    script.ask(phone, c.CompactTask(script.ref(), TASK))
    script.wait(10_000)
    heads = peek.mailbox_stream(script.world.relay.mailbox, script.world.subject, STATE)
    assert heads is not None and heads.usable is not None and heads.tail_from > 1
    newcomer = script.boot("laptop")
    script.open(newcomer, create=False)
    view = script.settle()
    assert view.notes["worklog"].text == "".join(f"line {number}\n" for number in range(20))
    assert peek.streams_of(newcomer.disk, TASK)[STATE].document is not None


def test_rs_12_clocks_that_are_wrong_by_years_and_step_back_change_no_outcome() -> None:
    outcomes = []
    for skew in (False, True):
        script = Script("phone", "desktop", seed=5, plan=FaultPlan(skew=skew))
        phone, desktop = script.open_both()
        desktop.unplug()
        for number in range(6):
            script.confirm(phone, "cost_center", f'"CC-{number}"')
            phone.clock.step()
            script.confirm(desktop, "currency", f'"C{number}"')
            desktop.clock.step()
        script.append(phone, "line\n")
        view = script.settle()
        shown = {name: {item.text for item in slot.candidates} for name, slot in view.slots.items()}
        outcomes.append((shown, {name: slot.state for name, slot in view.slots.items()}, view.notes["worklog"].text))
    assert outcomes[0] == outcomes[1]


def test_rs_17_a_call_that_died_between_intent_and_record_is_in_doubt_and_runs_again_only_when_asked() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    begun = call(script, phone, "rate")
    assert isinstance(begun, CallBegun)
    phone.die()
    phone.boot()
    script.open(phone)
    script.synced(phone)
    assert script.settle().calls[1, "rate"].state is CallState.IN_DOUBT
    again = call(script, desktop, "rate")
    assert isinstance(again, CallBegun)
    assert again.idempotency_key == begun.idempotency_key and again.attempt != begun.attempt
    finish(script, desktop, "rate", again, '"7 %"')
    assert script.settle().calls[1, "rate"].state is CallState.DONE


def test_se_30_a_finished_call_is_returned_on_another_device_and_after_restarts() -> None:
    script = Script("phone", "desktop")
    phone, desktop = script.open_both()
    begun = call(script, phone, "invoice")
    assert isinstance(begun, CallBegun)
    finish(script, phone, "invoice", begun, '"319.60"')
    script.settle()
    script.world.crash_relay()
    desktop.die()
    desktop.boot()
    script.open(desktop)
    script.synced(desktop)
    recorded = call(script, desktop, "invoice")
    assert isinstance(recorded, CallRecorded) and recorded.call.shown is not None
    assert recorded.call.shown.result == '"319.60"'
    other = call(script, desktop, "invoice_of_may")
    assert isinstance(other, CallBegun)


def test_rs_29_a_delete_ahead_peer_is_refused_and_the_victim_stays_visible() -> None:
    script = Script("phone", "desktop")
    phone, _ = script.open_both()
    script.append(phone, "first\n")
    script.settle()
    writer, clock = _last_writer(phone)
    refusals: list[Refusal] = []

    def arrived(_: Link, data: bytes) -> None:
        refusals.extend(frame for frame in decode_relay(data) if isinstance(frame, Refusal))

    world = script.world
    link = world.link_to_relay("mallory", arrived, lambda _: None)
    entropy = world.rng("mallory").randbytes
    link.up.send(encode([Login(WIRE_VERSION, world.subject, "mallory"), Hello(TASK)]))
    link.up.send(encode([Push(TASK, (hostile_entry(new_writer(entropy), delete_ahead(writer, clock, 1_000)),))]))
    script.wait(1_000)
    assert [refusal.code.value for refusal in refusals] == ["guard"]
    script.append(phone, "second\n")
    assert script.settle().notes["worklog"].text == "first\nsecond\n"
