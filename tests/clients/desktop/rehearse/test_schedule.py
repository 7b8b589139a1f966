"""The schedule of a rehearsal: seeded, always moving, faults only where they were asked for."""

from pathlib import Path

import pytest

from clients.desktop.rehearse.recording import Run, read_runs
from clients.desktop.rehearse.rules import read_rules
from clients.desktop.rehearse.schedule import Faults, Move, schedule
from sync_core.endpoint.points import CallPoint

DATA = Path(__file__).parents[2] / "data"
RUNS = read_runs(DATA / "workshop_runs.json")
RULES = read_rules(DATA / "workshop_tools.json")
ALL = Faults(kills=True, offline=True)


def many(devices: int, faults: Faults) -> list[tuple[Run, tuple[Move, ...]]]:
    return [(run, schedule(run, RULES, devices, seed, faults)) for run in RUNS for seed in range(200)]


def test_the_same_seed_gives_the_same_moves_and_another_gives_others() -> None:
    assert schedule(RUNS[4], RULES, 3, 7, ALL) == schedule(RUNS[4], RULES, 3, 7, ALL)
    assert len({schedule(RUNS[4], RULES, 3, seed, ALL) for seed in range(20)}) > 15


@pytest.mark.parametrize("devices", [2, 3, 5])
def test_before_every_call_the_work_moves_to_another_device(devices: int) -> None:
    for _, moves in many(devices, ALL):
        holder = 0
        for move in moves:
            assert move.device != holder and 0 <= move.device < devices
            assert move.elsewhere != move.device
            holder = move.holder


def test_one_device_keeps_the_work_and_is_never_away() -> None:
    for _, moves in many(1, ALL):
        assert all(move.device == 0 and move.elsewhere is None and not move.offline for move in moves)


def test_all_points_and_both_ways_to_go_on_are_drawn() -> None:
    moves = [move for _, some in many(3, ALL) for move in some]
    assert {move.kill for move in moves} == {None, *CallPoint}
    assert {(move.kill is not None, move.offline, move.elsewhere is not None) for move in moves} >= {
        (True, False, True),
        (True, False, False),
        (False, True, True),
        (False, True, False),
        (True, True, True),
        (False, False, False),
    }


def test_without_faults_nothing_goes_wrong_and_the_same_devices_are_visited() -> None:
    for (_, quiet), (_, loud) in zip(many(2, Faults()), many(2, ALL), strict=True):
        assert all(move == Move(device=move.device) for move in quiet)
        assert len(quiet) == len(loud)


def test_each_fault_can_be_asked_for_alone() -> None:
    assert not any(move.offline for _, moves in many(3, Faults(kills=True)) for move in moves)
    assert not any(move.kill for _, moves in many(3, Faults(offline=True)) for move in moves)


def test_without_an_authority_nobody_is_killed_in_a_call_that_needs_one() -> None:
    faults = Faults(kills=True, offline=True, without_authority=True)
    for run, moves in many(3, faults):
        for call, move in zip(run.calls, moves, strict=True):
            if RULES[call.tool].guarded:
                assert move.kill is None and move.elsewhere is None


def test_only_a_call_that_cannot_be_undone_is_cut_off_between_grant_and_intent() -> None:
    for run, moves in many(3, ALL):
        for call, move in zip(run.calls, moves, strict=True):
            assert move.kill is not CallPoint.AFTER_GRANT or RULES[call.tool].guarded


def test_with_an_authority_a_call_that_cannot_be_undone_is_met_by_every_fault() -> None:
    moves = [
        move
        for run, some in many(3, ALL)
        for call, move in zip(run.calls, some, strict=True)
        if RULES[call.tool].guarded
    ]
    assert {move.kill for move in moves} == {None, *CallPoint}
    assert any(move.elsewhere is not None for move in moves) and any(move.offline for move in moves)
