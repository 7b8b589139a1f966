"""What became of a call that cannot be undone, from its evidence alone: each fate, and each way to break it."""

import hashlib
from collections import Counter

import msgspec
import pytest

from clients.desktop.rehearse.evidence import CallEvidence
from clients.desktop.rehearse.guarded import count_guarded
from clients.desktop.rehearse.logs import Ask, AskOutcome, Execution
from clients.desktop.rehearse.outside import Happened
from clients.desktop.rehearse.recording import RecordedCall
from clients.desktop.rehearse.rules import ToolRule
from clients.desktop.rehearse.stores import StoredRun
from sync_core.document.calls import Attempt, Call, CallState
from sync_core.entry import Effect
from sync_core.rulings import SettledBy

RULE = ToolRule(key=("who",), failed_if="^Error")
STEP = "item/0"
RAN = Execution("book", "device-1", 0, 0, 1)
EFFECT = Happened(0, 0, "book", "device-1", '["mia"]', "fine", asked=1, undone_by=None, double=0)
TWICE = (EFFECT, Happened(0, 0, "book", "device-2", '["mia"]', "fine", asked=1, undone_by=None, double=1))


GIVEN = (AskOutcome.ANSWERED, AskOutcome.PREVENTED)


def stored(*settled: str, result: str | None = '"fine"') -> StoredRun:
    """A device's file: a record with this result, and attempts that a probe settled as not having happened."""
    made = Attempt("made", 1, "device-1", "book", Effect.IRREVERSIBLE, "", "{}", 0, ok=True, result=result)
    doubted = (msgspec.structs.replace(made, attempt=a, ok=False, settled_by=SettledBy.PROBE) for a in settled)
    calls = {} if result is None else {STEP: Call(STEP, 1, CallState.DONE, (*doubted, made), made)}
    return StoredRun("device-1", (), calls, (), Counter())


def told(*outcomes: AskOutcome) -> list[Ask]:
    sha256 = hashlib.sha256(b"fine").hexdigest()
    return [
        Ask(number, 0, 0, "device-1", outcome, sha256 if outcome in GIVEN else None)
        for number, outcome in enumerate(outcomes, start=1)
    ]


def counted(
    *outcomes: AskOutcome,
    ran: int = 0,
    happened: tuple[Happened, ...] = (),
    result: str = "fine",
    files: tuple[StoredRun, ...] = (stored(),),
    authority: bool = True,
    standing: Happened | None = EFFECT,
    depends: bool = True,
    more: tuple[Execution, ...] = (),
) -> dict[str, int]:
    call = RecordedCall(0, 0, "book", '{"who": "mia"}', {"role": "tool", "content": result})
    executions = [Execution("book", "device-1", 0, 0, asked) for asked in range(1, ran + 1)] + list(more)
    counts: Counter[str] = Counter()
    found = CallEvidence(call, STEP, files, executions, told(*outcomes), happened, standing, depends)
    count_guarded(counts, RULE, found, authority)
    assert counts.pop("irreversible") == 1
    return {name: count for name, count in counts.items() if count}


def test_a_call_that_happened_once_is_done() -> None:
    assert counted(AskOutcome.ANSWERED, ran=1, happened=(EFFECT,)) == {"done": 1}


def test_each_attempt_that_a_probe_settled_counts_once_however_many_devices_know_it() -> None:
    found = counted(
        AskOutcome.KILLED,
        AskOutcome.ANSWERED,
        ran=1,
        happened=(EFFECT,),
        files=(stored("a"), stored("a", "b"), stored()),
    )
    assert found == {"done": 1, "settled_by_probe": 2}


def test_a_recorded_failure_may_be_tried_again_but_once_for_each_ask() -> None:
    assert counted(AskOutcome.DID_NOT_HAPPEN, ran=1, result="Error") == {"did_not_happen": 1}
    assert counted(*[AskOutcome.DID_NOT_HAPPEN] * 2, ran=2, result="Error") == {"did_not_happen": 1}


@pytest.mark.parametrize(("result", "name"), [("fine", "prevented"), ("Error", "prevented_failed")])
def test_a_prevented_call_is_told_by_what_the_recording_had(result: str, name: str) -> None:
    assert counted(AskOutcome.PREVENTED, result=result) == {name: 1}


def test_a_dependent_call_did_not_run() -> None:
    assert counted(AskOutcome.DEPENDENT) == {"dependent": 1}


def test_without_an_authority_a_call_is_refused_and_nothing_is_missing() -> None:
    assert counted(AskOutcome.REFUSED, files=(stored(result=None),), authority=False) == {"refused_for_authority": 1}


BROKEN: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "answered, and nothing happened": (counted(AskOutcome.ANSWERED, ran=1), {"not_done": 1}),
    "never answered": (counted(AskOutcome.REFUSED), {"not_done": 1}),
    "ran twice under one key": (counted(AskOutcome.ANSWERED, ran=2, happened=(EFFECT,)), {"done": 1, "again": 1}),
    "happened twice": (
        counted(AskOutcome.ANSWERED, ran=2, happened=TWICE),
        {"done": 1, "again": 1, "astray": 1, "doubles": 1},
    ),
    "one device has another result": (
        counted(AskOutcome.ANSWERED, ran=1, happened=(EFFECT,), files=(stored(), stored(result='"other"'))),
        {"done": 1, "wrong": 1},
    ),
    "prevented, and happened all the same": (
        counted(AskOutcome.PREVENTED, ran=1, happened=(EFFECT,)),
        {"prevented": 1, "again": 1, "astray": 1},
    ),
    "prevented by nothing that stood": (counted(AskOutcome.PREVENTED, standing=None), {"not_done": 1}),
    "prevented, and told another result than that of what stands": (
        counted(AskOutcome.PREVENTED, standing=msgspec.structs.replace(EFFECT, result="other")),
        {"not_done": 1},
    ),
    "dependent, and ran": (counted(AskOutcome.DEPENDENT, ran=1), {"dependent": 1, "again": 1}),
    "said to depend on nothing": (counted(AskOutcome.DEPENDENT, depends=False), {"not_done": 1}),
    "a failure that had an effect": (
        counted(AskOutcome.DID_NOT_HAPPEN, ran=1, happened=(EFFECT,), result="Error"),
        {"did_not_happen": 1, "astray": 1},
    ),
    "a failure that ran twice within one ask": (
        counted(AskOutcome.DID_NOT_HAPPEN, ran=1, result="Error", more=(RAN,)),
        {"did_not_happen": 1, "again": 1},
    ),
    "a failure that was recorded as success": (counted(AskOutcome.ANSWERED, ran=1, result="Error"), {"not_done": 1}),
    "ran without an authority": (
        counted(AskOutcome.REFUSED, ran=1, authority=False, files=(stored(result=None),)),
        {"not_done": 1, "again": 1},
    ),
    "recorded without an authority": (counted(AskOutcome.REFUSED, authority=False), {"not_done": 1}),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_every_breach_is_counted(fault: str) -> None:
    found, expected = BROKEN[fault]
    assert found == expected
