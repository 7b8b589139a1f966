"""What a tool that cannot be undone declares: the entity that it acts on, what it undoes, who approves, how to probe.

Each function that is declared takes the tool's arguments by name, as many of them as it names itself.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal

import msgspec

from sync_core.checked import check_flag, refused
from sync_core.entry import Effect
from sync_core.errors import TooLarge, ValueRefused
from sync_core.ids import check_name
from sync_core.values import canonical

__all__ = ["FENCING_TOKEN", "IDEMPOTENCY_KEY", "Declared", "Named", "Probed", "Releases", "Safeguards", "builtins_of"]

_logger = logging.getLogger("segue.tools")

IDEMPOTENCY_KEY = "idempotency_key"
"""A tool parameter of this name is filled in by the endpoint; models never see it and no digest holds it."""
FENCING_TOKEN = "fencing_token"
"""A tool parameter of this name gets the number of the authority's grant, higher with each."""

_LABEL_CHARS_MAX = 200
_ENTITY_CHARS_MAX = 4_096
_RELEASES_MAX = 8


class Probed(msgspec.Struct, frozen=True):
    """What a probe found out at the outside system.

    `happened` is None while it is still not known; `result` is then nothing, else what the tool would have returned.
    Raises `ValueRefused` for anything else than True, False or None.
    """

    happened: bool | None
    result: object = None

    def __post_init__(self) -> None:
        if self.happened is not None and not isinstance(self.happened, bool):
            raise refused("What a probe found", "True, False or None", self.happened)


Named = object
"""A tool, or the name of one."""
Releases = Mapping[Named, Callable[..., object]] | Iterable[tuple[Named, Callable[..., object]]]
"""For each tool that a call undoes: a function of the arguments that returns the entity, or the label, of that call."""


class Declared(msgspec.Struct, frozen=True):
    """The safeguards as a program gave them to `tool`."""

    key: Callable[..., object] | None = None
    releases: Releases = ()
    label: Callable[..., str] | None = None
    approval: bool = False
    fenced: bool = False
    keyed: bool = False
    probe: Callable[..., object] | None = None


class Safeguards:
    """The safeguards of one tool, checked. `checked`: the outside system looks at the key or at the fencing token."""

    def __init__(self, tool: str, effect: Effect, parameters: Iterable[str], declared: Declared) -> None:
        self._tool = tool
        taken = frozenset(parameters)
        arguments = taken - {IDEMPOTENCY_KEY, FENCING_TOKEN}
        self.approval = check_flag(declared.approval, "approval")
        self.checked = _is_checked(tool, taken, declared)
        self._label = None if declared.label is None else _function(tool, "label", declared.label)
        self._key = None if declared.key is None else _OfArguments(tool, "key", declared.key, arguments)
        self._probe = (
            None
            if declared.probe is None
            else _OfArguments(tool, "probe", declared.probe, arguments | {IDEMPOTENCY_KEY})
        )
        self._releases = tuple(
            (_tool_name(tool, other), _OfArguments(tool, "releases", function, arguments))
            for other, function in _pairs(tool, declared.releases)
        )
        if effect is not Effect.IRREVERSIBLE and declared != Declared():
            raise ValueRefused(
                f"The tool {tool} is {effect.value}, and what it declares guards only what cannot be undone.",
                hint="Declare effect=Effect.IRREVERSIBLE, or leave key, releases, label, approval, fenced, keyed and"
                " probe out.",
            )

    @property
    def by_entity(self) -> bool:
        """Whether a call is known by the business entity that it acts on, and not by its step."""
        return self._key is not None

    @property
    def can_probe(self) -> bool:
        """Whether the tool can ask the outside system what became of a call."""
        return self._probe is not None

    def entity(self, arguments: Mapping[str, object]) -> str:
        """Return the business entity that a call acts on, as canonical JSON; empty for a tool without a `key`."""
        if self._key is None:
            return ""
        entity = self._key(arguments)
        if entity is None or entity == "":
            # Calls on different things would share one key, and all but the first would never be made.
            raise ValueRefused(f"The key of {self._tool} names nothing.", hint="Return what the call acts on.")
        return _bounded(canonical(builtins_of(entity), f"the key of {self._tool}"))

    def released(self, arguments: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
        """Return (tool, entity or label) of each call that this one undoes; a text may be either."""
        found: dict[tuple[str, str], None] = {}
        for other, function in self._releases:
            value = builtins_of(function(arguments))
            found[other, _bounded(canonical(value, f"what {self._tool} releases"))] = None
            if isinstance(value, str):
                found[other, value] = None
        return tuple(found)

    def label_of(self, result: object) -> str:
        """Return what the outside system calls what a call made; empty if the tool does not say."""
        if self._label is None:
            return ""
        try:
            label = self._label(result)
        except Exception as error:
            # The call happened, whatever its label may be; but nothing can release it by a label that is not there.
            _logger.warning("The label of the tool %s raised %s: the call has none.", self._tool, type(error).__name__)
            return ""
        if not isinstance(label, str):
            _logger.warning("The label of the tool %s is no text: the call has none.", self._tool)
            return ""
        return label[:_LABEL_CHARS_MAX]

    async def probe(self, arguments: Mapping[str, object], idempotency_key: str) -> Probed:
        """Ask the outside system what became of a call; raises what the probe raises, `ValueRefused` for no answer."""
        assert self._probe is not None
        found = await self._probe.run({**arguments, IDEMPOTENCY_KEY: idempotency_key})
        if not isinstance(found, Probed):
            raise ValueRefused(f"The probe of the tool {self._tool} returned no Probed.", hint="Return Probed(…).")
        return found


class _OfArguments:
    """A declared function, called with those of a tool's arguments that it names."""

    def __init__(self, tool: str, what: str, function: Callable[..., object], arguments: frozenset[str]) -> None:
        self._function = _function(tool, what, function)
        parameters = inspect.signature(self._function).parameters.values()
        self._takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
        named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        self._names = frozenset(parameter.name for parameter in named) & arguments
        for parameter in named:
            unknown = parameter.name not in arguments and parameter.default is inspect.Parameter.empty
            if unknown or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise ValueRefused(
                    f"The {what} function of the tool {tool} takes {parameter.name}, which no argument fills by name.",
                    hint="Name its parameters like those of the tool.",
                )

    def __call__(self, arguments: Mapping[str, object]) -> object:
        return self._function(**self._taken(arguments))

    async def run(self, arguments: Mapping[str, object]) -> object:
        """Await an `async def`; a `def` runs in a thread."""
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**self._taken(arguments))
        return await asyncio.to_thread(self._function, **self._taken(arguments))

    def _taken(self, arguments: Mapping[str, object]) -> dict[str, object]:
        return {name: value for name, value in arguments.items() if self._takes_all or name in self._names}


