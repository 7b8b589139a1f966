"""Tools: functions whose calls are recorded, with the effect, the needs and the JSON shape that they declare."""

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from sync_core.checked import check_names, refused
from sync_core.endpoint.safeguards import FENCING_TOKEN, IDEMPOTENCY_KEY, Declared, Releases, Safeguards, builtins_of
from sync_core.entry import Effect
from sync_core.errors import ValueRefused
from sync_core.ids import check_name
from sync_core.values import JsonValue, canonical, digest_text, parse

__all__ = [
    "MODEL_TOOL_NAMES",
    "AsyncTool",
    "BoundArguments",
    "Decorator",
    "SyncTool",
    "Tool",
    "effect_from_mcp",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_FILLED_IN = frozenset({IDEMPOTENCY_KEY, FENCING_TOKEN})
_NOTHING_DECLARED = Declared()

_UNSAID = object()
"""Stands for the effect of a tool whose author said none, which is not the same as having said IRREVERSIBLE."""

MODEL_TOOL_NAMES = frozenset(
    {"slot_list", "slot_propose", "slot_confirm", "slot_clear", "note_list", "note_read", "note_write", "note_edit"}
)
"""The tools by which a model reads and writes the task itself; no tool of a program may have such a name."""


class BoundArguments(msgspec.Struct, frozen=True):
    """One call's arguments: as the tool takes them, as canonical JSON of an object, and that text's SHA-256 (hex)."""

    values: msgspec.Struct
    text: str
    digest: str

    def named(self) -> dict[str, object]:
        """Return the arguments by name, as the tool takes them."""
        return {field: getattr(self.values, field) for field in self.values.__struct_fields__}


class Tool(Generic[P, R_co]):
    """A recorded function. `schema` is its OpenAI function description.

    `effect_given` is False where nobody said what it changes, `takes_key` says that it has the parameter
    `idempotency_key`, `safeguards` what guards an effect that cannot be undone.
    """

    def __init__(
        self,
        function: Callable[P, object],
        effect: object,
        requires: Iterable[str],
        name: str | None,
        declared: Declared = _NOTHING_DECLARED,
    ) -> None:
        self.name = check_name(name or _name_of(function), "tool name")
        self.effect_given = effect is not _UNSAID
        self.effect = _checked_effect(effect) if self.effect_given else Effect.IRREVERSIBLE
        self.requires = check_names(requires, "requires", "capability")
        self.description = inspect.getdoc(function) or ""
        self._function: Callable[..., object] = function
        self._signature, hints = _read_signature(self.name, function)
        self._result_type = hints.get("return", object)
        self._parameters = _parameters(self.name, self._signature, hints)
        self.takes_key = IDEMPOTENCY_KEY in self._signature.parameters
        # The endpoint gives these, so no caller has to, whether or not they have a default.
        self._filled_in = {
            name: None
            for name, parameter in self._signature.parameters.items()
            if name in _FILLED_IN and parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        self.safeguards = Safeguards(self.name, self.effect, self._signature.parameters, declared)
        self.schema = self._describe()
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    def bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> BoundArguments:
        """Bind a call's arguments to the signature, defaults applied; raises `ValueRefused` if they do not fit."""
        kwargs = {name: value for name, value in kwargs.items() if name not in self._filled_in}
        try:
            names = self._signature.bind(*args, **self._filled_in, **kwargs).arguments
        except TypeError as error:
            raise ValueRefused(f"The arguments do not fit the tool {self.name}: {error}.") from None
        return self._bind({name: value for name, value in names.items() if name not in _FILLED_IN})

    def bind_json(self, text: str) -> BoundArguments:
        """Bind the arguments that a model or a plan gave as a JSON object; raises `ValueRefused` if they do not fit."""
        try:
            arguments = parse(text)
        except ValueRefused:
            arguments = None
        if not isinstance(arguments, dict):
            raise ValueRefused(f"The arguments of the tool {self.name} are not a JSON object.")
        for name in _FILLED_IN & self._signature.parameters.keys():
            arguments.pop(name, None)
        return self._bind(arguments)

    def _bind(self, names: Mapping[str, object]) -> BoundArguments:
        try:
            values = msgspec.convert(builtins_of(dict(names)), self._parameters, str_keys=True)
        except UnicodeError:
            raise ValueRefused(f"An argument of {self.name} holds a lone surrogate, which is no text.") from None
        except (msgspec.ValidationError, TypeError, RecursionError) as error:
            # msgspec names types and the path, never a value.
            raise ValueRefused(f"The arguments do not fit the tool {self.name}: {error}.") from None
        text = canonical(builtins_of(values), f"an argument of {self.name}")
        return BoundArguments(values, text, digest_text(text))

    async def invoke(self, bound: BoundArguments, idempotency_key: str, fencing_token: int = 0) -> object:
        """Run the function, unrecorded; a `def` runs in a thread."""
        names = {**bound.named(), IDEMPOTENCY_KEY: idempotency_key, FENCING_TOKEN: fencing_token}
        # In the signature's order, because positional-only parameters are filled from the front.
        ordered = {name: names[name] for name in self._signature.parameters if name in names}
        call = inspect.BoundArguments(self._signature, ordered)
        return await self._run(*call.args, **call.kwargs)

    async def _run(self, *args: object, **kwargs: object) -> object:
        raise TypeError("A tool is made with @tool.")

    def encode(self, value: object) -> str | None:
        """Return a result as canonical JSON, or None if it cannot be recorded and read back as the annotated type."""
        try:
            text = canonical(builtins_of(value), "result")
            self.decode(text)
        except Exception:
            # The tool has run, so whatever a value of its own raises here, the result is one that cannot be recorded.
            return None
        return text

    def decode(self, text: str) -> R_co:
        """Return a recorded result as the annotated type; raises `ValueRefused` if it does not fit."""
        value = parse(text)
        if self._result_type is object:
            return value  # type: ignore[return-value]
        try:
            result: R_co = msgspec.convert(value, self._result_type, str_keys=True)
        except (msgspec.ValidationError, TypeError) as error:
            raise ValueRefused(f"The recorded result does not fit the tool {self.name}: {error}.") from None
        return result

    def _describe(self) -> dict[str, JsonValue]:
        try:
            (reference,), components = msgspec.json.schema_components([self._parameters], schema_hook=_anything)
        except TypeError as error:
            what = str(error).splitlines()[-1]
            raise ValueRefused(
                f"A parameter of the tool {self.name} has a type that JSON cannot describe: {what}.",
                hint="Annotate it with str, int, float, Decimal, a dataclass, a TypedDict or the like.",
            ) from None
        shapes: dict[str, JsonValue] = dict(components)
        parameters = shapes.pop(str(reference["$ref"]).rpartition("/")[2])
        assert isinstance(parameters, dict)
        parameters.pop("title", None)
        if shapes:
            parameters["$defs"] = shapes
        function: dict[str, JsonValue] = {
            "name": self.name,
            "description": self.description,
            "parameters": parameters,
        }
        return {"type": "function", "function": function}


class SyncTool(Tool[P, R_co]):
    """A recorded `def`; a recorded call runs it in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function directly, unrecorded."""
        return self._function(*args, **kwargs)  # type: ignore[return-value]

    async def _run(self, *args: object, **kwargs: object) -> object:
        return await asyncio.to_thread(self._in_thread, *args, **kwargs)

    def _in_thread(self, *args: object, **kwargs: object) -> object:
        try:
            return self._function(*args, **kwargs)
        except StopIteration as error:
            # No future can hold one, so whoever waits for the thread would wait for ever; a coroutine does the same.
            raise RuntimeError("The tool raised StopIteration.") from error


class AsyncTool(Tool[P, R_co]):
    """A recorded `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R_co]:
        """Call the function directly, unrecorded."""
        return self._function(*args, **kwargs)  # type: ignore[return-value]

    async def _run(self, *args: object, **kwargs: object) -> object:
        awaitable = self._function(*args, **kwargs)
        assert inspect.isawaitable(awaitable)
        return await awaitable


class Decorator(Protocol):
    """What `tool(effect=…)` returns."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> AsyncTool[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTool[P, R]: ...


@overload
def tool(function: Callable[P, Awaitable[R]], /) -> AsyncTool[P, R]: ...  # type: ignore[overload-overlap]
@overload
def tool(function: Callable[P, R], /) -> SyncTool[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = ...,
    requires: Iterable[str] = ...,
    name: str | None = ...,
    key: Callable[..., object] | None = ...,
    releases: Releases = ...,
    label: Callable[..., str] | None = ...,
    approval: bool = ...,
    fenced: bool = ...,
    keyed: bool = ...,
    probe: Callable[..., object] | None = ...,
) -> Decorator: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    effect: object = _UNSAID,
    requires: Iterable[str] = (),
    name: str | None = None,
    key: Callable[..., object] | None = None,
    releases: Releases = (),
    label: Callable[..., str] | None = None,
    approval: bool = False,
    fenced: bool = False,
    keyed: bool = False,
    probe: Callable[..., object] | None = None,
) -> object:
    """Make a function a tool: `@tool(effect=Effect.READ, requires={"files"})`.

    `effect` is the class of change that it makes; saying nothing means IRREVERSIBLE, which needs an authority and a
    keyword `idempotency_key`. `requires` are capabilities that an endpoint must have to run it; `name` is the
    function's unless given. The result stays callable directly, unrecorded.

    Of an IRREVERSIBLE tool: `key` is a function of its arguments that returns the business entity which it acts on, so
    that it happens once for that and not once for the step. `releases` names what it undoes: for each tool a function
    of the arguments that returns the entity, or the label, of that tool's call. `label` is a function of the result
    that returns what the outside system calls it, a text. `approval`: a person has to approve each call. `fenced`: the
    outside system checks the `fencing_token` that the tool takes; `keyed`: it checks the `idempotency_key`. `probe` (a
    def or an async def) takes the same arguments, asks the outside system what became of a call in doubt, and returns
    `Probed`.

    Raises `ValueRefused` for what is no effect, for what is no function or has a signature that JSON cannot describe,
    and for safeguards that do not fit the tool.
    """
    declared = Declared(key, releases, label, approval, fenced, keyed, probe)

    def decorate(decorated: Callable[..., object]) -> Tool[..., object]:
        kind = AsyncTool if inspect.iscoroutinefunction(decorated) else SyncTool
        return kind(decorated, effect, requires, name, declared)

    return decorate if function is None else decorate(function)


def effect_from_mcp(annotations: Mapping[str, object] | None, trusted: bool) -> Effect:
    """Return the effect class that an MCP server's tool annotations stand for.

    Hints of a server that is not trusted never lower a class: such a tool is IRREVERSIBLE.
    """
    if not trusted or annotations is None:
        return Effect.IRREVERSIBLE
    if annotations.get("readOnlyHint") is True:
        return Effect.READ
    return Effect.IDEMPOTENT if annotations.get("idempotentHint") is True else Effect.IRREVERSIBLE


def _name_of(function: object) -> str:
    if isinstance(function, Tool):
        raise ValueRefused(f"{function.name} is a tool already.", hint="Decorate the function once.")
    name = getattr(function, "__name__", None)
    if not callable(function) or not isinstance(name, str):
        raise refused("A tool", "a function with a name", function, hint="Decorate a def or an async def.")
    return name


def _checked_effect(effect: object) -> Effect:
    try:
        return Effect(typing.cast(str, effect))
    except ValueError:
        raise ValueRefused(
            "effect is no effect class.", hint="Use Effect.READ, Effect.IDEMPOTENT or Effect.IRREVERSIBLE."
        ) from None


def _read_signature(name: str, function: Callable[..., object]) -> tuple[inspect.Signature, dict[str, object]]:
    try:
        return inspect.signature(function), typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        # An annotation may be any expression, so reading it may raise anything.
        raise ValueRefused(
            f"The signature of the tool {name} cannot be read: {error}.",
            hint="Annotate it with types that the module of the function knows.",
        ) from None


def _anything(kind: type) -> dict[str, object]:
    """The schema of `object`, which takes what JSON can hold; other types are no JSON."""
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(f"{kind.__name__} is no JSON type")


def _parameters(tool_name: str, signature: inspect.Signature, hints: Mapping[str, object]) -> type[msgspec.Struct]:
    """A struct with the signature's parameters as fields: it checks, converts, fills in and describes arguments."""
    fields: list[tuple[str, object, object]] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise ValueRefused(f"The tool {tool_name} takes *args or **kwargs.", hint="Name each parameter.")
        if name.startswith("__"):
            raise ValueRefused(f"A parameter of the tool {tool_name} begins with two underscores.", hint="Rename it.")
        if name in _FILLED_IN:
            continue
        annotation = hints.get(name, typing.Any)
        default = parameter.default
        if default is None:
            annotation = typing.Optional[annotation]  # noqa: UP045
        fields.append((name, annotation, _field(default)))
    return msgspec.defstruct(tool_name, fields, kw_only=True, forbid_unknown_fields=True)


def _field(default: object) -> object:
    if default is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    if isinstance(default, (list, dict, set, bytearray)):
        return msgspec.field(default_factory=lambda: default)
    return default
