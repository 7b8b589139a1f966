"""Recorded runs: the chat format as agents write it, calls paired with their answers, bad files named exactly."""

import json
from pathlib import Path

import pytest

from clients.config import WrongUsage
from clients.desktop.rehearse.recording import Said, Turn, read_runs

DATA = Path(__file__).parents[2] / "data"


def call(call_id: str, name: str = "look", arguments: str = "{}") -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def turn(*calls: dict[str, object]) -> dict[str, object]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def answer(call_id: str | None, content: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "runs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_workshop_runs_keep_every_message_and_pair_every_answer() -> None:
    runs = read_runs(DATA / "workshop_runs.json")
    recorded = json.loads((DATA / "workshop_runs.json").read_text())["runs"]
    for run, raw in zip(runs, recorded, strict=True):
        messages = []
        for step in run.steps:
            messages.append(step.message)
            if isinstance(step, Turn):
                messages.extend(each.answer for each in step.calls)
        assert messages == raw["messages"]
    assert [call.number for call in runs[4].calls] == list(range(7))


@pytest.mark.parametrize("shape", ["file", "objects", "lists"])
def test_a_plain_list_of_message_lists_is_taken_too(tmp_path: Path, shape: str) -> None:
    messages = [{"role": "user", "content": "hello"}]
    content: object = {
        "file": {"source": "x", "runs": [{"messages": messages, "trial": 1}]},
        "objects": [{"messages": messages}],
        "lists": [messages],
    }[shape]
    (run,) = read_runs(written(tmp_path, content))
    assert run.steps == (Said({"role": "user", "content": "hello"}),)


def test_answers_in_another_order_find_their_call_by_its_id(tmp_path: Path) -> None:
    messages = [turn(call("a", "one"), call("b", "two")), answer("b", "second"), answer("a", "first")]
    (run,) = read_runs(written(tmp_path, [messages]))
    assert [(each.tool, each.place, each.result) for each in run.calls] == [("two", 1, "second"), ("one", 0, "first")]


def test_equal_ids_in_one_turn_are_paired_by_order(tmp_path: Path) -> None:
    messages = [turn(call("a", "one"), call("a", "two")), answer("a", "first"), answer("a", "second")]
    (run,) = read_runs(written(tmp_path, [messages]))
    assert [(each.tool, each.result) for each in run.calls] == [("one", "first"), ("two", "second")]


def test_an_answer_under_another_id_is_taken_under_the_calls(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, [[turn(call("a")), answer("zzz", "fine")]]))
    assert run.calls[0].answer == answer("a", "fine")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, "\ufeff" + json.dumps([[{"role": "user", "content": "x"}]])))
    assert run.steps == (Said({"role": "user", "content": "x"}),)


def test_a_call_that_was_never_answered_is_not_played(tmp_path: Path) -> None:
    (run,) = read_runs(written(tmp_path, [[turn(call("a"))]]))
    assert run.calls == () and isinstance(run.steps[0], Turn)


def test_limit_takes_the_first_runs() -> None:
    assert [run.number for run in read_runs(DATA / "workshop_runs.json", limit=2)] == [0, 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "does not hold recorded runs"),
        ({"runs": 3}, "does not hold recorded runs"),
        ([[{"role": "user", "content": 4}]], "Run 0, message 0"),
        ([[{"role": "wizard", "content": "x"}]], "unknown role"),
        ([[answer("a", "x")]], "answers no call"),
        ([[turn(call("a")), answer("a", None)]], "Run 0, message 1"),
        ([[turn(call("a")), answer("a", "1"), answer("a", "2")]], "more tool messages"),
        ([[turn(call("a"), call("b")), answer("a", "1"), answer("a", "2")]], "two tool messages answer one call"),
        ([[{"role": "user", "tool_calls": [call("a")]}]], "only an assistant"),
        ([[{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]], "Run 0, message 0"),
        ('[[{"role": "user", "content": "x", "score": 1e999}]]', "Run 0, message 0"),
        ('[[{"role": "user", "content": "x", "n": ' + "[" * 2_000 + "]" * 2_000 + "}]]", "recursion"),
        ('[[{"role": "user", "content": "x", "n": ' + "[" * 200 + "]" * 200 + "}]]", "Run 0, message 0"),
        ([[{"role": "user", "content": "x" * 17_000_000}]], "Run 0, message 0"),
        ([], "holds no runs"),
        ({"runs": []}, "holds no runs"),
    ],
)
def test_a_bad_recording_is_wrong_usage_and_is_named(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(WrongUsage) as refused:
        read_runs(written(tmp_path, content))
    assert words in refused.value.sentence


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage):
        read_runs(tmp_path / "absent.json")
