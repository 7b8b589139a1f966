"""Calls that cannot be undone, on two devices with a real relay: at most once, and what nobody knows is shown."""

import asyncio
from pathlib import Path

import pytest

from sync_core.document.calls import CallState
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.errors import (
    InDoubt,
    KeyReused,
    NeedsAuthority,
    ReadOnly,
    ResultUnavailable,
    RunningElsewhere,
    SegueError,
    VersionMismatch,
)
from sync_core.keys import idempotency_key
from sync_core.rulings import SettledBy
from sync_core.testing import Crashed, TwoEndpoints, assert_converged, crash_at, two_endpoints
from tests.sync_core.endpoint.bank import Bank, nothing_happened
from tests.sync_core.endpoint.conftest import KEY, both


async def again(ends: TwoEndpoints) -> Task:
    """The task on the phone after its crash."""
    return await (await ends.reopen_phone()).task(KEY)


# --- once -------------------------------------------------------------------------------------------------------------


async def test_five_calls_of_one_step_on_two_devices_pay_once(ends: TwoEndpoints, bank: Bank) -> None:
    """AC-08."""
    here, there = await both(ends)
    results = [await here.call("pay", bank.pay, 100) for _ in range(3)]
    await ends.synced()
    results += [await there.call("pay", bank.pay, 100) for _ in range(2)]
    assert results == ["paid 100"] * 5
    ((amount, key, token),) = bank.paid
    assert (amount, key) == (100, idempotency_key("acme", KEY, 1, "pay"))
    assert token > 0
    for task in (here, there):
        call = task.calls["pay"]
        assert (call.state, call.device, len(call.attempts)) == (CallState.DONE, "phone", 1)
        assert call.attempts[0].settled_by is SettledBy.HOLDER
    await assert_converged(ends.phone, ends.desktop, KEY)


async def test_the_result_comes_from_the_authority_where_its_record_is_not_here_yet(
    ends: TwoEndpoints, bank: Bank
) -> None:
    here, there = await both(ends)
    one, two = await asyncio.gather(
        here.call("pay", bank.pay, 5), there.call("pay", bank.pay, 5), return_exceptions=True
    )
    told = [answer for answer in (one, two) if isinstance(answer, str)]
    assert set(told) == {"paid 5"}
    assert bank.amounts == [5]
    await ends.synced()
    assert await here.call("pay", bank.pay, 5) == await there.call("pay", bank.pay, 5) == "paid 5"
    assert bank.amounts == [5]


async def test_the_loser_of_a_race_is_told_who_runs_it_and_gets_the_winners_result(
    ends: TwoEndpoints, bank: Bank
) -> None:
    """RS-16."""
    here, there = await both(ends)
    bank.go_on.clear()
    calling = asyncio.create_task(here.call("pay", bank.pay, 5))
    await bank.started.wait()
    with pytest.raises(RunningElsewhere, match="phone"):
        await there.call("pay", bank.pay, 5)
    with pytest.raises(KeyReused) as caught:
        await there.call("pay", bank.pay, 6)
    assert caught.value.recorded_digest == bank.pay.bind((5,), {}).digest
    bank.go_on.set()
    assert await calling == "paid 5"
    await ends.synced()
    assert await there.call("pay", bank.pay, 5) == "paid 5"
    with pytest.raises(KeyReused):
        await there.call("pay", bank.pay, 6)
    assert bank.amounts == [5]


async def test_two_coroutines_on_one_step_share_one_payment(ends: TwoEndpoints, bank: Bank) -> None:
    here, _ = await both(ends)
    assert await asyncio.gather(*(here.call("pay", bank.pay, 5) for _ in range(4))) == ["paid 5"] * 4
    assert bank.amounts == [5]


async def test_a_large_result_of_a_guarded_call_reaches_the_other_device(ends: TwoEndpoints, bank: Bank) -> None:
    here, there = await both(ends)

    @tool
    def report(*, idempotency_key: str = "") -> str:
        return "x" * 50_000

    await here.call("report", report)
    await ends.synced()
    assert await there.call("report", report) == "x" * 50_000


# --- no authority -----------------------------------------------------------------------------------------------------


