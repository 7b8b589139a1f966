"""Calls: the grow-only record of steps, and what may be begun."""

import itertools
import random
import subprocess
import sys

import pytest

from sync_core.document.calls import Call, CallRecorded, CallState
from sync_core.entry import CallIntent, CallOutcome, Completion, Effect, Entry, Plan, VersionDecision
from sync_core.errors import (
    InDoubt,
    KeyReused,
    NeedsAuthority,
    ResultUnavailable,
    SegueError,
    TooLarge,
    ValueRefused,
    VersionMismatch,
)
from sync_core.keys import idempotency_key
from sync_core.limits import ARGUMENT_INLINE_BYTES_MAX
from tests.sync_core.document.log import Device, assert_converged, devices, sync

D1, D2 = "1" * 64, "2" * 64
NOBODY: frozenset[str] = frozenset()


def begin(device: Device, step: str = "ocr", effect: Effect = Effect.READ, digest: str = D1) -> CallIntent:
    """Begin an attempt, which must be a new one."""
    intent = device.document.begin_call(1, step, "read_invoice", effect, digest, "{}", NOBODY)
    assert isinstance(intent, CallIntent)
    device.record(intent)
    return intent


def end(device: Device, intent: CallIntent, result: str | None = '"ok"', **more: object) -> CallOutcome:
    ok = bool(more.pop("ok", True))
    outcome = device.document.end_call(
        intent.version,
        intent.step,
        intent.attempt,
        ok,
        result,
        None if ok else "Boom",
        None,
        **more,  # type: ignore[arg-type]
    )
    device.record(outcome)
    return outcome


def call_of(device: Device, step: str = "ocr") -> Call:
    return device.document.view().calls[1, step]


def again(device: Device, effect: Effect = Effect.READ, digest: str = D1, running: frozenset[str] = NOBODY) -> object:
    return device.document.begin_call(1, "ocr", "read_invoice", effect, digest, "{}", running)


# --- the key ----------------------------------------------------------------------------------------------------------


def test_the_key_follows_from_subject_task_version_and_step_alone() -> None:
    key = idempotency_key("acme", "expense/TRIP-118", 3, "pay")
    assert key == idempotency_key("acme", "expense/TRIP-118", 3, "pay")
    others = [
        idempotency_key("acme2", "expense/TRIP-118", 3, "pay"),
        idempotency_key("acme", "expense/TRIP-119", 3, "pay"),
        idempotency_key("acme", "expense/TRIP-118", 4, "pay"),
        idempotency_key("acme", "expense/TRIP-118", 3, "pay2"),
        idempotency_key("acme", "expense/TRIP-11", 83, "pay"),
    ]
    assert len({key, *others}) == 6


def test_the_key_is_the_same_in_another_process() -> None:
    code = "from sync_core.keys import idempotency_key as k; print(k('acme', 'claim/77', 3, 'pay'))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == idempotency_key("acme", "claim/77", 3, "pay")


# --- beginning --------------------------------------------------------------------------------------------------------


def test_a_recorded_success_is_returned_and_not_begun_again() -> None:
    _, (a, b) = devices("a", "b")
    end(a, begin(a), '{"total":1}')
    sync(a, b)
    for device in (a, b):
        recorded = again(device)
        assert isinstance(recorded, CallRecorded)
        assert recorded.call.state is CallState.DONE
        assert recorded.call.shown is not None
        assert recorded.call.shown.result == '{"total":1}'


def test_ac_08_five_times_equals_once() -> None:
    _, (a,) = devices("a")
    end(a, begin(a))
    results = [again(a) for _ in range(5)]
    assert all(result == results[0] for result in results)
    assert len(call_of(a).attempts) == 1


@pytest.mark.parametrize("recorded", ["open", "failed", "done"])
def test_ac_07_other_arguments_are_refused_with_both_digests_whatever_was_recorded(recorded: str) -> None:
    _, (a,) = devices("a")
    intent = begin(a)
    if recorded != "open":
        end(a, intent, ok=recorded == "done")
    with pytest.raises(KeyReused) as caught:
        again(a, digest=D2)
    assert (caught.value.recorded_digest, caught.value.given_digest) == (D1, D2)
    assert len(call_of(a).attempts) == 1


def test_a_step_without_authority_cannot_do_what_cannot_be_undone() -> None:
    _, (a,) = devices("a")
    with pytest.raises(NeedsAuthority):
        again(a, Effect.IRREVERSIBLE)
    assert a.document.view().calls == {}


def test_a_failed_attempt_may_be_followed_by_another() -> None:
    _, (a,) = devices("a")
    end(a, begin(a), None, ok=False)
    assert call_of(a).state is CallState.FAILED
    second = begin(a)
    end(a, second)
    assert call_of(a).state is CallState.DONE
    assert [attempt.ok for attempt in call_of(a).attempts] == [False, True]


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
def test_a_step_in_doubt_may_be_asked_for_again_if_that_does_no_harm(effect: Effect) -> None:
    _, (a, b) = devices("a", "b")
    first = begin(a, effect=effect)
    sync(a, b)
    assert call_of(b).state is CallState.IN_DOUBT
    second = begin(b, effect=effect)
    assert second.attempt != first.attempt
    assert second.n > first.n


