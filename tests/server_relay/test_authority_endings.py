"""The authority's table: what an outcome, a verdict and the end of a lease come to in every state of the key."""

import pytest
from msgspec.structs import replace

from server_relay.authority import (
    Decision,
    decide_claim,
    decide_doubt,
    decide_outcome,
    release,
)
from server_relay.key_records import KeyState
from sync_core.keys import idempotency_key
from sync_core.rulings import Contradicted, Doubted, Granted, Settled, SettledBy
from tests.server_relay.authority_states import (
    ASKER,
    BY_ENTITY,
    CLAIM,
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
    UNSURE,
    VERDICT,
    grant,
    in_state,
    outcome,
    settle,
    verdict_of,
)

# --- outcomes ---------------------------------------------------------------------------------------------------------

OUTCOMES = {
    # the state after, and the ruling
    (RUNNING, "ok"): (DONE, Settled),
    (RUNNING, "not"): (FREE, Settled),
    (RUNNING, "unsure"): (IN_DOUBT, Doubted),
    (IN_DOUBT, "ok"): (DONE, Settled),
    (IN_DOUBT, "not"): (FREE, Settled),
    (IN_DOUBT, "unsure"): (IN_DOUBT, None),
    (DONE, "ok"): (DONE, None),
    (DONE, "not"): (DONE, Contradicted),
    (DONE, "unsure"): (DONE, None),
    (FREE, "ok"): (FREE, Contradicted),
    (FREE, "not"): (FREE, None),
    (FREE, "unsure"): (FREE, None),
    (RETIRED, "ok"): (RETIRED, Contradicted),
    (RETIRED, "not"): (RETIRED, None),
    (RETIRED, "unsure"): (RETIRED, None),
}


@pytest.mark.parametrize(("state", "said"), OUTCOMES)
def test_every_outcome_in_every_state(state: KeyState, said: str) -> None:
    row, grant_row = in_state(state)
    what = {"ok": OK, "not": NOT, "unsure": UNSURE}[said]
    decision = decide_outcome(row, grant_row, what, "f" * 64, SUBJECT, "anna")
    after, kind = OUTCOMES[state, said]
    assert (decision.row or row).state is after
    assert [type(ruling) for ruling in decision.rulings] == ([kind] if kind else [])
    for ruling in decision.rulings:
        assert not isinstance(ruling, (Granted,))
        if isinstance(ruling, Settled):
            assert (ruling.by, ruling.happened, ruling.token) == (SettledBy.HOLDER, said == "ok", ERA + 1)
            assert decision.grant == replace(grant_row, happened=said == "ok")
    if after is DONE and kind is Settled:
        assert decision.row is not None
        assert (decision.row.result, decision.row.blob) == ('"paid"', "f" * 64)


def test_a_tool_that_says_it_did_not_happen_frees_the_key_for_other_arguments_and_tools() -> None:
    row, _ = in_state(FREE)
    row, grant_row = grant(replace(CLAIM, attempt="a2", arguments_digest=OTHER_DIGEST, tool="transfer"), row=row)
    assert (row.tool, row.digest, row.token, grant_row.token) == ("transfer", OTHER_DIGEST, ERA + 2, ERA + 2)
    assert row.place == idempotency_key(SUBJECT, TASK, 1, "pay")


def test_a_stale_holder_moves_nothing_that_another_attempt_has() -> None:
    retired, stale = in_state(RETIRED)
    row, _ = grant(replace(CLAIM, attempt="a2", checked=True), row=retired)
    for what, kinds in ((OK, [Contradicted]), (NOT, []), (UNSURE, [])):
        decision = decide_outcome(row, stale, what, None, SUBJECT, "anna")
        assert (decision.row, [type(ruling) for ruling in decision.rulings]) == (None, kinds)


def test_an_outcome_that_comes_after_its_key_moved_on_settles_its_own_attempt_only() -> None:
    doubted, grant_row = in_state(IN_DOUBT, BY_ENTITY)
    assert release(doubted, 1) is not None
    row, _ = grant(replace(BY_ENTITY, attempt="a2"), row=release(doubted, 1))
    for current in (release(doubted, 1), row):
        assert current is not None
        for what in (OK, NOT):
            decision = decide_outcome(current, grant_row, what, None, SUBJECT, "anna")
            (ruling,) = decision.rulings
            assert isinstance(ruling, Settled)
            assert ruling.key == grant_row.key
            assert (decision.row, decision.releases) == (None, ())
            assert decision.grant == replace(grant_row, happened=what.ok)


def test_a_lost_result_is_a_call_that_happened() -> None:
    row, grant_row = grant()
    decision = decide_outcome(row, grant_row, outcome(result=None, lost=True), None, SUBJECT, "anna")
    assert decision.row is not None
    assert (decision.row.state, decision.row.result) == (DONE, None)


