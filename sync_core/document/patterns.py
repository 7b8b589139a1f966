r"""Regular expressions with a known worst case.

Python's `re` backtracks: `(a+)+$` takes longer than the age of the universe on 60 letters. A slot's schema may come
from anybody, so a pattern is read before it is used. Refused are nested quantifiers, a quantified group with
alternatives, back references and look-around. What is left takes at most `branches * length ** degree` steps: every
unbounded quantifier adds one to the degree, so does a missing `^`, and every optional part or alternative multiplies
the branches. From that follows how long a text may be that is checked against the pattern.
"""

import re
from functools import lru_cache
from typing import NoReturn

from sync_core.errors import ValueRefused

__all__ = ["check_pattern", "matches"]

_STEPS_MAX = 2**24
_TEXT_CHARS_MIN = 16
"""A pattern that cannot take even this many characters within the steps is refused."""
_PATTERN_CHARS_MAX = 512
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d{1,4})?(,(\d{1,4})?)?\})[?+]?")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_BACK_REFERENCE = re.compile(r"\\[1-9]")


class _Work:
    """What is known of a pattern's worst case while it is read."""

    def __init__(self, anchored: bool) -> None:
        self.degree = 0 if anchored else 1
        self.branches = 1
        self.open: list[bool] = [False]
        """Per open group: whether it holds a quantifier or alternatives, so that it may not be repeated."""

    def quantify(self, found: "re.Match[str]", is_group: bool, is_loose: bool) -> None:
        """Count a quantifier behind a group (or a single character)."""
        spread = _spread(found)
        if spread == 0:
            return
        if is_group and is_loose:
            _refuse("nests quantifiers")
        if spread < 0:
            self.degree += 1
        else:
            self.branches *= spread + 1
        self.open[-1] = True


def _spread(found: "re.Match[str]") -> int:
    """Return how many more repeats than the least a quantifier allows; -1 for any number, 0 for an exact count."""
    text = found.group()
    if text[0] in "*+":
        return -1
    if text[0] == "?":
        return 1
    if found[2] is None:
        return 0
    return -1 if found[3] is None else max(0, int(found[3]) - int(found[1] or 0))


def check_pattern(pattern: str, text_chars: int = _TEXT_CHARS_MIN) -> None:
    """Raise `ValueRefused` for a pattern that is malformed, or takes too long for a text of `text_chars` characters."""
    if _text_chars_max(pattern) < text_chars:
        _refuse("can take too many steps")


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern, which was checked, occurs in the text; False for a text that is too long for it."""
    return len(text) <= _text_chars_max(pattern) and re.search(pattern, text) is not None


@lru_cache(maxsize=1_024)
def _text_chars_max(pattern: str) -> int:
    if len(pattern) > _PATTERN_CHARS_MAX:
        _refuse(f"has more than {_PATTERN_CHARS_MAX} characters")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        _refuse("is not valid")
    work = _read(pattern)
    if work.branches > _STEPS_MAX:
        return 0
    return int((_STEPS_MAX / work.branches) ** (1 / max(1, work.degree)))


def _read(pattern: str) -> _Work:
    work = _Work(pattern.startswith("^"))
    i, is_group, is_loose = 0, False, False
    while i < len(pattern):
        found = _QUANTIFIER.match(pattern, i)
        if found and i:
            work.quantify(found, is_group, is_loose)
            i = found.end()
            continue
        char = pattern[i]
        is_group, is_loose = char == ")", False
        if char == "(":
            i = _open(pattern, i, work)
            continue
        if char == ")":
            is_loose = work.open.pop()
            work.open[-1] = work.open[-1] or is_loose
        elif char == "|":
            work.branches *= 2
            work.degree += 1 if len(work.open) == 1 and pattern.startswith("^") else 0
            work.open[-1] = True
        i = _skip(pattern, i)
    return work


def _open(pattern: str, i: int, work: _Work) -> int:
    """Return the place behind the opening of a group."""
    work.open.append(False)
    if not pattern.startswith("(?", i):
        return i + 1
    if not pattern.startswith("(?:", i):
        _refuse("uses look-around or flags")
    return i + 3


def _skip(pattern: str, i: int) -> int:
    """Return the place behind one character, escape or class."""
    if pattern[i] == "[":
        found = _CLASS.match(pattern, i)
        return found.end() if found else len(pattern)
    if pattern[i] == "\\":
        if _BACK_REFERENCE.match(pattern, i):
            _refuse("refers back to a group")
        return i + 2
    return i + 1


def _refuse(why: str) -> NoReturn:
    raise ValueRefused(
        f"A pattern of the schema {why}.", hint="Use a plain pattern, anchored with ^, without nested quantifiers."
    )
