"""Canonical JSON text: exact, one form for one value, and three values for 1, 1.0 and true."""

import json
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_core.errors import ValueRefused
from sync_core.values import JsonValue, canonical, digest_text, parse

text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


def same(one: object, other: object) -> bool:
    """Equal in value and in type: 1, 1.0, Decimal("1") and True are four."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (float, Decimal)):
        return str(one) == str(other)
    return one == other


@given(values)
def test_a_value_comes_back_exactly(value: JsonValue) -> None:
    assert same(parse(canonical(value)), value)


@given(values)
def test_the_text_is_its_own_canonical_form_and_plain_json(value: JsonValue) -> None:
    written = canonical(value)
    assert canonical(parse(written)) == written
    assert written.isascii()
    json.loads(written)


@given(st.dictionaries(text, st.lists(numbers, max_size=2), max_size=6))
def test_the_order_of_keys_does_not_show(value: dict[str, JsonValue]) -> None:
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (5, "5"),
        (2**63 - 1, "9223372036854775807"),
        (2**63, "9223372036854775808"),
        (-(2**200), str(-(2**200))),
        (1, "1"),
        (1.0, "1.0"),
        (True, "true"),
        (None, "null"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (-0.0, "-0.0"),
        (Decimal("1.10"), "1.10E0"),
        (Decimal("100"), "100E0"),
        (Decimal("1E+3"), "1E+3"),
        ("é😀", '"\\u00e9\\ud83d\\ude00"'),
        ('"\\\n\x00', '"\\"\\\\\\n\\u0000"'),
        ({"b": 1, "a": [{}, [], ""]}, '{"a":[{},[],""],"b":1}'),
        ((1, 2), "[1,2]"),
    ],
    ids=str,
)
def test_a_value_has_one_text(value: object, written: str) -> None:
    assert canonical(value) == written


def test_one_and_one_point_zero_and_true_are_three_values() -> None:
    assert len({canonical(value) for value in (1, 1.0, True)}) == 3
    assert [type(parse(canonical(value))) for value in (1, 1.0, True)] == [int, float, bool]


def test_a_decimal_keeps_its_zeros_and_is_never_taken_for_a_float() -> None:
    for written in ("1.10", "0.00", "100", "1E+3", "-0.0", "123456789012345678901234567890.10"):
        back = parse(canonical(Decimal(written)))
        assert isinstance(back, Decimal)
        assert str(back) == written
    assert isinstance(parse(canonical(1.5e300)), float)


class Number(int):
    def __repr__(self) -> str:
        return "x"


class Word(str):
    __slots__ = ()


def test_subclasses_are_written_as_what_they_are() -> None:
    assert canonical([Number(5), Word("a")]) == '[5,"a"]'


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (math.nan, "value"),
        (math.inf, "value"),
        (-math.inf, "value"),
        (Decimal("NaN"), "value"),
        (Decimal("Infinity"), "value"),
        ("\ud800", "value"),
        (["ok", "a\udfff"], "value[1]"),
        ({"a": {"b": [0, {1: 2}]}}, "value.a.b[1]"),
        ({"a": {"\ud800": 1}}, "a key of value.a"),
        ({"a": b"x"}, "value.a"),
        ([{1, 2}], "value[0]"),
        ({"when": object()}, "value.when"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_the_field_is_named(value: object, field: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        canonical(value)
    assert refused.value.sentence.startswith(f"{field} ")


def test_an_integer_of_too_many_digits_is_refused_both_ways() -> None:
    assert parse(canonical(10**3_000)) == 10**3_000
    with pytest.raises(ValueRefused, match="amount is an integer"):
        canonical(10**4_000, "amount")


def test_the_callers_name_of_the_field_is_used() -> None:
    with pytest.raises(ValueRefused, match=r"^amount\.net\[0\] "):
        canonical({"net": [math.nan]}, "amount")


def test_nesting_is_bounded_on_both_ways() -> None:
    deep: object = 1
    for _ in range(64):
        deep = [deep]
    assert canonical(deep).count("[") == 64
    with pytest.raises(ValueRefused, match="nested too deep"):
        canonical([deep])
    assert canonical([[1]], "value", 2) == "[[1]]"
    with pytest.raises(ValueRefused, match=r"^x\[0\]\.a\[0\] is nested too deep"):
        canonical([{"a": [1]}], "x", 2)
    with pytest.raises(ValueRefused):
        parse("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1.5", 1.5),
        ("-0.0", -0.0),
        ("1e5", 1e5),
        ("2.50e-3", 2.5e-3),
        ("1.10", Decimal("1.10")),
        ("291.840", Decimal("291.840")),
        ("12345678901234567890.12", Decimal("12345678901234567890.12")),
        ("0.1000000000000000055", Decimal("0.1000000000000000055")),
        ("1e400", Decimal("1E+400")),
        ("1E5", Decimal("1E5")),
    ],
)
def test_a_number_that_somebody_else_wrote_is_taken_as_it_stands(written: str, value: object) -> None:
    assert same(parse(written), value)
    assert same(parse(canonical(parse(written))), value)


@pytest.mark.parametrize(
    "written",
    [
        "1E99999999999999999999",
        "-1E-99999999999999999999",
        "1e99999999999999999999",
        "",
        "{",
        "NaN",
        "Infinity",
        "-Infinity",
        "[1,]",
        "'a'",
        "1 2",
        "\x00",
        "9" * 20_000,
    ],
)
def test_what_is_no_json_is_refused_without_showing_it(written: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        parse(written)
    assert refused.value.sentence == "The stored text is not JSON."


def test_a_digest_is_the_sha256_of_utf8() -> None:
    assert digest_text("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_text("é") == "4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c"
