"""Calls: what is run, what is returned from the record, what an exception or a cancellation leaves behind."""

import asyncio
from pathlib import Path

import pytest

from sync_core.document.calls import CallState
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import (
    InDoubt,
    KeyReused,
    NeedsAuthority,
    NeedsCapability,
    NeedsKey,
    ResultUnavailable,
    ValueRefused,
    VersionMismatch,
)
from sync_core.testing import Crashed, crash_at
from tests.sync_core.endpoint.conftest import KEY


class Counter:
    """A tool's executions, counted outside the engine."""

    def __init__(self) -> None:
        self.runs: list[object] = []
        self.fails = 0

        @tool(effect=Effect.READ)
        async def count(amount: int = 1) -> int:
            self.runs.append(amount)
            if self.fails:
                self.fails -= 1
                raise RuntimeError("not this time")
            return amount * 10

        @tool(effect=Effect.IDEMPOTENT)
        def put(name: str, *, idempotency_key: str = "") -> str:
            self.runs.append(idempotency_key)
            return name

        self.count = count
        self.put = put


@pytest.fixture
def counter() -> Counter:
    return Counter()


async def test_a_step_asked_for_five_times_runs_once(task: Task, counter: Counter) -> None:
    results = [await task.call("check", counter.count, 3) for _ in range(5)]
    assert results == [30] * 5
    assert counter.runs == [3]
    assert len(task.calls) == 1
    assert len(task.calls["check"].attempts) == 1


async def test_a_recorded_step_survives_a_restart_and_runs_on_nothing_but_a_call(
    tmp_path: Path, counter: Counter
) -> None:
    for _ in range(3):
        async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone", tools=[counter.count]) as phone:
            task = await phone.task(KEY, create=True)
            assert await task.call("check", counter.count) == 10
            assert (task.calls["check"].state, task.calls["check"].device) == (CallState.DONE, "phone")
            assert await task.calls["check"].result() == 10
    assert counter.runs == [1]


async def test_other_arguments_on_a_recorded_step_are_refused_with_both_digests(task: Task, counter: Counter) -> None:
    await task.call("check", counter.count, 1)
    with pytest.raises(KeyReused) as caught:
        await task.call("check", counter.count, 2)
    assert caught.value.recorded_digest == counter.count.bind((1,), {}).digest
    assert caught.value.given_digest == counter.count.bind((2,), {}).digest
    assert counter.runs == [1]


async def test_the_same_arguments_on_another_step_are_another_call(task: Task, counter: Counter) -> None:
    await task.call("before", counter.count)
    await task.call("after", counter.count)
    assert counter.runs == [1, 1]


async def test_a_tool_that_raises_is_recorded_as_failed_and_may_be_called_again(task: Task, counter: Counter) -> None:
    counter.fails = 1
    with pytest.raises(RuntimeError, match="not this time"):
        await task.call("check", counter.count)
    assert task.calls["check"].state is CallState.FAILED
    assert task.calls["check"].attempts[0].error == "RuntimeError: not this time"
    assert await task.call("check", counter.count) == 10
    assert len(task.calls["check"].attempts) == 2


class Mute(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("bad \ud800 name"), "RuntimeError: bad \\ud800 name"),
        (Mute(), "Mute: (it cannot be told as text)"),
        (ValueError("日" * 1_000), "ValueError: " + "日" * 488),
        (KeyError(), "KeyError"),
    ],
    ids=["surrogate", "mute", "long", "empty"],
)
async def test_whatever_a_tool_raises_is_recorded_and_raised_as_it_is(task: Task, error: Exception, told: str) -> None:
    @tool(effect=Effect.READ)
    async def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await task.call("s", fail)
    assert caught.value is error
    assert task.calls["s"].state is CallState.FAILED
    assert task.calls["s"].attempts[0].error == told
    task.brief()


async def test_a_def_that_lets_stop_iteration_out_fails_and_does_not_hang(task: Task) -> None:
    @tool(effect=Effect.READ)
    def first(rows: list[int]) -> int:
        return next(row for row in rows if row > 5)

    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await task.call("first", first, [1, 2])
    assert task.calls["first"].state is CallState.FAILED


