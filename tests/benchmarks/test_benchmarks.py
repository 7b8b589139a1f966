"""The benchmarks run and report; what they measure at this size means nothing, so no time is looked at."""

import json

import pytest

from tests.benchmarks.__main__ import BENCHMARKS, run_all
from tests.benchmarks.figures import TINY, Figure, Verdict
from tests.benchmarks.machine import Machine
from tests.benchmarks.report import Report, as_json, misses, print_table

MACHINE = Machine("a processor", 2, "3.11", "3.40", "0.14", "16.0", 0.1)


@pytest.mark.parametrize("name", BENCHMARKS)
async def test_a_benchmark_runs_at_a_tiny_size(name: str) -> None:
    report = await run_all([name], TINY)
    assert report.failed == {}
    figures = report.benchmarks[name]
    assert figures
    assert all(figure.value >= 0 for figure in figures)
    assert any(figure.target is not None for figure in figures)


def test_a_result_is_a_ratio_where_there_is_a_floor_and_the_value_where_there_is_none() -> None:
    assert Figure("write", 10, "writes", "ms", 3.0, 2.0).result == 1.5
    assert Figure("held", 10, "tasks", "KB", 3.0).result == 3.0


def test_a_target_bounds_from_above_or_from_below() -> None:
    above = Figure("write", 10, "writes", "ms", 3.0, 2.0, 1.5)
    assert above.verdict is Verdict.PASS
    below = Figure("rate", 10, "writes", "per s", 3.0, 2.0, 1.6, at_least=True)
    assert below.verdict is Verdict.MISS
    assert Figure("write", 10, "writes", "ms", 3.0, 2.0).verdict is Verdict.SHOWN


def test_the_json_document_holds_machine_results_and_verdicts() -> None:
    report = Report(MACHINE, {"slot write": [Figure("write", 10, "writes", "ms", 4.0, 2.0, 1.5)]}, {"growth": "why"})
    document = json.loads(as_json(report))
    assert document["machine"]["pycrdt"] == "0.14"
    assert document["benchmarks"]["slot write"][0]["result"] == 2.0
    assert document["benchmarks"]["slot write"][0]["verdict"] == "MISS"
    assert document["failed"] == {"growth": "why"}
    assert document["misses"] == misses(report) == 1


def test_the_table_names_every_figure_and_what_could_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("one writer", 10_000, "writes", "ms", 4.0, 2.0, 1.5), Figure("held", 3, "tasks", "KB", 1.25)]
    print_table(Report(MACHINE, {"slot write": figures}, {"growth": "no relay"}))
    shown = capsys.readouterr().out
    assert "a processor, 2 cores" in shown
    assert "10,000 writes" in shown and "2.00 ×" in shown and "≤ 1.5" in shown and "MISS" in shown
    assert "1.25 KB" in shown
    assert "growth could not run: no relay" in shown