def test_an_open_attempt_that_executes_here_is_in_doubt() -> None:
    _, (a,) = devices("a")
    intent = begin(a)
    with pytest.raises(InDoubt):
        again(a, running=frozenset({intent.attempt}))


@pytest.mark.parametrize("effect", list(Effect))
def test_an_open_attempt_that_cannot_be_undone_stays_in_doubt_whatever_the_tool_says_now(effect: Effect) -> None:
    _, (a, b) = devices("a", "b")
    a.record(CallIntent("ocr", 1, "pay", Effect.IRREVERSIBLE, D1, "a1", 1))
    sync(a, b)
    with pytest.raises(InDoubt):
        again(b, effect)


def test_an_open_irreversible_attempt_is_in_doubt_even_behind_a_failed_one() -> None:
    _, (a,) = devices("a")
    a.record(CallIntent("ocr", 1, "pay", Effect.IRREVERSIBLE, D1, "a1", 1))
    a.record(CallIntent("ocr", 1, "pay", Effect.IRREVERSIBLE, D1, "a2", 2))
    a.record(CallOutcome("ocr", 1, "a2", False))
    assert call_of(a).state is CallState.IN_DOUBT


def test_the_device_that_executes_shows_running_the_others_in_doubt() -> None:
    _, (a, b) = devices("a", "b")
    intent = begin(a)
    sync(a, b)
    assert call_of(a).state is CallState.RUNNING
    assert call_of(b).state is CallState.IN_DOUBT
    a.reopen()
    assert call_of(a).state is CallState.IN_DOUBT
    a.document.set_running(frozenset({intent.attempt}))
    assert call_of(a).state is CallState.RUNNING
    a.record(CallOutcome("ocr", 1, intent.attempt, True, "1"))
    assert call_of(a).state is CallState.DONE


def test_a_handle_of_another_version_is_refused() -> None:
    _, (a,) = devices("a")
    a.record(a.document.decide_version(2, "boss"))
    with pytest.raises(VersionMismatch):
        begin(a)
    with pytest.raises(VersionMismatch):
        a.document.plan_call(1, "ocr", "read_invoice", "{}", ())


def test_the_same_step_of_another_version_is_another_call() -> None:
    _, (a,) = devices("a")
    end(a, begin(a))
    a.record(a.document.decide_version(2, "boss"))
    assert isinstance(a.document.begin_call(2, "ocr", "read_invoice", Effect.READ, D2, "{}", NOBODY), CallIntent)


def test_arguments_too_large_to_keep_are_left_out() -> None:
    _, (a,) = devices("a")
    large = '"' + "x" * ARGUMENT_INLINE_BYTES_MAX + '"'
    intent = a.document.begin_call(1, "ocr", "read_invoice", Effect.READ, D1, large, NOBODY)
    assert isinstance(intent, CallIntent)
    assert intent.arguments is None
    with pytest.raises(TooLarge):
        a.document.plan_call(1, "scan", "read_invoice", large, ())


def test_a_step_with_a_bad_name_is_refused() -> None:
    _, (a,) = devices("a")
    for step in ("", "a b", "../x"):
        with pytest.raises(ValueRefused):
            a.document.begin_call(1, step, "t", Effect.READ, D1, None, NOBODY)


# --- ending -----------------------------------------------------------------------------------------------------------


def test_an_outcome_needs_its_attempt() -> None:
    _, (a,) = devices("a")
    for attempt in ("none", "a1"):
        with pytest.raises(ValueRefused):
            a.document.end_call(1, "ocr", attempt, True, "1", None, None)


def test_a_result_that_was_not_recorded_is_unavailable_and_not_never_run() -> None:
    _, (a,) = devices("a")
    outcome = end(a, begin(a), None, lost=True)
    assert outcome.lost
    assert call_of(a).state is CallState.RESULT_UNAVAILABLE
    with pytest.raises(ResultUnavailable):
        again(a)


def test_a_success_with_neither_result_nor_blob_is_lost() -> None:
    _, (a,) = devices("a")
    assert end(a, begin(a), None).lost


def test_a_large_result_is_named_by_its_blob() -> None:
    _, (a, b) = devices("a", "b")
    intent = begin(a)
    outcome = a.document.end_call(1, "ocr", intent.attempt, True, None, None, "f" * 64)
    a.record(outcome, blob="f" * 64)
    sync(a, b)
    shown = call_of(b).shown
    assert shown is not None
    assert (shown.result, shown.blob, shown.lost) == (None, "f" * 64, False)
    assert call_of(b).state is CallState.DONE


# --- apart ------------------------------------------------------------------------------------------------------------


def test_two_devices_that_ran_one_step_apart_show_one_outcome_everywhere() -> None:
    _, (a, b) = devices("a", "b")
    end(a, begin(a, effect=Effect.IDEMPOTENT), '"a"')
    end(b, begin(b, effect=Effect.IDEMPOTENT), '"b"')
    sync(a, b)
    assert_converged(a, b)
    call = call_of(a)
    assert call.state is CallState.DONE
    assert call.recorded_twice
    assert len(call.attempts) == 2
    assert isinstance(again(a, Effect.IDEMPOTENT), CallRecorded)


