"""What a caller gives: taken, or refused with a `ValueRefused` that names the argument, before anything is done.

What is taken comes back as the plain built-in type, because a subclass of `str` or `int` cannot be stored.
"""

from collections.abc import Iterable

from sync_core.errors import ValueRefused
from sync_core.ids import check_name

__all__ = [
    "check_choice",
    "check_flag",
    "check_instance",
    "check_names",
    "check_seconds",
    "check_text",
    "check_whole",
    "refused",
]

_SECONDS_MAX = 10**9


def check_text(value: object, argument: str) -> str:
    """Return a text; raises `ValueRefused` for what is none, or holds a lone surrogate."""
    if not isinstance(value, str):
        raise refused(argument, "text", value)
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        raise ValueRefused(
            f"{argument} holds a lone surrogate, which is no text.", hint="Decode the text properly first."
        ) from None
    return str.__str__(value)


def check_flag(value: object, argument: str) -> bool:
    """Return a truth value; raises `ValueRefused` for what only counts as one."""
    if not isinstance(value, bool):
        raise refused(argument, "True or False", value)
    return value


def check_whole(value: object, argument: str, *, least: int, most: int) -> int:
    """Return a whole number from `least` to `most`; raises `ValueRefused` for any other value."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise refused(argument, "a whole number", value)
    if not least <= value <= most:
        raise ValueRefused(f"{argument} has to be from {least} to {most}.")
    return int(value)


def check_seconds(value: object, argument: str) -> float:
    """Return a number of seconds, 0 or more; raises `ValueRefused` for any other value."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise refused(argument, "a number of seconds", value)
    if not 0 <= value <= _SECONDS_MAX:
        raise ValueRefused(f"{argument} has to be from 0 to {_SECONDS_MAX} seconds.")
    return float(value)


def check_choice(value: object, argument: str, choices: Iterable[str]) -> None:
    """Raise `ValueRefused` for what is not one of these texts."""
    named = tuple(choices)
    if not isinstance(value, str) or value not in named:
        raise ValueRefused(f"{argument} has to be {' or '.join(named)}.")


def check_instance(
    value: object, kind: type | tuple[type, ...], argument: str, wanted: str, hint: str | None = None
) -> None:
    """Raise `ValueRefused`, saying what was wanted, for a value of another type."""
    if not isinstance(value, kind):
        raise refused(argument, wanted, value, hint)


def check_names(values: object, argument: str, what: str) -> frozenset[str]:
    """Return several names; raises `ValueRefused` for one text, which is a mistake, and for what is no name."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise refused(argument, "a set of names", values)
    return frozenset(check_name(name, what) for name in values)


def refused(argument: str, wanted: str, value: object, hint: str | None = None) -> ValueRefused:
    """Return the error for a value of the wrong type; it names the type, never the value."""
    given = "None" if value is None else type(value).__name__
    return ValueRefused(f"{argument} has to be {wanted}, not {given}.", hint=hint)
