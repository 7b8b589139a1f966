"""The helpers that a user's own tests stand on."""

from pathlib import Path

import pytest

from sync_core import CallState, Effect, SlotState, tool
from sync_core.testing import Crashed, assert_converged, crash_at, two_endpoints

KEY = "expense/TRIP-118"


async def test_a_users_own_tool_is_run_once_over_a_crash_and_a_change_of_device(tmp_path: Path) -> None:
    runs: list[str] = []

    @tool(effect=Effect.READ, requires={"files"})
    def read_invoice(path: str) -> dict[str, str]:
        runs.append(path)
        return {"number": "R-7"}

    async with two_endpoints(tmp_path, tools=[read_invoice], capabilities={"files"}) as ends:
        task = await ends.phone.task(KEY, create=True)
        with crash_at("after_record"), pytest.raises(Crashed):
            await task.call("invoice", read_invoice, "a.pdf")
        await ends.reopen_phone()
        await ends.synced()
        task = await ends.desktop.task(KEY)
        assert task.calls["invoice"].device == "phone"
        assert await task.call("invoice", read_invoice, "a.pdf") == {"number": "R-7"}
        await ends.synced()
        await assert_converged(ends.phone, ends.desktop, KEY)
    assert runs == ["a.pdf"]


async def test_apart_keeps_what_each_end_writes_to_itself_until_the_end(tmp_path: Path) -> None:
    async with two_endpoints(tmp_path) as ends:
        here = await ends.phone.task(KEY, create=True)
        await ends.phone.synced(timeout_s=30)
        there = await ends.desktop.task(KEY)
        async with ends.apart():
            await here.slots.confirm("x", 1)
            await there.slots.confirm("x", 2)
            assert (here.slots["x"].value, there.slots["x"].value) == (1, 2)
        assert (here.slots["x"].state, there.slots["x"].state) == (SlotState.CONFLICTED, SlotState.CONFLICTED)


async def test_what_has_not_converged_is_named_without_its_content(tmp_path: Path) -> None:
    async with two_endpoints(tmp_path) as ends:
        here = await ends.phone.task(KEY, create=True)
        await ends.phone.synced(timeout_s=30)
        await ends.desktop.task(KEY)
        async with ends.apart():
            await here.slots.confirm("cost_center", "CC-1042")
            with pytest.raises(AssertionError, match="differ in slot cost_center") as caught:
                await assert_converged(ends.phone, ends.desktop, KEY)
            assert "CC-1042" not in str(caught.value)
        await assert_converged(ends.phone, ends.desktop, KEY)


async def test_a_crash_point_is_taken_once_and_only_inside(tmp_path: Path) -> None:
    @tool(effect=Effect.READ)
    def look() -> int:
        return 1

    async with two_endpoints(tmp_path, tools=[look]) as ends:
        task = await ends.phone.task(KEY, create=True)
        with crash_at("after_intent"):
            pass
        assert await task.call("one", look) == 1
        with crash_at("after_intent"):
            with pytest.raises(Crashed):
                await task.call("two", look)
            task = await (await ends.reopen_phone()).task(KEY)
            assert task.calls["two"].state is CallState.IN_DOUBT
            assert await task.call("two", look) == 1


def test_an_unknown_crash_point_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="not a valid"):
        crash_at("somewhere")
