"""What an endpoint says of its sizes and times, and that it warns before anything is refused (scenario AC-28)."""

from pathlib import Path

import pytest

from sync_core import Effect, Endpoint, Level, TooLarge, ValueRefused, tool
from sync_core.endpoint.gauges import Gauge
from sync_core.endpoint.stats import TaskStats, measure_task
from sync_core.ids import StreamName
from sync_core.limits import DOCUMENT_BYTES_MAX, DOCUMENT_BYTES_WARNING, TASK_WRITES_MAX
from sync_core.replica.writes import StreamSize, TaskSize
from sync_core.testing import two_endpoints

TASK = "expense/TRIP-118"
DAY_MS = 24 * 3600 * 1000
NOW_MS = 1_800_000_000_000


@tool(effect=Effect.READ)
async def read_invoice(path: str) -> str:
    return path * 5_000


async def test_the_figures_are_those_of_the_file(tmp_path: Path) -> None:
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone", tools=[read_invoice]) as phone:
        async with phone.task(TASK, create=True) as task, phone.task("other/1", create=True) as other:
            await other.notes.append("worklog", "x")
            await task.slots.confirm("cost_center", "CC-1042")
            await task.history.append({"role": "user", "content": "x" * 1_000})
            before = (await phone.stats(TASK)).tasks[0]
            await task.call("invoice", read_invoice, "a.pdf")
            await task.notes.append("worklog", "x" * 10_000)
            stats = await phone.stats()
            assert [each.task for each in stats.tasks] == [TASK, "other/1"]
            found = stats.tasks[0]
            assert (found.writes.value, (await phone.stats()).tasks[0].writes.level) == (task.view.writes, Level.OK)
        sizes = {stream.stream: stream for stream in found.streams}
        assert sizes[StreamName.HISTORY].entries == 1 and sizes[StreamName.HISTORY].bytes > 1_000
        assert sizes[StreamName.STATE].entries == before.streams[-1].entries + 3
        assert 10_000 < found.document.value - before.document.value < 12_000  # type: ignore[operator]
        assert (found.blobs, before.blobs) == (1, 0) and found.blob_bytes > 25_000
        assert found.bytes == sum(stream.bytes for stream in found.streams) + found.blob_bytes
        assert found.growth_bytes_per_day == found.bytes
        assert found.age_days.value is not None and found.age_days.value < 0.1
        closed = await phone.stats(TASK)
        assert closed.tasks[0].writes.value is None and closed.open_tasks == closed.handles == 0
        assert stats.store.store_bytes == stats.store_bytes.value
        assert stats.level is Level.OK
        assert (await phone.stats("no/such")).tasks == ()
        with pytest.raises(ValueRefused):
            await phone.stats("no such")


async def test_writes_and_receipts_are_timed(tmp_path: Path) -> None:
    async with two_endpoints(tmp_path) as ends:
        task = await ends.phone.task(TASK, create=True)
        for number in range(5):
            await task.slots.confirm(f"s{number}", "x")
        await ends.synced()
        phone, desktop = await ends.phone.stats(), await ends.desktop.stats()
        assert phone.write.count >= 5 and phone.write.p50_ms is not None and phone.write.p95.value is not None
        assert 0 < phone.write.p50_ms <= phone.write.p95.value
        assert 0 < phone.sync.count <= 6 and phone.sync.p95.value is not None and phone.sync.p95.value > 0
        assert desktop.sync.count == 0 and desktop.sync.p95.value is None


async def test_a_bounded_store_warns_before_it_is_full(tmp_path: Path) -> None:
    bound = 2_000_000
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone", store_bytes_max=bound) as phone:
        task = await phone.task(TASK, create=True)
        levels = [(await phone.stats()).store_bytes.level]
        with pytest.raises(Exception, match="bound"):
            for number in range(100):
                await task.notes.write(f"n{number}", "x" * 100_000)
                levels.append((await phone.stats()).store_bytes.level)
        assert levels[0] is Level.OK and levels[-1] is not Level.OK
        assert (await phone.stats()).store_bytes.limit == bound


def measured(
    state_bytes: int = 0, days: float = 0, *, writes: int | None = None, ttl_s: float | None = None
) -> TaskStats:
    stream = StreamSize(f"{TASK}:state", 1, state_bytes, 0, NOW_MS - int(days * DAY_MS))
    return measure_task(TaskSize(TASK, (stream,), 0, 0), writes, NOW_MS, ttl_s)


def first_levels(gauge_of: list[Gauge]) -> list[Level]:
    """The levels in the order in which they come, each once."""
    return list(dict.fromkeys(gauge.level for gauge in gauge_of))


RISING = [Level.OK, Level.WARNING, Level.LIMIT]


def test_every_gauge_of_a_task_crosses_its_warning_before_its_bound() -> None:
    """A task that takes writes, bytes and days, step by step, up to and over each bound."""
    share = [step / 100 for step in range(102)]
    by_writes = [measured(writes=int(part * TASK_WRITES_MAX)).writes for part in share]
    by_bytes = [measured(int(part * DOCUMENT_BYTES_MAX), days=3_650).document for part in share]
    by_growth = [measured(int(part * DOCUMENT_BYTES_MAX), days=1).growth for part in share]
    by_age = [measured(days=part * 30, ttl_s=30 * 86_400).age_days for part in share]
    for gauges in (by_writes, by_bytes, by_growth, by_age):
        assert first_levels(gauges) == RISING
    assert measured(DOCUMENT_BYTES_MAX).level is Level.LIMIT
    assert measured(1_000, days=3_650).level is Level.OK
    assert measured(days=3_650).age_days.level is Level.OK


def test_growth_is_that_of_the_days_that_passed() -> None:
    assert measured(1_000_000, days=10).growth_bytes_per_day == 100_000
    assert measured(1_000_000, days=0.01).growth_bytes_per_day == 1_000_000
    assert measured(1_000_000, days=-1).age_days.value == 0
    undated = measure_task(TaskSize(TASK, (StreamSize(f"{TASK}:state", 0, 0, 5, 0),), 0, 0), None, NOW_MS, None)
    assert (undated.age_days.value, undated.growth.value, undated.growth_bytes_per_day) == (None, None, None)
    assert undated.bytes == undated.document.value == 5


async def test_the_document_warns_before_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real refusal, with bounds a thousandth of theirs."""
    from sync_core.document import growth
    from sync_core.endpoint import stats

    for module in (growth, stats):
        monkeypatch.setattr(module, "DOCUMENT_BYTES_MAX", DOCUMENT_BYTES_MAX // 1_000)
    monkeypatch.setattr(stats, "DOCUMENT_BYTES_WARNING", DOCUMENT_BYTES_WARNING // 1_000)
    gauges = []
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        task = await phone.task(TASK, create=True)
        with pytest.raises(TooLarge):
            for number in range(100):
                await task.slots.confirm(f"s{number}", "x" * 500)
                gauges.append((await phone.stats()).tasks[0].document)
    assert first_levels(gauges)[:2] == [Level.OK, Level.WARNING]
