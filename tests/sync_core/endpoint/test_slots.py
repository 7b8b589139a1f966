"""Read tokens at a handle: a write replaces exactly what its caller has read."""

import pytest

from sync_core.document.slots import SlotState
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.task import Task
from sync_core.errors import ReadOnly, ValueRefused
from tests.sync_core.endpoint.conftest import KEY


def _values(task: Task, name: str) -> list[object]:
    slots = dict(task.slots.items())
    return sorted(str(candidate.value) for candidate in (*slots[name].candidates, *slots[name].proposals))


@pytest.fixture
async def other(phone: Endpoint, task: Task) -> Task:
    """A second handle of the same task: what it writes, the first one has not read."""
    return await phone.task(KEY)


async def test_a_value_that_nobody_here_has_read_survives_a_write(task: Task, other: Task) -> None:
    await other.slots.confirm("x", "theirs")
    slot = await task.slots.confirm("x", "mine")
    assert slot.state is SlotState.CONFLICTED
    assert _values(task, "x") == ["mine", "theirs"]


async def test_a_write_replaces_what_the_handle_gave_out(task: Task, other: Task) -> None:
    await other.slots.confirm("x", "theirs")
    assert task.slots["x"].value == "theirs"
    await task.slots.confirm("x", "mine")
    assert _values(task, "x") == ["mine"]


async def test_a_write_replaces_the_handles_own_earlier_write(task: Task) -> None:
    for value in range(3):
        await task.slots.confirm("x", value)
    assert _values(task, "x") == ["2"]


async def test_merging_adds_nothing_to_what_was_read(task: Task, other: Task) -> None:
    await task.slots.confirm("x", 1)
    _ = task.slots["x"]
    await other.slots.confirm("x", 2)
    changed = dict(task.slots.items())["x"]
    assert len(changed.token) == 2
    await task.slots.confirm("x", 3)
    assert _values(task, "x") == ["2", "3"]


async def test_a_slot_or_its_token_can_be_passed_as_what_was_read(task: Task, other: Task) -> None:
    await other.slots.confirm("x", 1)
    seen = dict(task.slots.items())["x"]
    await other.slots.confirm("y", 1)
    await task.slots.confirm("x", 2, read=seen)
    await task.slots.confirm("y", 2, read=dict(task.slots.items())["y"].token)
    assert (_values(task, "x"), _values(task, "y")) == (["2"], ["2"])


async def test_reading_nothing_explicitly_deletes_nothing(task: Task) -> None:
    await task.slots.confirm("x", 1)
    await task.slots.confirm("x", 2, read=frozenset())
    assert _values(task, "x") == ["1", "2"]


async def test_missing_and_conflicted_and_a_brief_count_as_reading(task: Task, other: Task) -> None:
    for name in ("a", "b"):
        await other.slots.confirm(name, 1)
        await task.slots.confirm(name, 2)
    assert [slot.name for slot in task.slots.conflicted()] == ["a", "b"]
    await task.slots.confirm("a", 3)
    assert _values(task, "a") == ["3"]
    await other.slots.confirm("c", "theirs")
    task.brief()
    await task.slots.confirm("c", "mine")
    assert _values(task, "c") == ["mine"]


async def test_a_candidate_that_a_brief_cut_was_not_read(task: Task, other: Task) -> None:
    await other.slots.confirm("c", "theirs")
    assert "theirs" not in task.brief(max_chars=10).text
    await task.slots.confirm("c", "mine")
    assert _values(task, "c") == ["mine", "theirs"]


async def test_a_proposal_beside_a_confirmed_value_replaces_only_proposals(task: Task) -> None:
    await task.slots.confirm("x", "stands")
    await task.slots.propose("x", "perhaps")
    await task.slots.propose("x", "rather")
    slot = task.slots["x"]
    assert (slot.state, slot.value) == (SlotState.CONFIRMED, "stands")
    assert [candidate.value for candidate in slot.proposals] == ["rather"]
    await task.slots.confirm("x", "new")
    assert _values(task, "x") == ["new"]


async def test_an_equal_value_of_another_author_is_not_taken_for_the_own_write(task: Task, other: Task) -> None:
    await other.slots.confirm("x", 1)
    await task.slots.propose("x", 1)
    slot = await task.slots.confirm("x", 2)
    assert {(candidate.value, candidate.status.value) for candidate in slot.candidates} == {
        (1, "confirmed"),
        (2, "confirmed"),
    }


