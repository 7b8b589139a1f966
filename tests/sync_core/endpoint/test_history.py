"""The conversation at a handle."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import ResultUnavailable, ValueRefused
from tests.sync_core.endpoint.conftest import KEY


def _said(number: int) -> dict[str, object]:
    return {"role": "user", "content": f"message {number}"}


async def test_the_newest_come_oldest_first(task: Task) -> None:
    await task.history.append(*(_said(number) for number in range(5)))
    assert await task.history.items(last=3) == [_said(2), _said(3), _said(4)]
    assert await task.history.items() == [_said(number) for number in range(5)]
    assert await task.history.items(last=0) == []
    assert await task.history.items(last=9) == await task.history.items()


async def test_pop_removes_exactly_one_and_gives_none_when_empty(task: Task) -> None:
    await task.history.append(_said(1), _said(2))
    assert await task.history.pop() == _said(2)
    assert await task.history.items() == [_said(1)]
    assert await task.history.pop() == _said(1)
    assert await task.history.pop() is None


async def test_a_large_message_comes_back_whole(task: Task) -> None:
    large = {"role": "user", "content": "é" * 100_000}
    await task.history.append(large)
    assert task.view.history[0].blob is not None
    assert await task.history.items() == [large]
    assert await task.history.pop() == large


async def test_one_bad_message_of_several_keeps_all_out(task: Task) -> None:
    with pytest.raises(ValueRefused):
        await task.history.append(_said(1), {"role": "user", "content": float("nan")})
    assert await task.history.items() == []
    await task.history.append()
    assert task.view.history == ()


@pytest.mark.parametrize("hops", range(6))
async def test_a_cancelled_append_of_several_leaves_all_or_none(phone: Endpoint, task: Task, hops: int) -> None:
    appending = asyncio.create_task(task.history.append(*(_said(number) for number in range(3))))
    for _ in range(hops):
        await asyncio.sleep(0)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    await phone.stats()
    assert len(await task.history.items()) in (0, 3)


async def test_chat_text_is_no_state(task: Task) -> None:
    await task.slots.declare("cost_center", ask="Which?", required=True)
    await task.history.append({"role": "user", "content": "The cost centre is CC-1042."})
    assert [slot.name for slot in task.slots.missing()] == ["cost_center"]
    assert "CC-1042" not in task.brief().text
    assert KEY in task.brief().text


async def test_without_history_and_blobs_the_slots_are_told_alike(tmp_path: Path) -> None:
    @tool(effect=Effect.READ)
    def pages() -> str:
        return "x" * 10_000

    phone = await Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone")
    task = await phone.task(KEY, create=True)
    await task.slots.declare("cost_center", ask="Which?", required=True)
    await task.slots.propose("amount", 249)
    await task.history.append({"role": "user", "content": "y" * 100_000}, {"role": "user", "content": "The CC is 7."})
    await task.call("pages", pages)
    before = task.brief(view="confirm")
    while await task.history.pop() is not None:
        continue
    await phone.aclose()
    with closing(sqlite3.connect(tmp_path / "phone.db")) as file, file:
        assert file.execute("DELETE FROM blob_bytes").rowcount == 2
        file.execute("DELETE FROM blobs")
    async with Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone") as phone:
        task = await phone.task(KEY)
        assert task.brief(view="confirm") == before
        assert [slot.name for slot in task.slots.missing()] == ["cost_center"]
        with pytest.raises(ResultUnavailable):
            await task.call("pages", pages)


async def test_a_large_message_that_is_not_here_keeps_no_other_call_waiting(tmp_path: Path) -> None:
    def asked(tool: str, content: str = "") -> dict[str, object]:
        call = {"id": "c", "type": "function", "function": {"name": tool, "arguments": "{}"}}
        return {"role": "assistant", "content": content, "tool_calls": [call]}

    @tool(effect=Effect.READ)
    def pages() -> str:
        return "x" * 100_000

    async with Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone", tools=[pages]) as phone:
        task = await phone.task(KEY, create=True)
        await task.history.append({"role": "user", "content": "y" * 100_000})
        (first,) = await task.history.append_turn(asked("pages"))
        await task.run(first)
        await task.history.append_turn(asked("pages", "z" * 100_000))
        (waiting,) = await task.history.append_turn(asked("pages"))
        assert len(await task.pending_calls()) == 2
    with closing(sqlite3.connect(tmp_path / "phone.db")) as file, file:
        file.execute("DELETE FROM blob_bytes")
        file.execute("DELETE FROM blobs")
    async with Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone", tools=[pages]) as phone:
        task = await phone.task(KEY)
        assert [call.step for call in await task.pending_calls()] == [waiting.step]
        with pytest.raises(ResultUnavailable, match="message of the conversation"):
            await task.history.items()
        assert await task.history.items(last=1) == [asked("pages")]
