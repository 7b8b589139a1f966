"""The authority's table: what a claim comes to in every state of its key, and what a lost log makes of that."""

import pytest
from msgspec.structs import replace

from server_relay.authority import (
    close,
    decide_claim,
    decide_doubt,
    decide_outcome,
    end_lease,
    key_of,
    new_row,
    release,
)
from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, KeyState, SubjectRow
from sync_core.keys import entity_key, idempotency_key
from sync_core.petitions import Claim
from sync_core.rulings import Doubted, Granted, Settled
from tests.server_relay.authority_states import (
    ASKER,
    BY_ENTITY,
    CLAIM,
    DIGEST,
    DONE,
    ENTITY,
    ERA,
    FREE,
    IN_DOUBT,
    NOT,
    OK,
    OTHER_DIGEST,
    RETIRED,
    RUNNING,
    SUBJECT,
    TASK,
    TOOL,
    UNSURE,
    VERDICT,
    grant,
    in_state,
    settle,
    verdict_of,
)

# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_free_key_is_granted_once_with_a_ruling_that_tells_all() -> None:
    decision = decide_claim(None, CLAIM, ASKER)
    key = idempotency_key(SUBJECT, TASK, 1, "pay")
    assert decision.answer is not None
    assert (decision.answer.verdict, decision.answer.key, decision.answer.token) == (VERDICT.GRANTED, key, ERA + 1)
    assert decision.rulings == (Granted(key, "pay", 1, TOOL, DIGEST, "a1", ERA + 1, "anna", "phone"),)
    assert decision.grant == GrantRow("a1", key, key, ERA + 1, "phone")
    assert decision.row is not None
    assert (decision.row.state, decision.row.era, decision.row.task) == (RUNNING, 1, TASK)


CLAIMS = {
    # what the second attempt hears: same arguments, other arguments, other arguments of a tool that is checked
    FREE: (VERDICT.GRANTED, VERDICT.GRANTED, VERDICT.GRANTED),
    RUNNING: (VERDICT.RUNNING, VERDICT.KEY_REUSED, VERDICT.KEY_REUSED),
    IN_DOUBT: (VERDICT.IN_DOUBT, VERDICT.KEY_REUSED, VERDICT.KEY_REUSED),
    DONE: (VERDICT.DONE, VERDICT.DONE, VERDICT.DONE),
    RETIRED: (VERDICT.RETIRED, VERDICT.RETIRED, VERDICT.GRANTED),
}


@pytest.mark.parametrize("by_entity", [False, True])
@pytest.mark.parametrize("state", KeyState)
def test_what_another_attempt_hears_in_every_state(state: KeyState, by_entity: bool) -> None:
    first = BY_ENTITY if by_entity else CLAIM
    row, _ = in_state(state, first)
    second = replace(first, attempt="a2", step="again" if by_entity else "pay")
    claims = (
        second,
        replace(second, arguments_digest=OTHER_DIGEST),
        replace(second, arguments_digest=OTHER_DIGEST, checked=True),
    )
    desktop = replace(ASKER, device="desktop")
    decisions = [decide_claim(row, claim, desktop) for claim in claims]
    assert tuple(map(verdict_of, decisions)) == CLAIMS[state]
    for decision in decisions:
        assert (decision.row is not None) == (verdict_of(decision) is VERDICT.GRANTED)
        assert decision.answer is not None
        if verdict_of(decision) is VERDICT.GRANTED:
            assert decision.answer.token > row.token
        else:
            answer = decision.answer
            assert (answer.holder_task, answer.holder_step, answer.holder_device) == (TASK, "pay", "phone")
            assert answer.recorded_digest == DIGEST
            assert (answer.result == '"paid"') == (state is DONE)