async def test_two_ends_apart_are_both_refused_and_the_step_waits(ends: TwoEndpoints, bank: Bank) -> None:
    """AC-10."""
    here, there = await both(ends)
    async with ends.apart():
        for task in (here, there):
            with pytest.raises(NeedsAuthority):
                await task.call("pay", bank.pay, 100)
            assert "waits for the authority" in task.brief().text
    assert bank.paid == []
    (waiting,) = await there.pending_calls()
    assert waiting.requires == ("authority",)
    assert await there.call("pay", bank.pay, 100) == "paid 100"
    await ends.synced()
    assert await here.call("pay", bank.pay, 100) == "paid 100"
    assert await here.pending_calls() == ()
    assert bank.amounts == [100]


async def test_a_handle_that_only_reads_asks_nobody(ends: TwoEndpoints, bank: Bank) -> None:
    await both(ends)
    reader = await ends.desktop.task(KEY, access="read")
    before = (await ends.desktop.stored(KEY)).digest
    with pytest.raises(ReadOnly, match="read only"):
        await reader.call("pay", bank.pay, 5)
    await ends.synced()
    assert "pay" not in reader.calls
    assert (await ends.desktop.stored(KEY)).digest == before
    assert bank.paid == []


async def test_a_models_guarded_call_raises_its_error_and_stays_pending(tmp_path: Path, bank: Bank) -> None:
    async with two_endpoints(tmp_path, tools=[bank.pay]) as ends:
        here, _ = await both(ends)
        call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 5}'}}
        (pending,) = await here.history.append_turn({"role": "assistant", "content": None, "tool_calls": [call]})
        async with ends.apart():
            with pytest.raises(NeedsAuthority):
                await here.run(pending)
        assert [waiting.step for waiting in await here.pending_calls()] == [pending.step]
        bank.fails.append(RuntimeError("lost the line"))
        with pytest.raises(RuntimeError):
            await here.run(pending)
        with pytest.raises(InDoubt):
            await here.run(pending)
        (waiting,) = await here.pending_calls()
        assert here.can_run(waiting)
        await here.settle(pending.step, happened=True, result="paid 5")
        assert (await here.run(waiting))["content"] == "paid 5"
        assert await here.pending_calls() == ()
    assert bank.amounts == [5]


async def test_a_handle_of_another_version_is_refused(ends: TwoEndpoints, bank: Bank) -> None:
    here, there = await both(ends)
    await there.call("pay", bank.pay, 5)
    newer = await ends.desktop.task(KEY, version=2)
    assert await newer.call("pay", bank.pay, 5) == "paid 5"
    with pytest.raises(VersionMismatch):
        await here.call("other", bank.pay, 5)
    assert len({key for _, key, _ in bank.paid}) == 2


# --- a crash ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "paid"), [("after_grant", 0), ("after_intent", 0), ("after_effect", 1), ("after_record", 1)]
)
async def test_a_crash_leaves_the_call_in_doubt_and_it_never_runs_by_itself(
    ends: TwoEndpoints, bank: Bank, point: str, paid: int
) -> None:
    """AC-04 and RS-17."""
    here, there = await both(ends)
    with crash_at(point), pytest.raises(Crashed):
        await here.call("pay", bank.pay, 100)
    assert len(bank.paid) == paid
    here = await again(ends)
    await ends.synced()
    if point == "after_record":
        assert await here.call("pay", bank.pay, 100) == "paid 100"
        return
    for task in (here, there):
        assert [call.step for call in task.in_doubt()] == ["pay"]
        assert "pay (in_doubt)" in task.brief().text
        for _ in range(2):
            with pytest.raises(InDoubt):
                await task.call("pay", bank.pay, 100)
    async with ends.apart():
        with pytest.raises(InDoubt):
            await here.call("pay", bank.pay, 100)
    assert len(bank.paid) == paid
    await there.settle(there.in_doubt()[0], happened=bool(paid), **({"result": "paid 100"} if paid else {}))
    assert there.in_doubt() == ()
    await ends.synced()
    assert await here.call("pay", bank.pay, 100) == "paid 100"
    assert len(bank.paid) == 1
    await ends.synced()
    await assert_converged(ends.phone, ends.desktop, KEY)


@pytest.mark.parametrize("point", ["after_grant", "after_intent", "after_effect"])
async def test_a_probe_finds_out_after_a_crash_and_the_call_goes_on(ends: TwoEndpoints, bank: Bank, point: str) -> None:
    here, _ = await both(ends)
    with crash_at(point), pytest.raises(Crashed):
        await here.call("pay", bank.pay_probed, 100)
    here = await again(ends)
    bank.knows = False
    with pytest.raises(InDoubt):
        await here.call("pay", bank.pay_probed, 100)
    bank.knows = True
    assert await here.call("pay", bank.pay_probed, 100) == "paid 100"
    assert bank.amounts == [100]
    assert set(bank.probes) == {bank.paid[0][1]}
    verdicts = [attempt.settled_by for attempt in here.calls["pay"].attempts]
    assert verdicts[0] is SettledBy.PROBE


