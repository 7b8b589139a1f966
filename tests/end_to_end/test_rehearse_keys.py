"""Rehearsals with keys: what cannot be undone happens once, doubles are prevented, and a broken key is caught."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from clients.desktop.rehearse import stand_ins
from clients.desktop.rehearse.figures import Figures
from clients.desktop.rehearse.logs import Ask, AskOutcome, read_lines
from clients.desktop.rehearse.outside import Deed, OutsideSystem, read_outside
from clients.desktop.rehearse.recording import read_runs
from clients.desktop.rehearse.rehearsal import Plan, rehearse
from clients.desktop.rehearse.rules import read_rules
from clients.desktop.rehearse.schedule import Faults
from tests.test_readme import block

ROOT = Path(__file__).resolve().parents[2]
ALL = Faults(kills=True, offline=True)
BOOK = {"effect": "IRREVERSIBLE", "key": ["who", "flight"], "failed_if": "^Error", "label": {"path": "id"}}
TOOLS: dict[str, object] = {
    "look": "READ",
    "book": BOOK,
    "cancel": {"effect": "IRREVERSIBLE", "key": ["id"], "releases": {"tool": "book", "argument": "id"}},
    "pay": {"effect": "IRREVERSIBLE", "failed_if": "^Error"},
}
MIA = {"who": "mia", "flight": "F1"}
Step = tuple[str, dict[str, object], str]
ACCIDENT: list[Step] = [
    ("book", {**MIA, "card": 1}, "Error: card 1 is not enough"),
    ("book", {**MIA, "card": 2}, '{"id": "A1"}'),
    ("book", {**MIA, "card": 3}, "Error: card 3 is unknown"),  # 2: prevented, and failed anyway
    ("book", {**MIA, "card": 4}, '{"id": "A2"}'),  # 3: prevented
    ("look", {"id": "A2"}, '{"id": "A2", "seat": "12C"}'),  # 4: depends on 3
    ("look", {"id": "A1"}, '{"id": "A1", "seat": "9D"}'),
    ("cancel", {"id": "A2"}, "gone"),  # 6: depends on 3
    ("pay", {"amount": 5}, "paid"),
    ("pay", {"amount": 5}, "paid"),  # 8: has no key of an entity, so it is another payment
]
HONEST: list[Step] = [
    ("book", MIA, '{"id": "A1"}'),
    ("cancel", {"id": "A1"}, "gone"),
    ("book", MIA, '{"id": "A2"}'),
    ("book", {**MIA, "who": "omar"}, '{"id": "A3"}'),
    ("cancel", {"id": "A2"}, "gone"),
    ("pay", {"amount": 5}, "Error: no money"),
    ("book", MIA, '{"id": "A4"}'),
]


def written(folder: Path, *runs: list[Step], tools: dict[str, object] = TOOLS) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    recorded = []
    for run in runs:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Please book."}]
        for number, (tool, arguments, result) in enumerate(run):
            function = {"name": tool, "arguments": json.dumps(arguments)}
            call = {"id": f"c{number}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
        recorded.append(messages)
    (folder / "runs.json").write_text(json.dumps(recorded))
    (folder / "tools.json").write_text(json.dumps(tools))
    return folder / "runs.json", folder / "tools.json"


def played(tmp_path: Path, *runs: list[Step], seed: int = 7, faults: Faults = ALL, **changed: object) -> Figures:
    made = written(tmp_path / "made", *runs, tools={**TOOLS, **changed})
    (tmp_path / "played").mkdir()
    plan = Plan(read_runs(made[0]), read_rules(made[1]), 3, seed, faults)
    return asyncio.run(rehearse(plan, tmp_path / "played", lambda: None))


def fates(tmp_path: Path, outcome: AskOutcome) -> set[tuple[int, int]]:
    asks = read_lines(tmp_path / "played" / "asks.jsonl", Ask)
    return {(ask.run, ask.step) for ask in asks if ask.outcome is outcome}


def effects(tmp_path: Path) -> list[tuple[int, int]]:
    return sorted((effect.run, effect.step) for effect in read_outside(tmp_path / "played" / "outside.db"))


@pytest.mark.parametrize("faults", [Faults(), ALL], ids=["quiet", "loud"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_second_booking_is_prevented_and_what_names_it_is_not_run(
    tmp_path: Path, seed: int, faults: Faults
) -> None:
    figures = played(tmp_path, ACCIDENT, seed=seed, faults=faults)
    assert figures.good, figures
    assert effects(tmp_path) == [(0, 1), (0, 7), (0, 8)]
    assert fates(tmp_path, AskOutcome.PREVENTED) == {(0, 2), (0, 3)}
    assert fates(tmp_path, AskOutcome.DEPENDENT) == {(0, 4), (0, 6)}
    assert (figures.irreversible, figures.done, figures.did_not_happen) == (7, 3, 1)
    assert (figures.prevented, figures.prevented_failed, figures.dependent) == (1, 1, 2)
    assert figures.doubles == figures.not_done == figures.astray == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_cancelled_may_be_booked_again_and_runs_do_not_hear_of_each_other(tmp_path: Path, seed: int) -> None:
    figures = played(tmp_path, HONEST, HONEST, seed=seed)
    assert figures.good, figures
    assert effects(tmp_path) == [(run, step) for run in (0, 1) for step in (0, 1, 2, 3, 4, 6)]
    assert (figures.done, figures.did_not_happen) == (12, 2)
    assert figures.prevented == figures.prevented_failed == figures.dependent == 0


def test_what_is_in_doubt_after_a_kill_is_settled_by_the_probe(tmp_path: Path) -> None:
    calls: list[Step] = [("pay", {"amount": amount}, f"paid {amount}") for amount in range(16)]
    figures = played(tmp_path, calls, faults=Faults(kills=True))
    assert figures.good, figures
    assert figures.kills > 3 and figures.done == len(calls)
    assert 0 < figures.settled_by_probe <= figures.kills


def test_with_plain_classes_every_call_has_a_key_of_its_own(tmp_path: Path) -> None:
    figures = played(tmp_path, ACCIDENT, book="IRREVERSIBLE", cancel="IRREVERSIBLE", pay="IRREVERSIBLE")
    assert figures.good, figures
    assert (figures.done, figures.prevented, figures.dependent) == (7, 0, 0)


def test_without_the_authority_nothing_happens_outside(tmp_path: Path) -> None:
    figures = played(tmp_path, ACCIDENT, faults=Faults(kills=True, offline=True, without_authority=True))
    assert figures.good and figures.refused_for_authority == 7 and effects(tmp_path) == []


def test_the_command_tells_what_a_key_kept_back_and_ends_well(tmp_path: Path) -> None:
    runs, tools = written(tmp_path / "made", ACCIDENT)
    command = [sys.executable, "-m", "clients.desktop", "rehearse", str(runs), "--tools", str(tools)]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "SEGUE_RELAY_AUTHORITY": "false"}
    done = subprocess.run([*command, "--json"], env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert [(each["call"], each["fate"]) for each in document["kept_back"]] == [
        (2, "prevented_failed"),
        (3, "prevented"),
        (4, "dependent"),
        (6, "dependent"),
    ]
    assert document["by_tool"]["book"] == {"did_not_happen": 1, "done": 1, "prevented_failed": 1, "prevented": 1}


def test_a_key_of_an_argument_that_nobody_gives_is_refused_before_anything_starts(tmp_path: Path) -> None:
    runs, tools = written(tmp_path / "made", ACCIDENT, tools={"book": {**BOOK, "key": ["whom"]}})
    command = [sys.executable, "-m", "clients.desktop", "rehearse", str(runs), "--tools", str(tools), "--json"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        "Tool book, key: no recorded call gives it an argument 'whom'" in json.loads(done.stdout)["error"]["sentence"]
    )


# --- broken on purpose ------------------------------------------------------------------------------------------------


def test_a_key_that_changes_with_each_attempt_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OutsideSystem.act

    def forgetful(self: OutsideSystem, key: str, deed: Deed) -> str:
        return honest(self, uuid.uuid4().hex, deed)

    monkeypatch.setattr(OutsideSystem, "act", forgetful)
    calls: list[Step] = [("pay", {"amount": amount}, "paid") for amount in range(16)]
    figures = played(tmp_path, calls, faults=Faults(kills=True))
    assert figures.doubles > 0 and not figures.good


def test_a_probe_that_knows_nothing_is_caught_though_the_outside_system_checks_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = OutsideSystem.act
    inside: list[bool] = []

    def act(self: OutsideSystem, key: str, deed: Deed) -> str:
        inside.append(True)
        try:
            return honest(self, key, deed)
        finally:
            inside.pop()

    real = OutsideSystem.probe
    monkeypatch.setattr(OutsideSystem, "act", act)
    monkeypatch.setattr(OutsideSystem, "probe", lambda self, key: real(self, key) if inside else None)
    calls: list[Step] = [("pay", {"amount": amount}, "paid") for amount in range(16)]
    figures = played(tmp_path, calls, faults=Faults(kills=True))
    assert figures.executed_again > 0 and figures.doubles == 0 and not figures.good


def test_a_tool_that_hides_its_entity_from_the_authority_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_ins, "_key_of", lambda rule: None)
    figures = played(tmp_path, ACCIDENT, faults=Faults())
    assert figures.doubles > 0 and figures.prevented == 0 and not figures.good


# --- recorded runs of others ------------------------------------------------------------------------------------------


@pytest.mark.skipif("SEGUE_TRACES" not in os.environ, reason="SEGUE_TRACES names no folder of recorded runs")
def test_the_accident_of_run_150_is_prevented_and_everything_else_happens_once(tmp_path: Path) -> None:
    folder = Path(os.environ["SEGUE_TRACES"])
    plain = json.loads((folder / "airline_tools.json").read_text())
    (tmp_path / "tools.json").write_text(json.dumps({**plain, **json.loads(block("TOOLS.json names", "json"))}))
    (tmp_path / "played").mkdir()
    plan = Plan(read_runs(folder / "airline_runs.json"), read_rules(tmp_path / "tools.json"), 3, 7, ALL)
    figures = asyncio.run(rehearse(plan, tmp_path / "played", lambda: None))
    assert figures.good, figures
    assert fates(tmp_path, AskOutcome.PREVENTED) == {(150, step) for step in (6, 7, 9, 11, 12)}
    assert fates(tmp_path, AskOutcome.DEPENDENT) == {(150, 10)}
    assert (figures.done, figures.prevented, figures.dependent) == (174, 2, 1)
    assert (figures.did_not_happen, figures.prevented_failed, figures.doubles) == (70, 3, 0)