def test_the_same_attempt_gets_the_same_grant_again() -> None:
    row, _ = grant()
    again = decide_claim(row, replace(CLAIM, request=9), ASKER)
    assert again.answer is not None
    assert (again.answer.verdict, again.answer.token, again.answer.request) == (VERDICT.GRANTED, row.token, 9)
    assert (again.row, again.grant, again.rulings) == (None, None, ())
    # Its name is not enough: it is that device's, and for those arguments.
    assert verdict_of(decide_claim(row, CLAIM, replace(ASKER, device="desktop"))) is VERDICT.RUNNING
    assert verdict_of(decide_claim(row, replace(CLAIM, arguments_digest=OTHER_DIGEST), ASKER)) is VERDICT.KEY_REUSED


@pytest.mark.parametrize("attempt", ["a1", "a2"])
def test_a_lease_that_is_over_makes_doubt_and_never_freedom(attempt: str) -> None:
    row, _ = grant()
    decision = decide_claim(row, replace(CLAIM, attempt=attempt), replace(ASKER, ended="away"))
    assert verdict_of(decision) is VERDICT.IN_DOUBT
    assert decision.row == replace(row, state=IN_DOUBT, reason="away")
    assert decision.rulings == (Doubted(row.place, "pay", 1, "a1", ERA + 1, "away"),)
    assert decision.answer is not None
    assert (decision.answer.reason, decision.answer.token) == ("away", 0)


def test_of_a_key_that_another_task_has_the_doubt_is_answered_and_ruled_there() -> None:
    row, _ = grant(BY_ENTITY)
    decision = decide_claim(row, replace(BY_ENTITY, attempt="a2"), replace(ASKER, task="other", ended="away"))
    assert verdict_of(decision) is VERDICT.IN_DOUBT
    assert (decision.row, decision.rulings) == (None, ())


def test_a_reader_and_another_version_are_refused_before_the_row_is_looked_at() -> None:
    row, _ = in_state(DONE)
    assert verdict_of(decide_claim(row, CLAIM, replace(ASKER, may_write=False))) is VERDICT.REFUSED
    for version in (0, 2):
        decision = decide_claim(row, CLAIM, replace(ASKER, version=version))
        assert verdict_of(decision) is VERDICT.VERSION
        assert decision.answer is not None
        assert (decision.answer.result, decision.answer.holder_task) == (None, "")


# --- approval ---------------------------------------------------------------------------------------------------------

YES = ApprovalRow(1, "pay", TOOL, DIGEST, "ben", True, 5)


@pytest.mark.parametrize(
    ("rows", "used"),
    [
        ((), None),
        ((YES,), "ben"),
        ((replace(YES, used=True),), None),
        ((replace(YES, principal="anna"),), None),
        ((YES, replace(YES, principal="cleo", approved=False, relay_seq=6)), None),
        ((YES, replace(YES, principal="cleo", approved=False, relay_seq=4)), "ben"),
        ((YES, replace(YES, principal="cleo", relay_seq=9)), "cleo"),
        ((replace(YES, used=True), replace(YES, principal="cleo", relay_seq=9)), "cleo"),
    ],
)
def test_an_approval_is_anothers_unused_and_not_rejected_since(rows: tuple[ApprovalRow, ...], used: str | None) -> None:
    decision = decide_claim(None, replace(CLAIM, needs_approval=True), ASKER, rows)
    if used is None:
        assert verdict_of(decision) is VERDICT.NEEDS_APPROVAL
        assert (decision.row, decision.used) == (None, None)
    else:
        assert verdict_of(decision) is VERDICT.GRANTED
        assert decision.used == replace(next(row for row in rows if row.principal == used), used=True)
        (ruling,) = decision.rulings
        assert isinstance(ruling, Granted)
        assert ruling.approved_by == used


def test_a_call_that_needs_no_approval_uses_none_up() -> None:
    decision = decide_claim(None, CLAIM, ASKER, (YES,))
    assert (verdict_of(decision), decision.used) == (VERDICT.GRANTED, None)


def test_a_done_call_is_given_back_without_another_approval() -> None:
    row, _ = in_state(DONE)
    assert verdict_of(decide_claim(row, replace(CLAIM, attempt="a2", needs_approval=True), ASKER)) is VERDICT.DONE


