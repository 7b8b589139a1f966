"""Canonical JSON text: the one form in which a value is stored, compared and hashed.

pycrdt itself turns 5 into 5.0 and rounds large integers, so a value is text before it reaches the document
(measured: see the design's section 4). Two values are equal exactly when their canonical texts are equal:
1, 1.0 and true are three values.
"""

import hashlib
import json
import math
import re
from decimal import Decimal
from json.encoder import encode_basestring_ascii

from sync_core.errors import ValueRefused
from sync_core.limits import SLOT_VALUE_DEPTH_MAX

__all__ = ["JsonValue", "canonical", "digest_text", "parse"]

JsonValue = None | bool | int | float | Decimal | str | list["JsonValue"] | dict[str, "JsonValue"]
"""What a slot may hold. Tuples are taken as lists."""

_DEPTH_MAX = 64
_DEPTH_HINT = (
    f"A slot holds {SLOT_VALUE_DEPTH_MAX} levels, anything else {_DEPTH_MAX}; keep it flat, or give it as text."
)
_INT_DIGITS_MAX = 4_000
_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical(value: object, field: str = "value", depth_max: int = _DEPTH_MAX) -> str:
    """Return the canonical JSON text of a value: keys sorted, no blanks, ASCII, numbers exact.

    Raises `ValueRefused`, naming the field's path, for what JSON cannot hold: NaN, infinity, lone surrogates,
    keys that are no text, bytes, sets, and nesting deeper than `depth_max`, which is at most 64.
    """
    out: list[str] = []
    _write(value, field, out, depth_max)
    return "".join(out)


def _write(value: object, field: str, out: list[str], depth_left: int) -> None:
    if depth_left < 0:
        raise ValueRefused(f"{field} is nested too deep.", hint=_DEPTH_HINT)
    if value is None or value is True or value is False:
        out.append("null" if value is None else "true" if value else "false")
    elif isinstance(value, str):
        _write_text(value, field, out)
    elif isinstance(value, int):
        if value.bit_length() > _INT_DIGITS_MAX * 3:
            raise ValueRefused(f"{field} is an integer of too many digits.", hint="Store it as text.")
        out.append(int.__repr__(value))
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueRefused(f"{field} is not a finite number.", hint="JSON has no NaN and no infinity.")
        out.append(float.__repr__(value))
    elif isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueRefused(f"{field} is not a finite number.", hint="JSON has no NaN and no infinity.")
        out.append(_decimal_text(value))
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, f"{field}[{index}]", out, depth_left - 1)
        out.append("]")
    elif isinstance(value, dict):
        _write_object(value, field, out, depth_left)
    else:
        raise ValueRefused(f"{field} is a {type(value).__name__}, which JSON cannot hold.", hint="Convert it first.")


def _write_object(value: dict[object, object], field: str, out: list[str], depth_left: int) -> None:
    keys: list[str] = []
    for key in value:
        if not isinstance(key, str):
            raise ValueRefused(f"{field} has a key that is no text.", hint="JSON object keys are text.")
        keys.append(key)
    out.append("{")
    for index, key in enumerate(sorted(keys)):
        if index:
            out.append(",")
        _write_text(key, f"a key of {field}", out)
        out.append(":")
        _write(value[key], f"{field}.{key}", out, depth_left - 1)
    out.append("}")


def _write_text(value: str, field: str, out: list[str]) -> None:
    if _SURROGATE.search(value):
        raise ValueRefused(f"{field} holds a lone surrogate, which is no text.", hint="Decode the text properly first.")
    out.append(encode_basestring_ascii(value))


def _decimal_text(value: Decimal) -> str:
    """A Decimal keeps its zeros and always has an upper-case exponent, which no float's repr has: 1.10 is `1.10E0`."""
    text = str(value)
    return text if "E" in text else text + "E0"


def _number(text: str) -> float | Decimal:
    """A canonical text says by its E what it is; what somebody else wrote, such as 1.10, may need a Decimal."""
    if "E" in text:
        return Decimal(text)
    value = float(text)
    if repr(value) == text or ("e" in text and Decimal(repr(value)) == Decimal(text)):
        return value
    return Decimal(text)


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


_decoder = json.JSONDecoder(parse_float=_number, parse_constant=_refuse_constant)


def parse(text: str) -> JsonValue:
    """Return the value of a canonical text; raises `ValueRefused` for text that is no JSON.

    Any other JSON is taken too: a number of it that a float would change, or whose zeros it would lose, is a Decimal.
    """
    try:
        value: JsonValue = _decoder.decode(text)
    except (ValueError, RecursionError, ArithmeticError):
        raise ValueRefused("The stored text is not JSON.") from None
    return value


def digest_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()
