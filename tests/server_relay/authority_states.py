"""Keys in every state, brought there as it comes about, for the tests of the authority's table."""

from msgspec.structs import replace

from server_relay.authority import (
    Asker,
    Decision,
    decide_claim,
    decide_doubt,
    decide_outcome,
    end_lease,
)
from server_relay.key_records import GrantRow, KeyRow, KeyState, SubjectRow
from sync_core.entry import CallOutcome
from sync_core.petitions import Claim, ClaimVerdict, SettleDoubt

__all__ = [
    "ASKER",
    "BY_ENTITY",
    "CLAIM",
    "DIGEST",
    "DONE",
    "ENTITY",
    "ERA",
    "FREE",
    "IN_DOUBT",
    "NOT",
    "OK",
    "OTHER_DIGEST",
    "RETIRED",
    "RUNNING",
    "SUBJECT",
    "TASK",
    "TOOL",
    "UNSURE",
    "VERDICT",
    "ended",
    "grant",
    "in_state",
    "outcome",
    "settle",
    "verdict_of",
]

SUBJECT, TASK, TOOL, ENTITY = "acme", "expense/TRIP-118", "pay", '["u1","HAT"]'
DIGEST, OTHER_DIGEST = "d" * 64, "e" * 64
FREE, RUNNING, IN_DOUBT, DONE, RETIRED = KeyState
VERDICT = ClaimVerdict
ERA = 1 << 32
ASKER = Asker(SUBJECT, TASK, "anna", "phone", True, 1, 1, SubjectRow())
CLAIM = Claim(TASK, 7, 1, "pay", TOOL, DIGEST, "a1")
BY_ENTITY = replace(CLAIM, entity=ENTITY)


def grant(claim: Claim = CLAIM, asker: Asker = ASKER, row: KeyRow | None = None) -> tuple[KeyRow, GrantRow]:
    """Return the row and the grant after a claim that is granted."""
    decision = decide_claim(row, claim, asker)
    assert decision.answer is not None
    assert decision.answer.verdict is VERDICT.GRANTED
    assert decision.row is not None
    assert decision.grant is not None
    return decision.row, decision.grant


def verdict_of(decision: Decision) -> ClaimVerdict:
    assert decision.answer is not None
    return decision.answer.verdict


def outcome(attempt: str = "a1", token: int = ERA + 1, **more: object) -> CallOutcome:
    return CallOutcome("pay", 1, attempt, **{"ok": True, "result": '"paid"', "token": token} | more)  # type: ignore[arg-type]


def settle(happened: bool, **more: object) -> SettleDoubt:
    return SettleDoubt(TASK, 8, 1, "pay", TOOL, happened, **more)  # type: ignore[arg-type]


def ended(row: KeyRow, grant_row: GrantRow, what: CallOutcome) -> tuple[KeyRow, GrantRow]:
    """Return row and grant after an outcome."""
    decision = decide_outcome(row, grant_row, what, None, SUBJECT, "anna")
    return decision.row or row, decision.grant or grant_row


def in_state(state: KeyState, claim: Claim = CLAIM, asker: Asker = ASKER) -> tuple[KeyRow, GrantRow]:
    """Return the row and the grant of attempt a1, brought there as it comes about."""
    row, grant_row = grant(claim, asker)
    match state:
        case KeyState.FREE:
            return ended(row, grant_row, outcome(ok=False))
        case KeyState.IN_DOUBT:
            return end_lease(row, SUBJECT, "gone")[0], grant_row
        case KeyState.DONE:
            return ended(row, grant_row, outcome())
        case KeyState.RETIRED:
            decision = decide_doubt(end_lease(row, SUBJECT, "gone")[0], settle(False), asker, grant_row)
            assert decision.row is not None
            assert decision.grant is not None
            return decision.row, decision.grant
    return row, grant_row


OK, NOT, UNSURE = outcome(), outcome(ok=False, result=None, error="full"), outcome(ok=False, unsure=True, result=None)
