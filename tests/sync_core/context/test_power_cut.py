"""P1, RS-03: what a commit returned for survives a power cut, with FULL; with NORMAL the same test must fail.

The store's own schema and statements run on a disk that keeps a tape. Then the power goes: after every sync, and at
random places of the tape. What comes up must be one of the states that were committed, not older than the last one
acknowledged before the cut.
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from sync_core.context.apply import commit_writes
from sync_core.context.connection import PRAGMAS
from sync_core.context.migrations import migrate
from sync_core.context.reads import load_task
from sync_core.replica.writes import TaskImage
from tests.contracts.store_workload import TASKS, random_commit
from tests.simulation.disk import DiskModel
from tests.sync_core.context.power import Op, files_after_cut, power_connection

CUTS = int(os.environ.get("SEGUE_POWER_CUTS", "400"))
RUNS = 4
COMMITS = 40


class Recording(NamedTuple):
    """A tape, where on it each commit was acknowledged, and the state after each (the empty one first)."""

    tape: list[Op]
    acknowledged: list[int]
    states: list[tuple[TaskImage, ...]]


def record(folder: Path, synchronous: str, seed: int) -> Recording:
    """Run random commits and remember everything."""
    rng = Random(seed)
    model = DiskModel()
    pragmas = [sql.replace("synchronous = FULL", f"synchronous = {synchronous}") for sql in PRAGMAS]
    with power_connection(str(folder / f"{synchronous}{seed}.db")) as (disk, connection):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # A short log, so that the cuts fall into checkpoints too.
        for sql in (*pragmas, "PRAGMA wal_autocheckpoint = 25"):
            connection.execute(sql).fetchall()
        migrate(connection, "acme")
        acknowledged = [len(disk.tape)]
        states = [state_of(model)]
        for _ in range(COMMITS):
            writes = random_commit(rng)
            commit_writes(connection, writes, compress=True)
            model.commit(writes)
            acknowledged.append(len(disk.tape))
            states.append(state_of(model))
        return Recording(list(disk.tape), acknowledged, states)


def state_of(model: DiskModel) -> tuple[TaskImage, ...]:
    return tuple(model.load_task(task) for task in TASKS)


def places_to_cut(recording: Recording, count: int, rng: Random) -> list[int]:
    """Return places of the tape, not before the schema was there: after syncs, and anywhere."""
    start, end = recording.acknowledged[0], len(recording.tape)
    syncs = [n + 1 for n in range(start, end) if recording.tape[n].what == "sync"]
    chosen = rng.sample(syncs, min(len(syncs), count // 2))
    return chosen + [rng.randint(start, end) for _ in range(count - len(chosen))]


def lost_after_cut(recording: Recording, place: int, rng: Random, folder: Path) -> int:
    """Cut the power, come up, and return how many acknowledged commits are gone (-1: the one under way is there)."""
    for survivor, content in files_after_cut(recording.tape[:place], rng).items():
        (folder / survivor).write_bytes(content)
    (name,) = folder.glob("*.db")
    connection = sqlite3.connect(name, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = tuple(load_task(connection, task) for task in TASKS)
    finally:
        connection.close()
        for file in folder.iterdir():
            file.unlink()
    acknowledged = sum(at <= place for at in recording.acknowledged) - 1
    under_way = recording.states[acknowledged + 1 : acknowledged + 2]
    if [found] == under_way and found != recording.states[acknowledged]:
        return -1
    newest_first = recording.states[acknowledged::-1]
    assert found in newest_first, "a half transaction"
    return newest_first.index(found)


def cut(tmp_path: Path, synchronous: str, cuts: int) -> Sequence[int]:
    """Return what each cut lost, in commits."""
    lost = []
    for seed in range(RUNS):
        recording = record(tmp_path, synchronous, seed)
        folder = tmp_path / f"cut-{synchronous}-{seed}"
        folder.mkdir()
        rng = Random(seed)
        for place in places_to_cut(recording, cuts // RUNS, rng):
            lost.append(lost_after_cut(recording, place, rng, folder))
    return lost


def test_no_acknowledged_commit_is_lost_in_a_power_cut(tmp_path: Path) -> None:
    lost = cut(tmp_path, "FULL", CUTS)
    assert len(lost) == CUTS
    assert [count for count in lost if count > 0] == []


def test_the_same_test_fails_without_a_sync_for_each_commit(tmp_path: Path) -> None:
    lost = cut(tmp_path, "NORMAL", 80)
    assert len([count for count in lost if count > 0]) > 5


def test_the_store_asks_for_a_sync_with_each_commit() -> None:
    assert "PRAGMA synchronous = FULL" in PRAGMAS
