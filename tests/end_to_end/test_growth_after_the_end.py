"""What is left of a task that ended follows a stated formula, at 1, 10 and 100 times the work (AC-28)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from server_relay.lifetimes import CLEANED_ENTRY_BYTES, CLEANED_TASK_BYTES, TOMBSTONE_BYTES
from server_relay.mailbox.verifying import verify_file
from sync_core.document.view import CompletionState
from sync_core.endpoint.task import Task
from tests.end_to_end.lifetime_devices import (
    KEY,
    content_bytes,
    device,
    is_empty,
    rows,
    running,
    scan,
    until,
)

SAID = "said " * 1_000
EMPTY_FILE_BYTES = 2_048
"""What a file holds of no task: its schema's own rows, the clock, the subject."""


async def work(task: Task, times: int) -> None:
    """Two calls with results of their own, two turns of the conversation, a note's version and a slot's, so often."""
    for number in range(times):
        for step in (f"scan/{number}", f"look/{number}"):
            await task.call(step, scan, path=step)
            await task.history.append({"role": "user", "content": f"{step} {SAID}"})
        await task.notes.append("worklog", f"step {number}\n")
        await task.slots.confirm("amount", number, read=task.slots["amount"])


def column_bytes(folder: Path, name: str, sql: str) -> int:
    with closing(sqlite3.connect(folder / f"{name}.db")) as connection:
        return int(connection.execute(f"SELECT coalesce(sum({sql}), 0) {TABLE[name == 'relay', sql]}").fetchone()[0])


TABLE = {
    (True, "length(wire)"): "FROM entries",
    (True, "length(data)"): "FROM pieces",
    (False, "length(payload)"): "FROM entries",
    (False, "length(document)"): "FROM documents",
    (False, "length(data)"): "FROM blob_bytes",
}


def allowed(folder: Path, name: str, kept: tuple[str, ...]) -> int:
    """The formula: a base, what the remaining entries hold and a row for each, and the blobs that they name."""
    content = sum(column_bytes(folder, name, sql) for sql in kept)
    places = rows(folder, "entries", name) + rows(folder, "blobs", name) + rows(folder, "writers", name)
    steps = rows(folder, "steps", name) if name == "relay" else 0
    return EMPTY_FILE_BYTES + CLEANED_TASK_BYTES + content + (places + steps) * CLEANED_ENTRY_BYTES


@pytest.mark.parametrize("times", [1, 10, 100])
async def test_of_an_ended_task_no_more_is_left_than_the_formula_says(times: int, tmp_path: Path) -> None:
    async with (
        running(tmp_path, clean_up_grace_s=1) as relay,
        device(tmp_path, "phone", relay) as phone,
        device(tmp_path, "desktop", relay) as desktop,
    ):
        task = await phone.task(KEY, create=True)
        await work(task, times)
        await phone.synced(timeout_s=60)
        there = await desktop.task(KEY)
        await task.complete()
        await until(lambda: not task.view.history and not there.view.history)
        await phone.synced(timeout_s=60)
        await desktop.synced(timeout_s=60)
        assert there.completion.state is CompletionState.COMPLETED
        assert (len(there.view.calls), there.slots["amount"].value) == (2 * times, times - 1)
    assert verify_file(tmp_path / "relay.db").problems == ()
    said = 2 * times * len(SAID)
    calls = 2 * times
    # Two records and one result for each call are all that grows with the work, beside the document itself.
    assert rows(tmp_path, "blobs") == calls
    for name, kept in (
        ("relay", ("length(wire)", "length(data)")),
        ("phone", ("length(payload)", "length(document)", "length(data)")),
        ("desktop", ("length(payload)", "length(document)", "length(data)")),
    ):
        left = content_bytes(tmp_path, name)
        assert left <= allowed(tmp_path, name, kept), name
        results = column_bytes(tmp_path, name, "length(data)")
        assert left - results < EMPTY_FILE_BYTES + CLEANED_TASK_BYTES + times * 4_000 < said + 16_000, name
    for name in ("phone", "desktop"):
        assert rows(tmp_path, "entries", name) == 2 * calls + 2, "two records a call, the version, the completion"
        assert rows(tmp_path, "documents", name) == 1

    async with running(tmp_path) as relay, device(tmp_path, "phone", relay) as phone:
        await phone.purge(KEY)
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.synced(timeout_s=60)
        await until(lambda: is_empty(relay))
    assert verify_file(tmp_path / "relay.db").problems == ()
    for name in ("relay", "phone", "desktop"):
        assert content_bytes(tmp_path, name) <= EMPTY_FILE_BYTES + TOMBSTONE_BYTES, name
        assert rows(tmp_path, "tombstones", name) == 1