# --- entities ---------------------------------------------------------------------------------------------------------


def test_an_entity_has_one_key_for_all_steps_versions_and_tasks() -> None:
    keys = set()
    for task, step, version in ((TASK, "pay", 1), (TASK, "other", 1), ("b", "pay", 3)):
        row = new_row(SUBJECT, task, version, step, TOOL, ENTITY)
        keys.add((row.place, key_of(SUBJECT, row)))
    assert len(keys) == 1
    assert keys.pop()[1] == entity_key(SUBJECT, TOOL, ENTITY, 1)
    others = [new_row("b", TASK, 1, "pay", TOOL, ENTITY), new_row(SUBJECT, TASK, 1, "pay", "cancel", ENTITY)]
    assert len({row.place for row in others} | {new_row(SUBJECT, TASK, 1, "pay", TOOL, ENTITY).place}) == 3


def test_what_was_undone_is_free_in_the_next_generation_under_another_key() -> None:
    row, _ = in_state(DONE, BY_ENTITY)
    after = release(row, 1)
    assert after == KeyRow(row.place, TOOL, ENTITY, 2, era=1, token=row.token, task=TASK)
    assert key_of(SUBJECT, after) != key_of(SUBJECT, row)
    again, _ = grant(replace(BY_ENTITY, attempt="a2", arguments_digest=OTHER_DIGEST), row=after)
    assert (again.generation, again.token) == (2, row.token + 1)


@pytest.mark.parametrize("state", KeyState)
def test_only_what_happened_or_may_have_happened_is_undone(state: KeyState) -> None:
    assert (release(in_state(state, BY_ENTITY)[0], 1) is not None) == (state in (DONE, IN_DOUBT))
    assert release(in_state(state)[0], 1) is None


def test_a_call_frees_what_it_undoes_once_it_happened_and_only_then() -> None:
    releases = (("book", '"R-1"'),)
    undoing = replace(CLAIM, releases=releases)
    row, grant_row = grant(undoing)
    assert grant_row.releases == releases
    assert [decide_outcome(row, grant_row, what, None, SUBJECT, "anna").releases for what in (OK, NOT, UNSURE)] == [
        releases,
        (),
        (),
    ]
    doubted = end_lease(row, SUBJECT, "gone")[0]
    assert decide_doubt(doubted, settle(True), ASKER, grant_row).releases == releases
    assert decide_doubt(doubted, settle(False), ASKER, grant_row).releases == ()


# --- behind the barrier -----------------------------------------------------------------------------------------------

LOST = replace(ASKER, opened_version=0, keys=SubjectRow(2, 2))


@pytest.mark.parametrize("claim", [CLAIM, BY_ENTITY])
@pytest.mark.parametrize("state", [None, FREE, IN_DOUBT, DONE, RETIRED])
def test_behind_the_barrier_nothing_is_granted_and_nothing_that_is_known_is_lost(
    state: KeyState | None, claim: Claim
) -> None:
    row = in_state(state, claim)[0] if state is not None else None
    expected = VERDICT.DONE if state is DONE else VERDICT.IN_DOUBT
    decision = decide_claim(row, replace(claim, attempt="a2", checked=True), LOST)
    assert verdict_of(decision) is expected
    assert (decision.row, decision.rulings) == (None, ())


