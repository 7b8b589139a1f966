"""What depends on a prevented call: whatever names what only its result brought, and nothing else."""

import json

import pytest

from clients.desktop.rehearse.dependence import dependents
from clients.desktop.rehearse.recording import RecordedCall, Run, Said, Turn

BOOKED = '{"id": "HATHAU", "who": "mia", "price": 305, "invoice": 48213, "paid": true}'


def run_of(*steps: str | tuple[object, str]) -> Run:
    """Texts are said; a pair is a call's arguments and result."""
    made: list[Said | Turn] = []
    number = 0
    for step in steps:
        if isinstance(step, str):
            made.append(Said({"role": "user", "content": step}))
            continue
        arguments, result = step
        call = RecordedCall(number, 0, "tool", json.dumps(arguments), {"role": "tool", "content": result})
        made.append(Turn({"role": "assistant", "content": None}, (call,)))
        number += 1
    return Run(0, tuple(made))


def test_without_a_prevented_call_nothing_depends_on_one() -> None:
    assert dependents(run_of(({"who": "mia"}, BOOKED), ({"id": "HATHAU"}, "gone")), frozenset()) == frozenset()


@pytest.mark.parametrize(
    ("arguments", "depends"),
    [
        ({"id": "HATHAU"}, True),
        ({"ids": [{"first": " HATHAU "}]}, True),
        ({"invoice": 48213}, True),
        ({"who": "mia"}, False),  # its own argument brought that before
        ({"seats": 305}, False),  # so few digits count something
        ({"sure": True}, False),
        ({"thought": "Shall I cancel HATHAU?"}, False),  # it names many things, and acts on none
        ({"id": "HATHAT"}, False),
        ({}, False),
    ],
)
def test_a_call_depends_if_an_argument_is_what_only_the_prevented_result_brought(
    arguments: object, depends: bool
) -> None:
    run = run_of("Book for mia.", ({"who": "mia"}, BOOKED), (arguments, "fine"))
    assert dependents(run, frozenset({0})) == (frozenset({1}) if depends else frozenset())


@pytest.mark.parametrize("earlier", ["The number HATHAU, please.", ({}, "HATHAU is free"), ({"id": "HATHAU"}, "")])
def test_what_was_known_before_does_not_depend(earlier: str | tuple[object, str]) -> None:
    run = run_of(earlier, ({"who": "mia"}, BOOKED), ({"id": "HATHAU"}, "fine"))
    assert dependents(run, frozenset({len(run.calls) - 2})) == frozenset()


def test_what_is_repeated_afterwards_still_comes_from_the_prevented_call() -> None:
    run = run_of(({"who": "mia"}, BOOKED), "HATHAU, I see.", ({}, '["HATHAU"]'), ({"id": "HATHAU"}, "gone"))
    assert dependents(run, frozenset({0})) == frozenset({2})


@pytest.mark.parametrize(("name", "depends"), [("HAT-14/B", True), ("KLM", True), ("thank", False), ("Booked", False)])
def test_words_of_a_text_result_are_names_unless_they_are_prose(name: str, depends: bool) -> None:
    run = run_of(({"who": "mia"}, "Booked with KLM as HAT-14/B, thank you."), ({"id": name}, "gone"))
    assert dependents(run, frozenset({0})) == (frozenset({1}) if depends else frozenset())


def test_what_a_dependent_call_brought_is_gone_as_well() -> None:
    run = run_of(({"who": "mia"}, BOOKED), ({"id": "HATHAU"}, '{"refund": "R-1"}'), ({"refund": "R-1"}, "paid"))
    assert dependents(run, frozenset({0})) == frozenset({1, 2})


def test_a_call_before_the_prevented_one_never_depends_on_it() -> None:
    run = run_of(({"id": "HATHAU"}, "not found"), ({"who": "mia"}, '{"id": "HATHAX"}'), ({"id": "HATHAX"}, "gone"))
    assert dependents(run, frozenset({1})) == frozenset({2})


def test_a_call_that_the_model_garbled_names_nothing() -> None:
    call = RecordedCall(1, 0, "tool", "{HATHAU", {"role": "tool", "content": "Error"})
    run = run_of(({"who": "mia"}, BOOKED))
    run = Run(0, (*run.steps, Turn({"role": "assistant"}, (call,))))
    assert dependents(run, frozenset({0})) == frozenset()
