"""How long a key is somebody's: leases, restarts, purges, and a disk that fails."""

import pytest

from server_relay.effects import Written
from sync_core.entry import EntryKind
from sync_core.errors import StoreFull
from sync_core.frames import Purge
from sync_core.ids import AUTHORITY_DEVICE
from sync_core.petitions import ClaimAnswer, ClaimVerdict
from sync_core.rulings import Contradicted, Doubted, Granted, Settled
from tests.server_relay.harness import Harness
from tests.server_relay.petitioners import TASK, Petitioner, admit_by_token

VERDICT = ClaimVerdict
ENTITY = '["u1","HAT"]'


@pytest.fixture
def harness() -> Harness:
    return Harness(admit_by_token)


@pytest.fixture
def phone(harness: Harness) -> Petitioner:
    phone = Petitioner(harness, "phone", "anna/write")
    phone.open()
    return phone


@pytest.fixture
def desktop(harness: Harness, phone: Petitioner) -> Petitioner:
    return Petitioner(harness, "desktop", "ben/write")


# --- leases -----------------------------------------------------------------------------------------------------------


def test_a_lease_lasts_while_its_connection_is_open_and_a_while_longer(
    harness: Harness, phone: Petitioner, desktop: Petitioner
) -> None:
    phone.claim()
    harness.tick(3_600_000)
    assert desktop.claim().verdict is VERDICT.RUNNING
    phone.client.leave()
    harness.tick(29_999)
    assert desktop.claim().verdict is VERDICT.RUNNING
    assert desktop.kinds() == [Granted]
    harness.tick(1)
    assert desktop.kinds() == [Doubted]
    assert desktop.claim().verdict is VERDICT.IN_DOUBT
    assert desktop.kinds() == []


def test_the_end_of_a_lease_is_seen_at_a_claim_before_any_tick(
    harness: Harness, phone: Petitioner, desktop: Petitioner
) -> None:
    phone.claim()
    phone.client.leave()
    harness.now_ms += 30_000
    assert desktop.claim().verdict is VERDICT.IN_DOUBT
    assert desktop.kinds() == [Granted, Doubted]


def test_the_same_attempt_on_a_new_connection_takes_its_lease_along(
    harness: Harness, phone: Petitioner, desktop: Petitioner
) -> None:
    granted = phone.claim()
    phone.client.leave()
    back = phone.again()
    again = back.claim(attempt=phone.last_attempt)
    assert (again.verdict, again.token) == (VERDICT.GRANTED, granted.token)
    harness.tick(3_600_000)
    assert desktop.claim().verdict is VERDICT.RUNNING
    assert desktop.kinds() == [Granted]


def test_a_device_that_began_a_new_session_does_not_wait_for_itself(phone: Petitioner, desktop: Petitioner) -> None:
    """RS-17: after a crash the step is in doubt at once, and never runs by itself."""
    phone.claim()
    assert phone.claim().verdict is VERDICT.RUNNING
    assert phone.again().claim().verdict is VERDICT.IN_DOUBT
    assert desktop.kinds() == [Granted, Doubted]


def test_a_lease_outlives_a_restart_of_the_relay_for_as_long(harness: Harness, phone: Petitioner) -> None:
    granted = phone.claim()
    harness.restart()
    desktop = Petitioner(harness, "desktop", "ben/write")
    assert desktop.claim().verdict is VERDICT.RUNNING
    back = phone.again()
    assert back.claim(attempt=phone.last_attempt).token == granted.token
    harness.restart()
    desktop = Petitioner(harness, "desktop", "ben/write")
    desktop.rulings()
    harness.tick(30_000)
    assert desktop.kinds() == [Doubted]
    assert desktop.claim().verdict is VERDICT.IN_DOUBT


def test_a_late_outcome_settles_an_open_doubt_and_contradicts_a_verdict(
    harness: Harness, phone: Petitioner, desktop: Petitioner
) -> None:
    for step in ("first", "second"):
        granted, attempt = phone.claim(step), phone.last_attempt
        phone.client.leave()
        harness.tick(30_000)
        if step == "second":
            assert desktop.settle(False, step) == ""
        phone = phone.again()
        phone.outcome(granted, step, attempt=attempt)
    rulings = desktop.rulings()
    assert [type(ruling) for ruling in rulings] == [
        *(Granted, Doubted, Settled),
        *(Granted, Doubted, Settled, Contradicted),
    ]
    assert desktop.claim("first").verdict is VERDICT.DONE
    assert desktop.claim("second").verdict is VERDICT.RETIRED


def test_the_id_of_an_attempt_is_used_for_one_grant(phone: Petitioner, desktop: Petitioner) -> None:
    """Else its outcome would settle another call, or nobody's."""
    granted, attempt = phone.claim("first"), phone.last_attempt
    assert desktop.claim("second", attempt=attempt).verdict is VERDICT.REFUSED
    assert phone.claim("second", attempt=attempt, entity=ENTITY).verdict is VERDICT.REFUSED
    phone.outcome(granted, "first", attempt=attempt, ok=False, result=None)
    assert phone.claim("first", attempt=attempt).verdict is VERDICT.REFUSED
    assert desktop.kinds() == [Granted, Settled]
    assert desktop.claim("first").verdict is VERDICT.GRANTED


