"""What the file of `--tools` says of each tool: its effect, and of one that cannot be undone what it acts on.

One JSON object, tool name to effect class, or to an object in place of the class:

    {"book": {"effect": "IRREVERSIBLE", "key": ["user_id", "flights"], "failed_if": "^Error",
              "label": {"path": "reservation.id"}},
     "cancel": {"effect": "IRREVERSIBLE", "key": ["id"], "releases": {"tool": "book", "argument": "id"}}}
"""

import codecs
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from clients.config import WrongUsage
from clients.desktop.rehearse.recording import FILLED_IN, Run
from sync_core.entry import Effect
from sync_core.errors import ValueRefused
from sync_core.values import JsonValue, canonical, parse

__all__ = ["Label", "Releases", "ToolRule", "check_rules", "read_rules", "rule_of"]


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a result says what the outside system calls what the call made: exactly one of the two.

    `path` leads into a JSON result, names and places joined by dots (`bookings.0.id`). `pattern` is a regular
    expression that is searched in the text; its first group, or else the whole match, is the label.
    """

    path: str | None = None
    pattern: str | None = None

    def of(self, result: str) -> str:
        """Return the label that a recorded result holds, empty if it holds none."""
        if self.pattern is not None:
            found = re.search(self.pattern, result)
            return "" if found is None else (found[1] or "" if found.re.groups else found[0])
        try:
            value: JsonValue = parse(result)
        except ValueRefused:
            return ""
        for name in (self.path or "").split("."):
            value = _part(value, name)
        return _name(value)


class Releases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which call this one undoes: that of `tool` whose label this call's `argument` names."""

    tool: str
    argument: str


class ToolRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool. `key` are the arguments that name the business entity; without them the key is the call's own.

    A result in which `failed_if`, a regular expression, is found says that nothing happened.
    """

    effect: Effect = Effect.IRREVERSIBLE
    key: tuple[str, ...] | None = None
    failed_if: str | None = None
    label: Label | None = None
    releases: Releases | None = None

    @property
    def guarded(self) -> bool:
        """Whether it needs the authority."""
        return self.effect is Effect.IRREVERSIBLE

    def entity(self, given: Mapping[str, JsonValue]) -> list[JsonValue] | None:
        """Return the business entity that a call with these arguments acts on; one that was left out is null."""
        return None if self.key is None else [given.get(name) for name in self.key]

    def failed(self, result: str) -> bool:
        """Whether a recorded result says that nothing happened."""
        return self.failed_if is not None and re.search(self.failed_if, result) is not None

    def label_of(self, result: str) -> str:
        """Return what the outside system calls what the call made, empty if that is not said."""
        return "" if self.label is None else self.label.of(result)

    def undoes(self, given: Mapping[str, JsonValue]) -> tuple[str, str] | None:
        """Return tool and label of the call that one with these arguments undoes."""
        name = _name(given.get(self.releases.argument)) if self.releases else ""
        return (self.releases.tool, name) if self.releases and name else None


def rule_of(rules: Mapping[str, ToolRule], tool: str) -> ToolRule:
    """Return the rule of a tool; one that the file does not name is IRREVERSIBLE, as everywhere."""
    return rules.get(tool) or ToolRule()


def read_rules(path: Path) -> Mapping[str, ToolRule]:
    """Return the rule of each tool that a file names; raises `WrongUsage` that names tool and field."""
    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        raws = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WrongUsage(
            f"{path} does not hold the effects of tools: {error}.",
            hint='It holds {"read_invoice": "READ", "pay": {"effect": "IRREVERSIBLE", "key": ["invoice"]}}.',
        ) from None
    rules = {name: _decoded(path, name, raw) for name, raw in raws.items()}
    for name, rule in rules.items():
        _check(name, rule, rules)
    return rules


def check_rules(rules: Mapping[str, ToolRule], runs: Iterable[Run]) -> None:
    """Raise `WrongUsage` for a rule that names an argument which no recorded call of its tool gives.

    It would be a slip of the pen, and a key of nothing but nulls would prevent every second call.
    """
    seen: dict[str, set[str]] = {}
    for run in runs:
        for call in run.calls:
            seen.setdefault(call.tool, set()).update(call.named or ())
    for name, rule in rules.items():
        if name not in seen:
            continue
        for field, arguments in (
            ("key", rule.key or ()),
            ("releases", (rule.releases.argument,) if rule.releases else ()),
        ):
            for argument in arguments:
                if argument not in seen[name]:
                    known = ", ".join(sorted(seen[name])) or "none"
                    raise _wrong(
                        name, field, f"no recorded call gives it an argument {argument!r}", f"Given are: {known}."
                    )


def _decoded(path: Path, name: str, raw: msgspec.Raw) -> ToolRule:
    try:
        value = msgspec.json.decode(raw, type=Effect | ToolRule)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WrongUsage(
            f"{path}, tool {name}: {error}.",
            hint=f"A tool is {', '.join(Effect)}, or an object with effect, key, failed_if, label, releases.",
        ) from None
    return value if isinstance(value, ToolRule) else ToolRule(value)


def _check(name: str, rule: ToolRule, rules: Mapping[str, ToolRule]) -> None:
    if not rule.guarded:
        for field in ("key", "failed_if", "label", "releases"):
            if getattr(rule, field) is not None:
                raise _wrong(name, field, f"a tool that is {rule.effect} has none", "It is for IRREVERSIBLE tools.")
    if rule.key is not None and (not rule.key or len(set(rule.key)) < len(rule.key) or FILLED_IN & set(rule.key)):
        raise _wrong(
            name, "key", "it lists no argument, one twice, or one that Segue fills in", "Leave it out for none."
        )
    if rule.failed_if is not None:
        _check_pattern(name, "failed_if", rule.failed_if)
    if rule.label is not None:
        if (rule.label.path is None) is (rule.label.pattern is None):
            raise _wrong(name, "label", "it has not exactly one of path and pattern", 'Such as {"path": "booking.id"}.')
        if rule.label.pattern is not None:
            _check_pattern(name, "label", rule.label.pattern)
        if rule.label.path is not None and "" in rule.label.path.split("."):
            raise _wrong(name, "label", "a part of its path is empty", "Join names and places by dots: booking.0.id")
    if rule.releases is not None:
        target = rules.get(rule.releases.tool)
        if target is None or not target.guarded or target.key is None or target.label is None:
            raise _wrong(
                name,
                "releases",
                f"{rule.releases.tool!r} is no IRREVERSIBLE tool of this file with a key and a label",
                "A key is released by the label of the call that holds it.",
            )


def _check_pattern(name: str, field: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _wrong(name, field, f"it is no regular expression ({error})", "Python's syntax is taken.") from None


def _wrong(name: str, field: str, what: str, hint: str) -> WrongUsage:
    return WrongUsage(f"Tool {name}, {field}: {what}.", hint=hint)


def _part(value: JsonValue, name: str) -> JsonValue:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    return None


def _name(value: JsonValue) -> str:
    """A name is a text or a number; what has parts is none."""
    if isinstance(value, str):
        return value
    return "" if value is None or isinstance(value, (bool, dict, list)) else canonical(value)
