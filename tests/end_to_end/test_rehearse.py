"""Rehearsals of recorded runs: nothing is lost or run again unasked, and a Segue broken on purpose is caught."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clients.desktop.rehearse.figures import Figures
from clients.desktop.rehearse.recording import read_runs
from clients.desktop.rehearse.rehearsal import Plan, rehearse
from clients.desktop.rehearse.rules import read_rules
from clients.desktop.rehearse.schedule import Faults
from sync_core.document import record_writes
from sync_core.document.calls import PlannedCall
from sync_core.document.history import History
from sync_core.endpoint.turns import Turns

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "clients" / "data"
RUNS, TOOLS = DATA / "workshop_runs.json", DATA / "workshop_tools.json"
CALLS, GUARDED = 18, 2
ALL = Faults(kills=True, offline=True)


def segue(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "clients.desktop", "rehearse", *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


def played(folder: Path, seed: int = 7, faults: Faults = ALL, devices: int = 3) -> Figures:
    plan = Plan(read_runs(RUNS), read_rules(TOOLS), devices, seed, faults)
    return asyncio.run(rehearse(plan, folder, lambda: None))


def test_without_faults_every_call_runs_once_on_another_device_than_the_last() -> None:
    status, figures = segue(str(RUNS), "--tools", str(TOOLS))
    assert status == 0 and figures["good"]
    assert {name: figures[name] for name in ("runs", "calls", "moves", "executed", "irreversible", "done")} == {
        "runs": 5,
        "calls": CALLS,
        "moves": CALLS,
        "executed": CALLS,
        "irreversible": GUARDED,
        "done": GUARDED,
    }
    assert figures["run_again_after_crash"] == figures["run_apart"] == figures["refused_for_authority"] == 0


def test_without_the_authority_what_cannot_be_undone_is_refused() -> None:
    status, figures = segue(str(RUNS), "--tools", str(TOOLS), "--crash", "--offline", "--no-authority")
    assert status == 0 and figures["good"]
    assert (figures["refused_for_authority"], figures["done"]) == (GUARDED, 0)


def test_kills_and_offline_spells_cost_executions_and_nothing_else() -> None:
    status, figures = segue(str(RUNS), "--tools", str(TOOLS), "--seed", "3", "--crash", "--offline")
    assert status == 0 and figures["kills"] and figures["offline_spells"]
    extra = figures["run_again_after_crash"] + figures["run_apart"]
    assert figures["executed"] == CALLS + extra and extra > 0


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_any_number_of_devices_ends_well(tmp_path: Path, devices: int) -> None:
    figures = played(tmp_path, 11, devices=devices)
    assert figures.good and figures.digests_equal
    assert figures.moves == (0 if devices == 1 else CALLS)


ODD = [
    ("look", '{"at": null}', "fine"),
    ("look", '{"at": 1, "idempotency_key": "mine"}', "fine"),
    ("look", "{}", "x" * 100_000),
    ("look", '{"at": "\\ud800"}', "Error"),
    ("", "{}", "Error"),
    ("slot_confirm", '{"name": "x", "value": 1}', "done"),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_an_honest_recording_holds_is_played_and_judged_rightly(tmp_path: Path, seed: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "y" * 100_000}]
    for number, (tool, arguments, result) in enumerate(ODD):
        call = {"id": f"c{number}", "type": "function", "function": {"name": tool, "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "another", "content": result})
    (tmp_path / "runs.json").write_text(json.dumps([messages]))
    (tmp_path / "tools.json").write_text('{"look": "READ"}')
    (tmp_path / "played").mkdir()
    plan = Plan(read_runs(tmp_path / "runs.json"), read_rules(tmp_path / "tools.json"), 3, seed, ALL)
    figures = asyncio.run(rehearse(plan, tmp_path / "played", lambda: None))
    assert figures.good, figures
    assert (figures.calls, figures.garbled_by_model) == (6, 3)
    assert figures.executed - figures.run_again_after_crash - figures.run_apart == 3


def test_the_same_seed_plays_the_same_figures(tmp_path: Path) -> None:
    folders = (tmp_path / "once", tmp_path / "again")
    for folder in folders:
        folder.mkdir()
    assert played(folders[0]) == played(folders[1])


def test_files_of_a_rehearsal_stay_where_they_were_asked_for(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    status, figures = segue(str(RUNS), "--tools", str(TOOLS), "--limit", "1", "--keep", str(keep))
    assert (status, figures["runs"]) == (0, 1)
    assert len((keep / "executions.jsonl").read_text().splitlines()) == figures["executed"]
    assert sorted(path.name for path in keep.glob("run-*.db")) == [f"run-0-device-{n}.db" for n in (1, 2, 3)]
    status, refused = segue(str(RUNS), "--tools", str(TOOLS), "--keep", str(keep))
    assert (status, refused["error"]["code"]) == (2, "wrong_usage")


def test_a_recording_that_cannot_be_read_is_wrong_usage() -> None:
    status, refused = segue(str(TOOLS), "--tools", str(TOOLS))
    assert (status, refused["error"]["code"]) == (2, "wrong_usage")


def test_arguments_that_the_model_garbled_are_not_run_and_not_lost(tmp_path: Path) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "free_days", "arguments": "{oops"}}
    runs = [
        [
            {"role": "user", "content": "Which days?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "Error: no JSON"},
        ]
    ]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    status, figures = segue(str(tmp_path / "runs.json"), "--tools", str(TOOLS), "--crash", "--offline")
    assert (status, figures["garbled_by_model"], figures["executed"]) == (0, 1, 0)


@pytest.mark.skipif("SEGUE_TRACES" not in os.environ, reason="SEGUE_TRACES names no folder of recorded runs")
def test_the_recorded_runs_of_a_folder_are_rehearsed_whole() -> None:
    folder = Path(os.environ["SEGUE_TRACES"])
    (runs,) = folder.glob("*_runs.json")
    (tools,) = folder.glob("*_tools.json")
    status, figures = segue(str(runs), "--tools", str(tools), "--crash", "--offline")
    assert status == 0 and figures["good"], figures


# --- broken on purpose ------------------------------------------------------------------------------------------------


def test_a_record_that_is_not_looked_at_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writes, "check_begin", lambda call, step, effect, digest, running, granted: True)
    figures = played(tmp_path, faults=Faults())
    assert figures.executed_again > 0 and not figures.good


def test_a_cache_by_arguments_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Turns._content
    cache: dict[tuple[str, str, str], str] = {}

    async def cached(self: Turns, pending: PlannedCall) -> str:
        key = (self._handle.key, pending.tool, pending.arguments)
        if key not in cache:
            cache[key] = await honest(self, pending)
        return cache[key]

    monkeypatch.setattr(Turns, "_content", cached)
    figures = played(tmp_path, faults=Faults())
    assert figures.wrong_results > 0 and not figures.good


def test_a_history_that_loses_outputs_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = History.visible

    def forgetful(self: History) -> tuple[Any, ...]:
        return tuple(entry for entry in honest(self) if entry.index != 3)

    monkeypatch.setattr(History, "visible", forgetful)
    figures = played(tmp_path, faults=Faults())
    assert figures.lost_history_items > 0 and not figures.good


def test_a_tool_that_nobody_asked_for_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clients.desktop.rehearse.devices import Device

    honest = Device.synced

    async def eager(self: Device) -> None:
        await honest(self)
        await self._stand_ins._tools["free_days"](1)

    monkeypatch.setattr(Device, "synced", eager)
    figures = played(tmp_path, faults=Faults())
    assert figures.executed_again > 0 and not figures.good
