"""A task is built anew from the log alone (AC-29): same content, nobody called, and what is missing is told."""

import hashlib
import random
import socket
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server_relay.config import RelaySettings
from server_relay.server import serve
from sync_core.document.slots import SlotState
from sync_core.endpoint import replay as replay_module
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.replay import GapKind, Kept, replay
from sync_core.endpoint.stored import read_kept
from sync_core.endpoint.task import Task
from sync_core.endpoint.tools import tool
from sync_core.entry import Effect
from sync_core.errors import Closed, HistoryTrimmed, ValueRefused
from sync_core.ids import StreamName
from sync_core.replica.writes import AsideEntry, StreamImage
from sync_core.testing import TwoEndpoints, two_endpoints
from tests.sync_core.endpoint.conftest import KEY

RUNS: list[str] = []
LARGE = "x" * 10_000


@tool(effect=Effect.READ)
def read_invoice(path: str) -> str:
    RUNS.append(path)
    return LARGE


@tool(effect=Effect.READ)
def fail(path: str) -> str:
    RUNS.append(path)
    raise RuntimeError("it did not work")


@pytest.fixture
async def ends(tmp_path: Path) -> AsyncIterator[TwoEndpoints]:
    RUNS.clear()
    async with two_endpoints(tmp_path, tools=[read_invoice, fail]) as ends:
        yield ends


async def record_all(ends: TwoEndpoints) -> tuple[Task, Task]:
    """A full task, worked on by two devices."""
    here = await ends.phone.task(KEY, create=True)
    await here.slots.declare("cost_center", ask="Which?", required=True)
    await here.slots.propose("cost_center", "CC-1")
    await here.call("invoice", read_invoice, "a.pdf")
    with pytest.raises(RuntimeError):
        await here.call("policy", fail, "b.pdf")
    await here.plan("scan", "scan", page=1)
    await here.history.append({"role": "user", "content": "go on"})
    await here.notes.append("worklog", "read\n")
    await ends.synced()
    there = await ends.desktop.task(KEY, version=2)
    await there.slots.confirm("cost_center", "CC-2", read=there.slots["cost_center"])
    await there.notes.append("worklog", "checked\n")
    await ends.synced()
    return here, there


async def kept_of(endpoint: Endpoint) -> Kept:
    return await endpoint._runner.read(lambda store: read_kept(store, KEY), Kept)


def live_of(endpoint: Endpoint) -> dict[StreamName, bytes]:
    return endpoint._replica.live_digests(KEY)


def state_with(kept: Kept, **changed: object) -> Kept:
    """The same file, with fields of its `state` stream changed."""
    streams = tuple(
        msgspec.structs.replace(image, **changed) if image.stream.endswith(":state") else image
        for image in kept.image.streams
    )
    return msgspec.structs.replace(kept, image=msgspec.structs.replace(kept.image, streams=streams))


def state_in(kept: Kept) -> StreamImage:
    return next(image for image in kept.image.streams if image.stream.endswith(":state"))


async def test_the_log_leads_to_what_the_live_task_shows_on_every_device(ends: TwoEndpoints) -> None:
    here, there = await record_all(ends)
    for task in (here, there):
        report = await task.replay()
        assert report.equal
        # Results travel when they are asked for, and nobody asked on the desktop.
        assert [gap.kind for gap in report.gaps] == ([] if task is here else [GapKind.MISSING_RESULT])
        assert report.view.slots == task.view.slots
        assert report.view.notes == task.view.notes
        assert report.view.calls == task.view.calls
        assert report.view.history == task.view.history
        assert report.view.version == 2
    mine, theirs = await here.replay(), await there.replay()
    assert [each.rebuilt for each in mine.streams] == [each.rebuilt for each in theirs.streams]
    assert mine.entries == theirs.entries == sum(each.entries for each in mine.streams) > 8


async def test_unsent_work_and_a_task_without_a_relay_are_replayed_too(task: Task) -> None:
    await task.slots.confirm("a", 1)
    await task.notes.append("n", "line\n")
    report = await task.replay()
    assert report.equal and report.gaps == () and report.entries == 3
    assert {each.stream: each.cursor for each in report.streams}[StreamName.STATE] == 0


