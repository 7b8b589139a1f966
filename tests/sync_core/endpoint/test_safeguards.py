"""What a tool that cannot be undone declares, and how that is asked of its arguments and its result."""

import threading
from dataclasses import dataclass

import pytest

from sync_core.endpoint.safeguards import Probed
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import TooLarge, ValueRefused


@dataclass
class Flight:
    number: str
    day: str


@tool(key=lambda user_id, flights: [user_id, flights], label=lambda result: result["id"], keyed=True)
def book(user_id: str, flights: list[Flight], note: str = "", *, idempotency_key: str) -> dict[str, str]:
    return {"id": "HATHAT", "key": idempotency_key}


@tool(
    releases={book: lambda reservation: reservation, "rebook": lambda **given: [given["reservation"], given["why"]]},
    fenced=True,
    approval=True,
)
def cancel(reservation: str, why: str = "", *, idempotency_key: str, fencing_token: int) -> int:
    return fencing_token


def test_a_key_is_made_of_the_arguments_that_its_function_names() -> None:
    one = book.bind(("ann", [{"number": "HAT1", "day": "5"}]), {"note": "window"})
    two = book.bind_json('{"note":"aisle","flights":[{"day":"5","number":"HAT1"}],"user_id":"ann"}')
    assert book.safeguards.entity(one.named()) == '["ann",[{"day":"5","number":"HAT1"}]]'
    assert book.safeguards.entity(two.named()) == book.safeguards.entity(one.named())
    assert cancel.safeguards.entity(cancel.bind(("X",), {}).named()) == ""


def test_what_is_released_is_named_as_an_entity_and_a_text_as_a_label_too() -> None:
    named = cancel.bind(("HATHAT",), {"why": "ill"}).named()
    assert cancel.safeguards.released(named) == (
        ("book", '"HATHAT"'),
        ("book", "HATHAT"),
        ("rebook", '["HATHAT","ill"]'),
    )
    assert book.safeguards.released(book.bind(("ann", []), {}).named()) == ()


def test_a_label_is_a_text_of_the_result_and_never_stands_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    assert book.safeguards.label_of({"id": "HATHAT"}) == "HATHAT"
    with caplog.at_level("WARNING", "segue.tools"):
        assert book.safeguards.label_of({}) == ""
        assert book.safeguards.label_of({"id": 5}) == ""
    # Once each, and nothing of what the result says.
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "The label of the tool book raised KeyError",
        "The label of the tool book is no text",
    ]
    assert cancel.safeguards.label_of(1) == ""


def test_what_is_declared_is_told() -> None:
    assert (book.safeguards.approval, book.safeguards.checked, book.safeguards.can_probe) == (False, True, False)
    assert (cancel.safeguards.approval, cancel.safeguards.checked) == (True, True)


async def test_key_and_token_are_filled_in_and_neither_is_an_argument() -> None:
    bound = cancel.bind(("X",), {"idempotency_key": "mine", "fencing_token": 5})
    assert bound.text == '{"reservation":"X","why":""}'
    assert cancel.bind_json('{"reservation":"X","fencing_token":1,"idempotency_key":"k"}').digest == bound.digest
    assert await cancel.invoke(bound, "k", 77) == 77
    assert await book.invoke(book.bind(("ann", []), {}), "k") == {"id": "HATHAT", "key": "k"}
    assert '"reservation"' in str(cancel.schema).replace("'", '"')
    assert "fencing_token" not in str(cancel.schema)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_probe_is_asked_with_the_arguments_that_it_names_and_the_key(is_async: bool) -> None:
    asked: list[object] = []

    def look(amount: int, idempotency_key: str) -> Probed:
        asked.append((amount, idempotency_key, threading.current_thread() is threading.main_thread()))
        return Probed(True, 7)

    async def look_async(amount: int, idempotency_key: str) -> Probed:
        return look(amount, idempotency_key)

    @tool(probe=look_async if is_async else look)
    def pay(amount: int, to: str, *, idempotency_key: str) -> int:
        return amount

    assert pay.safeguards.can_probe
    assert await pay.safeguards.probe(pay.bind((5, "ann"), {}).named(), "k") == Probed(True, 7)
    assert asked == [(5, "k", is_async)]


async def test_a_probe_that_gives_no_answer_is_refused() -> None:
    @tool(probe=lambda: True)
    def pay(*, idempotency_key: str) -> None: ...

    with pytest.raises(ValueRefused, match="Probed"):
        await pay.safeguards.probe({}, "k")


def test_an_entity_that_is_no_name_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(TooLarge):
        book.safeguards.entity(book.bind(("x" * 5_000, []), {}).named())


def test_safeguards_that_do_not_fit_the_tool_are_refused() -> None:
    def plain(amount: int) -> int:
        return amount

    def two(amount: int, /) -> int:
        return amount

    refused: list[tuple[dict[str, object], str]] = [
        ({"effect": Effect.READ, "approval": True}, "cannot be undone"),
        ({"effect": Effect.IDEMPOTENT, "key": lambda amount: amount}, "cannot be undone"),
        ({"fenced": True}, "fencing_token"),
        ({"keyed": True}, "idempotency_key"),
        ({"key": lambda other: other}, "takes other"),
        ({"key": two}, "takes amount"),
        ({"key": "amount"}, "function"),
        ({"probe": lambda fencing_token: None}, "takes fencing_token"),
        ({"label": 5}, "function"),
        ({"releases": {5: lambda: 1}}, "releases"),
        ({"releases": {"book": 5}}, "function"),
        ({"releases": [1]}, "mapping"),
        ({"releases": {f"tool{n}": str for n in range(9)}}, "more than 8"),
        ({"approval": "yes"}, "approval"),
    ]
    for declared, told in refused:
        with pytest.raises(ValueRefused, match=told):
            tool(**declared)(plain)  # type: ignore[call-overload]


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_key_that_names_nothing_is_refused(nothing: object) -> None:
    @tool(key=lambda amount: nothing)
    def pay(amount: int, *, idempotency_key: str) -> None: ...

    with pytest.raises(ValueRefused, match="names nothing"):
        pay.safeguards.entity({"amount": 5})


@pytest.mark.parametrize("guess", ["maybe", 1, 0, "yes"])
def test_a_probe_finds_out_that_it_happened_that_it_did_not_or_nothing(guess: object) -> None:
    with pytest.raises(ValueRefused, match="probe"):
        Probed(guess)  # type: ignore[arg-type]