@pytest.mark.parametrize("seed", range(6))
def test_a_result_that_is_there_stands_before_one_that_was_lost(seed: int) -> None:
    _, (a, b) = devices("a", "b", seed=seed)
    end(a, begin(a), None, lost=True)
    end(b, begin(b), '"b"')
    sync(a, b)
    shown = call_of(a).shown
    assert shown is not None
    assert shown.result == '"b"'
    assert call_of(a).state is CallState.DONE


def test_two_devices_with_other_arguments_conflict_and_nothing_is_returned() -> None:
    _, (a, b) = devices("a", "b")
    end(a, begin(a, digest=D1), '"a"')
    end(b, begin(b, digest=D2), '"b"')
    sync(a, b)
    assert_converged(a, b)
    assert call_of(a).state is CallState.KEY_CONFLICT
    for digest in (D1, D2):
        with pytest.raises(KeyReused):
            again(a, digest=digest)


def test_a_record_delivered_twice_is_there_once() -> None:
    log, (a, b) = devices("a", "b")
    end(a, begin(a))
    sync(a, b)
    for entry in log.entries:
        b.document.merge(entry)
    assert len(call_of(b).attempts) == 1
    assert not call_of(b).recorded_twice
    assert b.digest() == a.digest()


def test_records_add_up_to_the_same_in_any_order() -> None:
    """Also where a peer reuses ids: the same attempt and outcome twice, with other content."""
    rng = random.Random(3)
    log, (a, b, c) = devices("a", "b", "c")
    for device, digest in ((a, D1), (b, D1), (c, D2)):
        for attempt in ("x1", "x2", device.name):
            n = rng.randint(1, 3)
            device.record(CallIntent("ocr", 1, "read", Effect.READ, digest, attempt, n, f'"{device.name}"'))
            device.record(CallOutcome("ocr", 1, attempt, device is not b, f'"{device.name}"', lost=attempt == "x1"))
        device.record(Plan("ocr", 1, "read", f'"{device.name}"', 3, (device.name,)))
        device.record(VersionDecision(rng.randint(1, 5), device.name))
        for version in range(1, 6):
            device.record(Completion(version, device.name))
        device.push()
    per_device: list[list[Entry]] = [[entry for entry in log.entries if entry.device == d.name] for d in (a, b, c)]
    views, digests = [], set()
    for order in itertools.permutations(per_device):
        reader = Device("reader", random.Random(1), log)
        for entry in itertools.chain(*order):
            reader.document.merge(entry)
        views.append(reader.document.view())
        digests.add(reader.digest())
    assert all(view == views[0] for view in views)
    assert len(digests) == 1
    assert views[0].completed
    assert len(views[0].calls[1, "ocr"].attempts) == 5


# --- plans ------------------------------------------------------------------------------------------------------------


def plan(device: Device, arguments: str = '{"path":"a"}', requires: tuple[str, ...] = ("files",)) -> Plan | None:
    made = device.document.plan_call(1, "scan", "read_invoice", arguments, requires)
    if made is not None:
        device.record(made)
    return made


def test_a_planned_step_shows_what_it_waits_for() -> None:
    _, (a, b) = devices("a", "b")
    plan(a)
    sync(a, b)
    call = call_of(b, "scan")
    assert (call.state, call.tool, call.requires) == (CallState.PLANNED, "read_invoice", ("files",))
    assert call.planned_arguments == '{"path":"a"}'
    assert call.shown is None
    assert call.device == ""


def test_the_same_plan_again_writes_nothing_another_one_replaces_it() -> None:
    _, (a,) = devices("a")
    assert plan(a) is not None
    assert plan(a) is None
    assert plan(a, '{"path":"b"}') is not None
    assert call_of(a, "scan").planned_arguments == '{"path":"b"}'


def test_a_step_that_was_done_is_not_planned() -> None:
    _, (a,) = devices("a")
    end(a, begin(a, "scan"))
    assert plan(a) is None


def test_a_plan_stays_beside_what_was_done_of_it() -> None:
    _, (a,) = devices("a")
    plan(a)
    end(a, begin(a, "scan"), None, ok=False)
    assert call_of(a, "scan").state is CallState.FAILED
    assert call_of(a, "scan").requires == ("files",)
    assert plan(a) is None


# --- version ----------------------------------------------------------------------------------------------------------


def test_the_highest_version_stands_and_only_a_higher_one_is_decided() -> None:
    _, (a, b) = devices("a", "b")
    assert a.document.view().version == 1
    a.record(a.document.decide_version(3, "boss"))
    b.record(b.document.decide_version(2, "boss"))
    sync(a, b)
    assert_converged(a, b)
    assert a.document.view().version == 3
    for version in (3, 2, 0):
        with pytest.raises(SegueError) as caught:
            a.document.decide_version(version, "boss")
        assert caught.type is VersionMismatch
