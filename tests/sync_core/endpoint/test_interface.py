"""The public interface, line by line as the design shows it, with one device and a real relay."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.server import serve
from sync_core import Effect, Endpoint, SlotState, Task, tool

KEY = "expense/TRIP-118"


@dataclass
class Invoice:
    total: int


@tool(effect=Effect.READ, requires={"files"})
async def read_invoice(path: str) -> Invoice:
    return Invoice(len(path))


@pytest.fixture
async def phone(tmp_path: Path) -> AsyncIterator[Endpoint]:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    async with Endpoint.open(
        tmp_path / "acme.db",
        subject="acme",
        device="phone",
        relay=f"ws://127.0.0.1:{relay.port}",
        token="",
        tools=[read_invoice],
        capabilities={"files"},
    ) as phone:
        yield phone
    await relay.close()


@pytest.fixture
async def task(phone: Endpoint) -> Task:
    return await phone.task(KEY, create=True, version=1, access="write")


async def test_calls_and_slots(task: Task) -> None:
    await task.slots.declare("cost_center", ask="Which cost centre?", schema={"type": "string"}, required=True)
    invoice = await task.call("invoice", read_invoice, path="invoice.pdf")
    assert invoice == Invoice(11)
    await task.slots.propose("amount", invoice.total, source=task.calls["invoice"])
    slot = task.slots["cost_center"]
    assert (slot.state, slot.value, slot.candidates, slot.proposals) == (SlotState.MISSING, None, (), ())
    assert [missing.name for missing in task.slots.missing()] == ["cost_center"]
    await task.slots.confirm("cost_center", "CC-1042", read=slot)
    await task.slots.confirm("cost_center", "CC-2000", read=slot)
    (conflict,) = task.slots.conflicted()
    await task.slots.resolve("cost_center", conflict.candidates[0])
    await task.slots.clear("cost_center", read=task.slots["cost_center"])
    assert (task.calls["invoice"].device, await task.calls["invoice"].result()) == ("phone", {"total": 11})
    assert task.in_doubt() == ()


async def test_notes(task: Task) -> None:
    note = await task.notes.read("worklog")
    await task.notes.write("worklog", "one\n", content_sha256=note.content_sha256)
    await task.notes.merge("worklog", "one\ntwo\n", base=await task.notes.read("worklog"))
    await task.notes.append("worklog", "three\n")
    await task.notes.edit("worklog", "two", "2")
    note = await task.notes.read("worklog")
    assert note.text == "one\n2\nthree\n"
    await task.notes.delete("worklog", content_sha256=note.content_sha256)


async def test_a_models_turn_plans_and_tools(phone: Endpoint, task: Task) -> None:
    function = {"name": "read_invoice", "arguments": '{"path": "b"}'}
    asked = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    pending = await task.history.append_turn(asked)
    assert await task.pending_calls() == pending
    assert (await task.run(pending[0]))["role"] == "tool"
    await task.plan("scan", "read_invoice", path="c")
    assert phone.tools() and task.model_tools()
    assert "scan" in task.brief(view="work", max_chars=4_000).text
    assert task.brief(view="confirm").text


async def test_changes_the_end_and_what_is_left(phone: Endpoint, task: Task) -> None:
    changes = task.changes()
    await task.slots.confirm("currency", "EUR")
    assert (await anext(changes)).task == KEY
    await task.plan("scan", "read_invoice", path="c")
    await task.hand_over("The receipt is missing.")
    await task.complete()
    async with phone.task(KEY) as again:
        assert again.handover is not None
    await phone.synced(timeout_s=30)
    assert [info.key async for info in phone.tasks(prefix="expense/", waiting_for="files")] == [KEY]
    assert (await phone.stats()).store.entries > 0
    await task.aclose()
    await phone.evict(KEY)
    await phone.purge(KEY)