async def test_a_probe_that_fails_leaves_the_doubt(ends: TwoEndpoints, bank: Bank) -> None:
    async def broken() -> None:
        raise OSError("no line")

    @tool(probe=broken)
    def send(*, idempotency_key: str = "") -> str:
        raise RuntimeError("no answer")

    here, _ = await both(ends)
    with pytest.raises(RuntimeError):
        await here.call("send", send)
    with pytest.raises(InDoubt, match="probe failed") as caught:
        await here.call("send", send)
    assert isinstance(caught.value.__cause__, OSError)


# --- a tool that raises -----------------------------------------------------------------------------------------------


async def test_whatever_a_tool_raises_leaves_its_call_in_doubt_and_is_raised_again(
    ends: TwoEndpoints, bank: Bank
) -> None:
    here, there = await both(ends)
    bank.fails.append(RuntimeError("lost the line"))
    with pytest.raises(RuntimeError, match="lost the line"):
        await here.call("pay", bank.pay, 100)
    assert here.calls["pay"].state is CallState.IN_DOUBT
    assert here.calls["pay"].attempts[0].error == "RuntimeError: lost the line"
    await ends.synced()
    for task in (here, there):
        with pytest.raises(InDoubt):
            await task.call("pay", bank.pay, 100)
        with pytest.raises(KeyReused):
            await task.call("pay", bank.pay, 99)
    assert bank.amounts == [100]


async def test_a_tool_that_knows_that_nothing_happened_frees_its_key_also_for_other_arguments(
    ends: TwoEndpoints, bank: Bank
) -> None:
    here, there = await both(ends)
    bank.fails_before.append(nothing_happened())
    with pytest.raises(SegueError, match="bank is closed"):
        await here.call("pay", bank.pay_unchecked, 100)
    assert here.calls["pay"].state is CallState.FAILED
    await ends.synced()
    assert await there.call("pay", bank.pay_unchecked, 90) == "paid 90"
    assert bank.amounts == [90]
    await ends.synced()
    assert here.calls["pay"].state is CallState.DONE
    await assert_converged(ends.phone, ends.desktop, KEY)


async def test_a_cancelled_payment_is_in_doubt_and_one_that_had_not_started_is_not(
    ends: TwoEndpoints, bank: Bank
) -> None:
    here, _ = await both(ends)
    bank.go_on.clear()
    calling = asyncio.create_task(here.call("pay", bank.pay, 100))
    await bank.started.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert here.calls["pay"].state is CallState.IN_DOUBT
    bank.go_on.set()
    calling = asyncio.create_task(here.call("other", bank.pay, 7))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert [call.step for call in here.in_doubt()] == ["pay"]
    assert bank.paid == []
    assert await here.call("other", bank.pay, 7) == "paid 7"


async def test_a_handle_that_is_closed_while_its_call_runs_loses_nothing(ends: TwoEndpoints, bank: Bank) -> None:
    here, _ = await both(ends)
    bank.go_on.clear()
    calling = asyncio.create_task(here.call("pay", bank.pay, 5))
    await bank.started.wait()
    await here.aclose()
    bank.go_on.set()
    assert await calling == "paid 5"
    assert (await ends.phone.task(KEY)).calls["pay"].state is CallState.DONE
    await ends.synced()
    assert bank.amounts == [5]


class Torn(BaseException):
    """What no program foresees."""


async def test_what_is_no_exception_of_a_program_leaves_no_call_running(ends: TwoEndpoints) -> None:
    @tool
    async def pay(amount: int, *, idempotency_key: str) -> None:
        raise Torn

    here, _ = await both(ends)
    with pytest.raises(Torn):
        await here.call("pay", pay, 5, idempotency_key="")
    assert here.calls["pay"].state is CallState.IN_DOUBT
    await here.settle("pay", happened=True)
    with pytest.raises(ResultUnavailable) as lost:
        await here.call("pay", pay, 5, idempotency_key="")
    assert "would do it again" in str(lost.value.hint) or "runs the tool again" in str(lost.value.hint)
