"""Which calls of a run depend on a call that a key prevented: a pure function of the recording.

A prevented call did not happen, so what only its result brought into the conversation, such as the number of a second
booking, exists nowhere. A later call that names it can be rehearsed as little as the prevented one, and what only its
own recorded result brought is gone as well.
"""

import re
from collections.abc import Iterator

from clients.desktop.rehearse.recording import RecordedCall, Run, Said
from sync_core.errors import ValueRefused
from sync_core.values import JsonValue, parse

__all__ = ["dependents"]

_DIGITS_MIN = 4
"""A number of fewer digits counts something; it names nothing."""

_WORD = re.compile(r"\w+(?:[-./:@]\w+)*")
_NO_PROSE = re.compile(r"\d|(?<=.)[A-Z]")


def dependents(run: Run, prevented: frozenset[int]) -> frozenset[int]:
    """Return the numbers of the calls that depend on one of the `prevented` ones, or on a dependent one."""
    if not prevented:
        return prevented
    known: set[str] = set()
    gone: set[str] = set()
    found: set[int] = set()
    for step in run.steps:
        known |= _names(step.message.get("content"))
        if isinstance(step, Said):
            continue
        for call in step.calls:
            # The names of a turn count as arguments only where they are whole values: a thought names many things.
            given = call.given or {}
            if not gone.isdisjoint(_values(given)):
                found.add(call.number)
            known |= _values(given)
            told = _told(call)
            if call.number in prevented or call.number in found:
                gone |= _identifiers(told) - known
            known |= _names(told)
    return frozenset(found)


def _told(call: RecordedCall) -> JsonValue:
    try:
        return parse(call.result)
    except ValueRefused:
        return call.result


def _values(value: JsonValue) -> set[str]:
    """The leaves of JSON that may name something."""
    return {name for leaf in _leaves(value) if (name := _name(leaf))}


def _names(value: JsonValue) -> set[str]:
    """What a text or JSON brings into a conversation: its leaves, and the words in them."""
    values = _values(value)
    return values.union(*(_WORD.findall(leaf) for leaf in values))


def _identifiers(value: JsonValue) -> set[str]:
    """What a result brings that can only be its own: its leaves, and of the words in them those that are no prose."""
    values = _values(value)
    return values | {word for word in _names(value) - values if _NO_PROSE.search(word)}


def _name(leaf: JsonValue) -> str:
    if isinstance(leaf, str):
        return leaf.strip()
    digits = str(leaf) if isinstance(leaf, int) and not isinstance(leaf, bool) else ""
    return digits if len(digits.lstrip("-")) >= _DIGITS_MIN else ""


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    else:
        yield value
