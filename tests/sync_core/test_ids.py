"""Names keep to their grammar (RS-34), and ids are random at each use."""

import os
import random
from collections.abc import Callable
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_core.errors import ValueRefused
from sync_core.ids import (
    GENESIS_WRITER,
    WRITER_BITS,
    StreamName,
    check_name,
    check_note,
    check_step,
    check_task,
    new_hex_id,
    new_writer,
    split_stream,
    stream_id,
)
from sync_core.limits import NAME_CHARS_MAX, STEP_CHARS_MAX, TASK_CHARS_MAX

BAD_NAMES = [
    "",
    ".",
    "..",
    "../",
    "../../etc/passwd",
    "a/b",
    "a\\b",
    "a\x00b",
    "\x00",
    "con",
    "CON",
    "nul",
    "Aux",
    "prn",
    "com1",
    "LPT9",
    "x" * 10_240,
    "x" * (NAME_CHARS_MAX + 1),
    "a.b",
    "a.",
    ">",
    "*",
    "a*",
    "a>b",
    "a|b",
    "a:b",
    "a b",
    " a",
    "a\n",
    "a\r\nb",
    "-a",
    "$SYS",
    "~",
    "%2e%2e",
    "a\u0441me",  # a Cyrillic letter that looks like c
    "\uff41cme",  # a full-width letter
    "acme\u200b",
    "acme\u202e",
    "\u017f",  # a long s, which upper-cases to S
    "é",
    "\uff11",  # a full-width digit
    "\u212a",  # the Kelvin sign, which lower-cases to k
]


def named(name: str) -> str:
    return check_name(name, "device")


def checks_of(name: str) -> list[Callable[[str], str]]:
    """The checks that must refuse a bad name; a task key and a step have separators of their own."""
    checks: list[Callable[[str], str]] = [named, check_note]
    if "/" not in name.strip("./"):
        checks.append(check_task)
    if not set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/:"):
        checks.append(check_step)
    return checks


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_bad_name_is_refused_and_not_repeated_in_the_error(name: str) -> None:
    for check in checks_of(name):
        with pytest.raises(ValueRefused) as refused:
            check(name)
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", [None, 5, b"a", ["a"]])
def test_what_is_no_text_is_no_name(value: object) -> None:
    for check in (named, check_task, check_note, check_step):
        with pytest.raises(ValueRefused):
            check(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "_", "A-1_b", "0", "cone", "com10", "x" * NAME_CHARS_MAX])
def test_a_good_name_is_returned_as_it_is(name: str) -> None:
    assert [check(name) for check in (named, check_task, check_note, check_step)] == [name] * 4


@given(st.text(max_size=80))
def test_a_name_that_passes_is_plain_ascii(name: str) -> None:
    try:
        named(name)
    except ValueRefused:
        return
    assert name.isascii()
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def test_a_task_key_is_names_joined_by_slashes() -> None:
    assert check_task("expense/TRIP-118") == "expense/TRIP-118"
    for bad in ("", "/", "a/", "/a", "a//b", "a/../b", "a/con/b", "a/b:state", "x/" * TASK_CHARS_MAX):
        with pytest.raises(ValueRefused):
            check_task(bad)
    longest = "/".join(["x" * 49] * 4)
    assert check_task(longest + "x") == longest + "x"
    with pytest.raises(ValueRefused):
        check_task(longest + "xx")


def test_a_step_may_hold_slashes_and_colons() -> None:
    assert check_step("0123456789abcdef/12:retry") == "0123456789abcdef/12:retry"
    assert check_step("x" * STEP_CHARS_MAX) == "x" * STEP_CHARS_MAX
    for bad in ("/a", "x" * (STEP_CHARS_MAX + 1)):
        with pytest.raises(ValueRefused):
            check_step(bad)


def test_a_note_is_not_named_handover() -> None:
    assert check_note("handover2") == "handover2"
    with pytest.raises(ValueRefused, match="handover"):
        check_note("handover")


def test_a_name_of_a_subclass_of_text_comes_back_as_plain_text() -> None:
    class Word(str):
        __slots__ = ()

    class Name(StrEnum):
        AMOUNT = "amount"

    for name in (Word("amount"), Name.AMOUNT):
        for check in (lambda name: check_name(name, "slot name"), check_task, check_note, check_step):
            assert (type(check(name)), check(name)) == (str, "amount")


@pytest.mark.parametrize("name", StreamName)
def test_a_stream_id_splits_into_what_it_was_made_of(name: StreamName) -> None:
    assert split_stream(stream_id("expense/TRIP-118", name)) == ("expense/TRIP-118", name)


@pytest.mark.parametrize(
    "stream", ["", "state", ":state", "a:b:state", "a:", "a:State", "a:other", "../a:state", "a:state "]
)
def test_what_is_no_stream_id_is_refused(stream: str) -> None:
    with pytest.raises(ValueRefused):
        split_stream(stream)


def test_a_writer_id_has_53_random_bits_and_is_never_a_small_number() -> None:
    rng = random.Random(53)
    ids = {new_writer(rng.randbytes) for _ in range(2_000)}
    assert len(ids) == 2_000
    assert all(2**16 <= writer < 2**WRITER_BITS for writer in ids)
    assert max(ids) > 2**52
    assert GENESIS_WRITER < 2**16
    answers = iter([bytes(7), b"\x00" * 4 + b"\x08\x00\x00"])  # a small number is drawn again
    assert new_writer(lambda size: next(answers)[:size]) == 2**16


def test_ids_from_the_operating_system_differ() -> None:
    assert len({new_writer(os.urandom) for _ in range(100)}) == 100
    ids = {new_hex_id(os.urandom) for _ in range(100)}
    assert len(ids) == 100
    assert all(len(one) == 16 and set(one) <= set("0123456789abcdef") for one in ids)


def test_the_same_entropy_gives_the_same_ids() -> None:
    assert new_writer(random.Random(1).randbytes) == new_writer(random.Random(1).randbytes)
    assert new_hex_id(random.Random(1).randbytes) == new_hex_id(random.Random(1).randbytes)
