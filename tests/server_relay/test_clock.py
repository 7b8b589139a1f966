"""Relay time follows the monotonic clock, whatever the wall clock does (rule K)."""

from server_relay.clock import RelayClock

HOUR_MS = 3_600_000


def clock(wall_ms: int = 10 * HOUR_MS, stored_at_ms: int = 0, *, confirmed: bool = False) -> RelayClock:
    return RelayClock(wall_ms, 500, stored_at_ms=stored_at_ms, jump_ms_max=HOUR_MS, confirmed=confirmed)


def test_relay_time_starts_at_the_wall_clock_and_goes_on() -> None:
    relay = clock()
    assert relay.now_ms(10 * HOUR_MS + 70, 570) == 10 * HOUR_MS + 70
    assert not relay.suspended


def test_a_wall_clock_that_is_set_moves_nothing_and_is_told() -> None:
    for jump_ms in (-2 * HOUR_MS, 2 * HOUR_MS):
        relay = clock()
        assert relay.now_ms(10 * HOUR_MS + jump_ms, 600) == 10 * HOUR_MS + 100
        assert relay.suspended
        relay.now_ms(10 * HOUR_MS + 200, 700)
        assert relay.suspended


def test_a_small_correction_is_no_jump() -> None:
    relay = clock()
    relay.now_ms(10 * HOUR_MS + 900_000, 600)
    assert not relay.suspended


def test_relay_time_never_starts_behind_what_was_stored() -> None:
    slightly = clock(stored_at_ms=10 * HOUR_MS + 1_000)
    assert slightly.now_ms(10 * HOUR_MS, 500) == 10 * HOUR_MS + 1_000
    assert not slightly.suspended
    assert clock(stored_at_ms=12 * HOUR_MS).suspended


def test_a_clock_that_is_far_from_the_last_time_that_was_kept_is_in_doubt_until_somebody_confirms_it() -> None:
    for stored_at_ms in (7 * HOUR_MS, 13 * HOUR_MS):
        assert clock(stored_at_ms=stored_at_ms).suspended
        relay = clock(stored_at_ms=stored_at_ms, confirmed=True)
        assert not relay.suspended
        assert relay.now_ms(10 * HOUR_MS, 500) == max(10 * HOUR_MS, stored_at_ms)
    assert not clock(stored_at_ms=10 * HOUR_MS - 1_000).suspended
