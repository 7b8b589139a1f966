"""P1, SE-06, RS-05, RS-14 with real processes: SIGKILL loses nothing that was acknowledged, and frees the store."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from sync_core.context.sqlite_store import SqliteStore
from sync_core.errors import StoreInUse
from tests.end_to_end.store_writer import STREAM, TASK, WRITER, payload_of

KILLS = int(os.environ.get("SEGUE_STORE_KILLS", "20"))
ROOT = Path(__file__).parents[2]


@contextmanager
def writer(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that owns the store; it is killed at the end."""
    command = [sys.executable, "-m", "tests.end_to_end.store_writer", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def kill_after(process: "subprocess.Popen[str]", commits: int, delay_s: float) -> int:
    """Kill the process some time after it acknowledged a number of commits; return the last number it said."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(commits)]
    time.sleep(delay_s)
    process.kill()
    lines += process.stdout.read().splitlines(keepends=True)
    return int([line for line in lines if line.endswith("\n")][-1])


async def test_what_was_acknowledged_is_there_after_every_kill(tmp_path: Path) -> None:
    rng = Random(118)
    for kill in range(KILLS):
        # A file lives through fifty kills.
        path = tmp_path / f"{kill // 50}.db"
        with writer(path) as process:
            acknowledged = kill_after(process, rng.randint(1, 30), rng.random() * 0.004)
        store = await SqliteStore.open(path, subject="acme")
        image = await store.load_task(TASK)
        followed = await store.followed_tasks()
        await store.close()
        (stream,) = image.streams
        count = len(stream.entries)
        assert acknowledged <= count <= acknowledged + 1, f"kill {kill}"
        assert [entry.payload for entry in stream.entries] == [payload_of(seq) for seq in range(1, count + 1)]
        assert stream.cursor == count, "an entry and its position went apart"
        assert stream.damaged == ()
        assert image.unsent == tuple((STREAM, WRITER, seq) for seq in range(1, count + 1))
        assert (followed[0].waiting, followed[0].streams[0].own) == (count, ((WRITER, count),))


async def test_a_second_process_is_refused_within_a_second_and_let_in_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    with writer(path) as process:
        spans = []
        for _ in range(3):
            started = time.monotonic()
            with pytest.raises(StoreInUse) as caught:
                await SqliteStore.open(path, subject="acme")
            spans.append(time.monotonic() - started)
        # Waiting for the owner would take long every time; a busy machine slows one or another.
        assert min(spans) < 1
        assert caught.value.owner_pid == process.pid
        assert str(process.pid) in str(caught.value)
        assert caught.value.hint
        process.kill()
        process.wait()
        store = await SqliteStore.open(path, subject="acme")
        await store.close()


def test_a_program_that_ends_without_closing_its_store_ends(tmp_path: Path) -> None:
    program = f"""
import asyncio
from sync_core.context.sqlite_store import SqliteStore

async def main():
    store = await SqliteStore.open({str(tmp_path / "acme.db")!r}, subject="acme")
    raise RuntimeError("the program's own error")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("RuntimeError: the program's own error")
