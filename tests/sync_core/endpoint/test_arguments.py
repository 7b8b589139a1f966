"""A wrong argument is refused to its caller alone, before anything is sent: nothing is written, all others go on."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sync_core.document.notes import Note
from sync_core.document.slots import SlotState
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.listing import TaskInfo
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import ValueRefused
from tests.sync_core.endpoint.conftest import KEY

Call = Callable[[Endpoint, Task, Any], object]

NO_TEXT: tuple[object, ...] = (None, 5, True, b"x", ["a"], {"a": 1}, object(), "\ud800")
NO_NAME: tuple[object, ...] = (*NO_TEXT, "", "../x", "a b", "ä", "a\x00b", "con", "x" * 1_000)
NO_FLAG: tuple[object, ...] = (None, 0, 1, "yes", "\ud800", [], object())
NO_NUMBER: tuple[object, ...] = ("1", "", b"1", 1.5, True, math.nan, [], {}, object(), 2**70)
NO_SECONDS: tuple[object, ...] = ("1", True, -1, math.nan, math.inf, [], object())
NO_MESSAGE: tuple[object, ...] = (None, 5, "text", b"x", ["a"], object(), {"role": b"x"}, {"role": "\ud800"})
NO_MAPPING: tuple[object, ...] = (5, "text", "", b"x", ["a"], [], True, object())


@tool(effect=Effect.READ)
async def echo(text: str = "") -> str:
    return text


async def keys(found: AsyncIterator[TaskInfo]) -> list[str]:
    return [info.key async for info in found]


MATRIX: dict[str, tuple[Call, tuple[object, ...]]] = {
    "task(key)": (lambda p, t, v: p.task(v, create=True), NO_NAME),
    "task(create)": (lambda p, t, v: p.task(KEY, create=v), NO_FLAG),
    "task(version)": (lambda p, t, v: p.task("k/2", create=True, version=v), (*NO_NUMBER, 0, -1)),
    "task(access)": (lambda p, t, v: p.task(KEY, access=v), (*NO_TEXT, "", "admin")),
    "tasks(state)": (lambda p, t, v: keys(p.tasks(state=v)), (5, b"x", [], {}, True, "", "opne")),
    "tasks(prefix)": (lambda p, t, v: keys(p.tasks(prefix=v)), NO_TEXT),
    "tasks(waiting_for)": (lambda p, t, v: keys(p.tasks(waiting_for=v)), NO_NAME[1:]),
    "evict": (lambda p, t, v: p.evict(v), NO_NAME),
    "compact": (lambda p, t, v: p.compact(v), NO_NAME),
    "stored": (lambda p, t, v: p.stored(v), NO_NAME),
    "synced": (lambda p, t, v: p.synced(timeout_s=v), NO_SECONDS),
    "slots[name]": (lambda p, t, v: t.slots[v], NO_NAME),
    "declare(name)": (lambda p, t, v: t.slots.declare(v, ask="?"), NO_NAME),
    "declare(ask)": (lambda p, t, v: t.slots.declare("d", ask=v), NO_TEXT),
    "declare(schema)": (lambda p, t, v: t.slots.declare("d", ask="?", schema=v), NO_MAPPING),
    "declare(required)": (lambda p, t, v: t.slots.declare("d", ask="?", required=v), NO_FLAG),
    "declare(secret)": (lambda p, t, v: t.slots.declare("d", ask="?", secret=v), NO_FLAG),
    "declare(order)": (lambda p, t, v: t.slots.declare("d", ask="?", order=v), (None, *NO_NUMBER)),
    "declare(held_by)": (lambda p, t, v: t.slots.declare("d", ask="?", held_by=v), NO_NAME[1:]),
    "propose(name)": (lambda p, t, v: t.slots.propose(v, 1), NO_NAME),
    "confirm(name)": (lambda p, t, v: t.slots.confirm(v, 1), NO_NAME),
    "confirm(value)": (lambda p, t, v: t.slots.confirm("x", v), (b"x", {1}, object(), math.nan, "\ud800")),
    "confirm(read)": (lambda p, t, v: t.slots.confirm("x", 1, read=v), (*NO_TEXT[1:], [], (), {5})),
    "confirm(source)": (lambda p, t, v: t.slots.confirm("x", 1, source=v), NO_TEXT[1:]),
    "resolve(name)": (lambda p, t, v: t.slots.resolve(v, t.slots["good"].candidates[0]), NO_NAME),
    "resolve(candidate)": (lambda p, t, v: t.slots.resolve("good", v), (*NO_TEXT, "CC-1")),
    "clear(name)": (lambda p, t, v: t.slots.clear(v), NO_NAME),
    "clear(read)": (lambda p, t, v: t.slots.clear("good", read=v), (*NO_TEXT[1:], [], (), {5})),
    "notes.read": (lambda p, t, v: t.notes.read(v), (*NO_NAME, "handover")),
    "notes.write(name)": (lambda p, t, v: t.notes.write(v, "x"), (*NO_NAME, "handover")),
    "notes.write(text)": (lambda p, t, v: t.notes.write("n", v), NO_TEXT),
    "notes.write(hash)": (lambda p, t, v: t.notes.write("n", "x", content_sha256=v), NO_TEXT[1:]),
    "notes.append": (lambda p, t, v: t.notes.append("n", v), NO_TEXT),
    "notes.edit(old)": (lambda p, t, v: t.notes.edit("n", v, "x"), (*NO_TEXT, "")),
    "notes.edit(new)": (lambda p, t, v: t.notes.edit("n", "text", v), NO_TEXT),
    "notes.merge(text)": (lambda p, t, v: t.notes.merge("n", v, base=Note("n", "", "h")), NO_TEXT),
    "notes.merge(base)": (lambda p, t, v: t.notes.merge("n", "x", base=v), NO_TEXT),
    "notes.delete": (lambda p, t, v: t.notes.delete("n", content_sha256=v), NO_TEXT),
    "history.append": (lambda p, t, v: t.history.append(v), NO_MESSAGE),
    "history.append(answers)": (lambda p, t, v: t.history.append({}, answers=v), NO_NAME[1:-2]),
    "history.append_turn": (lambda p, t, v: t.history.append_turn(v), (*NO_MESSAGE, {}, {"role": "user"})),
    "history.items": (lambda p, t, v: t.history.items(last=v), (*NO_NUMBER, -1)),
    "call(step)": (lambda p, t, v: t.call(v, echo), NO_NAME[:-2]),
    "call(tool)": (lambda p, t, v: t.call("s", v), (*NO_TEXT, "echo", echo.invoke)),
    "call(argument)": (lambda p, t, v: t.call("s", echo, v), (None, 5, [], {}, object(), "\ud800")),
    "plan(step)": (lambda p, t, v: t.plan(v, "scan"), NO_NAME[:-2]),
    "plan(tool)": (lambda p, t, v: t.plan("s", v), (*NO_NAME, echo.invoke)),
    "plan(argument)": (lambda p, t, v: t.plan("s", "scan", page=v), (b"x", object(), "\ud800")),
    "run": (lambda p, t, v: t.run(v), (*NO_TEXT, {"id": "c1", "function": {"name": "echo"}})),
    "can_run": (lambda p, t, v: t.can_run(v), NO_TEXT),
    "brief(view)": (lambda p, t, v: t.brief(view=v), (*NO_TEXT, "", "all")),
    "brief(max_chars)": (lambda p, t, v: t.brief(max_chars=v), (*NO_NUMBER, -1)),
}


async def outcome(call: Call, phone: Endpoint, task: Task, value: object) -> object:
    """What a call came to: its error, or what it returned."""
    try:
        result = call(phone, task, value)
        return await result if isinstance(result, Awaitable) else result
    except Exception as error:
        return error


@pytest.mark.parametrize("argument", MATRIX)
async def test_a_wrong_argument_is_refused_to_its_caller_alone(phone: Endpoint, task: Task, argument: str) -> None:
    call, values = MATRIX[argument]
    await task.slots.confirm("good", "v")
    await task.notes.write("n", "text")
    stored = (await phone.stats()).store
    outcomes = [await outcome(call, phone, task, value) for value in values]
    wrong = [(value, error) for value, error in zip(values, outcomes, strict=True) if type(error) is not ValueRefused]
    assert not wrong
    assert (await phone.stats()).store == stored
    assert (await task.slots.confirm("good", "w")).value == "w"


OPEN = {
    "subject": NO_NAME,
    "device": NO_NAME,
    "relay": (*NO_TEXT[1:], "", "foo", "http://relay.example", "ws://x..y"),
    "token": (*NO_TEXT[:-1], "\ud800"),
    "tools": (None, 5, echo, [print], "echo", [echo, echo]),
    "capabilities": (None, 5, "files", ["a b"], [5]),
    "store_bytes_max": (*NO_NUMBER, 0, -1),
    "open_timeout_s": (None, *NO_SECONDS),
    "backoff": (5, {}, "x"),
    "chance": (None, 0.5),
}


@pytest.mark.parametrize("argument", OPEN)
async def test_an_endpoint_is_not_opened_with_a_wrong_argument(tmp_path: Path, argument: str) -> None:
    for value in OPEN[argument]:
        given: dict[str, object] = {"subject": "acme", "device": "phone", argument: value}
        with pytest.raises(ValueRefused):
            await Endpoint.open(tmp_path / "phone.db", **given)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [None, 5, b"x.db", "x\x00y", ["x.db"], ":memory:"])
async def test_what_is_no_path_opens_nothing(path: object) -> None:
    with pytest.raises(ValueRefused, match=r"path|memory"):
        await Endpoint.open(path, subject="acme", device="phone")  # type: ignore[arg-type]


async def test_the_usual_slips_are_told_what_to_do(task: Task) -> None:
    async def plain(path: str) -> str:
        return path

    for slip, told in (
        (lambda: task.call("s", plain, "x"), "@tool"),  # type: ignore[arg-type]
        (lambda: task.run({"id": "c1"}), "append_turn"),  # type: ignore[arg-type]
        (lambda: task.history.append_turn(object()), "model_dump"),  # type: ignore[arg-type]
        (lambda: task.slots.resolve("x", "CC-1"), "candidates"),  # type: ignore[arg-type]
        (lambda: task.slots.confirm("x", 1, read=["w1"]), "task.slots"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueRefused, match=told):
            await slip()
    with pytest.raises(KeyError, match=r"^'nope'$"):
        _ = task.calls["nope"]


async def test_texts_and_numbers_of_subclasses_are_taken(task: Task, phone: Endpoint) -> None:
    class Word(str):
        __slots__ = ()

    class Number(int):
        pass

    async with phone.task(Word("k/2"), create=True, version=Number(2)) as other:
        await other.slots.declare(Word("x"), ask=Word("X?"), order=Number(1), held_by=Word("phone"))
        await other.slots.confirm(Word("x"), Word("v"), source=Word("hand"), read=set())
        await other.notes.write(Word("n"), Word("text"))
        await other.call(Word("s"), echo, "hi")
        await other.plan(Word("later"), Word("scan"))
        await other.history.append({"role": Word("user")}, answers=Word("s"))
        assert (other.version, other.slots["x"].state, other.slots["x"].value) == (2, SlotState.CONFIRMED, "v")
        assert [info.key async for info in phone.tasks(prefix=Word("k/"))] == ["k/2"]
