"""Definitions: schemas that are bounded before they are used, values checked exactly, errors that quote nothing."""

import json
import time

import pytest

from sync_core.document.definitions import (
    check_definition,
    check_value,
    decode_definition,
    encode_definition,
    schema_error,
)
from sync_core.document.slots import SlotDefinition, StoredDefinition
from sync_core.errors import TooLarge, ValueRefused
from sync_core.limits import SCHEMA_BYTES_MAX


def definition(schema: object) -> SlotDefinition:
    return check_definition(SlotDefinition("?", schema=schema if isinstance(schema, str) else json.dumps(schema)))


def fails(schema: object, text: str) -> bool:
    return schema_error(definition(schema), False, text) is not None


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_a_definition_comes_back_exactly() -> None:
    full = SlotDefinition("Which größe?", '{"type":"string"}', True, True, -3, "desktop")
    for each in (full, SlotDefinition("?")):
        assert decode_definition(encode_definition(each, 7, "phone", 1)) == StoredDefinition(7, each)


@pytest.mark.parametrize(
    "stored", ["", "{}", "[]", '{"a":"x","n":0,"t":1,"d":{"ask":"?"}}', '{"a":"x","n":1,"t":1,"d":{}}']
)
def test_anything_else_is_a_definition_without_content(stored: str) -> None:
    assert decode_definition(stored) == StoredDefinition(0, None)


def test_a_definition_over_the_bound_is_refused() -> None:
    with pytest.raises(TooLarge):
        encode_definition(SlotDefinition("x" * 17_000), 1, "phone", 1)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (SlotDefinition(None), "ask"),  # type: ignore[arg-type]
        (SlotDefinition("\ud800"), "ask"),
        (SlotDefinition("?", required=1), "required"),  # type: ignore[arg-type]
        (SlotDefinition("?", secret="yes"), "secret"),  # type: ignore[arg-type]
        (SlotDefinition("?", order=2.5), "order"),  # type: ignore[arg-type]
        (SlotDefinition("?", order=True), "order"),
        (SlotDefinition("?", order=2**53 + 1), "order"),
        (SlotDefinition("?", held_by="a b"), "holder"),
    ],
    ids=repr,
)
def test_what_would_be_stored_unreadable_is_refused(wrong: SlotDefinition, named: str) -> None:
    with pytest.raises(ValueRefused, match=named):
        check_definition(wrong)


# --- which schemas are accepted ---------------------------------------------------------------------------------------

GOOD: list[object] = [
    True,
    {},
    {"type": "string", "minLength": 1, "maxLength": 30, "pattern": "^CC-[0-9]+$"},
    {"enum": ["EUR", "USD"]},
    {
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "$ref": {"type": "null"}},
        "required": ["pattern"],
    },
    {"$defs": {"line": {"type": "object"}}, "type": "array", "items": {"$ref": "#/$defs/line"}},
    {"definitions": {"a": {"type": "string"}}, "$ref": "#/definitions/a"},
    {"type": "number", "minimum": 0.01, "multipleOf": 0.01},
    {"anyOf": [{"type": "null"}, {"type": "integer"}], "format": "date"},
    {"type": "object", "patternProperties": {"^x-": {}}, "additionalProperties": False},
]
BAD: list[object] = [
    [],
    "1",
    "not json",
    {"type": "nonsense"},
    {"minLength": -1},
    {"$ref": "https://example.org/schema.json"},
    {"$ref": "other.json"},
    {"$ref": "#"},
    {"$ref": "#/$defs/none"},
    {"$ref": "#/properties/a", "properties": {"a": {}}},
    {"$id": "https://example.org/", "type": "string"},
    {"$dynamicRef": "#x"},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
    {"pattern": "(a+)+$"},
    {"pattern": "("},
    {"properties": {"a": {"pattern": "(a|a)*"}}},
    {"patternProperties": {"(a+)+$": {}}},
    {"patternProperties": {"^a+b+c+d+$": {}}},
    {"unevaluatedProperties": False},
]


@pytest.mark.parametrize("schema", GOOD, ids=str)
def test_ordinary_schemas_are_accepted(schema: object) -> None:
    definition(schema)


@pytest.mark.parametrize("schema", BAD, ids=str)
def test_schemas_that_are_not_valid_or_not_bounded_are_refused(schema: object) -> None:
    with pytest.raises(ValueRefused):
        definition(schema)


def test_a_schema_that_refers_to_itself_is_refused_as_such() -> None:
    with pytest.raises(ValueRefused, match="refers to itself"):
        definition({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}})


