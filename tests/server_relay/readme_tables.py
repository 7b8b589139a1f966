"""The tables of `server_relay/README.md` that follow from the code: `python -m tests.server_relay.readme_tables`.

A table stands between `<!-- name -->` and `<!-- /name -->`; a test compares.
"""

import re
import sys
import types
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Union, get_args, get_origin, get_type_hints

import msgspec

from server_relay.config import RelaySettings
from server_relay.settings import HELP, SETTING_NAMES, flag_of
from sync_core import limits
from sync_core.entry import Entry, WriterRow
from sync_core.frames import PlannedStep, RefusalCode, SnapshotRef, StreamHead, StreamPosition, TaskListing
from sync_core.wire import ClientFrame, RelayFrame

__all__ = ["README", "TABLES", "with_tables"]

README = Path(__file__).parents[2] / "server_relay" / "README.md"
_PARTS = (Entry, StreamPosition, StreamHead, SnapshotRef, WriterRow, TaskListing, PlannedStep)
_BASIC = {str: "text", int: "int", bool: "bool", bytes: "bin"}


def _frames(union: object) -> list[str]:
    kinds = [kind for kind in get_args(union) if isinstance(kind, type)]
    rows = [f"| `{kind.__struct_config__.tag}` | {_fields(kind)} | {_about(kind)} |" for kind in kinds]
    return ["| tag | fields behind it, in order | what it is |", "| --- | --- | --- |", *rows]


def _parts() -> list[str]:
    rows = [f"| {kind.__name__} | {_fields(kind)} | {_about(kind)} |" for kind in _PARTS]
    return ["| part | fields, in order | what it is |", "| --- | --- | --- |", *rows]


def _fields(kind: type) -> str:
    hints = get_type_hints(kind)
    found = []
    for field in msgspec.structs.fields(kind):
        default = "" if field.required else "?"
        found.append(f"`{field.name}`{default} {_type(hints[field.name])}")
    return ", ".join(found)


def _type(hint: object) -> str:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint.__name__
    if isinstance(hint, type):
        return _BASIC.get(hint, hint.__name__)
    arguments = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join("nil" if each is type(None) else _type(each) for each in arguments)
    if len(arguments) == 2 and arguments[1] is ...:
        return f"[{_type(arguments[0])}…]"
    return f"[{', '.join(map(_type, arguments))}]"


def _about(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _settings() -> list[str]:
    defaults = RelaySettings(db=Path("-"))
    rows = []
    for name in SETTING_NAMES:
        value = getattr(defaults, name, None)
        shown = "none" if value in (None, ()) else str(value).lower() if isinstance(value, bool) else str(value)
        rows.append(f"| `{flag_of(name)[-1]}` | {'required' if name == 'db' else shown} | {HELP[name]} |")
    return ["| flag | default | what it is |", "| --- | --- | --- |", *rows]


def _limits() -> list[str]:
    rows = [f"| `{name}` | {getattr(limits, name):,} |" for name in limits.__all__]
    return ["| bound | value |", "| --- | --- |", *rows]


def _refusals() -> list[str]:
    return ["`" + "`, `".join(code.value for code in RefusalCode) + "`"]


TABLES: dict[str, Callable[[], list[str]]] = {
    "settings": _settings,
    "to relay": lambda: _frames(ClientFrame),
    "to endpoint": lambda: _frames(RelayFrame),
    "parts": _parts,
    "refusals": _refusals,
    "limits": _limits,
}


def with_tables(text: str) -> str:
    """Return the page with every table as it follows from the code."""
    for name, table in TABLES.items():
        text = _replaced(text, name, table())
    return text


def _replaced(text: str, name: str, lines: Iterable[str]) -> str:
    between = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
    assert between.search(text), f"the page has no place for the table: {name}"
    return between.sub(lambda _: "\n".join([f"<!-- {name} -->", *lines, f"<!-- /{name} -->"]), text)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
    sys.stdout.write(f"{README.name} is up to date\n")
