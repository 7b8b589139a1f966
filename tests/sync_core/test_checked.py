"""What a caller gives is taken as the plain built-in, or refused by the argument's name, never by its value."""

import math
from collections.abc import Callable
from enum import IntEnum, StrEnum

import pytest

from sync_core.checked import (
    check_choice,
    check_flag,
    check_instance,
    check_names,
    check_seconds,
    check_text,
    check_whole,
)
from sync_core.errors import ValueRefused


class Word(str):
    __slots__ = ()


class Name(StrEnum):
    A = "a"


class Place(IntEnum):
    FIRST = 1


def test_a_text_of_any_subclass_comes_back_as_plain_text() -> None:
    for given, text in (("é😀", "é😀"), ("", ""), (Word("a"), "a"), (Name.A, "a"), ("a\x00", "a\x00")):
        taken = check_text(given, "text")
        assert (type(taken), taken) == (str, text)


def test_a_number_of_a_subclass_comes_back_as_a_plain_one() -> None:
    taken = check_whole(Place.FIRST, "order", least=0, most=9)
    assert (type(taken), taken) == (int, 1)
    assert check_whole(0, "order", least=0, most=9) == 0
    assert check_whole(9, "order", least=0, most=9) == 9
    assert check_seconds(2, "timeout_s") == 2.0
    assert check_flag(False, "required") is False
    assert check_names(["b", "a", "b"], "capabilities", "capability") == {"a", "b"}


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (lambda: check_text(None, "ask"), "ask has to be text, not None."),
        (lambda: check_text(b"hunter2", "ask"), "ask has to be text, not bytes."),
        (lambda: check_text("hunter2\ud800", "ask"), "ask holds a lone surrogate, which is no text."),
        (lambda: check_flag(1, "secret"), "secret has to be True or False, not int."),
        (lambda: check_flag("yes", "secret"), "secret has to be True or False, not str."),
        (lambda: check_whole(True, "order", least=0, most=9), "order has to be a whole number, not bool."),
        (lambda: check_whole(2.5, "order", least=0, most=9), "order has to be a whole number, not float."),
        (lambda: check_whole(10, "order", least=0, most=9), "order has to be from 0 to 9."),
        (lambda: check_whole(-1, "order", least=0, most=9), "order has to be from 0 to 9."),
        (lambda: check_seconds("5", "timeout_s"), "timeout_s has to be a number of seconds, not str."),
        (lambda: check_seconds(True, "timeout_s"), "timeout_s has to be a number of seconds, not bool."),
        (lambda: check_seconds(-0.1, "timeout_s"), "timeout_s has to be from 0 to 1000000000 seconds."),
        (lambda: check_seconds(math.nan, "timeout_s"), "timeout_s has to be from 0 to 1000000000 seconds."),
        (lambda: check_seconds(10**400, "timeout_s"), "timeout_s has to be from 0 to 1000000000 seconds."),
        (lambda: check_choice("opne", "state", ("open", "completed")), "state has to be open or completed."),
        (lambda: check_choice([], "state", ("open", "completed")), "state has to be open or completed."),
        (lambda: check_instance(5, str, "tool", "a tool"), "tool has to be a tool, not int."),
        (lambda: check_names("files", "requires", "capability"), "requires has to be a set of names, not str."),
        (lambda: check_names(None, "requires", "capability"), "requires has to be a set of names, not None."),
        (lambda: check_names([5], "requires", "capability"), "The capability is not a valid name."),
    ],
)
def test_what_does_not_fit_is_refused_by_the_arguments_name(check: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueRefused) as refusal:
        check()
    assert refusal.value.sentence == sentence
