"""Digests (rule B): equal content is silent, a difference is healed or shown on both devices."""

import msgspec
import pytest

from sync_core.frames import DigestAt
from sync_core.replica import effects as e
from sync_core.replica.changes import TaskDiverged
from tests.sync_core.replica.fleet import TASK, Device, Fleet


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    for name in ("phone", "desktop"):
        fleet.add(name).open()
    fleet.devices[0].append("n", "one\n")
    fleet.pass_time(3_000)
    return fleet


def claim(device: Device, *, ahead: int = 0, digest: bytes = bytes(32)) -> e.FrameReceived:
    """What the relay passes on from a device that holds something else at the cursor, or at a later place."""
    state = next(s for s in device.disk.load_task(TASK).streams if s.stream.endswith(":state"))
    return e.FrameReceived(DigestAt(state.stream, state.epoch, state.cursor + ahead, digest, "tablet"))


def sent_digests(device: Device) -> list[DigestAt]:
    return [x.frame for x in device.log if isinstance(x, e.SendFrame) and isinstance(x.frame, DigestAt)]


def test_each_quiet_stream_is_told_once_at_its_cursor_and_equal_digests_are_silent(fleet: Fleet) -> None:
    phone, desktop = fleet.devices
    told = {(d.stream, d.relay_seq): d.digest for d in sent_digests(phone)}
    assert told == {(d.stream, d.relay_seq): d.digest for d in sent_digests(desktop)}
    assert told
    before = len(sent_digests(phone))
    fleet.pass_time(10_000)
    assert len(sent_digests(phone)) == before
    assert [device.replica.status.diverged for device in fleet.devices] == [(), ()]


def test_a_difference_is_read_anew_before_it_is_shown_and_answered_once(fleet: Fleet) -> None:
    phone = fleet.devices[0]
    phone.log.clear()
    phone.handle(claim(phone))
    assert sum(isinstance(x, e.LoadTask) for x in phone.log) == 1
    assert phone.replica.status.diverged == (TASK,)
    assert len(sent_digests(phone)) == 1
    phone.handle(claim(phone))
    assert len(sent_digests(phone)) == 1
    assert [type(change) for change in phone.changes].count(TaskDiverged) == 1


def test_a_divergence_that_is_over_is_shown_no_longer(fleet: Fleet) -> None:
    phone = fleet.devices[0]
    phone.handle(claim(phone))
    phone.handle(claim(phone, digest=sent_digests(phone)[-1].digest))
    assert phone.replica.status.diverged == ()


def test_what_is_said_of_a_later_place_is_compared_there(fleet: Fleet) -> None:
    phone, desktop = fleet.devices
    phone.handle(claim(phone, ahead=1))
    desktop.append("n", "two\n")
    fleet.settle()
    assert not phone.replica.status.diverged
    fleet.pass_time(3_000)
    assert phone.replica.status.diverged == (TASK,)


def test_a_device_with_unsent_work_compares_nothing(fleet: Fleet) -> None:
    phone = fleet.devices[0]
    phone.hears = False
    phone.append("n", "unsent\n")
    phone.log.clear()
    phone.handle(claim(phone))
    fleet.pass_time(2_000)
    assert sent_digests(phone) == []
    assert phone.replica.status.diverged == ()


def test_both_devices_show_what_only_one_of_them_holds(fleet: Fleet) -> None:
    phone, desktop = fleet.devices
    desktop.crash()
    state = desktop.disk._current._streams[TASK][f"{TASK}:state"]
    key, row = next((k, r) for k, r in state.rows.items() if r.entry.kind.value == "version")
    state.rows[key] = msgspec.structs.replace(row, entry=msgspec.structs.replace(row.entry, payload=_version_two()))
    desktop.connect()
    desktop.open()
    phone.append("n", "two\n")
    fleet.pass_time(5_000)
    assert [device.replica.status.diverged for device in fleet.devices] == [(TASK,), (TASK,)]


def _version_two() -> bytes:
    from sync_core.entry import VersionDecision, encode_record

    return encode_record(VersionDecision(2, "phone"))
