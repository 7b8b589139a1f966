"""A store that was restored and marked so: nothing is given out twice, however often one backup is put back."""

import pytest

from sync_core.frames import Heads
from sync_core.ids import StreamName
from sync_core.petitions import ClaimVerdict
from tests.server_relay.harness import Harness
from tests.server_relay.petitioners import Petitioner, admit_by_token


def test_two_restores_of_one_backup_make_no_key_and_no_token_twice() -> None:
    harness = Harness(admit_by_token)
    Petitioner(harness, "phone", "anna/admin").open()
    backup = harness.model.image()
    seen: list[tuple[str, int]] = []
    for device in ("first", "second"):
        harness.now_ms += 10 * 3_600_000
        harness.model.restore(backup)
        harness.model.mark_restored(harness.entropy.randbytes, harness.now_ms)
        harness.restart()
        admin = Petitioner(harness, device, "boss/admin")
        assert admin.lift() == ""
        answer = admin.claim(entity='"seat-1"')
        assert answer.verdict is ClaimVerdict.GRANTED
        seen.append((answer.key, answer.token))
    (key, token), (later_key, later_token) = seen
    assert later_key != key and later_token > token


@pytest.fixture
def restored() -> Harness:
    """A relay that was restored from a backup with one task."""
    harness = Harness(admit_by_token)
    Petitioner(harness, "phone", "anna/admin").open()
    backup = harness.model.image()
    harness.now_ms += 3_600_000
    harness.model.restore(backup)
    harness.model.mark_restored(harness.entropy.randbytes, harness.now_ms)
    harness.restart()
    return harness


def test_a_task_that_begins_behind_the_barrier_may_have_been_lost_with_the_log(restored: Harness) -> None:
    desktop = Petitioner(restored, "desktop", "anna/write", "expense/TRIP-119")
    desktop.open()
    assert desktop.claim().verdict is ClaimVerdict.IN_DOUBT
    restored.restart()
    assert desktop.again().claim().verdict is ClaimVerdict.IN_DOUBT


def test_a_higher_version_in_the_present_log_opens_it(restored: Harness) -> None:
    desktop = Petitioner(restored, "desktop", "anna/write", "expense/TRIP-119")
    desktop.open()
    desktop.hello()
    state = next(stream for stream in desktop.client.take(Heads)[-1].streams if stream.name is StreamName.STATE)
    desktop.open(2, state.epoch)
    assert desktop.claim(version=2).verdict is ClaimVerdict.GRANTED


def test_lifting_the_barrier_opens_it(restored: Harness) -> None:
    desktop = Petitioner(restored, "desktop", "anna/write", "expense/TRIP-119")
    desktop.open()
    assert Petitioner(restored, "tablet", "boss/admin").lift() == ""
    assert desktop.claim().verdict is ClaimVerdict.GRANTED
    later = Petitioner(restored, "desktop", "anna/write", "expense/TRIP-120")
    later.open()
    assert later.claim().verdict is ClaimVerdict.GRANTED


def test_reading_an_unknown_task_behind_the_barrier_keeps_nothing_of_it(restored: Harness) -> None:
    writes = len(restored.writes)
    Petitioner(restored, "desktop", "anna/write", "expense/TRIP-119")
    assert restored.writes[writes:] == []