async def test_an_effect_given_as_text_guards_like_the_effect_itself(task: Task) -> None:
    ran = []

    @tool(effect="IRREVERSIBLE")  # type: ignore[arg-type]
    async def pay(amount: int, *, idempotency_key: str = "") -> int:
        ran.append(amount)
        return amount

    with pytest.raises(NeedsAuthority):
        await task.call("pay", pay, 5)
    assert ran == []
    assert task.calls["pay"].attempts == ()


async def test_two_coroutines_on_one_step_share_one_execution(task: Task) -> None:
    runs: list[int] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect=Effect.READ)
    async def slow(number: int = 1) -> int:
        runs.append(number)
        started.set()
        await go_on.wait()
        return 7

    both = [asyncio.create_task(task.call("slow", slow)) for _ in range(2)]
    await started.wait()
    with pytest.raises(KeyReused):
        await task.call("slow", Counter().count, 1)
    with pytest.raises(KeyReused):
        await asyncio.wait_for(task.call("slow", slow, 2), 30)
    go_on.set()
    assert await asyncio.gather(*both) == [7, 7]
    assert runs == [1]


async def test_one_of_two_callers_giving_up_leaves_the_other_its_result(task: Task) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect=Effect.READ)
    async def slow() -> int:
        started.set()
        await go_on.wait()
        return 7

    one, two = (asyncio.create_task(task.call("slow", slow)) for _ in range(2))
    await started.wait()
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    go_on.set()
    assert await two == 7


async def test_a_cancelled_call_is_recorded_as_failed_and_raised_again(task: Task) -> None:
    started = asyncio.Event()

    @tool(effect=Effect.READ)
    async def slow() -> int:
        started.set()
        await asyncio.Event().wait()
        return 7

    calling = asyncio.create_task(task.call("slow", slow))
    await started.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert task.calls["slow"].state is CallState.FAILED
    assert task.calls["slow"].attempts[0].error == "CancelledError"


async def test_a_call_cancelled_before_its_tool_started_is_not_left_in_doubt(task: Task, counter: Counter) -> None:
    calling = asyncio.create_task(task.call("check", counter.count))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert task.in_doubt() == ()
    assert counter.runs == []
    assert await task.call("check", counter.count) == 10


async def test_an_irreversible_tool_without_a_key_is_refused_before_anything_is_asked_or_written(
    phone: Endpoint, task: Task
) -> None:
    ran: list[int] = []

    @tool
    def pay(amount: int) -> None:
        ran.append(amount)

    before = (await phone.stats()).store.entries
    with pytest.raises(NeedsKey) as caught:
        await task.call("pay", pay, 5)
    assert "idempotency_key" in caught.value.hint
    assert ran == []
    assert "pay" not in task.calls
    assert (await phone.stats()).store.entries == before


async def test_an_irreversible_step_without_authority_is_planned_and_waits(task: Task) -> None:
    ran: list[int] = []

    @tool
    def pay(amount: int, *, idempotency_key: str = "") -> None:
        ran.append(amount)

    for _ in range(2):
        with pytest.raises(NeedsAuthority):
            await task.call("pay", pay, 5)
    assert ran == []
    assert task.calls["pay"].state is CallState.PLANNED
    assert task.calls["pay"].requires == ("authority",)
    (waiting,) = await task.pending_calls()
    assert waiting.step == "pay"
    brief = task.brief()
    assert "waits for the authority" in brief.text
    assert brief.json["planned"][0]["waits_for_authority"] is True  # type: ignore[index, call-overload]


@pytest.mark.parametrize("value", [object(), float("inf")])
async def test_a_result_that_cannot_be_recorded_is_unavailable_and_not_run_again(task: Task, value: object) -> None:
    ran: list[int] = []

    @tool(effect=Effect.READ)
    def odd() -> object:
        ran.append(1)
        return value

    for _ in range(2):
        with pytest.raises(ResultUnavailable):
            await task.call("odd", odd)
    assert ran == [1]
    assert task.calls["odd"].state is CallState.RESULT_UNAVAILABLE
    with pytest.raises(ResultUnavailable):
        await task.calls["odd"].result()


async def test_a_large_result_comes_back_whole(task: Task) -> None:
    @tool(effect=Effect.READ)
    def pages() -> list[str]:
        return ["é" * 1000] * 50

    assert await task.call("pages", pages) == ["é" * 1000] * 50
    assert task.calls["pages"].attempts[0].blob is not None
    assert await task.calls["pages"].result() == ["é" * 1000] * 50


