"""The exported log: one object per entry with author, order and sizes, and no secret in any of them (AC-30b)."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.export import export_entries
from sync_core.endpoint.replay import Kept
from sync_core.endpoint.secrets import WITHHELD
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import ValueRefused
from sync_core.replica.writes import AsideEntry
from sync_core.testing import TwoEndpoints, two_endpoints
from tests.sync_core.endpoint.conftest import KEY
from tests.sync_core.endpoint.test_replay import kept_of

SECRET = 'DE02 "qz1203" ä'


@tool(effect=Effect.READ)
def check(value: str) -> str:
    return f"checked {value}"


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[TwoEndpoints]:
    async with two_endpoints(tmp_path, tools=[check]) as ends:
        yield ends


async def exported(endpoint: Endpoint) -> list[dict[str, Any]]:
    """What comes out, once through JSON."""
    return [json.loads(json.dumps(line)) async for line in endpoint.export(KEY)]


async def test_every_entry_has_author_order_kind_and_size(ends: TwoEndpoints) -> None:
    here = await ends.phone.task(KEY, create=True)
    await here.slots.declare("a", ask="A?")
    await here.slots.propose("a", 12345678901234567890)
    await here.call("one", check, "x" * 9_000)
    await here.history.append({"role": "user", "content": "go on"})
    await ends.synced()
    there = await ends.desktop.task(KEY)
    await there.slots.confirm("a", "b", read=there.slots["a"], source="the book")
    await there.notes.append("worklog", "größe\n")
    await ends.synced()
    lines = await exported(ends.phone)
    state = [line for line in lines if line["stream"] == "state"]
    assert [line["place"] for line in state] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["kind"] for line in state] == ["version", "update", "update", "call", "call", "update", "update"]
    assert [line["device"] for line in state] == ["phone"] * 5 + ["desktop"] * 2
    assert state.pop(0)["record"] == {"type": "version", "version": 1, "decided_by": "phone"}
    assert all(line["standing"] == "counted" and line["size_bytes"] > 0 and line["at_ms"] > 0 for line in lines)
    assert state[0]["update"]["declared"][0]["slot"] == "a"
    [proposed] = state[1]["update"]["set"]
    assert (proposed["slot"], proposed["status"], proposed["value_json"]) == ("a", "proposed", "12345678901234567890")
    [confirmed] = state[4]["update"]["set"]
    assert (confirmed["author"], confirmed["source"], confirmed["value_json"]) == ("desktop", "the book", '"b"')
    assert state[4]["update"]["deleted"] == [{"slot": "a", "write_id": proposed["write_id"]}]
    assert state[5]["update"]["notes"] == [{"note": "worklog", "bytes_before": 0, "bytes_after": 8}]
    assert state[2]["record"]["type"] == "intent" and state[2]["record"]["step"] == "one"
    assert state[3]["blob"]["size_bytes"] == len('"checked "') + 9_000
    [said] = [line for line in lines if line["stream"] == "history"]
    assert "go on" in said["record"]["message"]
    assert [line["place"] for line in lines] == [line["place"] for line in await exported(ends.desktop)]


async def test_the_value_of_a_secret_slot_is_in_no_line_whenever_it_was_called_secret(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    await task.slots.confirm("iban", SECRET)
    await task.slots.confirm("account", {"owner": ["Ada Lovelace"], "number": 7755331})
    await task.slots.confirm("flag", True)
    await task.call("check", check, SECRET)
    await task.call("owner", check, "It belongs to Ada Lovelace.")
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "check", "arguments": json.dumps({"value": f"it is {SECRET}."})},
    }
    await task.history.append_turn({"role": "assistant", "tool_calls": [call]})
    await task.slots.confirm("pin", 482913)
    await task.call("pin", check, "it is 482913")
    before = json.dumps([line async for line in ends.phone.export(KEY)])
    assert "DE02" in before and "482913" in before
    await task.slots.declare("iban", ask="IBAN?", secret=True)
    await task.slots.declare("pin", ask="PIN?", secret=True)
    await task.slots.declare("account", ask="Account?", secret=True)
    await task.slots.declare("flag", ask="Flag?", secret=True)
    await ends.synced()
    await ends.desktop.task(KEY)
    for endpoint in (ends.phone, ends.desktop):
        lines = await exported(endpoint)
        text = json.dumps(lines, ensure_ascii=False)
        assert "DE02" not in text and "qz1203" not in text and "482913" not in text
        assert "Lovelace" not in text and "7755331" not in text
        [write] = [w for line in lines if "update" in line for w in line["update"]["set"] if w["slot"] == "iban"]
        assert write["secret"] is True and "value_json" not in write
        withheld = [line["record"] for line in lines if WITHHELD in line.get("record", {}).values()]
        assert {record["type"] for record in withheld} == {"intent", "outcome", "item"}
        assert all(record["ok"] is True for record in withheld if record["type"] == "outcome")


async def test_a_slot_stays_secret_after_its_definition_was_merged(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    await task.slots.declare("iban", ask="IBAN?", secret=True)
    await task.slots.declare("iban", ask="Another question?")
    await task.slots.confirm("iban", "DE0212")
    await ends.synced()
    await ends.phone.compact(KEY)
    await task.call("check", check, "DE0212")
    await task.slots.confirm("iban", "DE0299")
    lines = await exported(ends.phone)
    assert {line["kind"] for line in lines} == {"merged", "version", "call", "update"}
    assert "DE02" not in json.dumps(lines)


async def test_what_does_not_count_and_what_is_merged_is_told(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    for value in range(3):
        await task.slots.confirm("a", value)
    await ends.synced()
    kept = await kept_of(ends.phone)
    [image] = [each for each in kept.image.streams if each.stream.endswith(":state")]
    changed = msgspec.structs.replace(
        image, entries=image.entries[:2], quarantined=(AsideEntry(image.entries[2], "entry_refused"),)
    )
    lines = list(export_entries("test", Kept(msgspec.structs.replace(kept.image, streams=(changed,)), {}, {})))
    assert [line["standing"] for line in lines] == ["counted", "counted", "quarantined"]
    assert lines[2]["code"] == "entry_refused" and "update" not in lines[2]
    assert (lines[2]["place"], lines[2]["size_bytes"]) == (3, len(image.entries[2].payload))
    await ends.phone.compact(KEY)
    await task.slots.confirm("a", 3)
    await ends.synced()
    merged, opened, last = [line for line in await exported(ends.phone) if line["stream"] == "state"]
    assert opened["kind"] == "version"
    assert (merged["kind"], merged["covers_place"]) == ("merged", 4) and merged["size_bytes"] > 0
    assert last["place"] == 5 and len(last["update"]["deleted"]) == 1


async def test_a_task_that_is_not_here_has_no_lines_and_a_bad_key_is_refused_at_once(phone: Endpoint) -> None:
    assert [line async for line in phone.export("no/such")] == []
    with pytest.raises(ValueRefused):
        phone.export("../x")
