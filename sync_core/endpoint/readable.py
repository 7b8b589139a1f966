"""JSON for people and models: plain numbers and letters, where canonical JSON has exponents and escapes.

What another device stored may be anything, so either function refuses a text that no honest writer stores.
"""

import math
from decimal import Decimal

import msgspec

from sync_core.errors import ValueRefused
from sync_core.values import JsonValue, parse

__all__ = ["plain", "readable"]

_encoder = msgspec.json.Encoder(decimal_format="number", order="sorted")
_DEPTH_MAX = 64
_WHOLE_MAX = 2**53
"""A JSON reader that knows only doubles rounds whole numbers beyond it."""


def readable(text: str) -> str:
    """Return a canonical text as readable JSON, every number exact; equal texts give equal results on every device."""
    try:
        return _encoder.encode(parse(text)).decode()
    except (UnicodeError, RecursionError):
        raise _not_canonical() from None


def plain(text: str) -> JsonValue:
    """Return the value of a canonical text with plain numbers only, so that any JSON library can write and read it.

    A number that a reader of doubles would round is given as text.
    """
    try:
        return _plain(parse(text), _DEPTH_MAX)
    except UnicodeError:
        raise _not_canonical() from None


def _not_canonical() -> ValueRefused:
    return ValueRefused("The stored text is no canonical JSON.")


def _plain(value: JsonValue, depth_left: int) -> JsonValue:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, dict)):
        if depth_left < 0:
            raise _not_canonical()
        if isinstance(value, list):
            return [_plain(item, depth_left - 1) for item in value]
        return {_text(key): _plain(item, depth_left - 1) for key, item in value.items()}
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _not_canonical()
    if isinstance(value, int) and not -_WHOLE_MAX <= value <= _WHOLE_MAX:
        return str(value)
    return value


def _text(value: str) -> str:
    """The text, if it is one: a parser lets a lone surrogate through."""
    value.encode()
    return value


def _plain_decimal(value: Decimal) -> JsonValue:
    double = float(value)
    if not math.isfinite(double) or Decimal(repr(double)) != value:
        return str(value)
    is_whole = value.as_tuple().exponent == 0 and abs(double) <= _WHOLE_MAX
    return int(value) if is_whole else double
