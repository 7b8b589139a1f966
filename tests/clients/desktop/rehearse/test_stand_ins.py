"""Stand-in tools: the recorded result of the step that was asked for, and a count that cannot be talked away."""

import json
from pathlib import Path

import pytest

from clients.config import WrongUsage
from clients.desktop.rehearse.logs import Execution, LineLog, read_lines
from clients.desktop.rehearse.outside import Happened, OutsideSystem, read_outside
from clients.desktop.rehearse.recording import RecordedCall, Run, Turn
from clients.desktop.rehearse.rules import Label, Releases, ToolRule
from clients.desktop.rehearse.stand_ins import Asking, StandIns, tool_shapes
from sync_core import DidNotHappen, Effect


def recorded(tool: str, arguments: object, number: int = 0, result: str = "fine") -> RecordedCall:
    return RecordedCall(number, 0, tool, json.dumps(arguments), {"role": "tool", "content": result})


def run_of(*calls: RecordedCall) -> Run:
    return Run(3, tuple(Turn({"role": "assistant"}, (call,)) for call in calls))


def stand_ins(tmp_path: Path, run: Run, **effects: Effect) -> tuple[StandIns, Path]:
    rules = {name: ToolRule(effect) for name, effect in effects.items()}
    return guarded(tmp_path, run, rules), tmp_path / "executions.jsonl"


def guarded(tmp_path: Path, run: Run, rules: dict[str, ToolRule]) -> StandIns:
    log = LineLog[Execution](tmp_path / "executions.jsonl")
    return StandIns("phone", log, OutsideSystem(tmp_path / "outside.db"), tool_shapes([run]), rules)


async def test_the_result_is_that_of_the_step_that_was_asked_for(tmp_path: Path) -> None:
    before, after = recorded("look", {"at": 1}, 0, "old"), recorded("look", {"at": 1}, 1, "new")
    made, log = stand_ins(tmp_path, run_of(before, after), look=Effect.READ)
    (look,) = made.tools
    for number, call in enumerate((before, after), start=5):
        made.asking = Asking(number, 3, call)
        assert await look(1) == call.result
    assert [(line.step, line.asked) for line in read_lines(log, Execution)] == [(0, 5), (1, 6)]


async def test_an_execution_that_nobody_asked_for_is_told_apart(tmp_path: Path) -> None:
    call = recorded("look", {"at": 1})
    made, log = stand_ins(tmp_path, run_of(call), look=Effect.READ)
    (look,) = made.tools
    assert await look(1) == ""
    made.asking = Asking(1, 3, call)
    await look(2)
    made.asking = Asking(1, 3, recorded("other", {"at": 1}))
    await look(1)
    assert [line.asked for line in read_lines(log, Execution)] == [None, None, None]


async def test_arguments_may_be_named_like_keywords_and_be_left_out(tmp_path: Path) -> None:
    calls = (recorded("move", {"from": "a", "to": "b"}), recorded("move", {"to": "c"}, 1), recorded("move", {}, 2))
    made, log = stand_ins(tmp_path, run_of(*calls), move=Effect.READ)
    (move,) = made.tools
    for number, call in enumerate(calls):
        made.asking = Asking(number, 3, call)
        await move.invoke(move.bind_json(call.arguments), "key")
    assert [line.asked for line in read_lines(log, Execution)] == [0, 1, 2]


def test_a_tool_without_a_declared_effect_is_irreversible(tmp_path: Path) -> None:
    run = run_of(recorded("pay", {}))
    made, _ = stand_ins(tmp_path, run)
    (pay,) = made.tools
    assert pay.effect is Effect.IRREVERSIBLE


@pytest.mark.parametrize("call", [recorded("look", {"not a name": 1}), recorded("look", {"__hidden": 1})])
def test_what_cannot_be_a_tool_is_wrong_usage(tmp_path: Path, call: RecordedCall) -> None:
    with pytest.raises(WrongUsage):
        stand_ins(tmp_path, run_of(call))