@pytest.mark.parametrize("claim", [CLAIM, BY_ENTITY])
@pytest.mark.parametrize("state", [None, FREE, IN_DOUBT, RETIRED])
def test_a_verdict_opens_a_key_behind_the_barrier(state: KeyState | None, claim: Claim) -> None:
    row = in_state(state, claim)[0] if state is not None else None
    decision = decide_doubt(row, settle(False, entity=claim.entity), LOST, None)
    assert (decision.code, [type(ruling) for ruling in decision.rulings]) == ("", [Settled])
    assert decision.row is not None
    assert (decision.row.state, decision.row.era, decision.row.task) == (RETIRED, 2, TASK)
    assert verdict_of(decide_claim(decision.row, replace(claim, attempt="a2"), LOST)) is VERDICT.RETIRED
    row, _ = grant(replace(claim, attempt="a2", checked=True), LOST, decision.row)
    assert row.token == (2 << 32) + 1
    happened = decide_doubt(None, settle(True, entity=claim.entity, result="1"), LOST, None).row
    assert happened is not None
    assert verdict_of(decide_claim(happened, replace(claim, attempt="a3"), LOST)) is VERDICT.DONE


def test_a_version_that_was_decided_since_is_open_and_an_entity_is_not() -> None:
    since = replace(LOST, version=2, opened_version=2)
    assert verdict_of(decide_claim(None, replace(CLAIM, version=2), since)) is VERDICT.GRANTED
    assert verdict_of(decide_claim(None, replace(BY_ENTITY, version=2), since)) is VERDICT.IN_DOUBT
    assert verdict_of(decide_claim(None, BY_ENTITY, replace(ASKER, keys=SubjectRow(2, 0)))) is VERDICT.GRANTED


def test_a_new_generation_is_open_and_its_token_is_above_all_before_the_loss() -> None:
    row, _ = in_state(DONE, BY_ENTITY)
    undone = release(row, 2)
    granted, _ = grant(replace(BY_ENTITY, attempt="a2"), LOST, undone)
    assert granted.token > row.token
    assert granted.token >> 32 == 2


def test_no_key_of_a_lost_log_is_made_again_for_another_call_on_the_entity() -> None:
    """The device that knows how far the entity had come is away: what is opened meanwhile lies beyond all of that."""
    before, _ = in_state(DONE, BY_ENTITY)
    keys = {entity_key(SUBJECT, TOOL, ENTITY, before.generation + further) for further in range(1_000)}
    settled = decide_doubt(None, settle(True, entity=ENTITY), LOST, None).row
    assert settled is not None
    undone = release(settled, 2)
    retired = decide_doubt(None, settle(False, entity=ENTITY), LOST, None).row
    brought_back = release(replace(before, era=0), 2)
    for row in (settled, undone, retired, brought_back):
        assert row is not None
        assert key_of(SUBJECT, row) not in keys


FOUND_DOUBT = KeyRow("p", TOOL, ENTITY, 2, IN_DOUBT, 0, ERA + 5, TASK, "pay", 1, DIGEST, "a9")
FOUND_DONE = replace(FOUND_DOUBT, state=DONE, result="1")


def old(state: KeyState, generation: int = 2, token: int = ERA + 1) -> KeyRow:
    return KeyRow("p", TOOL, ENTITY, generation, state, 1, token)


@pytest.mark.parametrize("found", [FOUND_DOUBT, FOUND_DONE])
@pytest.mark.parametrize("state", KeyState)
def test_what_is_brought_back_closes_and_never_opens(state: KeyState, found: KeyRow) -> None:
    assert close(None, found, 2) == found
    assert close(replace(old(state), era=2), found, 2) is None, "opened since the loss"
    assert close(old(state, 3), found, 2) is None, "an older generation"
    after = close(old(state), found, 2) or old(state)
    assert after.state in (IN_DOUBT, DONE)
    assert (after.state is DONE) == (DONE in (state, found.state))
    assert after.token >= max(old(state).token, ERA + 1)
    later = close(old(state, 1), found, 2)
    assert later is not None
    assert (later.generation, later.state) == (2, found.state)


def test_an_older_attempt_that_is_brought_back_does_not_take_the_place_of_a_later_one() -> None:
    assert close(old(IN_DOUBT, token=ERA + 9), FOUND_DOUBT, 2) is None
    after = close(old(FREE, token=ERA + 9), FOUND_DOUBT, 2)
    assert after is not None
    assert (after.state, after.token) == (IN_DOUBT, ERA + 9)