# --- what outlives what -----------------------------------------------------------------------------------------------


def test_a_key_outlives_the_memory_of_the_relay(harness: Harness, phone: Petitioner) -> None:
    phone.outcome(phone.claim())
    phone.client.leave()
    harness.tick(60_000)
    assert harness.relay.tasks_held == 0
    desktop = Petitioner(harness, "desktop")
    assert desktop.claim().verdict is VERDICT.DONE
    harness.restart()
    assert Petitioner(harness, "desktop").claim().result == '"paid"'


def test_a_key_outlives_a_purge_and_a_higher_version_has_keys_of_its_own(harness: Harness, phone: Petitioner) -> None:
    phone.outcome(phone.claim(entity=ENTITY))
    phone.outcome(phone.claim("other"), "other")
    phone.client.send(Purge(TASK, 1))
    assert phone.again().claim("other").verdict is VERDICT.REFUSED
    anew = phone.again()
    anew.open(2)
    assert anew.claim("other", version=2).verdict is VERDICT.GRANTED
    assert anew.claim("third", version=2, entity=ENTITY).verdict is VERDICT.DONE


def test_a_doubt_about_a_purged_task_can_be_settled(harness: Harness, phone: Petitioner) -> None:
    other = Petitioner(harness, "pc", task="b")
    other.open()
    other.claim(entity=ENTITY)
    other.client.send(Purge("b", 1))
    other.client.leave()
    harness.tick(30_000)
    assert phone.claim(entity=ENTITY).verdict is VERDICT.IN_DOUBT
    assert phone.settle(True, entity=ENTITY) == ""
    assert phone.claim(entity=ENTITY).verdict is VERDICT.DONE
    heads = Petitioner(harness, "watch", task="b", hello=False).client.hello("b")
    assert (heads.known, heads.streams) == (False, ())


# --- a disk that fails ------------------------------------------------------------------------------------------------


def test_a_commit_that_fails_grants_and_settles_nothing(harness: Harness, phone: Petitioner) -> None:
    harness.model.fail_next(StoreFull("The disk is full."))
    frame = phone.claim_frame()
    phone.client.send(frame)
    assert phone.client.take(ClaimAnswer) == []
    assert phone.client.closed is not None
    desktop = Petitioner(harness, "desktop")
    assert desktop.rulings() == []
    granted = desktop.claim()
    assert granted.verdict is VERDICT.GRANTED
    assert phone.again().claim(attempt=frame.attempt).verdict is VERDICT.RUNNING
    harness.model.fail_next(StoreFull("The disk is full."))
    desktop.outcome(granted)
    assert desktop.client.closed is not None
    back = desktop.again()
    assert back.kinds() == [Granted]
    back.outcome(granted, attempt=desktop.last_attempt)
    assert back.kinds() == [Settled]
    assert back.claim().verdict is VERDICT.DONE


def test_a_disk_that_fails_at_every_commit_in_turn_never_gives_a_key_to_two(harness: Harness) -> None:
    for fails in range(6):
        harness = Harness(admit_by_token, seed=fails)
        commits = 0

        def fail_one(harness: Harness = harness, fails: int = fails) -> None:
            nonlocal commits
            if any(isinstance(effect, Written) for effect in harness.batches[-1]):
                if commits == fails:
                    harness.model.fail_next(StoreFull("The disk is full."))
                commits += 1

        granted: list[tuple[str, int]] = []
        devices = [Petitioner(harness, name) for name in ("phone", "desktop")]
        harness.before_commit = fail_one
        for _ in range(4):
            devices = [device if device.client.closed is None else device.again() for device in devices]
            for device in devices:
                device.open()
                device.client.send(device.claim_frame(attempt=f"of-{device.device}"))
                for answer in device.client.take(ClaimAnswer):
                    if answer.verdict is VERDICT.GRANTED:
                        granted.append((device.device, answer.token))
        assert len(set(granted)) == 1, granted


def test_rulings_name_the_relay_and_one_writer_for_each_of_its_openings(harness: Harness, phone: Petitioner) -> None:
    phone.claim("first")
    phone.claim("second")
    harness.restart()
    reader = Petitioner(harness, "reader")
    reader.claim("third")
    rows = [entry for entry in reader.client.entries() if entry.kind is EntryKind.RULING]
    assert {entry.device for entry in rows} == {AUTHORITY_DEVICE}
    assert [entry.writer_seq for entry in rows] == [1, 2, 1]
    assert rows[0].writer == rows[1].writer != rows[2].writer
    assert [entry.at_ms for entry in rows] == [harness.now_ms] * 3
