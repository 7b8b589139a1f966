"""Tools: what a call's arguments and results become, and how a model sees a function."""

import functools
import threading
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, TypedDict

import msgspec
import pytest

from sync_core.endpoint.tools import AsyncTool, SyncTool, Tool, effect_from_mcp, tool
from sync_core.entry import Effect
from sync_core.errors import ValueRefused


@dataclass
class Invoice:
    total: Decimal
    issued: date
    lines: list[str]


class Row(TypedDict):
    name: str
    amount: Decimal


class Point(msgspec.Struct):
    x: float
    y: float


@tool(effect=Effect.READ, requires={"files"})
async def read_invoice(path: str, pages: int = 1, *, scale: float = 1.0) -> Invoice:
    """Read an invoice."""
    return Invoice(Decimal("249.00"), date(2026, 3, 1), [path, str(pages), str(scale)])


def test_a_tool_that_says_nothing_is_irreversible() -> None:
    @tool
    def pay(amount: Decimal) -> None: ...

    @tool()
    def order() -> None: ...

    assert (pay.effect, order.effect) == (Effect.IRREVERSIBLE, Effect.IRREVERSIBLE)
    assert isinstance(pay, SyncTool)
    assert not (pay.effect_given or order.effect_given)
    assert read_invoice.effect_given and tool(effect=Effect.IRREVERSIBLE)(cancel).effect_given


def cancel(idempotency_key: str) -> None: ...


def test_a_tool_says_whether_it_takes_the_key() -> None:
    assert tool(cancel).takes_key and not read_invoice.takes_key


async def test_a_tool_stays_callable_directly() -> None:
    assert isinstance(read_invoice, AsyncTool)
    assert (await read_invoice("a.pdf")).lines == ["a.pdf", "1", "1.0"]


def test_a_call_in_any_spelling_has_one_digest() -> None:
    spellings = [
        read_invoice.bind(("a.pdf",), {}),
        read_invoice.bind((), {"pages": 1, "path": "a.pdf"}),
        read_invoice.bind(("a.pdf", 1), {"scale": 1}),
        read_invoice.bind_json('{"scale": 1, "path": "a.pdf"}'),
        read_invoice.bind_json('{"path":"a.pdf","pages":1,"scale":1.0}'),
    ]
    assert len({bound.digest for bound in spellings}) == 1
    assert read_invoice.bind(("b.pdf",), {}).digest != spellings[0].digest


def test_recorded_arguments_bind_to_the_same_digest_again() -> None:
    @tool(effect=Effect.READ)
    def check(invoice: Invoice, limit: Decimal, labels: dict[int, str], seen: set[str]) -> bool:
        return True

    bound = check.bind((Invoice(Decimal("1.10"), date(2026, 1, 2), []), Decimal("3.50"), {1: "a"}, {"y", "x"}), {})
    assert check.bind_json(bound.text) == bound


def test_arguments_that_do_not_fit_are_refused_by_name_and_type_only() -> None:
    for refused in (
        lambda: read_invoice.bind((), {}),
        lambda: read_invoice.bind(("secret-value",), {"pages": "secret-value"}),
        lambda: read_invoice.bind_json('{"path": ["secret-value"]}'),
        lambda: read_invoice.bind_json('{"path": "a", "secrets": 1}'),
        lambda: read_invoice.bind_json("[]"),
        lambda: read_invoice.bind_json('{"path": "secret-value'),
        lambda: read_invoice.bind(("a",), {"scale": float("nan")}),
    ):
        with pytest.raises(ValueRefused) as caught:
            refused()
        assert "secret-value" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Invoice, Invoice(Decimal("1.10"), date(2026, 1, 2), ["é"])),
        (Row, {"amount": Decimal("0.30"), "name": "x"}),
        (Point, Point(1.0, 2.5)),
        (list[Point], [Point(0.1, 0.2)]),
        (Decimal, Decimal("5.00")),
        (datetime, datetime(2026, 1, 2, 3, 4, 5)),
        (bytes, b"\x00\xff"),
        (int, 2**80),
        (float, 5.0),
        (set[int], {3, 1}),
        (dict[int, str], {7: "seven"}),
        (tuple[int, str], (1, "a")),
        (None, None),
        (object, {"a": [1, 1.0, True, None]}),
    ],
)
def test_a_result_comes_back_from_its_record_as_its_annotated_type(kind: type, value: object) -> None:
    def give() -> object:
        return value

    give.__annotations__["return"] = kind
    made: Tool[[], object] = tool(effect=Effect.READ)(give)
    text = made.encode(value)
    assert text is not None
    back = made.decode(text)
    assert back == value
    assert type(back) is type(value)
    assert str(back) == str(value)


@pytest.mark.parametrize("value", [object(), float("nan"), {1, "a", object()}, "\ud800", threading.Lock()])
def test_a_result_that_json_cannot_hold_cannot_be_recorded(value: object) -> None:
    @tool(effect=Effect.READ)
    def give() -> object:
        return value

    assert give.encode(value) is None


def test_a_result_that_does_not_fit_its_annotation_cannot_be_recorded() -> None:
    @tool(effect=Effect.READ)
    def give() -> int:
        return 1

    assert give.encode("text") is None
    with pytest.raises(ValueRefused):
        give.decode('"text"')