async def test_a_record_that_no_longer_fits_the_tools_type_is_unavailable(task: Task, counter: Counter) -> None:
    @tool(effect=Effect.READ, name="count")
    def newer(amount: int = 1) -> list[str]:
        return []

    await task.call("check", counter.count)
    with pytest.raises(ResultUnavailable, match="does not fit"):
        await task.call("check", newer)


async def test_the_same_idempotency_key_is_given_to_every_attempt(tmp_path: Path, counter: Counter) -> None:
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        task = await phone.task(KEY, create=True)
        with crash_at("after_effect"), pytest.raises(Crashed):
            await task.call("put", counter.put, "x")
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        task = await phone.task(KEY)
        assert [call.step for call in task.in_doubt()] == ["put"]
        assert await task.call("put", counter.put, "x") == "x"
    assert len(counter.runs) == 2
    assert len(set(counter.runs)) == 1
    assert counter.runs[0]


@pytest.mark.parametrize(("point", "runs"), [("after_intent", 1), ("after_effect", 2), ("after_record", 1)])
async def test_a_crash_leaves_what_was_durable_and_a_read_runs_again_only_when_asked(
    tmp_path: Path, counter: Counter, point: str, runs: int
) -> None:
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        task = await phone.task(KEY, create=True)
        with crash_at(point), pytest.raises(Crashed):
            await task.call("check", counter.count)
    executed = len(counter.runs)
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        task = await phone.task(KEY)
        expected = CallState.DONE if point == "after_record" else CallState.IN_DOUBT
        assert task.calls["check"].state is expected
        if expected is CallState.IN_DOUBT:
            with pytest.raises(InDoubt):
                await task.calls["check"].result()
        assert len(counter.runs) == executed
        assert await task.call("check", counter.count) == 10
    assert len(counter.runs) == runs


async def test_a_step_that_needs_what_this_endpoint_lacks_is_planned_and_not_offered(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(effect=Effect.READ, requires={"files"})
    def scan(path: str) -> str:
        ran.append(path)
        return f"text of {path}"

    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone", tools=[scan]) as phone:
        task = await phone.task(KEY, create=True)
        assert phone.tools() == []
        with pytest.raises(NeedsCapability, match="files"):
            await task.call("scan", scan, "a.pdf")
        assert task.calls["scan"].state is CallState.PLANNED
        (waiting,) = await task.pending_calls()
        assert not task.can_run(waiting)
        with pytest.raises(NeedsCapability):
            await task.run(waiting)
        assert [info.key async for info in phone.tasks(waiting_for="files")] == [KEY]
        assert [info.key async for info in phone.tasks(waiting_for="camera")] == []
    assert ran == []
    opening = Endpoint.open(tmp_path / "a.db", subject="acme", device="phone", tools=[scan], capabilities={"files"})
    async with opening as capable:
        task = await capable.task(KEY)
        assert [tool["function"]["name"] for tool in capable.tools()] == ["scan"]  # type: ignore[index, call-overload]
        (waiting,) = await task.pending_calls()
        assert task.can_run(waiting)
        assert (await task.run(waiting))["content"] == "text of a.pdf"
        assert await task.pending_calls() == ()
        assert await task.call("scan", scan, "a.pdf") == "text of a.pdf"
    assert ran == ["a.pdf"]
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone", tools=[scan]) as phone:
        assert await (await phone.task(KEY)).call("scan", scan, "a.pdf") == "text of a.pdf"


async def test_a_handle_of_an_older_version_can_call_nothing(phone: Endpoint, task: Task, counter: Counter) -> None:
    await task.call("check", counter.count)
    newer = await phone.task(KEY, version=2)
    with pytest.raises(VersionMismatch):
        await task.call("other", counter.count)
    assert newer.version == 2
    assert await newer.call("check", counter.count) == 10
    assert counter.runs == [1, 1]
    with pytest.raises(VersionMismatch):
        await phone.task(KEY, version=1)


async def test_a_step_that_is_no_name_is_refused(task: Task, counter: Counter) -> None:
    with pytest.raises(ValueRefused, match="step"):
        await task.call("no spaces", counter.count)
