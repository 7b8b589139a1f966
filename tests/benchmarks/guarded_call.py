"""What an irreversible call adds: one claim and one settle at the authority, against one durable relay round trip.

The round trip is a push and its receipt on the same connection of the same relay. A claim writes one ruling, a settle
is the push of the call's outcome, after which the relay has written two entries.
"""

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from sync_core import Effect, Endpoint, Task, tool
from sync_core.entry import CallOutcome, Entry, EntryKind, VersionDecision, encode_record
from sync_core.frames import Receipt
from sync_core.ids import StreamName, stream_id
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict
from tests.benchmarks.devices import SYNC_S, TASK, open_device
from tests.benchmarks.figures import Figure, Scale, interleaved, timed
from tests.benchmarks.servers import relay_server
from tests.server_relay.wire_client import WireClient, history_entry

__all__ = ["run"]

_WIRE_TASK = "guarded/wire"
_WRITER = 2**40


@tool(effect=Effect.IRREVERSIBLE)
async def pay(amount: int, *, idempotency_key: str = "") -> str:
    """Pay nothing."""
    return idempotency_key[:8]


@tool(effect=Effect.IDEMPOTENT)
async def remark(amount: int) -> str:
    """Do nothing."""
    return "noted"


async def run(scale: Scale, folder: Path) -> list[Figure]:
    """Return the cost at the wire, and of a whole call of an endpoint beside one that needs no authority."""
    async with relay_server(folder / "relay.db") as relay:
        port = int(relay.rpartition(":")[2])
        async with await WireClient.open(port, "bench") as wire:
            at_the_wire = await _at_the_wire(scale, wire)
        async with (
            open_device(folder, "phone", relay) as phone,
            phone.task(TASK, create=True) as task,
        ):
            return [at_the_wire, await _whole_call(scale, phone, task)]


async def _at_the_wire(scale: Scale, wire: WireClient) -> Figure:
    numbers = itertools.count(1)
    state = stream_id(_WIRE_TASK, StreamName.STATE)
    state_seqs, history_seqs = itertools.count(1), itertools.count(1)

    def state_entry(kind: EntryKind, record: VersionDecision | CallOutcome) -> Entry:
        return Entry(state, _WRITER, next(state_seqs), kind, encode_record(record), "bench")

    async def stored(*entries: Entry) -> None:
        await wire.push(_WIRE_TASK, *entries)
        await wire.next(Receipt, lambda receipt: receipt.stream == entries[-1].stream)

    async def round_trip() -> None:
        await stored(history_entry(_WIRE_TASK, _WRITER, next(history_seqs), "bench"))

    async def guarded() -> None:
        number = next(numbers)
        step, attempt = f"pay-{number}", f"{number:016x}"
        await wire.send(Claim(_WIRE_TASK, number, 1, step, "pay", "d", attempt))
        answer = await wire.next(ClaimAnswer)
        assert answer.verdict is ClaimVerdict.GRANTED, answer
        outcome = CallOutcome(step, 1, attempt, True, result='"paid"', token=answer.token)
        await stored(state_entry(EntryKind.CALL, outcome))

    await wire.follow(_WIRE_TASK)
    await stored(state_entry(EntryKind.VERSION, VersionDecision(1, "bench")))
    floor_s, value_s = await interleaved(scale.samples, (partial(timed, round_trip), partial(timed, guarded)))
    return Figure("claim and settle, p50", scale.samples, "calls before", "ms", value_s * 1e3, floor_s * 1e3, 2.5)


async def _whole_call(scale: Scale, phone: Endpoint, task: Task) -> Figure:
    await phone.synced(timeout_s=SYNC_S)
    numbers = itertools.count(1)

    def calling(name: str, call: Callable[[str, int], Awaitable[str]]) -> Callable[[], Awaitable[float]]:
        async def once() -> None:
            number = next(numbers)
            await call(f"{name}-{number}", number)

        return partial(timed, once)

    floor_s, value_s = await interleaved(
        scale.samples,
        (
            calling("remark", lambda step, amount: task.call(step, remark, amount)),
            calling("pay", lambda step, amount: task.call(step, pay, amount)),
        ),
    )
    return Figure(
        "irreversible beside idempotent call", scale.samples, "calls before", "ms", value_s * 1e3, floor_s * 1e3
    )
