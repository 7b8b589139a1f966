"""The idempotency checker passes a good outside system and fails each kind of bad one."""

import itertools

import pytest

from sync_core import Effect, NeedsKey, NotIdempotent, Tool, ValueRefused, tool, verify_idempotent
from sync_core.endpoint.safeguards import Probed


class Bookings:
    """An outside system: what it does with a key is what its tool does."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.numbers = itertools.count(1)

    def add(self, under: str, flight: str) -> str:
        self.held[under] = flight
        return f"{flight}/{len(self.held)}"

    def count(self) -> int:
        return len(self.held)

    async def count_later(self) -> int:
        return len(self.held)


@pytest.fixture
def outside() -> Bookings:
    return Bookings()


def keyed(outside: Bookings, *, effect: Effect = Effect.IRREVERSIBLE) -> Tool[..., object]:
    """A good tool: what was done under a key is given back."""
    done: dict[str, str] = {}

    @tool(effect=effect)
    async def book(flight: str, seats: list[int] = [], *, idempotency_key: str) -> str:  # noqa: B006
        if idempotency_key not in done:
            done[idempotency_key] = outside.add(idempotency_key, flight)
        return done[idempotency_key]

    return book


@pytest.mark.parametrize("effect", [Effect.IRREVERSIBLE, Effect.IDEMPOTENT])
async def test_a_tool_that_keeps_to_its_key_passes(outside: Bookings, effect: Effect) -> None:
    for records in (outside.count, outside.count_later):
        report = await verify_idempotent(keyed(outside, effect=effect), "HAT118", seats=[1], records=records)
        assert report.ok and report.added == (1, 0, 1) and report.first == report.again
        assert report.text.startswith("The tool book is idempotent.\n  with a key: 1 record\n")
    assert outside.count() == 4


async def test_a_def_is_checked_as_an_async_def_is(outside: Bookings) -> None:
    done: dict[str, str] = {}

    @tool
    def book(*, idempotency_key: str) -> str:
        return done.setdefault(idempotency_key, outside.add(idempotency_key, "HAT118"))

    # It adds under the key before it looks, which is harmless here; its result is the one of the first time.
    assert (await verify_idempotent(book, records=outside.count)).ok


async def failed(book: Tool[..., object], outside: Bookings, *args: object) -> NotIdempotent:
    with pytest.raises(NotIdempotent) as raised:
        await verify_idempotent(book, *args, records=outside.count)
    assert isinstance(raised.value, AssertionError)
    assert not raised.value.report.ok and "is NOT idempotent" in str(raised.value)
    return raised.value


async def test_a_tool_that_ignores_its_key_fails(outside: Bookings) -> None:
    @tool
    async def book(flight: str, *, idempotency_key: str) -> str:
        return outside.add(f"{next(outside.numbers)}", flight)

    report = (await failed(book, outside, "HAT118")).report
    assert report.added == (1, 1, 1)
    assert report.faults == (
        "The second call with the same key made 1 record.",
        'The results differ: "HAT118/1", then "HAT118/2".',
    )


async def test_a_tool_that_answers_otherwise_the_second_time_fails(outside: Bookings) -> None:
    @tool
    async def book(flight: str, *, idempotency_key: str) -> dict[str, object]:
        again = idempotency_key in outside.held
        outside.add(idempotency_key, flight)
        return {"flight": flight, "again": again}

    (fault,) = (await failed(book, outside, "HAT118")).report.faults
    assert fault.startswith("The results differ: ")


async def test_a_tool_that_refuses_the_second_time_fails(outside: Bookings) -> None:
    @tool
    async def book(flight: str, *, idempotency_key: str) -> str:
        if idempotency_key in outside.held:
            raise LookupError("taken")
        return outside.add(idempotency_key, flight)

    report = (await failed(book, outside, "HAT118")).report
    assert report.faults == ("The second call with the same key raised LookupError instead of answering.",)
    assert (report.again, report.added) == (None, (1,))


async def test_a_tool_that_knows_a_call_by_its_arguments_loses_the_next_one(outside: Bookings) -> None:
    @tool
    async def book(flight: str, *, idempotency_key: str) -> str:
        outside.add(flight, flight)
        return flight

    (fault,) = (await failed(book, outside, "HAT118")).report.faults
    assert fault == "A call with another key made no record instead of one."


async def test_one_call_that_makes_two_records_fails(outside: Bookings) -> None:
    @tool
    async def book(*, idempotency_key: str) -> str:
        outside.add(f"{idempotency_key}a", "HAT118")
        return outside.add(f"{idempotency_key}b", "HAT118")[:3]

    assert "One call made 2 records." in (await failed(book, outside)).report.faults


async def test_what_cannot_be_recorded_fails(outside: Bookings) -> None:
    @tool
    async def book(*, idempotency_key: str) -> object:
        outside.add(idempotency_key, "HAT118")
        return object()

    assert "cannot be recorded" in str(await failed(book, outside))


async def test_a_read_that_writes_fails_and_one_that_does_not_passes(outside: Bookings) -> None:
    @tool(effect=Effect.READ)
    async def look(flight: str) -> str:
        return flight

    @tool(effect=Effect.READ)
    async def log(flight: str) -> str:
        outside.add(f"{next(outside.numbers)}", flight)
        return flight

    assert (await verify_idempotent(look, "HAT118", records=outside.count)).remarks == ()
    assert "It is declared READ, and made 1 record." in (await failed(log, outside, "HAT118")).report.faults


async def test_an_entity_that_the_outside_system_guards_itself_is_a_remark(outside: Bookings) -> None:
    done: dict[str, str] = {}

    @tool
    async def book(flight: str, *, idempotency_key: str) -> str:
        if idempotency_key not in done and flight in outside.held:
            raise LookupError("this flight is booked")
        return done.setdefault(idempotency_key, outside.add(flight, flight))

    report = await verify_idempotent(book, "HAT118", records=outside.count)
    assert report.remarks == ("A call with another key raised LookupError.",)


async def test_a_tool_without_a_key_is_checked_as_far_as_it_can_be(outside: Bookings) -> None:
    @tool(effect=Effect.IDEMPOTENT)
    async def put(flight: str) -> str:
        outside.add(flight, flight)
        return flight

    report = await verify_idempotent(put, "HAT118", records=outside.count)
    assert report.added == (1, 0) and "takes no idempotency_key" in report.text


async def test_an_irreversible_tool_without_a_key_is_refused_before_it_runs(outside: Bookings) -> None:
    @tool
    async def book(flight: str) -> str:
        return outside.add(flight, flight)

    with pytest.raises(NeedsKey):
        await verify_idempotent(book, "HAT118", records=outside.count)
    assert outside.count() == 0


async def test_what_changes_no_count_is_remarked(outside: Bookings) -> None:
    @tool
    async def rename(flight: str, *, idempotency_key: str) -> str:
        return flight

    report = await verify_idempotent(rename, "HAT118", records=outside.count)
    assert report.remarks == ("The first call made no record: either it only changes some, or records cannot see it.",)


async def test_a_first_call_that_fails_is_the_callers(outside: Bookings) -> None:
    @tool
    async def book(flight: str, *, idempotency_key: str) -> str:
        raise LookupError("no such flight")

    with pytest.raises(LookupError):
        await verify_idempotent(book, "HAT118", records=outside.count)
    with pytest.raises(ValueRefused):
        await verify_idempotent(book, "HAT118", records=lambda: "many")  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueRefused):
        await verify_idempotent(outside.count, records=outside.count)  # type: ignore[arg-type]


async def test_arguments_that_a_tool_changes_are_given_anew(outside: Bookings) -> None:
    done: dict[str, int] = {}

    @tool
    async def book(seats: list[int], *, idempotency_key: str) -> int:
        seats.append(0)
        outside.add(idempotency_key, "HAT118")
        return done.setdefault(idempotency_key, len(seats))

    assert (await verify_idempotent(book, [1], records=outside.count)).first == "2"


@pytest.mark.parametrize(
    ("says", "fault", "remark"),
    [(True, "", ""), (False, "did not happen", ""), (None, "", "does not know")],
)
async def test_a_probe_that_denies_what_happened_fails(
    outside: Bookings, says: bool | None, fault: str, remark: str
) -> None:
    @tool(keyed=True, fenced=True, probe=lambda flight: Probed(says))
    async def book(flight: str, *, idempotency_key: str, fencing_token: int) -> str:
        assert fencing_token > 0
        outside.held.setdefault(idempotency_key, flight)
        return flight

    if fault:
        (found,) = (await failed(book, outside, "HAT118")).report.faults
        assert fault in found
    else:
        assert remark in " ".join((await verify_idempotent(book, "HAT118", records=outside.count)).remarks)
