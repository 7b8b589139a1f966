"""What a legal peer deleted comes back as new entries (RS-31): values as they were, texts merged, no call touched."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sync_core.document.calls import CallState
from sync_core.document.genesis import genesis_update
from sync_core.document.shared import MapEdit, SharedDoc
from sync_core.document.slots import CandidateStatus, SlotState
from sync_core.endpoint.restore import bring_back, find_lost
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect, Entry, EntryKind
from sync_core.errors import HistoryTrimmed, ReadOnly, ValueRefused
from sync_core.testing import TwoEndpoints, assert_converged, two_endpoints
from tests.sync_core.endpoint.conftest import KEY
from tests.sync_core.endpoint.test_replay import kept_of, state_in, state_with

RUNS: list[str] = []


@tool(effect=Effect.READ)
def read_invoice(path: str) -> str:
    RUNS.append(path)
    return "291.84"


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[TwoEndpoints]:
    RUNS.clear()
    async with two_endpoints(tmp_path, tools=[read_invoice]) as ends:
        yield ends


async def place_of(task: Task) -> int:
    """The last place of `state`."""
    return next(stream.cursor for stream in (await task.replay()).streams if stream.stream.value == "state")


async def wipe(task: Task) -> None:
    """Delete all slots and notes, as any peer with write access may."""
    for name, slot in task.slots.items():
        await task.slots.clear(name, read=slot)
    for note in task.notes.list():
        await task.notes.delete(note.name, content_sha256=note.content_sha256)


async def test_a_mass_delete_is_undone_in_one_call_and_no_call_runs_again(ends: TwoEndpoints) -> None:
    here = await ends.phone.task(KEY, create=True)
    for name in ("amount", "currency", "iban"):
        await here.slots.declare(name, ask=f"{name}?", secret=name == "iban")
    await here.slots.confirm("amount", "291.84", source="the invoice")
    await here.slots.propose("currency", "EUR")
    await here.slots.confirm("iban", "DE02")
    await here.call("invoice", read_invoice, "a.pdf")
    await here.notes.append("worklog", "one\ntwo\n")
    await ends.synced()
    at, before = await place_of(here), here.view
    there = await ends.desktop.task(KEY)
    await wipe(there)
    await ends.synced()
    assert here.view.notes == {} and all(slot.state is SlotState.MISSING for _, slot in here.slots.items())
    assert here.calls["invoice"].state is CallState.DONE

    done = await here.restore(at)
    assert done.values == (
        ("amount", CandidateStatus.CONFIRMED),
        ("currency", CandidateStatus.PROPOSED),
        ("iban", CandidateStatus.CONFIRMED),
    )
    assert done.notes == ("worklog",) and done.left == () and done.definitions == ()
    await ends.synced()
    for task in (here, there):
        for name, slot in task.slots.items():
            was = before.slots[name]
            assert (slot.state, slot.value, slot.secret) == (was.state, was.value, was.secret)
            assert slot.candidates[0].source == was.candidates[0].source
        assert task.view.notes == before.notes and task.view.calls == before.calls
    assert RUNS == ["a.pdf"]
    await assert_converged(ends.phone, ends.desktop, KEY)
    again = await here.restore(at)
    assert (again.values, again.notes, again.left) == ((), (), ())


async def test_what_was_decided_since_stays(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    await task.slots.propose("replaced", 1)
    await task.slots.propose("confirmed", 1)
    await task.slots.confirm("gone", 1)
    await task.slots.propose("chain", 1)
    await ends.synced()
    at = await place_of(task)
    await task.slots.propose("replaced", 2)
    await task.slots.clear("confirmed")
    await task.slots.confirm("confirmed", 2)
    await task.slots.clear("gone")
    await task.slots.propose("gone", 2)
    await task.slots.propose("chain", 2)
    await task.slots.clear("chain")
    await ends.synced()
    done = await task.restore(at)
    assert [(left.what, left.why) for left in done.left] == [
        ("confirmed (proposed)", "A value that was confirmed later stands."),
        ("replaced (proposed)", "The value that replaced it stands."),
    ]
    # What took its place is gone too, so the one of that place comes back.
    assert done.values == (("chain", CandidateStatus.PROPOSED), ("gone", CandidateStatus.CONFIRMED))
    assert task.slots["replaced"].value == 2 and task.slots["confirmed"].value == 2
    assert task.slots["chain"].value == 1
    gone = task.slots["gone"]
    assert gone.value == 1 and [each.value for each in gone.proposals] == [2]


async def test_a_conflict_comes_back_as_a_conflict(ends: TwoEndpoints) -> None:
    here = await ends.phone.task(KEY, create=True)
    await ends.synced()
    there = await ends.desktop.task(KEY)
    async with ends.apart():
        await here.slots.confirm("a", 1)
        await there.slots.confirm("a", 2)
    at = await place_of(here)
    await here.slots.clear("a", read=here.slots["a"])
    await ends.synced()
    await here.restore(at)
    assert here.slots["a"].state is SlotState.CONFLICTED
    assert {each.value for each in here.slots["a"].candidates} == {1, 2}


async def test_a_notes_text_comes_back_beside_what_was_written_since(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    await task.notes.append("worklog", "one\ntwo\nthree\n")
    await task.notes.append("other", "kept\n")
    await ends.synced()
    at = await place_of(task)
    await task.notes.edit("worklog", "two\n", "")
    await task.notes.edit("worklog", "one", "ONE")
    await task.notes.append("worklog", "four\n")
    await ends.synced()
    assert (await task.restore(at)).notes == ("worklog",)
    assert task.view.notes["worklog"].text == "ONE\ntwo\nthree\nfour\n"
    note = task.view.notes["worklog"]
    await task.notes.delete("worklog", content_sha256=note.content_sha256)
    await task.notes.append("worklog", "who took it?\n")
    await ends.synced()
    assert (await task.restore(at)).notes == ("worklog",)
    text = task.view.notes["worklog"].text
    assert sorted(text.splitlines()) == ["ONE", "four", "three", "two", "who took it?"]
    assert (await task.restore(at)).notes == ()
    assert task.view.notes["worklog"].text == text


async def test_lines_that_somebody_typed_again_come_back_once(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    note = await task.notes.append("worklog", "one\ntwo\nthree\n")
    await ends.synced()
    at = await place_of(task)
    await task.notes.delete("worklog", content_sha256=note.content_sha256)
    await task.notes.append("worklog", "three\nfour\n")
    await task.notes.append("worklog", "one\n")
    await ends.synced()
    assert (await task.restore(at)).notes == ("worklog",)
    assert sorted(task.view.notes["worklog"].text.split()) == ["four", "one", "three", "two"]


async def test_a_value_that_no_longer_fits_is_left_and_said(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    await task.slots.confirm("a", "text")
    await task.slots.confirm("b", 1)
    await ends.synced()
    at = await place_of(task)
    await task.slots.clear("a")
    await task.slots.clear("b")
    await task.slots.declare("a", ask="A?", schema={"type": "integer"})
    await ends.synced()
    done = await task.restore(at)
    assert done.values == (("b", CandidateStatus.CONFIRMED),)
    assert [left.what for left in done.left] == ["a (confirmed)"] and "text" not in done.left[0].why


async def test_a_definition_that_was_deleted_is_declared_again_as_it_was(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    schema = {"type": "string", "minLength": 2}
    await task.slots.declare("iban", ask="IBAN?", schema=schema, required=True, secret=True, order=3)
    await task.slots.confirm("iban", "DE02")
    await ends.synced()
    kept = await kept_of(ends.phone)
    image = state_in(kept)
    # No command deletes a definition, but a peer's own program may.
    peer = SharedDoc(2**40, genesis_update("test", KEY))
    made = peer.apply(entry.payload for entry in image.entries if entry.kind is EntryKind.UPDATE)
    payload, _ = peer.write([MapEdit("slots", tuple(made.slots)), MapEdit("slotdefs", tuple(made.slotdefs))])
    place = image.cursor + 1
    wiped = Entry(image.stream, 2**40, 1, EntryKind.UPDATE, payload, "peer", relay_seq=place)
    lost = find_lost("test", "phone", state_with(kept, entries=(*image.entries, wiped), cursor=place), image.cursor)
    [(name, definition)] = lost.definitions
    assert definition == task.slots["iban"].definition and [each.slot for each in lost.candidates] == ["iban"]

    other = await ends.phone.task("other", create=True)
    done = await bring_back(image.cursor, lost, other.slots, other.notes)
    assert (done.definitions, done.values) == (("iban",), (("iban", CandidateStatus.CONFIRMED),))
    slot = other.slots[name]
    assert (slot.definition, slot.secret, slot.value) == (definition, True, "DE02")


async def test_restoring_needs_write_access_and_a_place_that_is_here(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    await task.slots.confirm("a", 1)
    await task.slots.confirm("a", 2)
    await ends.synced()
    async with ends.phone.task(KEY, access="read") as reader:
        with pytest.raises(ReadOnly):
            await reader.restore(1)
    with pytest.raises(ValueRefused):
        await task.restore(9)
    await ends.phone.compact(KEY)
    with pytest.raises(HistoryTrimmed):
        await task.restore(2)
    assert (await task.restore(3)).values == ()
