"""The simulator itself: it reaches every kind of fault, catches what is broken, and repeats in any process.

Many fixed seeds and every mutant are run by `python -m tests.simulation --schedules N`, which `make test` calls.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.simulation.__main__ import main
from tests.simulation.mutants import MUTANTS, Mutant, hunt
from tests.simulation.patching import patched
from tests.simulation.schedule import run_seed
from tests.simulation.seeds import REGRESSIONS


def test_the_schedules_reach_every_kind_of_fault() -> None:
    results = [run_seed(seed) for seed in range(12)]
    assert [result.violation for result in results] == [""] * 12
    assert sum(result.ops for result in results) > 60
    assert sum(result.faults for result in results) > 30
    assert len({result.wire_hash for result in results}) == 12


def test_a_mutant_is_caught_and_the_real_code_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hunt(MUTANTS[0].name).seed_found
    monkeypatch.setattr("tests.simulation.mutants.MUTANTS", (Mutant("nothing broken", patched),))
    monkeypatch.setattr("tests.simulation.mutants._TRIES", 5)
    caught = hunt("nothing broken")
    assert (caught.seed_found, caught.tried) == (False, 5)


def test_counted_schedules_end_alike_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    figures = []
    for _ in range(2):
        assert main(["--schedules", "25", "--no-mutants", "--json"]) == 0
        figures.append(json.loads(capsys.readouterr().out))
        del figures[-1]["seconds"]
    assert figures[0] == figures[1]
    assert figures[0]["schedules"] == 25 + len(REGRESSIONS)


def test_a_broken_promise_ends_the_command_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with MUTANTS[0].apply():
        assert main(["--schedules", "2", "--no-mutants"]) == 1
    assert "repeat: python -m tests.simulation --seed" in capsys.readouterr().out


def test_a_seed_repeats_bit_for_bit_in_other_processes() -> None:
    for seed in (3, 8):
        hashes = {_wire_hash_in_a_process(seed, hash_seed) for hash_seed in ("0", "1", "4242")}
        assert hashes == {run_seed(seed).wire_hash}


def _wire_hash_in_a_process(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    printed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stdout
    wire_hash: str = json.loads(printed)["wire_hash"]
    return wire_hash
