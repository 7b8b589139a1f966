"""Definitions of slots: how they are stored, and JSON Schema with bounded work.

A definition may come from anybody, so a schema is bounded before it is used: 8 KB, references only to its own
definitions and never in a circle, at most `_KEYWORDS_MAX` keywords once references are followed, at most `_CHECKS_MAX`
keywords times parts of the value, and patterns whose worst case is known (see `patterns`). Numbers are compared as
decimals, so 0.1 is 0.1 and integers of any size work. Formats are not checked. An error names the path and the rule,
never the value.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache
from typing import NoReturn

import msgspec
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from sync_core.checked import check_flag, check_text, check_whole
from sync_core.document.patterns import check_pattern, matches
from sync_core.document.slots import SlotDefinition, StoredDefinition
from sync_core.errors import TooLarge, ValueRefused
from sync_core.ids import check_name
from sync_core.limits import DEFINITION_WRITE_BYTES_MAX, RECORD_NUMBER_MAX, SCHEMA_BYTES_MAX, SLOT_VALUE_BYTES_MAX
from sync_core.values import canonical, parse

__all__ = ["check_definition", "check_value", "decode_definition", "encode_definition", "schema_error"]

_KEYWORDS_MAX = 512
_CHECKS_MAX = 2**16
_DEPTH_MAX = 64
_DECIMAL_DIGITS_MAX = 9_000
_PATH_CHARS_MAX = 120
_LOCAL_REF = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.-]+)")
_REFUSED_KEYWORDS = frozenset(
    {
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$recursiveAnchor",
        "$recursiveRef",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords that move references elsewhere, or whose work cannot be bounded from the schema alone."""


# --- what is stored ---------------------------------------------------------------------------------------------------


class _Stored(msgspec.Struct):
    """The JSON text under a key of `slotdefs`."""

    a: str
    n: int
    t: int
    d: SlotDefinition


_decoder = msgspec.json.Decoder(_Stored)


def encode_definition(definition: SlotDefinition, n: int, author: str, at_ms: int) -> str:
    """Return what is stored for a definition; raises `TooLarge` over 16 KB."""
    stored = msgspec.json.encode(_Stored(author, n, at_ms, definition))
    if len(stored) > DEFINITION_WRITE_BYTES_MAX:
        raise TooLarge(f"A definition exceeds {DEFINITION_WRITE_BYTES_MAX} bytes.", hint="Shorten its ask text.")
    return stored.decode()


def decode_definition(stored: str) -> StoredDefinition:
    """Return a stored definition; one without content for anything that no honest writer stores."""
    try:
        found = _decoder.decode(stored)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return StoredDefinition(0, None)
    return StoredDefinition(found.n, found.d) if 0 < found.n <= RECORD_NUMBER_MAX else StoredDefinition(0, None)


# --- what is checked --------------------------------------------------------------------------------------------------


def check_definition(definition: SlotDefinition) -> SlotDefinition:
    """Return the definition with its schema as canonical text; raises `ValueRefused` or `TooLarge`, naming the part.

    What is stored is read by every device, and one that is read with other types than these is unreadable there.
    """
    schema = None if definition.schema is None else canonical(parse(definition.schema), "schema")
    if schema is not None:
        _validator(schema)
    return SlotDefinition(
        check_text(definition.ask, "ask"),
        schema,
        check_flag(definition.required, "required"),
        check_flag(definition.secret, "secret"),
        check_whole(definition.order, "order", least=-RECORD_NUMBER_MAX, most=RECORD_NUMBER_MAX),
        None if definition.held_by is None else check_name(definition.held_by, "holder of the slot"),
    )


def check_value(name: str, definition: SlotDefinition, secret: bool, text: str) -> None:
    """Check a value (canonical JSON) against the slot's schema.

    Raises `ValueRefused`, naming the slot, the path (not for a secret slot) and the rule, never the value.
    """
    error = schema_error(definition, secret, text)
    if error is not None:
        raise ValueRefused(f"The value of {name} {error}.", hint="Look at the slot's schema, or declare it again.")


def schema_error(definition: SlotDefinition, secret: bool, text: str) -> str | None:
    """Return how a value (canonical JSON) fails the definition's schema, or None; never quotes the value."""
    return None if definition.schema is None else _schema_error(definition.schema, secret, text)


@lru_cache(maxsize=256)
def _schema_error(schema: str, secret: bool, text: str) -> str | None:
    """The check itself. A value is checked when it is written and again when its slot is shown: cached in between."""
    try:
        validator, keywords = _validator(schema)
    except (ValueRefused, TooLarge):
        return "cannot be checked: the slot's schema is not acceptable"
    try:
        value = json.loads(text, parse_float=Decimal)
        if keywords * _parts(value) > _CHECKS_MAX:
            return "has too many parts for the slot's schema"
        error = next(validator.iter_errors(value), None)
    except (RecursionError, ArithmeticError, ValueError, TypeError):
        return "cannot be checked against the slot's schema"
    if error is None:
        return None
    where = "" if secret else f" at {_path(error)}"
    return f"breaks the rule {error.validator} of its schema{where}"