async def test_resolving_a_conflict_leaves_the_chosen_value(task: Task, other: Task) -> None:
    await other.slots.confirm("x", "CC-2000")
    await task.slots.confirm("x", "CC-1042")
    (slot,) = task.slots.conflicted()
    chosen = next(candidate for candidate in slot.candidates if candidate.value == "CC-2000")
    assert (await task.slots.resolve("x", chosen)).value == "CC-2000"
    assert task.slots.conflicted() == ()


async def test_clearing_deletes_what_was_read(task: Task, other: Task) -> None:
    await task.slots.confirm("x", 1)
    await other.slots.confirm("x", 2)
    assert (await task.slots.clear("x")).value == 2
    assert (await task.slots.clear("x", read=task.slots["x"])).state is SlotState.MISSING


async def test_missing_asks_for_declared_slots_required_ones_first(task: Task) -> None:
    await task.slots.declare("z", ask="Z?", required=True, order=2)
    await task.slots.declare("y", ask="Y?", required=True, order=1)
    await task.slots.declare("a", ask="A?")
    await task.slots.declare("done", ask="D?", required=True)
    await task.slots.propose("done", 1)
    assert [slot.name for slot in task.slots.missing()] == ["y", "z", "a"]


async def test_a_slot_that_nobody_wrote_is_missing_and_a_bad_name_is_refused(task: Task) -> None:
    assert task.slots["nobody"].state is SlotState.MISSING
    with pytest.raises(ValueRefused, match="slot name"):
        _ = task.slots["../x"]


async def test_slots_are_looked_through_like_a_mapping_without_being_read(task: Task, other: Task) -> None:
    await task.slots.declare("z", ask="Z?", required=True)
    await other.slots.confirm("a", "theirs")
    assert list(task.slots) == ["z", "a"]
    assert len(task.slots) == 2
    assert "a" in task.slots
    for absent in ("b", "../x", 5, None, []):
        assert absent not in task.slots
    await task.slots.confirm("a", "mine")
    assert _values(task, "a") == ["mine", "theirs"]


async def test_the_source_may_be_a_recorded_call(task: Task) -> None:
    await task.plan("scan", "scanner")
    slot = await task.slots.propose("x", 1, source=task.calls["scan"])
    assert slot.candidates[0].source == "call:scan"


async def test_a_value_that_does_not_fit_its_schema_is_refused_without_being_told(task: Task) -> None:
    await task.slots.declare("pin", ask="Pin?", schema={"type": "string", "pattern": "^[0-9]+$"}, secret=True)
    with pytest.raises(ValueRefused) as caught:
        await task.slots.confirm("pin", "hunter2")
    assert "hunter2" not in str(caught.value)
    assert task.slots["pin"].state is SlotState.MISSING


async def test_a_refusal_names_the_part_of_a_value_but_not_of_a_secret_one(task: Task) -> None:
    await task.slots.declare("pin", ask="Pin?", secret=True)
    with pytest.raises(ValueRefused, match=r"^open\.hunter2 is a bytes"):
        await task.slots.confirm("open", {"hunter2": b""})
    with pytest.raises(ValueRefused) as caught:
        await task.slots.confirm("pin", {"hunter2": b""})
    assert "hunter2" not in str(caught.value)


async def test_a_handle_opened_to_read_refuses_every_write_before_anything_is_sent(phone: Endpoint, task: Task) -> None:
    reader = await phone.task(KEY, access="read")
    before = (await phone.stats()).store.entries
    await task.slots.confirm("x", 1)
    for write in (
        lambda: reader.slots.confirm("x", 2),
        lambda: reader.slots.propose("x", 2),
        lambda: reader.slots.clear("x"),
        lambda: reader.slots.declare("x", ask="?"),
        lambda: reader.notes.write("n", "text"),
        lambda: reader.notes.append("n", "text"),
        lambda: reader.notes.edit("n", "a", "b"),
        lambda: reader.notes.merge("n", "text", base="h"),
        lambda: reader.notes.delete("n", content_sha256="h"),
        lambda: reader.history.append({"role": "user", "content": "hi"}),
        lambda: reader.history.append_turn({"role": "assistant", "content": "hi"}),
        lambda: reader.history.pop(),
        lambda: reader.plan("s", "scanner"),
    ):
        with pytest.raises(ReadOnly):
            await write()
    assert (await phone.stats()).store.entries == before + 1
    assert reader.slots["x"].value == 1
