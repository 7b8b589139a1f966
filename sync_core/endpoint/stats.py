"""`endpoint.stats()`: how much is kept, how fast it grows, how long writes take; each with a warning and a bound."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sync_core.context.store import Store
from sync_core.endpoint.gauges import Gauge, Latency, Level
from sync_core.endpoint.runner import Runner
from sync_core.ids import StreamName, split_stream
from sync_core.limits import (
    DOCUMENT_BYTES_MAX,
    DOCUMENT_BYTES_WARNING,
    GROWTH_WARNING_DAYS,
    LATENCY_MAX_MS,
    STORE_WARNING_PERCENT,
    SYNC_LATENCY_WARNING_MS,
    TASK_WRITES_MAX,
    TASK_WRITES_WARNING,
    TTL_WARNING_PERCENT,
    WRITE_LATENCY_WARNING_MS,
)
from sync_core.replica.writes import StoreStats, TaskSize

__all__ = ["EndpointStats", "Meter", "Room", "StreamStats", "TaskStats", "measure_task"]

_DAY_MS = 24 * 3600 * 1000


class StreamStats(msgspec.Struct, frozen=True):
    """One stream of a task: entries, and bytes of what they and its merged document hold."""

    stream: StreamName
    entries: int
    bytes: int


class TaskStats(msgspec.Struct, frozen=True):
    """One task as this device's file holds it; `bytes` are of its streams and blobs together.

    `document` is the size that its document has at most, `writes` its slot and note writes (known while it is open
    here), `growth` the bytes that its `state` gains a day, bounded by what is left of the document's bound, and
    `age_days` how old its oldest entry here is, by its writer's clock, bounded by the relay's time to live if the
    caller knows it. `growth_bytes_per_day` is that of all of it.
    """

    task: str
    streams: tuple[StreamStats, ...]
    entries: int
    bytes: int
    blobs: int
    blob_bytes: int
    document: Gauge
    writes: Gauge
    growth: Gauge
    age_days: Gauge
    growth_bytes_per_day: float | None

    @property
    def gauges(self) -> dict[str, Gauge]:
        """The gauges by name."""
        return {
            "document bytes": self.document,
            "writes": self.writes,
            "growth bytes a day": self.growth,
            "age days": self.age_days,
        }

    @property
    def level(self) -> Level:
        """The worst level of its gauges."""
        return _worst(self.gauges)


class EndpointStats(msgspec.Struct, frozen=True):
    """Sizes and times. Of the store; of what is open in memory (`handles` over `open_tasks` tasks, `documents` loaded);
    of each task; and of this opening: how long a commit (`write`) and a push up to its receipt (`sync`) took.

    `store_bytes` is bounded by `store_bytes_max`, or by what the disk still has room for.
    """

    store: StoreStats
    open_tasks: int
    handles: int
    documents: int
    tasks: tuple[TaskStats, ...]
    store_bytes: Gauge
    write: Latency
    sync: Latency

    @property
    def gauges(self) -> dict[str, Gauge]:
        """The gauges by name."""
        return {
            "store bytes": self.store_bytes,
            "write latency p95 ms": self.write.p95,
            "sync latency p95 ms": self.sync.p95,
        }

    @property
    def level(self) -> Level:
        """The worst level of all gauges, those of the tasks too."""
        every = {f"{task.task}: {name}": gauge for task in self.tasks for name, gauge in task.gauges.items()}
        return _worst(self.gauges | every)


class Room(msgspec.Struct, frozen=True):
    """Where a store lies, and its bound in bytes, if it has one."""

    path: str
    bytes_max: int | None


class Meter:
    """Takes the figures of one endpoint."""

    def __init__(self, runner: Runner, room: Room) -> None:
        self._runner = runner
        self._folder = Path(room.path).absolute().parent
        self._store_bytes_max = room.bytes_max

    async def read(
        self,
        task: str | None,
        *,
        task_ttl_s: float | None,
        writes: Mapping[str, int],
        open_tasks: int,
        handles: int,
        documents: int,
    ) -> EndpointStats:
        """Return the figures, of one task or of all. `writes` counts those of open tasks."""

        async def read(store: Store) -> tuple[StoreStats, tuple[TaskSize, ...]]:
            return await store.stats(), await store.task_sizes(task)

        store, sizes = await self._runner.read(read, tuple)
        now_ms = time.time_ns() // 1_000_000
        latencies = self._runner.latencies
        return EndpointStats(
            store=store,
            open_tasks=open_tasks,
            handles=handles,
            documents=documents,
            tasks=tuple(measure_task(size, writes.get(size.task), now_ms, task_ttl_s) for size in sizes),
            store_bytes=self._store_gauge(store.store_bytes),
            write=latencies.writes(WRITE_LATENCY_WARNING_MS, LATENCY_MAX_MS),
            sync=latencies.syncs(SYNC_LATENCY_WARNING_MS, LATENCY_MAX_MS),
        )

    def _store_gauge(self, store_bytes: int) -> Gauge:
        limit = store_bytes + shutil.disk_usage(self._folder).free
        if self._store_bytes_max is not None:
            limit = min(limit, self._store_bytes_max)
        return Gauge(store_bytes, limit * STORE_WARNING_PERCENT / 100, limit)


def measure_task(size: TaskSize, writes: int | None, now_ms: int, task_ttl_s: float | None) -> TaskStats:
    """Return a task's figures from its sizes in the file; `now_ms` is this machine's clock, for the age alone."""
    streams = tuple(
        StreamStats(split_stream(each.stream)[1], each.entries, each.entry_bytes + each.document_bytes)
        for each in size.streams
    )
    content = sum(each.bytes for each in streams) + size.blob_bytes
    state = sum(each.bytes for each in streams if each.stream is StreamName.STATE)
    oldest_ms = min((each.oldest_at_ms for each in size.streams if each.oldest_at_ms), default=0)
    age_days = max(0.0, (now_ms - oldest_ms) / _DAY_MS) if oldest_ms else None
    # What came within the first day is what a day brings, as far as anybody can tell.
    counted_days = None if age_days is None else max(1.0, age_days)
    left = max(0, DOCUMENT_BYTES_MAX - state)
    ttl_days = None if task_ttl_s is None else task_ttl_s * 1000 / _DAY_MS
    return TaskStats(
        task=size.task,
        streams=streams,
        entries=sum(each.entries for each in streams),
        bytes=content,
        blobs=size.blobs,
        blob_bytes=size.blob_bytes,
        document=Gauge(state, DOCUMENT_BYTES_WARNING, DOCUMENT_BYTES_MAX),
        writes=Gauge(writes, TASK_WRITES_WARNING, TASK_WRITES_MAX),
        growth=Gauge(counted_days and state / counted_days, left / GROWTH_WARNING_DAYS, left),
        age_days=Gauge(age_days, ttl_days and ttl_days * TTL_WARNING_PERCENT / 100, ttl_days),
        growth_bytes_per_day=counted_days and content / counted_days,
    )


def _worst(gauges: Mapping[str, Gauge]) -> Level:
    levels = [gauge.level for gauge in gauges.values()]
    return max(levels, key=list(Level).index, default=Level.OK)