def doubling(levels: int) -> dict[str, object]:
    defs: dict[str, object] = {"d0": {"type": "string"}}
    for level in range(1, levels):
        defs[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/d{levels - 1}"}


def chain(levels: int) -> dict[str, object]:
    defs = {f"d{level}": {"$ref": f"#/$defs/d{level - 1}"} for level in range(1, levels)}
    return {"$defs": {"d0": {"type": "string"}, **defs}, "$ref": f"#/$defs/d{levels - 1}"}


def test_references_that_multiply_or_go_too_deep_are_refused() -> None:
    definition(doubling(4))
    definition(chain(10))
    for schema in (doubling(40), chain(200), {"items": json.loads('{"items":' * 70 + "{}" + "}" * 70)}):
        with pytest.raises(ValueRefused):
            definition(schema)


def test_a_schema_over_the_bound_is_refused() -> None:
    with pytest.raises(TooLarge):
        definition({"description": "x" * SCHEMA_BYTES_MAX})


def test_a_schema_is_kept_as_canonical_text() -> None:
    assert definition('{ "type" : "string", "a": 1 }').schema == '{"a":1,"type":"string"}'


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, '"x"', "1"),
        ({"type": "number"}, "1.10E0", "true"),
        ({"type": "number"}, str(2**80), '"1"'),
        ({"type": "integer"}, str(10**400), "1.5"),
        ({"type": "integer"}, "2.0E0", "2.5E0"),
        ({"type": "integer"}, "1E+3", "1E-3"),
        ({"minimum": 0.1}, "0.1", "0.09"),
        ({"minimum": 0.1}, "0.10E0", "0.0999E0"),
        ({"maximum": 2**63}, str(2**63), str(2**63 + 1)),
        ({"multipleOf": 0.01}, "19.99", "19.995"),
        ({"multipleOf": 0.01}, "19.99E0", "1E-999999"),
        ({"multipleOf": 3}, str(3 * 10**300), str(3 * 10**300 + 1)),
        ({"const": 1.1}, "1.1", "1.2"),
        ({"enum": [0.1, "a"]}, "0.10E0", "0.2"),
        ({"uniqueItems": True}, "[1,2]", "[1,1]"),
        ({"pattern": "^CC-[0-9]+$"}, '"CC-1"', '"CC-"'),
        ({"patternProperties": {"^n": {"type": "number"}}}, '{"n":1,"s":"x"}', '{"n":"x"}'),
        ({"additionalProperties": False, "properties": {"a": {}}}, '{"a":1}', '{"b":1}'),
        ({"format": "date"}, '"no date"', None),
        (False, None, "1"),
    ],
)
def test_a_value_is_checked_exactly(schema: object, good: str | None, bad: str | None) -> None:
    if good is not None:
        assert not fails(schema, good)
    if bad is not None:
        assert fails(schema, bad)


def test_an_error_names_slot_path_and_rule_and_never_the_value() -> None:
    checked = definition({"properties": {"lines": {"items": {"properties": {"total": {"type": "number"}}}}}})
    with pytest.raises(ValueRefused) as caught:
        check_value("claim", checked, False, '{"lines":[{"total":1},{"total":"hunter2"}]}')
    sentence = str(caught.value)
    assert "claim" in sentence
    assert "$.lines[1].total" in sentence
    assert "type" in sentence
    assert "hunter2" not in sentence
    with pytest.raises(ValueRefused) as caught:
        check_value("claim", checked, True, '{"lines":[{"total":1},{"total":"hunter2"}]}')
    assert "lines" not in str(caught.value)


def test_a_path_is_not_longer_than_it_must_be() -> None:
    deep = definition({"properties": {"k" * 200: {"type": "number"}}})
    error = schema_error(deep, False, json.dumps({"k" * 200: "x"}))
    assert error is not None
    assert len(error) < 200


def test_a_stored_definition_with_a_bad_schema_is_flagged_and_not_used() -> None:
    for schema in ('{"pattern":"(a+)+$"}', "{", '{"$ref":"https://example.org/x"}', "[" * 5_000, '{"$ref":"#"}'):
        error = schema_error(
            SlotDefinition("?", schema=schema), False, '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"'
        )
        assert error is not None
        assert "not acceptable" in error


def test_no_value_takes_long_to_check() -> None:
    wide = {"items": {"allOf": [{"items": {"anyOf": [{"type": "null"}, {"type": "string"}]}}] * 100}}
    many = "[" + ",".join('["a","b"]' for _ in range(400)) + "]"
    assert fails(wide, many), "too many parts"
    assert not fails(wide, '[["a","b"]]')
    for schema, text in (
        (wide, '[["a","b"]' + ',["a"]' * 50 + "]"),
        ({"uniqueItems": True}, "[" + ",".join(f"[{i}]" for i in range(700)) + "]"),
        ({"type": "integer"}, "1E999999999"),
        ({"multipleOf": 0.01}, "1E999999999"),
        ({"maximum": 5}, "1E999999999"),
        ({"const": 5}, "1E999999999"),
    ):
        start = time.process_time()
        fails(schema, text)
        assert time.process_time() - start < 1
