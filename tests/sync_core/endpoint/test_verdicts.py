"""Verdicts on calls in doubt, and the keys of business entities, on two devices with a real relay."""

import pytest

from sync_core.endpoint.replay import GapKind
from sync_core.errors import (
    AlreadyDone,
    InDoubt,
    KeyRetired,
    ResultUnavailable,
    ValueRefused,
)
from sync_core.ids import StreamName
from sync_core.testing import TwoEndpoints
from tests.sync_core.endpoint.bank import Bank
from tests.sync_core.endpoint.conftest import KEY, both

# --- verdicts ---------------------------------------------------------------------------------------------------------


async def test_what_did_not_happen_runs_again_only_under_a_token_that_the_outside_checks(
    ends: TwoEndpoints, bank: Bank
) -> None:
    here, _ = await both(ends)
    for step, paying in (("checked", bank.pay), ("unchecked", bank.pay_unchecked)):
        bank.fails_before.append(RuntimeError("lost the line"))
        with pytest.raises(RuntimeError):
            await here.call(step, paying, 5)
        await here.settle(step, happened=False)
    assert await here.call("checked", bank.pay, 5) == "paid 5"
    with pytest.raises(KeyRetired):
        await here.call("unchecked", bank.pay_unchecked, 5)
    assert here.calls["unchecked"].attempts[0].retired
    assert len(bank.paid) == 1
    newer = await ends.phone.task(KEY, version=2)
    assert await newer.call("unchecked", bank.pay_unchecked, 5) == "paid 5"


async def test_a_verdict_without_a_result_is_done_and_the_result_stays_unknown(ends: TwoEndpoints, bank: Bank) -> None:
    here, _ = await both(ends)
    bank.fails.append(RuntimeError("lost the line"))
    with pytest.raises(RuntimeError):
        await here.call("pay", bank.pay, 5)
    await here.settle("pay", happened=True)
    for _ in range(2):
        with pytest.raises(ResultUnavailable):
            await here.call("pay", bank.pay, 5)
    assert bank.amounts == [5]


async def test_a_verdict_is_refused_where_nothing_is_in_doubt(ends: TwoEndpoints, bank: Bank) -> None:
    here, _ = await both(ends)
    with pytest.raises(ValueRefused):
        await here.settle("pay", happened=True)
    await here.call("pay", bank.pay, 5)
    with pytest.raises(ValueRefused):
        await here.settle("pay", happened=False)
    bank.fails.append(RuntimeError("lost the line"))
    with pytest.raises(RuntimeError):
        await here.call("more", bank.pay, 5)
    with pytest.raises(ValueRefused, match="result"):
        await here.settle("more", happened=False, result=5)


# --- entities ---------------------------------------------------------------------------------------------------------


async def test_an_entity_is_acted_on_once_until_that_is_undone(ends: TwoEndpoints, bank: Bank) -> None:
    here, there = await both(ends)
    booking = await here.call("book", bank.book, "LIS")
    await ends.synced()
    for task, step, arguments in ((there, "again", ("LIS",)), (here, "seat", ("LIS", "4A"))):
        with pytest.raises(AlreadyDone) as caught:
            await task.call(step, bank.book, *arguments)
        assert (caught.value.task, caught.value.step, caught.value.result_text) == (KEY, "book", '"B-1"')
        assert step not in task.calls or task.calls[step].attempts == ()
    assert await there.call("other", bank.book, "ROM") == "B-2"
    assert await there.call("undo", bank.cancel, booking) == "cancelled B-1"
    await ends.synced()
    assert await here.call("seat", bank.book, "LIS", "4A") == "B-3"
    assert len({key for _, key, _ in bank.paid}) == 3


async def test_an_entity_in_doubt_is_settled_in_any_task_that_asked_for_it(ends: TwoEndpoints, bank: Bank) -> None:
    here, _ = await both(ends)
    other = await ends.desktop.task("expense/OTHER", create=True)
    bank.fails.append(RuntimeError("lost the line"))
    with pytest.raises(RuntimeError):
        await here.call("book", bank.book, "LIS")
    await ends.synced()
    with pytest.raises(InDoubt, match="step book of expense"):
        await other.call("mine", bank.book, "LIS")
    await other.settle("mine", happened=True, result="B-1")
    with pytest.raises(AlreadyDone) as caught:
        await other.call("mine", bank.book, "LIS")
    assert caught.value.result_text == '"B-1"'
    await ends.synced()
    assert await here.call("book", bank.book, "LIS") == "B-1"
    assert len(bank.paid) == 1


# --- audit ------------------------------------------------------------------------------------------------------------


async def test_a_replay_of_guarded_calls_gives_the_same_task_and_asks_nobody(ends: TwoEndpoints, bank: Bank) -> None:
    here, _ = await both(ends)
    await here.call("pay", bank.pay, 5)
    bank.fails.append(RuntimeError("lost the line"))
    with pytest.raises(RuntimeError):
        await here.call("more", bank.pay_unchecked, 6)
    await here.settle("more", happened=True, result="paid 6")
    await here.call("book", bank.book, "LIS")
    await ends.synced()
    paid, asked = list(bank.paid), list(bank.probes)
    report = await here.replay()
    assert report.gaps == ()
    assert report.view.calls == here.view.calls
    assert all(stream.rebuilt == stream.live for stream in report.streams)
    assert (bank.paid, bank.probes) == (paid, asked)
    bank.fails.append(RuntimeError("lost the line"))
    with pytest.raises(RuntimeError):
        await here.call("last", bank.pay_unchecked, 7)
    assert [gap.kind for gap in (await here.replay()).gaps] == [GapKind.NO_OUTCOME]
    await here.settle("last", happened=True)
    (gap,) = (await here.replay()).gaps
    assert (gap.kind, gap.stream) == (GapKind.MISSING_RESULT, StreamName.AUTHORITY)
