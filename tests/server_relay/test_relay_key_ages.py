"""How long keys are kept after their task's end: a stated time, in relay time, and in doubt for ever."""

from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from sync_core.entry import Completion, EntryKind
from sync_core.frames import Purge
from sync_core.petitions import ClaimAnswer, ClaimVerdict
from tests.server_relay.ending_tasks import GRACE_S, KEEP_S, pass_s
from tests.server_relay.harness import Harness
from tests.server_relay.petitioners import TASK, Petitioner

KEY_KEEP_S = 10 * KEEP_S
OTHER = "expense/TRIP-119"


@pytest.fixture
def harness() -> Harness:
    settings = RelaySettings(
        db=Path("unused"), clean_up_grace_s=GRACE_S, tombstone_keep_s=KEEP_S, key_keep_s=KEY_KEEP_S
    )
    harness = Harness(settings=settings)
    harness.tick()
    return harness


def booked(harness: Harness) -> ClaimAnswer:
    """A task in which an entity was booked and a step of its own was done."""
    phone = Petitioner(harness, "phone")
    phone.open()
    phone.outcome(phone.claim("pay"))
    granted = phone.claim("book", tool="book", entity='["seat-1"]')
    phone.outcome(granted, "book")
    return granted


def asks(harness: Harness, task: str = OTHER) -> ClaimAnswer:
    other = Petitioner(harness, "desktop", task=task)
    other.open()
    return other.claim("book", tool="book", entity='["seat-1"]')


def purge(harness: Harness) -> None:
    harness.login("tablet").send(Purge(TASK, 1))
    harness.drain()


def test_a_purged_tasks_keys_are_taken_for_their_time_and_never_given_out_again(harness: Harness) -> None:
    granted = booked(harness)
    pass_s(harness, 2 * KEY_KEEP_S)
    purge(harness)
    pass_s(harness, KEY_KEEP_S - 120)
    assert asks(harness).verdict is ClaimVerdict.DONE
    pass_s(harness, 900)
    pass_s(harness, 60)
    again = asks(harness)
    assert again.verdict is ClaimVerdict.GRANTED
    assert again.key != granted.key
    assert again.token > granted.token


def test_a_step_of_a_purged_task_is_forgotten_with_its_time(harness: Harness) -> None:
    booked(harness)
    purge(harness)
    pass_s(harness, KEY_KEEP_S + 900)
    pass_s(harness, 60)
    phone = Petitioner(harness, "phone")
    phone.open()
    assert phone.claim("pay").verdict is ClaimVerdict.GRANTED


def test_a_key_in_doubt_is_kept_for_ever(harness: Harness) -> None:
    phone = Petitioner(harness, "phone")
    phone.open()
    phone.outcome(phone.claim("book", tool="book", entity='["seat-1"]'), "book", ok=False, unsure=True)
    purge(harness)
    pass_s(harness, 3 * KEY_KEEP_S)
    pass_s(harness, 900)
    assert asks(harness).verdict is ClaimVerdict.IN_DOUBT


@pytest.mark.parametrize("is_completed", [True, False])
def test_the_time_of_an_entitys_key_begins_with_the_clean_up(harness: Harness, is_completed: bool) -> None:
    booked(harness)
    if is_completed:
        phone = Petitioner(harness, "phone")
        record = Completion(1, "phone", (("state", 99, 0), ("authority", 99, 0)))
        phone.client.push(TASK, phone.entry(record, kind=EntryKind.COMPLETION))
    pass_s(harness, GRACE_S + 60)
    pass_s(harness, KEY_KEEP_S - 900)
    assert asks(harness).verdict is ClaimVerdict.DONE
    pass_s(harness, 1800)
    pass_s(harness, 60)
    assert asks(harness).verdict is (ClaimVerdict.GRANTED if is_completed else ClaimVerdict.DONE)
    phone = Petitioner(harness, "phone")
    assert phone.claim("pay").verdict is ClaimVerdict.DONE


def test_no_time_passes_for_keys_while_the_clock_is_in_doubt(harness: Harness) -> None:
    booked(harness)
    purge(harness)
    for _ in range(5):
        harness.tick(KEY_KEEP_S * 1000, suspended=True)
    assert asks(harness).verdict is ClaimVerdict.DONE
