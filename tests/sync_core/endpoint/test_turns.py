"""A model's turn: from the assistant message through its calls to the answers, each once."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path

import pytest

from sync_core.document.calls import CallState
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import NeedsAuthority, NeedsCapability, ValueRefused
from sync_core.testing import Crashed, crash_at
from tests.sync_core.endpoint.conftest import KEY

RUNS: list[str] = []


@tool(effect=Effect.READ)
async def look_up(name: str) -> dict[str, object]:
    """Look a person up."""
    RUNS.append(name)
    if name == "nobody":
        raise LookupError("nobody")
    return {"name": name, "age": 7}


@tool(effect=Effect.READ)
def greet(name: str) -> str:
    RUNS.append(name)
    return f"Hello {name}"


@tool
def pay(amount: int, *, idempotency_key: str = "") -> None:
    raise AssertionError("never run without an authority")


def turn(*calls: tuple[str, str], tool_call_id: str = "call_1") -> dict[str, object]:
    """An assistant message with tool calls, all under one id: it is no identity."""
    tool_calls = [
        {"id": tool_call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


@pytest.fixture(autouse=True)
def no_runs() -> None:
    RUNS.clear()


@pytest.fixture
async def phone(tmp_path: Path):  # type: ignore[no-untyped-def]
    async with Endpoint.open(
        tmp_path / "phone.db", subject="acme", device="phone", tools=[look_up, greet, pay]
    ) as endpoint:
        yield endpoint


async def test_a_turn_is_durable_before_its_calls_run(tmp_path: Path, phone: Endpoint, task: Task) -> None:
    pending = await task.history.append_turn(turn(("look_up", '{"name":"Ann"}'), ("greet", '{"name":"Ann"}')))
    assert [(call.tool, call.state, call.tool_call_id) for call in pending] == [
        ("look_up", CallState.PLANNED, "call_1"),
        ("greet", CallState.PLANNED, "call_1"),
    ]
    assert len({call.step for call in pending}) == 2
    assert RUNS == []
    await phone.aclose()
    async with Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone") as again:
        assert await (await again.task(KEY)).pending_calls() == pending


async def test_running_a_call_gives_the_tool_message_and_appends_it_once(task: Task) -> None:
    pending = await task.history.append_turn(turn(("look_up", '{"name":"Ann"}'), ("greet", '{"name":"Ann"}')))
    first = await task.run(pending[0])
    assert first == {
        "role": "tool",
        "tool_call_id": "call_1",
        "name": "look_up",
        "content": '{"age":7,"name":"Ann"}',
    }
    assert (await task.run(pending[1]))["content"] == "Hello Ann"
    assert await task.run(pending[0]) == first
    assert RUNS == ["Ann", "Ann"]
    assert [message["role"] for message in await task.history.items()] == ["assistant", "tool", "tool"]
    assert await task.pending_calls() == ()


async def test_arguments_given_as_an_object_are_taken_as_its_text(task: Task) -> None:
    message = turn(("greet", ""))
    message["tool_calls"][0]["function"]["arguments"] = {"name": "Ann"}  # type: ignore[index]
    (pending,) = await task.history.append_turn(message)
    assert (await task.run(pending))["content"] == "Hello Ann"


async def test_two_coroutines_that_run_one_call_append_one_answer(task: Task) -> None:
    (pending,) = await task.history.append_turn(turn(("greet", '{"name":"Ann"}')))
    one, two = await asyncio.gather(task.run(pending), task.run(pending))
    assert one == two
    assert RUNS == ["Ann"]
    assert len(task.view.history) == 2


@pytest.mark.parametrize(("point", "runs"), [("after_effect", 2), ("after_record", 1)])
async def test_after_a_crash_the_call_is_still_pending_and_a_record_is_not_run_again(
    tmp_path: Path, phone: Endpoint, task: Task, point: str, runs: int
) -> None:
    (pending,) = await task.history.append_turn(turn(("greet", '{"name":"Ann"}')))
    with crash_at(point), pytest.raises(Crashed):
        await task.run(pending)
    async with Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone", tools=[greet]) as again:
        task = await again.task(KEY)
        (waiting,) = await task.pending_calls()
        assert waiting.step == pending.step
        assert (await task.run(waiting))["content"] == "Hello Ann"
        assert await task.pending_calls() == ()
    assert len(RUNS) == runs


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("fly", "{}", "no tool named 'fly'"),
        ("", "", "no tool named ''"),
        ("greet", '{"name": ', "not a JSON object"),
        ("greet", "[]", "not a JSON object"),
        ("greet", '{"nam": "Ann"}', "do not fit the tool greet"),
        ("greet", "", "do not fit the tool greet"),
        ("greet", '{"name": "\\ud800"}', "lone surrogate"),
        ("greet", '{"name": 1E99999999999999999999}', "not a JSON object"),
        ("pay", '{"amount": "\\ud800"}', "lone surrogate"),
        ("pay", '{"\\ud800": 1}', "lone surrogate"),
    ],
)
async def test_a_models_mistake_is_answered_and_the_loop_goes_on(
    task: Task, name: str, arguments: str, told: str
) -> None:
    (pending,) = await task.history.append_turn(turn((name, arguments)))
    message = await task.run(pending)
    assert str(message["content"]).startswith("Error: ")
    assert told in str(message["content"])
    assert await task.run(pending) == message
    assert await task.pending_calls() == ()
    assert len(task.calls) == 0
    assert RUNS == []


async def test_garbled_tool_calls_still_have_their_place(task: Task) -> None:
    message = {"role": "assistant", "tool_calls": [None, {"function": "x"}, {"id": 3, "function": {"name": 1}}]}
    pending = await task.history.append_turn(message)
    assert [call.step.rpartition("/")[2] for call in pending] == ["0", "1", "2"]
    for call in pending:
        assert "no tool named ''" in str((await task.run(call))["content"])


async def test_a_tool_that_raises_is_left_pending_and_may_be_answered_by_the_program(task: Task) -> None:
    (pending,) = await task.history.append_turn(turn(("look_up", '{"name":"nobody"}')))
    with pytest.raises(LookupError):
        await task.run(pending)
    (waiting,) = await task.pending_calls()
    assert waiting.state is CallState.FAILED
    await task.history.append({"role": "tool", "tool_call_id": "call_1", "content": "nobody there"}, answers=waiting)
    assert await task.pending_calls() == ()
    assert (await task.run(waiting))["content"] == "nobody there"


async def test_a_tool_without_authority_is_refused_and_stays_pending(task: Task) -> None:
    (pending,) = await task.history.append_turn(turn(("pay", '{"amount": 5}')))
    with pytest.raises(NeedsAuthority):
        await task.run(pending)
    assert len(await task.pending_calls()) == 1


async def test_a_tool_unknown_here_but_asked_for_elsewhere_is_left_to_that_device(tmp_path: Path, task: Task) -> None:
    (pending,) = await task.history.append_turn(turn(("fly", "{}")))
    foreign = type(pending)("0123456789abcdef/0", 1, "fly", "{}", (), CallState.PLANNED, "call_1")
    with pytest.raises(NeedsCapability, match="not among this endpoint's tools"):
        await task.run(foreign)


async def test_only_an_assistant_message_is_a_turn(task: Task) -> None:
    with pytest.raises(ValueRefused):
        await task.history.append_turn({"role": "user", "content": "hi"})
    assert await task.history.append_turn({"role": "assistant", "content": "done"}) == ()


async def test_the_number_of_turns_does_not_change_the_number_of_calls(task: Task) -> None:
    (pending,) = await task.history.append_turn(turn(("greet", '{"name":"Ann"}')))
    await task.run(pending)
    for number in range(20):
        await task.history.append({"role": "user", "content": str(number)})
        await task.history.append_turn({"role": "assistant", "content": str(number)})
    assert len(task.calls) == 1
    assert sum(len(call.attempts) for call in task.calls.values()) == 1


# --- tools for the model itself ---------------------------------------------------------------------------------------


async def _ask(task: Task, asked: str, /, **arguments: object) -> object:
    (pending,) = await task.history.append_turn(turn((asked, json.dumps(arguments))))
    content = (await task.run(pending))["content"]
    assert isinstance(content, str)
    return json.loads(content)


async def test_a_model_reads_and_writes_slots_through_tools(task: Task) -> None:
    await task.slots.declare("cost_center", ask="Which cost centre?", schema={"type": "string"}, required=True)
    names = {tool["function"]["name"] for tool in task.model_tools()}  # type: ignore[index, call-overload]
    assert {"slot_list", "slot_propose", "slot_confirm", "note_read", "note_write", "note_edit"} <= names
    (listed,) = await _ask(task, "slot_list")  # type: ignore[misc]
    assert (listed["state"], listed["ask"]) == ("missing", "Which cost centre?")
    await _ask(task, "slot_propose", name="cost_center", value="CC-1042")
    assert task.slots["cost_center"].value == "CC-1042"
    refused = await _ask(task, "slot_confirm", name="cost_center", value=7)
    assert isinstance(refused, dict)
    assert "error" in refused
    await _ask(task, "slot_confirm", name="cost_center", value="CC-1042")
    assert task.slots["cost_center"].state.value == "confirmed"


async def test_money_that_a_model_writes_as_a_number_keeps_every_digit(task: Task) -> None:
    for number in ("1.10", "12345678901234567890.12"):
        arguments = f'{{"name":"amount","value":{number}}}'
        (pending,) = await task.history.append_turn(turn(("slot_propose", arguments)))
        await task.run(pending)
        assert task.slots["amount"].value == Decimal(number)
        assert str(task.slots["amount"].value) == number


async def test_a_model_that_writes_a_note_from_a_stale_text_is_told_the_current_one(task: Task) -> None:
    written = await _ask(task, "note_write", name="worklog", text="one\n")
    await task.notes.append("worklog", "two\n")
    stale = await _ask(
        task,
        "note_write",
        name="worklog",
        text="three\n",
        content_sha256=written["content_sha256"],  # type: ignore[index]
    )
    assert stale["current_text"] == "one\ntwo\n"  # type: ignore[index]
    assert await _ask(task, "note_list") == ["worklog"]
    await _ask(task, "note_edit", name="worklog", old="two", new="2")
    assert (await _ask(task, "note_read", name="worklog"))["text"] == "one\n2\n"  # type: ignore[index]


async def test_the_deepest_value_of_a_slot_reaches_a_model_and_a_deeper_one_is_refused(task: Task) -> None:
    deep: object = "here"
    for _ in range(32):
        deep = [deep]
    await task.slots.confirm("x", deep)
    (listed,) = await _ask(task, "slot_list")  # type: ignore[misc]
    assert listed["values"][0]["value"] == deep
    for value in ([deep], {"a": deep}):
        with pytest.raises(ValueRefused, match="nested too deep"):
            await task.slots.confirm("x", value)
    answer = await _ask(task, "slot_propose", name="x", value=[deep])
    assert "nested too deep" in answer["error"]  # type: ignore[index, call-overload]
    assert task.slots["x"].value == deep


async def test_a_model_never_sees_a_secret(task: Task) -> None:
    await task.slots.declare("pin", ask="Pin?", secret=True)
    await task.slots.confirm("pin", "hunter2")
    (listed,) = await _ask(task, "slot_list")  # type: ignore[misc]
    assert listed["values"][0]["value"] == "set"


async def test_a_tool_may_not_take_the_name_of_a_models_tool(tmp_path: Path) -> None:
    @tool(effect=Effect.READ, name="note_read")
    def mine() -> None: ...

    with pytest.raises(ValueRefused, match="note_read"):
        await Endpoint.open(tmp_path / "x.db", subject="acme", device="phone", tools=[mine])
