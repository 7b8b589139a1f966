"""`segue stats`: how much this device keeps, how fast it grows, how long writes take, and what nears its bound."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from clients.desktop.connection import Session
from clients.desktop.output import Answer, JsonDocument, Table

if TYPE_CHECKING:
    from sync_core import EndpointStats, Gauge, Latency, TaskStats

__all__ = ["stats"]

_SECONDS_A_DAY = 24 * 3600


async def stats(
    session: Session,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="Only this task, stream by stream.")] = None,
    ttl_days: Annotated[
        float | None, typer.Option("--ttl-days", min=0, help="The relay's time to live, to warn of ages.")
    ] = None,
) -> Answer:
    """Show sizes, growth and latencies, with levels that warn."""
    ttl_s = None if ttl_days is None else ttl_days * _SECONDS_A_DAY
    if task is None:
        sending = await session.synced()
        found = await session.endpoint.stats(task_ttl_s=ttl_s)
    else:
        # A task's writes are counted while it is open.
        async with session.task(task):
            sending = await session.synced()
            found = await session.endpoint.stats(task, task_ttl_s=ttl_s)
    document: dict[str, JsonDocument] = {**_document(found), "relay": sending.document()}
    parts = _all_parts(found) if task is None else _task_parts(found)
    return Answer(document, (*parts, *sending.sentences()), sending.exit_status)


def _all_parts(found: "EndpointStats") -> list[str | Table]:
    columns = ("TASK", "BYTES", "ENTRIES", "BYTES A DAY", "DAYS", "LEVEL")
    rows = tuple(
        (
            each.task,
            _number(each.bytes),
            str(each.entries),
            _number(each.growth_bytes_per_day),
            _number(each.age_days.value),
            each.level.value,
        )
        for each in found.tasks
    )
    return [_gauges_table(found.gauges), "", Table(columns, rows) if rows else "No task is kept here."]


def _task_parts(found: "EndpointStats") -> list[str | Table]:
    parts: list[str | Table] = []
    for task in found.tasks:
        rows = [(each.stream.value, str(each.entries), _number(each.bytes)) for each in task.streams]
        rows += [("blobs", str(task.blobs), _number(task.blob_bytes))] if task.blobs else []
        parts += [Table(("STREAM", "ENTRIES", "BYTES"), tuple(rows)), "", _gauges_table(task.gauges), ""]
    return [*parts, _gauges_table(found.gauges)]


def _gauges_table(gauges: dict[str, "Gauge"]) -> Table:
    rows = tuple(
        (name, _number(gauge.value), _number(gauge.warning), _number(gauge.limit), gauge.level.value)
        for name, gauge in gauges.items()
    )
    return Table(("GAUGE", "NOW", "WARNING AT", "BOUND", "LEVEL"), rows)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _document(found: "EndpointStats") -> dict[str, JsonDocument]:
    return {
        "level": found.level.value,
        "store": msgspec.structs.asdict(found.store),
        "store_bytes": _gauge(found.store_bytes),
        "write": _latency(found.write),
        "sync": _latency(found.sync),
        "tasks": [_task(each) for each in found.tasks],
    }


def _task(task: "TaskStats") -> JsonDocument:
    return {
        "task": task.task,
        "level": task.level.value,
        "bytes": task.bytes,
        "entries": task.entries,
        "blobs": task.blobs,
        "blob_bytes": task.blob_bytes,
        "growth_bytes_per_day": task.growth_bytes_per_day,
        "streams": [msgspec.to_builtins(each) for each in task.streams],
        "gauges": {name.replace(" ", "_"): _gauge(gauge) for name, gauge in task.gauges.items()},
    }


def _latency(latency: "Latency") -> JsonDocument:
    return {"count": latency.count, "p50_ms": latency.p50_ms, "p95_ms": _gauge(latency.p95)}


def _gauge(gauge: "Gauge") -> JsonDocument:
    return {**msgspec.structs.asdict(gauge), "level": gauge.level.value}