async def test_replaying_hits_no_trap(ends: TwoEndpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    here, _ = await record_all(ends)
    kept, live, runs = await kept_of(ends.phone), live_of(ends.phone), list(RUNS)
    hits: list[str] = []

    def trap(name: str) -> object:
        def hit(*_: object, **__: object) -> None:
            hits.append(name)
            raise AssertionError(f"{name} was reached")

        return hit

    for module, names in (
        (socket, ("socket", "create_connection", "getaddrinfo")),
        (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")),
        (urllib.request, ("urlopen",)),
        (random, ("random", "randbytes")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, trap(f"{module.__name__}.{name}"))
    for each in (read_invoice, fail):
        monkeypatch.setattr(type(each), "__call__", trap("a tool"))
    report = replay(ends.phone.subject, "phone", kept, live)
    place = replay(ends.phone.subject, "phone", kept, live, 3)
    monkeypatch.undo()
    assert report.equal and place.equal and hits == [] and runs == RUNS
    assert report.view.calls == here.view.calls


def test_the_module_knows_no_tool_no_network_and_no_clock() -> None:
    reached = {getattr(value, "__module__", getattr(value, "__name__", "")) for value in vars(replay_module).values()}
    forbidden = ("asyncio", "socket", "time", "random", "sync_core.endpoint.t", "sync_core.endpoint.runner")
    assert not [name for name in reached if isinstance(name, str) and name.startswith(forbidden)]


async def test_a_missing_result_is_a_gap_and_is_not_fetched(ends: TwoEndpoints) -> None:
    _, there = await record_all(ends)
    kept = await kept_of(ends.phone)
    digest = next(entry.blob for entry in state_in(kept).entries if entry.blob)
    without = msgspec.structs.replace(kept, blob_bytes={})
    report = replay(ends.phone.subject, "phone", without, live_of(ends.phone))
    assert [(gap.kind, gap.stream) for gap in report.gaps] == [(GapKind.MISSING_RESULT, StreamName.STATE)]
    assert "step invoice" in report.gaps[0].what and LARGE[:20] not in report.gaps[0].what
    place = next(entry.relay_seq for entry in state_in(kept).entries if entry.blob == digest)
    assert report.gaps[0].place == place
    # The desktop never asked for the result, and a replay is no reason to.
    told = await there.replay()
    assert [gap.kind for gap in told.gaps] == [GapKind.MISSING_RESULT]
    assert (await kept_of(ends.desktop)).blob_bytes == {}
    assert digest == hashlib.sha256(f'"{LARGE}"'.encode()).hexdigest()


async def test_a_missing_place_a_quarantined_and_a_set_aside_entry_are_gaps_and_the_digest_differs(
    ends: TwoEndpoints,
) -> None:
    await record_all(ends)
    kept, live = await kept_of(ends.phone), live_of(ends.phone)
    entries = state_in(kept).entries
    lost = entries[1]

    def told(changed: Kept) -> list[tuple[GapKind, int | None]]:
        report = replay(ends.phone.subject, "phone", changed, live)
        assert not report.equal
        assert [each.stream for each in report.streams if not each.equal] == [StreamName.STATE]
        return [(gap.kind, gap.place) for gap in report.gaps if gap.kind is not GapKind.NO_OUTCOME]

    rest = tuple(entry for entry in entries if entry is not lost)
    aside = (AsideEntry(lost, "entry_refused"),)
    assert told(state_with(kept, entries=rest)) == [(GapKind.MISSING_PLACE, lost.relay_seq)]
    assert told(state_with(kept, entries=rest, quarantined=aside)) == [(GapKind.QUARANTINED, lost.relay_seq)]
    assert told(state_with(kept, entries=rest, set_aside=aside)) == [(GapKind.SET_ASIDE, lost.relay_seq)]
    damaged = ((lost.writer, lost.writer_seq, lost.relay_seq),)
    assert told(state_with(kept, entries=rest, damaged=damaged)) == [(GapKind.DAMAGED, lost.relay_seq)]


async def test_a_call_without_outcome_is_a_gap(ends: TwoEndpoints) -> None:
    await record_all(ends)
    kept = await kept_of(ends.phone)
    calls = [entry for entry in state_in(kept).entries if entry.kind.value == "call"]
    rest = tuple(entry for entry in state_in(kept).entries if entry is not calls[1])
    report = replay(ends.phone.subject, "phone", state_with(kept, entries=rest), live_of(ends.phone))
    assert [gap.what for gap in report.gaps if gap.kind is GapKind.NO_OUTCOME] == [
        "Step invoice, version 1, was started and has no outcome."
    ]


async def test_every_place_shows_the_task_as_it_was(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    states = [task.view]  # as of place 1, where the task was opened at its first version
    for write in (
        lambda: task.slots.declare("a", ask="A?"),
        lambda: task.slots.propose("a", 1),
        lambda: task.slots.confirm("a", 2),
        lambda: task.notes.append("n", "one\n"),
        lambda: task.slots.clear("a"),
        lambda: task.notes.append("n", "two\n"),
    ):
        await write()
        states.append(task.view)
    await task.history.append({"role": "user", "content": "go on"})
    await ends.synced()
    for place, state in enumerate(states, 1):
        view = (await task.replay(place)).view
        assert (view.slots, view.notes, view.version, view.history) == (state.slots, state.notes, 1, ())
    assert (await task.replay(4)).view.slots["a"].state is SlotState.CONFIRMED
    assert (await task.replay(4)).at == 4
    assert (await task.replay(0)).view.slots == {}


async def test_a_place_that_is_not_there_is_refused(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    await task.slots.confirm("a", 1)
    await ends.synced()
    with pytest.raises(ValueRefused, match="no place 3 on this device; the last one is 2"):
        await task.replay(3)
    for wrong in (-1, True, "1", 1.0):
        with pytest.raises(ValueRefused):
            await task.replay(wrong)  # type: ignore[arg-type]
    await task.aclose()
    with pytest.raises(Closed):
        await task.replay()


async def test_where_the_file_was_compacted_the_earliest_place_is_told(ends: TwoEndpoints) -> None:
    task = await ends.phone.task(KEY, create=True)
    for value in range(4):
        await task.slots.confirm("a", value)
    await ends.synced()
    await ends.phone.compact(KEY)
    await task.slots.confirm("a", 4)
    await ends.synced()
    with pytest.raises(HistoryTrimmed, match="up to place 5; that is the earliest") as raised:
        await task.replay(4)
    assert raised.value.earliest == 5
    assert (await task.replay(5)).view.slots["a"].value == 3
    whole = await task.replay()
    assert whole.equal and whole.gaps == () and whole.view.slots["a"].value == 4
    # The other device still has every entry, and shows what this one cannot.
    there = await ends.desktop.task(KEY)
    assert (await there.replay(3)).view.slots["a"].value == 1


async def test_after_a_lost_log_every_place_of_the_new_one_can_be_shown(tmp_path: Path) -> None:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    where: dict[str, Any] = {
        "subject": "acme",
        "relay": f"ws://127.0.0.1:{relay.port}",
        "backoff": Backoff(first_s=0.02, cap_s=0.1),
    }
    async with (
        Endpoint.open(tmp_path / "phone.db", device="phone", **where) as phone,
        Endpoint.open(tmp_path / "desktop.db", device="desktop", **where) as desktop,
    ):
        here = await phone.task(KEY, create=True)
        for value in range(3):
            await here.slots.confirm("a", value)
        await phone.synced(timeout_s=10)
        there = await desktop.task(KEY)
        await desktop.synced(timeout_s=10)
        await phone.compact(KEY)
        await relay.close()
        for file in tmp_path.glob("relay.db*"):
            file.unlink()
        relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=relay.port))
        await here.slots.confirm("a", 9)
        for endpoint in (phone, desktop, phone, desktop):
            await endpoint.synced(timeout_s=10)
        # What the phone had merged has no place in the new log; the entries themselves have.
        for task in (here, there):
            report = await task.replay()
            assert report.equal
            state = next(each for each in report.streams if each.stream is StreamName.STATE)
            assert state.earliest == 0
            assert (await task.replay(0)).view.slots == {}
            places = [(await task.replay(place)).view.slots for place in range(1, state.cursor + 1)]
            values: list[Any] = [slots["a"].value for slots in places if slots]
            # The phone brings back what it merged as a whole, the desktop entry by entry; either may be first.
            assert values == sorted(values) and values[0] < 9 == values[-1]
        lines: list[dict[str, Any]] = [line async for line in phone.export(KEY) if line.get("update")]
        assert [write["value_json"] for line in lines for write in line["update"]["set"]][-1] == "9"
    await relay.close()