def test_what_is_kept_with_a_key_is_small() -> None:
    row, grant_row = grant()
    what = outcome(result='"' + "x" * 5_000 + '"', error="e" * 5_000, label="l" * 5_000)
    decision = decide_outcome(row, grant_row, what, None, SUBJECT, "anna")
    (ruling,) = decision.rulings
    assert isinstance(ruling, Settled)
    assert (ruling.result, len(ruling.error or ""), len(ruling.label)) == (None, 1_000, 200)


# --- verdicts ---------------------------------------------------------------------------------------------------------

VERDICTS = {
    # the code of the answer and the state after, for «it happened» and «it did not»
    FREE: (("not_in_doubt", FREE), ("not_in_doubt", FREE)),
    RUNNING: (("running", RUNNING), ("running", RUNNING)),
    IN_DOUBT: (("", DONE), ("", RETIRED)),
    DONE: (("", DONE), ("not_in_doubt", DONE)),
    RETIRED: (("not_in_doubt", RETIRED), ("", RETIRED)),
}


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("state", KeyState)
def test_every_verdict_in_every_state(state: KeyState, happened: bool) -> None:
    row, grant_row = in_state(state)
    said = settle(happened, result='"seen"', label="L-1")
    decision = decide_doubt(row, said, replace(ASKER, principal="ben", device="pc"), grant_row)
    code, after = VERDICTS[state][0 if happened else 1]
    assert (decision.code, (decision.row or row).state) == (code, after)
    assert bool(decision.sentence) == bool(code)
    if state is IN_DOUBT:
        (ruling,) = decision.rulings
        result, label = ('"seen"', "L-1") if happened else (None, "")
        assert ruling == Settled(
            row.place,
            "pay",
            1,
            "a1",
            row.token,
            happened,
            SettledBy.PERSON,
            "ben",
            "pc",
            result,
            None,
            label,
            not happened,
        )
        assert decision.grant == replace(grant_row, happened=happened)
    else:
        assert (decision.rulings, decision.row, decision.grant) == ((), None, None)


def test_a_probe_says_that_it_is_one_and_a_reader_says_nothing() -> None:
    row, grant_row = in_state(IN_DOUBT)
    (ruling,) = decide_doubt(row, settle(True, by_probe=True), ASKER, grant_row).rulings
    assert isinstance(ruling, Settled)
    assert ruling.by is SettledBy.PROBE
    assert decide_doubt(row, settle(True), replace(ASKER, may_write=False), grant_row) == Decision(
        code="role", sentence="This device may read only."
    )


def test_nothing_is_said_in_advance_of_a_version_that_does_not_stand() -> None:
    behind = replace(ASKER, opened_version=0)
    assert decide_doubt(None, replace(settle(True), version=2), behind, None).code == "version"
    assert decide_doubt(None, settle(True), behind, None).code == ""


def test_a_verdict_on_a_lease_that_is_over_doubts_first() -> None:
    row, grant_row = grant()
    decision = decide_doubt(row, settle(False), replace(ASKER, ended="away"), grant_row)
    assert [type(ruling) for ruling in decision.rulings] == [Doubted, Settled]
    assert decision.row is not None
    assert decision.row.state is RETIRED


def test_the_key_of_a_checked_tool_is_not_called_retired() -> None:
    row, grant_row = in_state(IN_DOUBT, replace(CLAIM, checked=True))
    (ruling,) = decide_doubt(row, settle(False), ASKER, grant_row).rulings
    assert isinstance(ruling, Settled)
    assert not ruling.retired


def test_a_retired_key_runs_in_a_new_business_version_only() -> None:
    row, _ = in_state(RETIRED)
    second = replace(ASKER, version=2, opened_version=2)
    assert decide_claim(None, replace(CLAIM, version=2, attempt="a2"), second).row is not None
    assert verdict_of(decide_claim(row, replace(CLAIM, attempt="a2"), ASKER)) is VERDICT.RETIRED
    by_entity, _ = in_state(IN_DOUBT, BY_ENTITY)
    decided = decide_doubt(by_entity, settle(False, entity=ENTITY), ASKER, None).row
    assert decided is not None
    later = replace(BY_ENTITY, version=2, attempt="a2")
    assert verdict_of(decide_claim(decided, replace(later, version=1), ASKER)) is VERDICT.RETIRED
    assert verdict_of(decide_claim(decided, later, replace(second, task="other"))) is VERDICT.RETIRED
    after = decide_claim(decided, later, second).row
    assert after is not None
    assert (after.generation, after.token) == (2, decided.token + 1)
