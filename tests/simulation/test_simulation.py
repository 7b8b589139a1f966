"""The simulator in the test run: fixed seeds, the mutants, the same schedule in two processes."""

import json
import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS, hunt
from tests.simulation.schedule import run_seed
from tests.simulation.seeds import REGRESSIONS

SEEDS = range(0, 120, 10)
"""First seeds of the chunks of ten that every test run plays."""


@pytest.mark.parametrize("first", SEEDS)
def test_every_promise_holds_on_ten_fixed_seeds(first: int) -> None:
    broken = [result for seed in range(first, first + 10) if (result := run_seed(seed)).violation]
    assert not broken, f"python -m tests.simulation --seed {broken[0].seed}: {broken[0].violation}"


@pytest.mark.parametrize(("seed", "showed"), REGRESSIONS)
def test_a_seed_that_once_broke_a_promise_passes(seed: int, showed: str) -> None:
    result = run_seed(seed)
    assert not result.violation, f"it once showed: {showed}; now: {result.violation}"


@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_a_broken_replica_or_relay_is_caught(name: str) -> None:
    caught = hunt(name, seconds=60)
    assert caught.seed_found, f"{name} escaped {caught.tried} seeds"


def test_the_schedules_reach_every_kind_of_fault() -> None:
    results = [run_seed(seed) for seed in range(12)]
    assert sum(result.ops for result in results) > 60
    assert sum(result.faults for result in results) > 30
    assert len({result.wire_hash for result in results}) == 12


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
