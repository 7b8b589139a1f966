"""A token is renewed before it ends: when it is asked for, what is said of a failure, and that nothing else happens."""

import itertools
import random

import pytest

from sync_core.errors import StoreFull
from sync_core.frames import WIRE_VERSION, Login, Welcome
from sync_core.replica import effects as e
from sync_core.replica.changes import LinkState
from sync_core.replica.renewal import MARGIN_MS_MAX, Renewal
from tests.sync_core.replica.solo import Solo

LIFE_MS = 60_000


def welcome(lives_ms: int = LIFE_MS, role: str = "write") -> Welcome:
    return Welcome(WIRE_VERSION, 1_000, role, "somebody", True, lives_ms)


@pytest.fixture
def phone() -> Solo:
    phone = Solo()
    phone.handle(e.LinkUp("first"))
    phone.hear(welcome())
    assert phone.replica.status.link is LinkState.LIVE
    phone.forget()
    return phone


# --- the moment -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lives_ms", [1, 2_000, LIFE_MS, 3_600_000, 2**53])
def test_a_token_is_asked_for_within_its_last_third_and_its_last_minutes_and_once(lives_ms: int) -> None:
    entropy = random.Random(lives_ms)
    moments = set()
    for _ in range(50):
        renewal = Renewal(entropy.randbytes)
        renewal.welcomed(lives_ms, 1_000)
        margin_ms = min(lives_ms // 3, MARGIN_MS_MAX)
        due_ms = next(
            at_ms
            for at_ms in range(1_000 + lives_ms - margin_ms, 1_001 + lives_ms, max(1, margin_ms // 100))
            if renewal.is_due(at_ms)
        )
        assert not renewal.is_due(due_ms)
        assert due_ms <= 1_000 + lives_ms - margin_ms // 2 + margin_ms // 100
        moments.add(due_ms)
    assert len(moments) > 10 or lives_ms == 1


def test_a_token_that_never_ends_is_never_asked_for() -> None:
    renewal = Renewal(random.Random(1).randbytes)
    renewal.welcomed(0, 1_000)
    assert not renewal.is_due(2**60)


def test_tries_come_closer_to_one_another_and_end_with_the_token() -> None:
    renewal = Renewal(random.Random(1).randbytes)
    renewal.welcomed(LIFE_MS, 0)
    tries = []
    for now_ms in range(0, 2 * LIFE_MS, 100):
        if renewal.is_due(now_ms):
            tries.append(now_ms)
            renewal.failed(now_ms)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert tries[0] >= LIFE_MS * 2 // 3
    assert tries[-1] < LIFE_MS + 1_100
    assert pauses[0] > 1_100
    assert min(pauses) >= 1_000
    assert len(tries) > 5


# --- in a session -----------------------------------------------------------------------------------------------------


def test_a_fresh_token_is_sent_on_the_connection_that_stands(phone: Solo) -> None:
    phone.wait(LIFE_MS // 2)
    assert phone.log == []
    phone.wait(LIFE_MS // 2 - 1_000)
    assert phone.count(e.RenewToken) == 1
    phone.handle(e.TokenRenewed("second"))
    assert phone.sent(Login) == [Login(WIRE_VERSION, "acme", "phone", "second")]
    phone.hear(welcome())
    assert phone.replica.status.link is LinkState.LIVE
    phone.forget()
    phone.wait(LIFE_MS)
    assert phone.count(e.RenewToken) == 1
    assert phone.count(e.HangUp) == 0


def test_a_second_welcome_begins_nothing_anew_and_tells_the_new_role(phone: Solo) -> None:
    phone.hear(welcome(role="read"))
    assert phone.replica.status.role == "read"
    assert [effect for effect in phone.log if not isinstance(effect, e.StatusIs)] == []


def test_a_source_that_fails_leaves_the_connection_as_it_is_and_says_so(phone: Solo) -> None:
    """SE-19."""
    phone.wait(LIFE_MS - 11_000)
    for _ in range(2):
        assert phone.count(e.RenewToken) == 1
        phone.handle(e.RenewalFailed("credentials: ConnectionError"))
        assert phone.replica.status.link is LinkState.LIVE
        assert phone.replica.status.reason == "credentials: ConnectionError"
        phone.forget()
        phone.wait(4_200)
    phone.handle(e.TokenRenewed("second"))
    phone.hear(welcome())
    assert phone.replica.status.reason == ""
    assert phone.count(e.HangUp) == 0


def test_what_comes_after_the_session_ended_is_nothing(phone: Solo) -> None:
    phone.drop_link()
    phone.forget()
    phone.handle(e.TokenRenewed("second"))
    phone.handle(e.RenewalFailed("credentials: ConnectionError"))
    phone.wait(2 * LIFE_MS)
    assert phone.sent(Login) == []
    assert phone.count(e.RenewToken) == 0
    assert phone.replica.status.reason == "no route"


def test_a_renewal_survives_a_commit_that_failed_in_its_turn(phone: Solo) -> None:
    phone.handle(e.CommitFailed((e.RenewToken(),), StoreFull("The disk is full.")))
    assert phone.count(e.RenewToken) == 1
