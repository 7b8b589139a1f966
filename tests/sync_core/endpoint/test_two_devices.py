"""Two devices and a real relay: the task goes over, whole, and what was done is not done again."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sync_core.document.calls import CallState
from sync_core.document.slots import SlotState
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import KeyReused, NeedsCapability, PreconditionFailed, TaskNotFound, UnsentWork
from sync_core.replica.changes import LinkState, SlotChanged
from sync_core.testing import Crashed, TwoEndpoints, assert_converged, crash_at, two_endpoints
from tests.sync_core.endpoint.conftest import KEY, both

RUNS: list[str] = []


@tool(effect=Effect.READ)
def read_invoice(path: str) -> dict[str, object]:
    RUNS.append(path)
    return {"total": 249, "lines": ["a", "b"]}


@tool(effect=Effect.READ)
async def check_policy(total: int) -> str:
    RUNS.append(f"check {total}")
    return "within all limits"


@tool(effect=Effect.READ, requires={"files"})
def scan(path: str) -> str:
    RUNS.append(path)
    return "text"


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[TwoEndpoints]:
    RUNS.clear()
    async with two_endpoints(tmp_path, tools=[read_invoice, check_policy]) as ends:
        yield ends


async def test_a_claim_goes_from_a_dead_phone_to_the_desktop_which_asks_one_question(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True, version=1)
    for name in ("amount", "currency", "traveller", "cost_center"):
        await task.slots.declare(name, ask=f"{name}?", required=True)
    invoice = await task.call("invoice", read_invoice, "a.pdf")
    assert await task.call("check", check_policy, 249) == "within all limits"
    await task.slots.propose("amount", invoice["total"], source=task.calls["invoice"])
    await task.slots.propose("currency", "EUR")
    await task.slots.propose("traveller", "Ann")
    await ends.phone.synced(timeout_s=30)
    with crash_at("after_intent"), pytest.raises(Crashed):
        await task.call("never", check_policy, 1)
    task = await ends.desktop.task(KEY)
    assert task.key == KEY
    assert await task.call("invoice", read_invoice, "a.pdf") == invoice
    assert await task.call("check", check_policy, 249) == "within all limits"
    assert RUNS == ["a.pdf", "check 249"]
    assert [slot.name for slot in task.slots.missing()] == ["cost_center"]
    await task.slots.confirm("cost_center", "CC-1042")
    assert task.slots.missing() == ()


async def test_only_a_slot_carries_a_value_over_and_byte_for_byte(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    await here.slots.declare("cost_center", ask="Which?", required=True)
    await here.history.append({"role": "user", "content": "It is CC-1042."})
    await ends.synced()
    assert [slot.name for slot in there.slots.missing()] == ["cost_center"]
    await here.slots.confirm("cost_center", "CC-1042\u00e9")
    await ends.synced()
    assert there.slots["cost_center"].value == "CC-1042\u00e9"
    assert there.slots.missing() == ()


async def test_a_recorded_call_is_not_run_again_on_any_device_nor_with_other_arguments(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    await here.call("invoice", read_invoice, "a.pdf")
    await ends.synced()
    for _ in range(5):
        assert await there.call("invoice", read_invoice, "a.pdf") == {"total": 249, "lines": ["a", "b"]}
    with pytest.raises(KeyReused):
        await there.call("invoice", read_invoice, "b.pdf")
    assert RUNS == ["a.pdf"]
    assert len(there.calls["invoice"].attempts) == 1


def test_the_key_of_a_call_is_the_same_in_two_processes_and_differs_by_version_only() -> None:
    program = (
        "from sync_core.keys import idempotency_key\n"
        "from sync_core.endpoint.tools import tool\n"
        "@tool\n"
        "def pay(claim: dict[str, int]) -> None: ...\n"
        "print(*[idempotency_key('acme', 'claim/77', version, 'pay') for version in (3, 4)])\n"
        "print(pay.bind(({ARGUMENTS},), {}).digest)\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program.replace("{ARGUMENTS}", arguments)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for arguments in ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}")
    ]
    assert outputs[0] == outputs[1]
    three, four, _digest = outputs[0]
    assert three != four


async def test_the_same_slot_changed_apart_shows_both_values_and_chooses_none(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    async with ends.apart():
        await here.slots.confirm("cost_center", "CC-1042")
        await there.slots.confirm("cost_center", "CC-2000")
    for task in (here, there):
        (slot,) = task.slots.conflicted()
        assert {(candidate.value, candidate.author) for candidate in slot.candidates} == {
            ("CC-1042", "phone"),
            ("CC-2000", "desktop"),
        }
        assert slot.value is None
    (slot,) = here.slots.conflicted()
    await here.slots.resolve("cost_center", slot.candidates[0])
    await ends.synced()
    assert there.slots["cost_center"].state is SlotState.CONFIRMED
    await assert_converged(ends.phone, ends.desktop, KEY)


async def test_two_hundred_conflicts_are_all_shown_alike_on_both_ends(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    async with ends.apart():
        names = [f"slot_{number}" for number in range(200)]
        await asyncio.gather(*(here.slots.confirm(name, "CC-1042") for name in names))
        await asyncio.gather(*(there.slots.confirm(name, "CC-2000") for name in names))
    assert [slot.name for slot in here.slots.conflicted()] == sorted(names)
    assert dict(here.slots.items()) == dict(there.slots.items())


async def test_different_slots_merge_without_a_question(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    async with ends.apart():
        await here.slots.confirm("cost_center", "CC-1042")
        await there.slots.confirm("currency", "EUR")
    for task in (here, there):
        assert {name: slot.state for name, slot in task.slots.items()} == {
            "cost_center": SlotState.CONFIRMED,
            "currency": SlotState.CONFIRMED,
        }
    await assert_converged(ends.phone, ends.desktop, KEY)


async def test_a_note_changed_elsewhere_is_refused_merged_and_both_lines_stand(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    await here.notes.write("worklog", "start\n")
    await ends.synced()
    base = await here.notes.read("worklog")
    read_there = await there.notes.read("worklog")
    assert base == read_there
    await here.notes.write("worklog", "start\nphone\n", content_sha256=base.content_sha256)
    await ends.synced()
    with pytest.raises(PreconditionFailed) as caught:
        await there.notes.write("worklog", "start\ndesktop\n", content_sha256=read_there.content_sha256)
    assert caught.value.current_text == "start\nphone\n"
    merged = await there.notes.merge("worklog", "start\ndesktop\n", base=read_there)
    await ends.synced()
    assert sorted((await here.notes.read("worklog")).text.splitlines()) == ["desktop", "phone", "start"]
    assert (await here.notes.read("worklog")) == merged.note
    entries = (await ends.phone.stats()).store.entries
    await here.notes.write("worklog", merged.note.text, content_sha256=base.content_sha256)
    assert (await ends.phone.stats()).store.entries == entries


async def test_outputs_follow_their_calls_and_runs_of_two_devices_never_interleave(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    call = {"id": "c", "type": "function", "function": {"name": "check_policy", "arguments": '{"total": 1}'}}
    (pending,) = await here.history.append_turn({"role": "assistant", "content": "on the phone", "tool_calls": [call]})
    await ends.synced()
    async with ends.apart():
        await there.history.append({"role": "user", "content": "one"}, {"role": "assistant", "content": "two"})
        await here.run(pending)
    items = await here.history.items()
    assert items == await there.history.items()
    assert [message.get("content") for message in items] == ["on the phone", "within all limits", "one", "two"]
    assert await there.pending_calls() == ()
    assert [message["content"] for message in await there.history.items(last=2)] == ["one", "two"]
    await assert_converged(ends.phone, ends.desktop, KEY)


async def test_a_call_finished_apart_is_reused_and_recorded_once(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    await there.plan("invoice", read_invoice, path="a.pdf")
    await ends.synced()
    async with ends.apart():
        await here.call("invoice", read_invoice, "a.pdf")
        assert there.calls["invoice"].state is CallState.PLANNED
    assert await there.pending_calls() == ()
    await ends.desktop.aclose()
    there = await (await ends.reopen_desktop()).task(KEY)
    assert await there.call("invoice", read_invoice, "a.pdf") == {"total": 249, "lines": ["a", "b"]}
    assert RUNS == ["a.pdf"]
    assert len(there.calls["invoice"].attempts) == 1
    await there.call("invoice-2", read_invoice, "a.pdf")
    assert RUNS == ["a.pdf", "a.pdf"]


async def test_a_step_run_apart_on_both_devices_keeps_both_and_shows_one(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    async with ends.apart():
        await here.call("invoice", read_invoice, "a.pdf")
        await there.call("invoice", read_invoice, "a.pdf")
        await here.call("other", read_invoice, "a.pdf")
        await there.call("other", read_invoice, "b.pdf")
    for task in (here, there):
        assert task.calls["invoice"].recorded_twice
        assert "run more than once, by desktop, phone" in task.brief().text
        assert task.calls["invoice"].device == here.calls["invoice"].device
        assert task.calls["other"].state is CallState.KEY_CONFLICT
        with pytest.raises(KeyReused):
            await task.calls["other"].result()
    await assert_converged(ends.phone, ends.desktop, KEY)


async def test_a_step_that_another_device_is_still_at_is_in_doubt_and_runs_again_only_when_asked(
    ends: TwoEndpoints,
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect=Effect.READ, name="look")
    async def slow() -> str:
        RUNS.append("phone")
        started.set()
        await go_on.wait()
        return "seen"

    @tool(effect=Effect.READ, name="look")
    async def quick() -> str:
        RUNS.append("desktop")
        return "seen"

    here, there = await both(ends)
    calling = asyncio.create_task(here.call("look", slow))
    await started.wait()
    await ends.synced()
    assert here.calls["look"].state is CallState.RUNNING
    assert [call.step for call in there.in_doubt()] == ["look"]
    assert "look (in_doubt)" in there.brief().text
    assert RUNS == ["phone"]
    assert await there.call("look", quick) == "seen"
    go_on.set()
    assert await calling == "seen"
    await ends.synced()
    assert RUNS == ["phone", "desktop"]
    assert here.calls["look"].recorded_twice
    assert here.calls["look"].device == there.calls["look"].device
    await assert_converged(ends.phone, ends.desktop, KEY)


async def test_a_large_result_is_fetched_by_the_other_device(ends: TwoEndpoints) -> None:
    @tool(effect=Effect.READ)
    def pages() -> str:
        RUNS.append("pages")
        return "x" * 500_000

    here, there = await both(ends)
    await here.call("pages", pages)
    await ends.synced()
    assert await there.call("pages", pages) == "x" * 500_000
    assert RUNS == ["pages"]


async def test_nothing_runs_on_merge_restart_or_replay(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    await asyncio.gather(*(here.call(f"step-{number}", check_policy, number) for number in range(1000)))
    assert len(RUNS) == 1000
    await ends.synced()
    await ends.desktop.aclose()
    there = await (await ends.reopen_desktop()).task(KEY)
    await ends.synced()
    assert sum(call.state is CallState.DONE for call in there.calls.values()) == 1000
    assert len(RUNS) == 1000


async def test_a_planned_step_is_found_and_run_by_a_capable_device_that_never_opened_the_task(tmp_path: Path) -> None:
    RUNS.clear()
    async with two_endpoints(tmp_path, tools=[scan]) as ends:
        task = await ends.phone.task(KEY, create=True)
        with pytest.raises(NeedsCapability):
            await task.call("scan", scan, "a.pdf")
        await ends.phone.synced(timeout_s=30)
        (info,) = [info async for info in ends.desktop.tasks(waiting_for="files")]
        assert (info.key, info.known_here, info.slots) == (KEY, False, None)
        assert [step.tool for step in info.planned] == ["scan"]
    async with two_endpoints(tmp_path, tools=[scan], capabilities={"files"}) as ends:
        there = await ends.desktop.task(KEY)
        (pending,) = await there.pending_calls()
        assert there.can_run(pending)
        assert (await there.run(pending))["content"] == "text"
        await ends.synced()
        assert await (await ends.phone.task(KEY)).call("scan", scan, "a.pdf") == "text"
    assert RUNS == ["a.pdf"]


async def test_all_tasks_of_the_subject_are_listed_once_in_order(ends: TwoEndpoints) -> None:
    for key in ("b/2", "a/1", "c/3"):
        await ends.phone.task(key, create=True)
    await ends.phone.synced(timeout_s=30)
    await ends.desktop.task("b/2")
    await ends.desktop.synced(timeout_s=30)
    listed = [(info.key, info.known_here) async for info in ends.desktop.tasks()]
    assert listed == [("a/1", False), ("b/2", True), ("c/3", False)]
    assert [info.key async for info in ends.desktop.tasks(prefix="c/")] == ["c/3"]
    assert [info.key async for info in ends.desktop.tasks(state="completed")] == []
    async with ends.apart():
        await ends.desktop.task("d/4", create=True)
        assert [info.key async for info in ends.desktop.tasks()] == ["b/2", "d/4"]


async def test_a_merged_change_is_told_once_with_its_own_token(ends: TwoEndpoints) -> None:
    here, there = await both(ends)
    changes = there.changes()
    await here.slots.confirm("x", 1)
    change = await asyncio.wait_for(anext(changes), 30)
    assert isinstance(change, SlotChanged)
    assert (change.slot.value, change.local) == (1, False)
    await there.slots.confirm("x", 2)
    change = await asyncio.wait_for(anext(changes), 30)
    assert isinstance(change, SlotChanged)
    assert (change.local, change.slot.state) == (True, SlotState.CONFLICTED)
    await there.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def test_a_task_that_nobody_has_is_not_found(ends: TwoEndpoints) -> None:
    with pytest.raises(TaskNotFound):
        await ends.desktop.task("nobody/has-it")
    assert ends.desktop.status.link in (LinkState.SYNCING, LinkState.LIVE)


async def test_a_task_with_unsent_work_is_not_evicted(ends: TwoEndpoints) -> None:
    here, _there = await both(ends)
    async with ends.apart():
        await here.slots.confirm("x", 1)
        with pytest.raises(UnsentWork):
            await ends.phone.evict(KEY)
    await here.aclose()
    await ends.phone.evict(KEY)
    assert (await ends.phone.stats()).store.tasks == 0
    assert (await ends.phone.task(KEY)).slots["x"].value == 1