@pytest.mark.parametrize("arguments", ["{", "[1]", "nothing", '{"at": "\\ud800"}', '{"at": NaN}'])
def test_arguments_that_the_model_garbled_cannot_be_given(arguments: str) -> None:
    assert RecordedCall(0, 0, "look", arguments, {"role": "tool", "content": ""}).given is None


@pytest.mark.parametrize("tool", ["", "../look", "a b", "slot_confirm"])
def test_a_call_of_what_can_be_no_tool_is_garbled_and_needs_none(tmp_path: Path, tool: str) -> None:
    run = run_of(recorded(tool, {"at": 1}), recorded("look", {"at": 1}, 1))
    assert run.calls[0].given is None
    made, _ = stand_ins(tmp_path, run)
    assert [each.name for each in made.tools] == ["look"]


async def test_null_arguments_and_idempotency_keys_are_taken_and_do_not_count(tmp_path: Path) -> None:
    calls = (recorded("look", {"at": None}), recorded("look", {"at": 1, "idempotency_key": "mine"}, 1))
    made, log = stand_ins(tmp_path, run_of(*calls), look=Effect.IDEMPOTENT)
    (look,) = made.tools
    for number, call in enumerate(calls):
        made.asking = Asking(number, 3, call)
        assert await look.invoke(look.bind_json(call.arguments), "key") == "fine"
    assert [line.asked for line in read_lines(log, Execution)] == [0, 1]


BOOK = ToolRule(key=("who",), failed_if="^Error", label=Label(path="id"))
CANCEL = ToolRule(releases=Releases("book", "id"))


async def acted(made: StandIns, call: RecordedCall, key: str) -> object:
    tool = next(each for each in made.tools if each.name == call.tool)
    made.asking = Asking(1, 3, call)
    return await tool.invoke(tool.bind_json(call.arguments), key)


async def test_what_cannot_be_undone_happens_outside_once_for_each_key(tmp_path: Path) -> None:
    call = recorded("book", {"who": "mia", "idempotency_key": "the model's own"}, 4, '{"id": "A"}')
    made = guarded(tmp_path, run_of(call), {"book": BOOK})
    assert await acted(made, call, "key") == await acted(made, call, "key") == '{"id": "A"}'
    (happened,) = read_outside(tmp_path / "outside.db")
    assert happened == Happened(3, 4, "book", "phone", '["mia"]', call.result, asked=2, undone_by=None, double=0)
    assert len(read_lines(tmp_path / "executions.jsonl", Execution)) == 2


async def test_a_recorded_failure_did_not_happen(tmp_path: Path) -> None:
    call = recorded("book", {"who": "mia"}, result="Error: no seat")
    made = guarded(tmp_path, run_of(call), {"book": BOOK})
    with pytest.raises(DidNotHappen, match="no seat"):
        await acted(made, call, "key")
    assert read_outside(tmp_path / "outside.db") == ()
    assert [line.asked for line in read_lines(tmp_path / "executions.jsonl", Execution)] == [1]


async def test_a_key_that_lets_an_entity_be_acted_on_twice_is_found_out_unless_the_first_was_undone(
    tmp_path: Path,
) -> None:
    calls = [
        recorded("book", {"who": "mia"}, 0, '{"id": "A"}'),
        recorded("book", {"who": "mia"}, 1, '{"id": "B"}'),
        recorded("cancel", {"id": "A"}, 2),
        recorded("cancel", {"id": "B"}, 3),
        recorded("book", {"who": "mia"}, 4, '{"id": "C"}'),
    ]
    made = guarded(tmp_path, run_of(*calls), {"book": BOOK, "cancel": CANCEL})
    for call in calls:
        await acted(made, call, f"key {call.number}")
    assert [effect.double for effect in read_outside(tmp_path / "outside.db")] == [False, True, False, False, False]


async def test_what_nobody_asked_for_has_no_effect(tmp_path: Path) -> None:
    call = recorded("book", {"who": "mia"})
    made = guarded(tmp_path, run_of(call), {"book": BOOK})
    (book,) = made.tools
    assert await book.invoke(book.bind_json(call.arguments), "key") == ""
    assert read_outside(tmp_path / "outside.db") == ()
    assert [line.asked for line in read_lines(tmp_path / "executions.jsonl", Execution)] == [None]
