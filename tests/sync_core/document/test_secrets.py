"""Definitions between devices, later schemas, and secrets, which no text shows."""

import pytest

from sync_core.document.slots import SlotDefinition, SlotState
from sync_core.errors import ValueRefused
from tests.sync_core.document.log import assert_converged, devices, sync


def test_the_same_definition_again_writes_nothing() -> None:
    _, (a, b) = devices("a", "b")
    assert a.declare("x", schema='{"type": "string"}')
    assert a.declare("x", schema='{"type":"string"}') == b""
    sync(a, b)
    assert b.declare("x", schema='{"type":"string"}') == b""


def test_two_definitions_while_apart_are_shown_as_redefined_until_declared_again() -> None:
    _, (a, b) = devices("a", "b")
    a.declare("x", ask="a?")
    b.declare("x", ask="b?")
    sync(a, b)
    assert_converged(a, b)
    assert a.document.slot("x").redefined
    a.declare("x", ask="c?")
    sync(a, b)
    shown = b.document.slot("x")
    assert (shown.redefined, shown.definition) == (False, SlotDefinition("c?"))


def test_declaring_one_of_two_definitions_again_settles_it() -> None:
    _, (a, b) = devices("a", "b")
    a.declare("x", ask="a?")
    b.declare("x", ask="b?")
    sync(a, b)
    assert a.declare("x", ask="a?")
    sync(a, b)
    assert not b.document.slot("x").redefined
    assert b.document.slot("x").definition == SlotDefinition("a?")


def test_a_declared_slot_is_shown_as_missing_and_an_undeclared_one_only_while_it_is_written() -> None:
    _, (a,) = devices("a")
    a.declare("x")
    a.confirm("y", "1")
    assert a.document.view().slots["x"].state is SlotState.MISSING
    a.update(a.document.clear_slot("y", a.document.slot("y").token))
    assert "y" not in a.document.view().slots
    assert a.document.slot("y").state is SlotState.MISSING


def test_a_value_that_fails_a_later_schema_keeps_its_state_and_is_flagged() -> None:
    _, (a,) = devices("a")
    a.confirm("x", '"CC-1042"')
    a.declare("x", schema='{"type":"number"}')
    shown = a.document.slot("x")
    assert shown.state is SlotState.CONFIRMED
    assert shown.schema_error is not None
    assert "type" in shown.schema_error
    assert "CC-1042" not in shown.schema_error
    a.declare("x", schema='{"type":"string"}')
    assert a.document.slot("x").schema_error is None


def test_a_proposal_is_not_held_against_the_schema_but_flagged() -> None:
    _, (a,) = devices("a")
    a.declare("x", schema='{"type":"number"}')
    a.propose("x", '"text"')
    assert a.document.slot("x").state is SlotState.PROPOSED
    assert a.document.slot("x").schema_error is not None


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_a_slot_is_secret_once_any_definition_said_so() -> None:
    _, (a, b, late) = devices("a", "b", "late")
    a.declare("pin", secret=True)
    sync(a, b)
    b.declare("pin", ask="Which PIN?", secret=False)
    sync(a, b)
    late.document.merge_document(a.document.state_bytes(), ())
    assert a.document.slot("pin").secret
    assert b.document.slot("pin").secret
    assert late.document.slot("pin").secret


def test_a_concurrent_definition_that_is_not_secret_does_not_open_it() -> None:
    _, (a, b) = devices("a", "b")
    a.declare("pin", secret=True)
    b.declare("pin", secret=False)
    sync(a, b)
    assert a.document.slot("pin").secret
    assert b.document.slot("pin").secret


def test_no_error_or_repr_shows_a_secret_value() -> None:
    _, (a, b) = devices("a", "b")
    a.declare("pin", secret=True, schema='{"type":"object","properties":{"hunter2":{"maxLength":3}}}')
    texts = []
    for value in (
        '{"hunter2":"hunter2"}',
        '"hunter2"',
        '"hunter2\\ud800"',
        '{"hunter2":{"hunter2":NaN}}',
        "[" * 99 + "]" * 99,
    ):
        with pytest.raises(ValueRefused) as caught:
            a.confirm("pin", value)
        texts += [str(caught.value), repr(caught.value), repr(caught.value.as_json())]
    a.declare("pin", ask="PIN", secret=True, schema='{"type":["object","string"]}')
    a.confirm("pin", '"hunter2"')
    sync(a, b)
    b.declare("pin", ask="PIN", schema='{"type":"number"}')
    texts += [repr(b.document.view()), repr(a.document.view().slots["pin"]), str(b.document.slot("pin").schema_error)]
    assert all("hunter2" not in text for text in texts)
