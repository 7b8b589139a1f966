"""The file of `--tools`: a class or an object for each tool, and mistakes named by tool and field."""

import json
from pathlib import Path

import pytest

from clients.config import WrongUsage
from clients.desktop.rehearse.recording import RecordedCall, Run, Turn
from clients.desktop.rehearse.rules import Label, ToolRule, check_rules, read_rules, rule_of
from sync_core.entry import Effect

DATA = Path(__file__).parents[2] / "data"
BOOK = {"effect": "IRREVERSIBLE", "key": ["who", "flights"], "label": {"path": "id"}}
CANCEL = {"key": ["id"], "failed_if": "^Error", "releases": {"tool": "book", "argument": "id"}}


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def run_of(tool: str, *arguments: object) -> Run:
    calls = (RecordedCall(n, 0, tool, json.dumps(a), {"role": "tool", "content": ""}) for n, a in enumerate(arguments))
    return Run(0, tuple(Turn({"role": "assistant"}, (call,)) for call in calls))


def test_a_class_says_as_much_as_an_object_with_it() -> None:
    rules = read_rules(DATA / "workshop_tools.json")
    assert rules["order_part"] == ToolRule(Effect.IRREVERSIBLE) and rules["order_part"].guarded
    assert not rules["price_of"].guarded


def test_a_tool_that_the_file_does_not_name_is_irreversible_and_so_is_one_without_an_effect(tmp_path: Path) -> None:
    rules = read_rules(written(tmp_path, {"pay": {"key": ["invoice"]}}))
    assert rule_of(rules, "pay").guarded and rule_of(rules, "never heard of") == ToolRule()


def test_the_entity_is_the_values_of_its_arguments_in_the_order_of_the_key(tmp_path: Path) -> None:
    rules = read_rules(written(tmp_path, {"book": BOOK, "plain": "IRREVERSIBLE"}))
    assert rules["book"].entity({"flights": ["A1"], "who": "mia", "paid": 3}) == ["mia", ["A1"]]
    assert rules["book"].entity({"who": "mia"}) == ["mia", None]
    assert rules["plain"].entity({"who": "mia"}) is None


@pytest.mark.parametrize(("result", "failed"), [("Error: no", True), ("no Error", False), ("", False)])
def test_a_result_that_matches_says_that_nothing_happened(tmp_path: Path, result: str, failed: bool) -> None:
    rules = read_rules(written(tmp_path, {"book": BOOK, "cancel": CANCEL}))
    assert rules["cancel"].failed(result) is failed
    assert rules["book"].failed(result) is False


@pytest.mark.parametrize(
    ("label", "result", "expected"),
    [
        (Label(path="id"), '{"id": "HATHAT"}', "HATHAT"),
        (Label(path="bookings.1.no"), '{"bookings": [{"no": 1}, {"no": 4711}]}', "4711"),
        (Label(path="bookings.2"), '{"bookings": ["a"]}', ""),
        (Label(path="id"), '{"id": {"deeper": "x"}}', ""),
        (Label(path="id"), '{"id": true}', ""),
        (Label(path="id"), "booked HATHAT", ""),
        (Label(path="0"), '["first"]', "first"),
        (Label(pattern=r"booked (\w+)"), "You booked HATHAT today", "HATHAT"),
        (Label(pattern=r"(?:b)(x)?"), "b", ""),
        (Label(pattern=r"HAT\w+"), "You booked HATHAT today", "HATHAT"),
        (Label(pattern=r"HAT\w+"), "nothing", ""),
    ],
)
def test_the_label_is_found_in_the_result(label: Label, result: str, expected: str) -> None:
    assert label.of(result) == expected


def test_a_call_undoes_the_one_whose_label_its_argument_names(tmp_path: Path) -> None:
    rules = read_rules(written(tmp_path, {"book": BOOK, "cancel": CANCEL}))
    assert rules["cancel"].undoes({"id": "HATHAT"}) == ("book", "HATHAT")
    assert rules["cancel"].undoes({"id": 4711}) == ("book", "4711")
    assert rules["cancel"].undoes({}) is rules["cancel"].undoes({"id": ["x"]}) is rules["book"].undoes({}) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "does not hold the effects"),
        ("{", "does not hold the effects"),
        ({"pay": "MAYBE"}, "tool pay: Invalid enum value 'MAYBE'"),
        ({"pay": {"effect": "MAYBE"}}, "tool pay: Invalid enum value 'MAYBE' - at `$.effect`"),
        ({"pay": {"kee": ["x"]}}, "tool pay: Object contains unknown field `kee`"),
        ({"pay": {"key": "x"}}, "tool pay: Expected `array | null`, got `str` - at `$.key`"),
        ({"pay": {"key": []}}, "Tool pay, key:"),
        ({"pay": {"key": ["x", "x"]}}, "Tool pay, key:"),
        ({"pay": {"key": ["idempotency_key"]}}, "Tool pay, key:"),
        ({"look": {"effect": "READ", "key": ["x"]}}, "Tool look, key:"),
        ({"look": {"effect": "READ", "failed_if": "x"}}, "Tool look, failed_if:"),
        ({"look": {"effect": "IDEMPOTENT", "label": {"path": "x"}}}, "Tool look, label:"),
        ({"look": {"effect": "READ", "releases": {"tool": "x", "argument": "y"}}}, "Tool look, releases:"),
        ({"pay": {"failed_if": "("}}, "Tool pay, failed_if: it is no regular expression"),
        ({"pay": {"label": {"pattern": "("}}}, "Tool pay, label: it is no regular expression"),
        ({"pay": {"label": {}}}, "Tool pay, label:"),
        ({"pay": {"label": {"path": "a", "pattern": "b"}}}, "Tool pay, label:"),
        ({"pay": {"label": {"path": "a..b"}}}, "Tool pay, label:"),
        ({"cancel": CANCEL}, "Tool cancel, releases: 'book' is no"),
        ({"book": "IRREVERSIBLE", "cancel": CANCEL}, "Tool cancel, releases: 'book' is no"),
        ({"book": {"key": ["x"]}, "cancel": CANCEL}, "Tool cancel, releases: 'book' is no"),
        ({"book": BOOK, "cancel": {"releases": {"tool": "book"}}}, "tool cancel: Object missing required field"),
    ],
)
def test_a_mistake_is_wrong_usage_and_names_tool_and_field(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(WrongUsage) as refused:
        read_rules(written(tmp_path, content))
    assert words in refused.value.sentence and refused.value.hint


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage):
        read_rules(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"pay": {"key": ["invoice", "amuont"]}}, "Tool pay, key: no recorded call gives it an argument 'amuont'"),
        (
            {"book": BOOK, "pay": {"releases": {"tool": "book", "argument": "x"}}},
            "Tool pay, releases: no recorded call gives it an argument 'x'",
        ),
    ],
)
def test_an_argument_that_no_recorded_call_gives_is_wrong_usage(tmp_path: Path, rule: object, words: str) -> None:
    run = run_of("pay", {"invoice": 1}, {"invoice": 2, "amount": 3})
    with pytest.raises(WrongUsage) as refused:
        check_rules(read_rules(written(tmp_path, rule)), [run])
    assert words in refused.value.sentence and "amount, invoice" in refused.value.hint


def test_arguments_that_some_call_gives_and_tools_that_nobody_calls_are_fine(tmp_path: Path) -> None:
    rules = read_rules(written(tmp_path, {"pay": {"key": ["invoice", "amount"]}, "other": {"key": ["x"]}}))
    check_rules(rules, [run_of("pay", {"invoice": 1}, {"amount": 3})])
