"""Patterns: what is accepted can be checked in bounded time, whatever the text."""

import re
import time

import pytest

from sync_core.document.patterns import check_pattern, matches
from sync_core.errors import ValueRefused

GOOD = [
    "^CC-[0-9]+$",
    "^[A-Z]{2}[0-9]{2}(?:[A-Z0-9]{4}){4}$",
    r"^[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}$",
    r"^\d{4}-\d{2}-\d{2}$",
    "^(EUR|USD|CHF)$",
    "EUR",
    "^(?:ab)*$",
    "^a?b?c?$",
    r"^[^\]]*$",
    r"^[]a]+$",
    r"^\(.*\)$",
    r"\+\*\?",
    "^a{3}b{2,5}$",
    "^x*?y$",
    "",
    "^",
]

CATASTROPHES = [
    r"(a+)+$",
    r"^(a+)+$",
    r"^(a*)*$",
    r"^(a|a)*$",
    r"^(a|aa)+$",
    r"^([a-z]+)*$",
    r"^(a?)+$",
    r"^((a{1,9}){1,9})*$",
    r"^(?:(?:a+)b?)+$",
    r"^a*a*a*a*a*a*a*b$",
    r"a*a*a*a*a*a*b",
    r"^" + r"a?" * 60 + r"a" * 60,
    r"^" + r"(a|a)" * 40 + "$",
    r"^" + r"a{0,99}" * 8 + "$",
    r"^(.*,){9,}x$",
    r"(a)\1",
    r"(?=a+)a",
    r"(?i)a",
    r"(?P<x>a+)",
]
MALFORMED = ["(", "[", "*a", "a**", "a{5,2}", "\\", "(?:", "a" * 600]


@pytest.mark.parametrize("pattern", GOOD)
def test_ordinary_patterns_are_accepted(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_patterns_that_can_take_for_ever_are_refused(pattern: str) -> None:
    re.compile(pattern)
    with pytest.raises(ValueRefused):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", MALFORMED)
def test_malformed_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueRefused):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^CC-[0-9]+$", "CC-1042", True),
        ("^CC-[0-9]+$", "CC-x", False),
        ("EUR", "100 EUR net", True),
        (r"^[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}$", "anna@example.org", True),
    ],
)
def test_matching_is_that_of_the_standard_library(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "letter"),
    [
        ("^[a-z]+[a-z]+[a-z]+[a-z]+$", "a"),
        ("[a-z]*[a-z]*[a-z]*!", "a"),
        (r"^[a-z.]+@[a-z.]+\.[a-z]{2,}$", "."),
        ("a*b", "a"),
        ("^.*.*=.*$", "="),
        ("^(?:ab)*(?:ab)*(?:ab)*c$", "ab"),
        ("^(a|b)(a|c)[ab]*[ab]*d$", "a"),
    ],
)
def test_no_accepted_pattern_takes_long_whatever_the_length(pattern: str, letter: str) -> None:
    check_pattern(pattern)
    for length in (10, 50, 63, 64, 200, 255, 256, 1_000, 2_000, 4_096):
        for ending in ("", "!", "\n"):
            start = time.process_time()
            matches(pattern, (letter * length)[:length] + ending)
            assert time.process_time() - start < 1.5


def test_a_text_that_is_too_long_for_a_costly_pattern_does_not_match() -> None:
    assert matches("^[a-z]+[a-z]+[a-z]+$", "a" * 200)
    assert not matches("^[a-z]+[a-z]+[a-z]+$", "a" * 2_000)
    assert matches("^[a-z]+$", "a" * 4_000)
    assert matches("^[a-z]+[a-z]+$", "a" * 1_000)
    assert not matches("[a-z]+[a-z]+$", "a" * 1_000), "without ^ it may start anywhere"
