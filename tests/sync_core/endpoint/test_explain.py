"""`task.explain`: where a part lives, who may change it, who wins, and what this handle may do now."""

import msgspec
import pytest

from sync_core.document.calls import CallState
from sync_core.document.slots import Slot, SlotState
from sync_core.document.view import TaskView
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.explain import Explanation, explain
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect, EntryKind
from sync_core.errors import ValueRefused
from sync_core.ids import StreamName
from sync_core.parts import PARTS
from sync_core.replica.changes import LinkState, Status
from tests.sync_core.endpoint.conftest import KEY
from tests.sync_core.endpoint.test_brief import _call

EMPTY = TaskView(KEY, 1, {}, {}, {}, ())


def told(
    path: str, view: TaskView = EMPTY, *, version: int = 1, writable: bool = True, role: str = "write"
) -> Explanation:
    return explain(path, view, version, writable, Status(LinkState.LIVE, role=role))


def test_it_says_of_each_part_what_the_table_says() -> None:
    for part in PARTS:
        path = part.name + ("/x" if part.item else "")
        said = told(path)
        assert (said.path, said.stream, said.kind) == (path, part.stream, part.kind)
        assert (said.owner, said.merge, said.roles) == (part.owner, part.merge, tuple(sorted(part.roles)))


def test_a_slot_is_told_whole() -> None:
    said = told("slots/amount")
    assert (said.stream, said.kind) == (StreamName.STATE, EntryKind.UPDATE)
    assert said.may_write
    assert said.because == "This session has write access, and its role is write."
    assert "conflicted" in said.merge


@pytest.mark.parametrize("path", ["", "slots", "history/1", "notes/handover", "secrets", "slots/a b"])
def test_what_names_no_part_is_refused_and_the_hint_lists_them(task: Task, path: str) -> None:
    with pytest.raises(ValueRefused):
        task.explain(path)
    with pytest.raises(ValueRefused) as refused:
        task.explain("secrets")
    assert "slots/<slot name>" in refused.value.hint


def test_a_reader_may_write_nothing_and_is_told_why() -> None:
    for each in PARTS:
        path = each.name + ("/x" if each.item else "")
        reader, role = told(path, writable=False), told(path, role="read")
        assert not reader.may_write
        assert not role.may_write
        if each.roles:
            assert "open a new one with access='write'" in reader.because
            assert "gave this device the role read" in role.because


def test_before_the_relay_said_anything_the_relay_is_left_to_judge() -> None:
    offline = explain("approvals", EMPTY, 1, True, Status(LinkState.OFFLINE))
    assert offline.may_write
    assert not told("approvals").may_write
    assert "admin or approve" in told("approvals").because
    assert told("approvals", role="approve").may_write
    assert not told("rulings", role="admin").may_write


def test_a_held_slot_is_for_two_roles_and_takes_a_link() -> None:
    view = msgspec.structs.replace(EMPTY, slots={"limit": Slot("limit", SlotState.MISSING, held=True)})
    assert not told("slots/limit", view).may_write
    assert told("slots/limit", view).roles == ("admin", "authority")
    assert told("slots/limit", view, role="authority").may_write
    offline = explain("slots/limit", view, 1, True, Status(LinkState.OFFLINE, role="authority"))
    assert not offline.may_write
    assert "cannot be reached" in offline.because
    assert told("slots/other", view).may_write


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (CallState.PLANNED, True),
        (CallState.FAILED, True),
        (CallState.DONE, False),
        (CallState.RESULT_UNAVAILABLE, False),
        (CallState.KEY_CONFLICT, False),
        (CallState.IN_DOUBT, True),
    ],
)
def test_a_step_that_is_done_is_not_written_again(state: CallState, may: bool) -> None:
    view = msgspec.structs.replace(EMPTY, calls={(1, "invoice"): _call("invoice", state)})
    assert told("calls/invoice", view).may_write is may
    assert told("calls/other", view).may_write


def test_a_call_in_doubt_that_cannot_be_undone_is_settled_first() -> None:
    call = _call("pay", CallState.IN_DOUBT)
    assert call.shown is not None
    shown = msgspec.structs.replace(call.shown, effect=Effect.IRREVERSIBLE)
    view = msgspec.structs.replace(EMPTY, calls={(1, "pay"): msgspec.structs.replace(call, shown=shown)})
    assert "settle it first" in told("calls/pay", view).because


@tool(effect=Effect.READ)
def look() -> int:
    return 1


async def test_what_it_says_is_what_happens(phone: Endpoint, task: Task) -> None:
    assert task.explain("handover").may_write
    await task.hand_over("All is done.")
    said = task.explain("handover")
    assert not said.may_write
    assert said.because == "This version was handed over by phone; it is read-only for everybody."
    await task.call("look", look)
    assert not task.explain("calls/look").may_write
    async with phone.task(KEY, version=2) as later:
        assert later.explain("handover").may_write
        for path in ("handover", "calls/other", "plan/other"):
            assert "Version 2 stands" in task.explain(path).because
        assert task.explain("slots/amount").may_write
    async with phone.task(KEY, access="read") as reader:
        assert not reader.explain("notes/worklog").may_write
