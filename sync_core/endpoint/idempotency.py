"""`verify_idempotent`: does a tool, called twice with one idempotency key, do its work once?

    async def test_booking_twice_books_once():
        airline = Airline()
        await verify_idempotent(book_flight, "HAT118", records=lambda: len(airline.bookings))

The tool runs for real, three times: twice with one key and once with another. Give it a fake, or a test account.
"""

import inspect
import os
from collections.abc import Awaitable, Callable

import msgspec

from sync_core.checked import check_instance, refused
from sync_core.endpoint.tools import Tool
from sync_core.entry import Effect
from sync_core.errors import NeedsKey, SegueError

__all__ = ["IdempotencyReport", "NotIdempotent", "Records", "verify_idempotent"]

Records = Callable[[], int | Awaitable[int]]
"""Counts the records that the outside system holds; `def` or `async def`."""


class IdempotencyReport(msgspec.Struct, frozen=True):
    """What was seen: `first` and `again` are the results of both calls with one key (canonical JSON; None if JSON
    cannot hold it), `added` how many records each of the calls made: with the key, with it again, with another one.

    `faults` are what is wrong, one sentence each, none if the tool is idempotent; `remarks` are what could not be seen.
    """

    tool: str
    first: str | None
    again: str | None
    added: tuple[int, ...]
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    @property
    def text(self) -> str:
        """The report for people, one line each."""
        verdict = "is idempotent" if self.ok else "is NOT idempotent"
        names = ("with a key", "with the same key again", "with another key")
        lines = [f"The tool {self.tool} {verdict}."]
        lines += [f"  fault: {fault}" for fault in self.faults]
        lines += [f"  {name}: {_records(count)}" for name, count in zip(names, self.added, strict=False)]
        lines += [f"  remark: {remark}" for remark in self.remarks]
        return "\n".join(lines)


class NotIdempotent(SegueError, AssertionError):
    """A tool did its work twice for one key, or not at all for another; `report` says what was seen."""

    code = "not_idempotent"
    status = 409
    default_hint = (
        "Pass the idempotency key on to the outside system, or keep what was done under it beside the effect."
    )

    def __init__(self, report: IdempotencyReport) -> None:
        super().__init__(report.text)
        self.report = report


async def verify_idempotent(
    tool: Tool[..., object], /, *args: object, records: Records, **kwargs: object
) -> IdempotencyReport:
    """Run a tool twice with one idempotency key and once with another, and return what was seen.

    `records` counts what the outside system holds; it is asked before, between and after the calls. A parameter of the
    tool that is named `records` has to be given by place. Raises `NotIdempotent`, an AssertionError with the report
    inside, if the results differ, if the second call made a record or failed, if another key, which stands for another
    call, made none, or if the tool's probe denies a call that happened; `NeedsKey` for an IRREVERSIBLE tool without
    the parameter `idempotency_key`; and what the first call raises.
    """
    check_instance(tool, Tool, "tool", "a tool", hint="Decorate the function with @tool.")
    if tool.effect is Effect.IRREVERSIBLE and not tool.takes_key:
        raise NeedsKey(f"The tool {tool.name} cannot be undone and takes no idempotency key, so it would do it twice.")
    trial = _Trial(tool, args, kwargs, records)
    await trial.run()
    report = trial.report()
    if not report.ok:
        raise NotIdempotent(report)
    return report


class _Trial:
    """The calls of one verification, and what is wrong with them."""

    def __init__(
        self, tool: Tool[..., object], args: tuple[object, ...], kwargs: dict[str, object], records: Records
    ) -> None:
        self._tool = tool
        self._args = args
        self._kwargs = kwargs
        self._records = records
        self._held = 0
        self._results: list[str | None] = []
        self._added: list[int] = []
        self._faults: list[str] = []
        self._remarks: list[str] = []

    async def run(self) -> None:
        self._held = await self._count()
        key, other = os.urandom(32).hex(), os.urandom(32).hex()
        # What the first call raises is for the caller: nothing can be said of such a tool.
        await self._call(key)
        if self._results[0] is None:
            self._faults.append("The result cannot be recorded as JSON of the annotated type, so it is never returned.")
        self._check_first()
        await self._check_probe(key)
        try:
            await self._call(key)
        except Exception as error:
            self._faults.append(f"The second call with the same key raised {_named(error)} instead of answering.")
            return
        self._check_again()
        if self._tool.takes_key and self._tool.effect is not Effect.READ:
            await self._try_another(other)
        elif self._tool.effect is not Effect.READ:
            self._remarks.append("The tool takes no idempotency_key, so another call was not told from the same one.")

    async def _call(self, key: str) -> None:
        # Bound anew each time: a tool may change what it is given.
        # The fencing token grows with each grant of the authority, so an outside system that checks it takes them all.
        value = await self._tool.invoke(self._tool.bind(self._args, self._kwargs), key, len(self._results) + 1)
        self._results.append(self._tool.encode(value))
        held = await self._count()
        self._added.append(held - self._held)
        self._held = held

    async def _count(self) -> int:
        counted = self._records()
        number = await counted if inspect.isawaitable(counted) else counted
        if not isinstance(number, int) or isinstance(number, bool):
            raise refused("What records returns", "a whole number", number)
        return number

    def _check_first(self) -> None:
        (added,) = self._added
        if self._tool.effect is Effect.READ:
            if added:
                self._faults.append(f"It is declared READ, and made {_records(added)}.")
        elif added > 1:
            self._faults.append(f"One call made {_records(added)}.")
        elif added < 1:
            self._remarks.append(
                "The first call made no record: either it only changes some, or records cannot see it."
            )

    async def _check_probe(self, key: str) -> None:
        """A probe that denies what happened would have it done again."""
        if not self._tool.safeguards.can_probe:
            return
        found = await self._tool.safeguards.probe(self._tool.bind(self._args, self._kwargs).named(), key)
        if found.happened is None:
            self._remarks.append("The probe does not know of the call that was just made.")
        elif not found.happened:
            self._faults.append("The probe says of the call that was just made that it did not happen.")

    def _check_again(self) -> None:
        first, again = self._results
        if self._added[1]:
            self._faults.append(f"The second call with the same key made {_records(self._added[1])}.")
        if first != again:
            self._faults.append(f"The results differ: {_shown(first)}, then {_shown(again)}.")

    async def _try_another(self, key: str) -> None:
        """Another key is another call: a tool that takes it for the same one would lose work in silence."""
        try:
            await self._call(key)
        except Exception as error:
            # An outside system may know the entity itself, and refuse to do to it twice what can be done once.
            self._remarks.append(f"A call with another key raised {_named(error)}.")
            return
        if self._added[0] == 1 and self._added[2] != 1:
            self._faults.append(f"A call with another key made {_records(self._added[2])} instead of one.")

    def report(self) -> IdempotencyReport:
        again = self._results[1] if len(self._results) > 1 else None
        return IdempotencyReport(
            self._tool.name,
            self._results[0],
            again,
            tuple(self._added),
            tuple(self._faults),
            tuple(self._remarks),
        )


_SHOWN_CHARS_MAX = 80


def _shown(result: str | None) -> str:
    if result is None:
        return "(no JSON)"
    return result if len(result) <= _SHOWN_CHARS_MAX else f"{result[: _SHOWN_CHARS_MAX - 1]}…"


def _records(count: int) -> str:
    return "no record" if count == 0 else "1 record" if count == 1 else f"{count} records"


def _named(error: Exception) -> str:
    return type(error).__name__