def _parts(value: object) -> int:
    """Return how many values there are in a value, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(_parts, value.values()))
    return 1 + sum(map(_parts, value)) if isinstance(value, list) else 1


def _path(error: ValidationError) -> str:
    path = error.json_path
    return path if len(path) <= _PATH_CHARS_MAX else path[:_PATH_CHARS_MAX] + "…"


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> tuple[Validator, int]:
    """Return the validator of a schema and its number of keywords, references followed; or raise why it is refused."""
    if len(schema_text.encode()) > SCHEMA_BYTES_MAX:
        raise TooLarge(f"A schema exceeds {SCHEMA_BYTES_MAX} bytes.", hint="Check less, or in the tool.")
    schema = json.loads(canonical(parse(schema_text), "schema"), parse_float=Decimal)
    if not isinstance(schema, (dict, bool)):
        _refuse("is not an object")
    try:
        keywords = _Bounds(schema).keywords()
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError, ArithmeticError):
        _refuse("is not a valid JSON Schema (draft 2020-12)")
    return _BoundedValidator(schema), keywords


class _Bounds:
    """Walks a schema once and bounds what a check with it can cost."""

    def __init__(self, schema: object) -> None:
        self._schema = schema
        self._known: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()

    def keywords(self) -> int:
        """Return the number of keywords; raises `ValueRefused` if the schema is not bounded."""
        return self._measure(self._schema)[0]

    def _measure(self, node: object) -> tuple[int, int]:
        """Return (keywords, depth) of a part, with references followed."""
        size, depth = 0, 0
        if isinstance(node, dict):
            size = len(node)
            children = [self._measure_keyword(key, value) for key, value in node.items()]
        elif isinstance(node, list):
            children = [self._measure(item) for item in node]
        else:
            return 0, 0
        for child_size, child_depth in children:
            size, depth = size + child_size, max(depth, child_depth + 1)
        if size > _KEYWORDS_MAX or depth > _DEPTH_MAX:
            _refuse(f"has more than {_KEYWORDS_MAX} keywords or is nested deeper than {_DEPTH_MAX}")
        return size, depth

    def _measure_keyword(self, key: str, value: object) -> tuple[int, int]:
        if key in _REFUSED_KEYWORDS:
            _refuse(f"uses {key}")
        if key == "$ref" and isinstance(value, str):
            return self._measure_reference(value)
        if key == "pattern" and isinstance(value, str):
            check_pattern(value)
        if key == "patternProperties" and isinstance(value, dict):
            for pattern in value:
                check_pattern(pattern, SLOT_VALUE_BYTES_MAX)
        return self._measure(value)

    def _measure_reference(self, reference: str) -> tuple[int, int]:
        found = _LOCAL_REF.fullmatch(reference)
        root = self._schema if isinstance(self._schema, dict) else {}
        part = root.get(found[1]) if found else None
        if not found or not isinstance(part, dict) or found[2] not in part:
            _refuse("refers to something outside its own definitions")
        if reference in self._open:
            _refuse("refers to itself")
        if reference not in self._known:
            self._open.add(reference)
            self._known[reference] = self._measure(part[found[2]])
            self._open.discard(reference)
        return self._known[reference]


def _refuse(why: str) -> NoReturn:
    raise ValueRefused(f"The slot's schema {why}.", hint="Use plain keywords and references to its own $defs.")


# --- keywords that the library would check without a bound, or not exactly --------------------------------------------


def _check_pattern_keyword(_: Validator, pattern: str, value: object, __: object) -> Iterator[ValidationError]:
    if isinstance(value, str) and not matches(pattern, value):
        yield ValidationError("pattern")


def _check_pattern_properties(
    validator: Validator, patterns: dict[str, object], value: object, __: object
) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        for pattern, subschema in patterns.items():
            for key, part in value.items():
                if matches(pattern, key):
                    yield from validator.descend(part, subschema, path=key)  # type: ignore[attr-defined]


def _check_unique(_: Validator, unique: bool, value: object, __: object) -> Iterator[ValidationError]:
    if unique and isinstance(value, list) and len({canonical(item) for item in value}) < len(value):
        yield ValidationError("uniqueItems")


def _check_multiple(_: Validator, factor: int | Decimal, value: object, __: object) -> Iterator[ValidationError]:
    if _is_number(None, value):
        with localcontext() as context:
            context.prec = _DECIMAL_DIGITS_MAX
            try:
                remainder = Decimal(value) % Decimal(factor)  # type: ignore[arg-type]
            except InvalidOperation:
                remainder = Decimal(1)
        if remainder:
            yield ValidationError("multipleOf")


def _is_number(_: object, value: object) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _is_integer(_: object, value: object) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


_BoundedValidator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "pattern": _check_pattern_keyword,
        "patternProperties": _check_pattern_properties,
        "uniqueItems": _check_unique,
        "multipleOf": _check_multiple,
    },
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("number", _is_number).redefine("integer", _is_integer),
)