def _bounded(entity: str) -> str:
    if len(entity) > _ENTITY_CHARS_MAX:
        raise TooLarge(f"A business entity exceeds {_ENTITY_CHARS_MAX} characters of JSON.", hint="Name it by its id.")
    return entity


def _is_checked(tool: str, taken: frozenset[str], declared: Declared) -> bool:
    said = (
        (check_flag(declared.fenced, "fenced"), FENCING_TOKEN),
        (check_flag(declared.keyed, "keyed"), IDEMPOTENCY_KEY),
    )
    for checked, what in said:
        if checked and what not in taken:
            raise ValueRefused(
                f"The tool {tool} says that the outside system checks the {what}, but does not take it.",
                hint=f"Give it a keyword {what} and pass that on.",
            )
    return declared.fenced or declared.keyed


def _function(tool: str, what: str, function: Callable[..., object]) -> Callable[..., object]:
    if not callable(function):
        raise refused(f"{what} of the tool {tool}", "a function", function)
    return function


def _pairs(tool: str, releases: Releases) -> Iterable[tuple[Named, Callable[..., object]]]:
    pairs = tuple(releases.items()) if isinstance(releases, Mapping) else tuple(releases)
    if len(pairs) > _RELEASES_MAX:
        raise ValueRefused(f"The tool {tool} releases more than {_RELEASES_MAX} tools.", hint="Undo in several steps.")
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ValueRefused(
            f"releases of the tool {tool} is no mapping.", hint="Give {tool: a function of the arguments}."
        )
    return pairs


def _tool_name(tool: str, other: Named) -> str:
    name = other if isinstance(other, str) else getattr(other, "name", None)
    return check_name(name if isinstance(name, str) else "", f"tool that {tool} releases")


def builtins_of(value: object) -> object:
    """Return a value as built-in types that JSON can hold; raises `TypeError` for what it cannot."""
    return msgspec.to_builtins(
        value, builtin_types=(Decimal,), str_keys=True, order="deterministic", enc_hook=_plain_builtin
    )


def _plain_builtin(value: object) -> object:
    """A value of a subclass, such as a number of numpy's, as the built-in that it is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is no JSON type")