def test_a_model_sees_names_types_defaults_and_the_docstring() -> None:
    @tool(effect=Effect.READ)
    def search(query: Annotated[str, msgspec.Meta(description="What to look for.")], near: Point | None = None) -> None:
        """Search the archive."""

    function = search.schema["function"]
    assert isinstance(function, dict)
    assert search.schema["type"] == "function"
    assert (function["name"], function["description"]) == ("search", "Search the archive.")
    parameters = function["parameters"]
    assert isinstance(parameters, dict)
    assert (
        parameters["properties"]
        == {
            "query": {"type": "string", "description": "What to look for."},
            "near": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Point"}], "default": None},
        }
        or parameters["properties"]["near"]["default"] is None
    )  # type: ignore[index, call-overload]
    assert parameters["required"] == ["query"]
    assert "Point" in parameters["$defs"]  # type: ignore[operator]


async def test_an_idempotency_key_is_filled_in_and_hidden_from_model_and_digest() -> None:
    @tool(effect=Effect.IDEMPOTENT)
    async def put(name: str, *, idempotency_key: str = "") -> str:
        return f"{name} under {idempotency_key}"

    assert "idempotency_key" not in str(put.schema)
    bound = put.bind(("x",), {})
    assert put.bind(("x",), {"idempotency_key": "mine"}).digest == bound.digest
    assert put.bind_json('{"name": "x", "idempotency_key": "mine"}').digest == bound.digest
    assert await put.invoke(bound, "k-1") == "x under k-1"


async def test_a_def_runs_in_a_thread() -> None:
    @tool(effect=Effect.READ)
    def where() -> int:
        return threading.get_ident()

    assert await where.invoke(where.bind((), {}), "") != threading.get_ident()


async def test_positional_only_parameters_and_mutable_defaults_work() -> None:
    @tool(effect=Effect.READ)
    def join(first: str, /, rest: list[str] = ["z"]) -> str:  # noqa: B006
        return "".join([first, *rest])

    assert await join.invoke(join.bind(("a",), {}), "") == "az"
    assert await join.invoke(join.bind_json('{"first": "a", "rest": ["b"]}'), "") == "ab"


def test_a_signature_that_json_cannot_describe_is_refused_at_the_definition() -> None:
    class Handle: ...

    with pytest.raises(ValueRefused, match="a type that JSON cannot describe"):

        @tool
        def use(handle: Handle) -> None: ...

    with pytest.raises(ValueRefused, match=r"\*args"):

        @tool
        def many(*paths: str) -> None: ...

    with pytest.raises(ValueRefused, match="tool name"):
        tool(name="no spaces")(lambda: None)


def test_an_effect_given_by_its_name_is_that_effect_and_anything_else_is_refused() -> None:
    made = tool(effect="IRREVERSIBLE")(double)  # type: ignore[arg-type]
    assert made.effect is Effect.IRREVERSIBLE
    for effect in ("irreversible", "read", "junk", "", None, 5, ["READ"]):
        with pytest.raises(ValueRefused, match="effect"):
            tool(effect=effect)(double)  # type: ignore[arg-type]


def double(amount: int = 1) -> int:
    return amount * 2


def test_needs_are_several_names_and_not_one_text() -> None:
    for requires in ("files", None, 5, ["a b"]):
        with pytest.raises(ValueRefused):
            tool(effect=Effect.READ, requires=requires)(double)  # type: ignore[arg-type]


def test_what_is_no_function_to_decorate_is_refused_and_told_why() -> None:
    def unknown(when: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821

    def hidden(__amount: int) -> None: ...

    for what, told in (
        (functools.partial(double, 1), "function with a name"),
        (None, "function with a name"),
        (5, "function with a name"),
        (read_invoice, "read_invoice is a tool already"),
        (unknown, "Nowhere"),
        (hidden, "two underscores"),
    ):
        with pytest.raises(ValueRefused, match=told):
            tool(effect=Effect.READ)(what)  # type: ignore[call-overload]
    with pytest.raises(ValueRefused, match="cannot be read"):
        tool(effect=Effect.READ, name="one")(functools.partial(double, 1))


def test_arguments_and_results_of_subclasses_are_the_built_ins_that_they_are() -> None:
    class Word(str):
        __slots__ = ()

    class Number(int): ...

    class Share(float): ...

    @tool(effect=Effect.READ)
    def mix(word: str, number: int, share: float) -> list[object]:
        return []

    bound = mix.bind((Word("a"), Number(2), Share(0.5)), {})
    assert bound == mix.bind(("a", 2, 0.5), {})
    assert mix.encode([Word("a"), Number(2), Share(0.5)]) == '["a",2,0.5]'


def test_an_argument_that_is_no_text_is_refused_wherever_it_goes() -> None:
    endless: list[object] = []
    endless.append(endless)
    for value in ("\ud800", endless):
        with pytest.raises(ValueRefused):
            doubled.bind((value,), {})


def test_whatever_a_result_raises_when_it_is_encoded_it_cannot_be_recorded() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    assert doubled.encode(deep) is None


doubled = tool(effect=Effect.READ)(double)


def test_hints_of_an_mcp_server_map_onto_effects_only_if_it_is_trusted() -> None:
    read, again = {"readOnlyHint": True}, {"readOnlyHint": False, "idempotentHint": True}
    assert effect_from_mcp(read, trusted=True) is Effect.READ
    assert effect_from_mcp(again, trusted=True) is Effect.IDEMPOTENT
    assert effect_from_mcp({}, trusted=True) is Effect.IRREVERSIBLE
    assert effect_from_mcp(None, trusted=True) is Effect.IRREVERSIBLE
    assert effect_from_mcp({"readOnlyHint": "yes"}, trusted=True) is Effect.IRREVERSIBLE
    assert {effect_from_mcp(hints, trusted=False) for hints in (read, again, {}, None)} == {Effect.IRREVERSIBLE}
