"""The figures come from the files alone, so each fault that is planted in a file is counted."""

import json
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from clients.desktop.output import Table
from clients.desktop.rehearse.figures import Figures, KeptBack
from clients.desktop.rehearse.guarded import Fate
from clients.desktop.rehearse.logs import Execution
from clients.desktop.rehearse.recording import Run, Turn, read_runs
from clients.desktop.rehearse.rehearsal import Plan, count, rehearse
from clients.desktop.rehearse.report import answer_of
from clients.desktop.rehearse.rules import ToolRule, read_rules
from clients.desktop.rehearse.schedule import Faults
from sync_core.entry import Effect
from sync_core.ids import StreamName, stream_id

DATA = Path(__file__).parents[2] / "data"
PLAN = Plan(
    read_runs(DATA / "workshop_runs.json"),
    read_rules(DATA / "workshop_tools.json"),
    2,
    3,
    Faults(kills=True, offline=True, without_authority=True),
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rehearsal, whose files each test copies before it tampers with them."""
    import asyncio

    folder = tmp_path_factory.mktemp("played")
    figures = asyncio.run(rehearse(PLAN, folder, lambda: None))
    assert figures.good and figures.run_again_after_crash and figures.run_apart and figures.kills, figures
    return folder


@pytest.fixture
def folder(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "copy"))


async def counted(folder: Path, plan: Plan = PLAN) -> Figures:
    return await count(plan, folder)


def executions(folder: Path) -> list[str]:
    return (folder / "executions.jsonl").read_text().splitlines()


def add(folder: Path, execution: Execution) -> None:
    with (folder / "executions.jsonl").open("ab") as log:
        log.write(msgspec.json.encode(execution) + b"\n")


async def test_counting_again_gives_the_same_figures(played: Path, folder: Path) -> None:
    assert await counted(folder) == await counted(played)


async def test_the_kinds_of_executions_add_up(folder: Path) -> None:
    figures = await counted(folder)
    once = figures.calls - figures.refused_for_authority
    assert figures.executed == once + figures.run_again_after_crash + figures.run_apart
    assert figures.refused_for_authority == 2 and figures.moves == figures.calls


async def test_an_execution_without_an_ask_is_executed_again(folder: Path) -> None:
    before = await counted(folder)
    add(folder, Execution("look_up_bicycle", "device-1", None, None, None))
    after = await counted(folder)
    assert (after.executed, after.executed_again) == (before.executed + 1, 1) and not after.good


async def test_two_executions_within_one_ask_are_executed_again(folder: Path) -> None:
    first = msgspec.json.decode(executions(folder)[0], type=Execution)
    add(folder, first)
    assert (await counted(folder)).executed_again == 1


async def test_an_execution_of_a_guarded_tool_is_executed_again_and_no_refusal(folder: Path) -> None:
    add(folder, Execution("order_part", "device-1", 1, 1, 999))
    figures = await counted(folder)
    assert (figures.executed_again, figures.refused_for_authority) == (1, 1)


async def test_a_call_begun_after_its_success_was_in_the_file_is_executed_again(folder: Path) -> None:
    with sqlite3.connect(folder / "run-0-device-1.db") as connection:
        found = connection.execute("SELECT local, payload FROM entries WHERE kind = 'call' AND own ORDER BY local")
        intent = next(local for local, payload in found if b"intent" in payload)
        connection.execute("UPDATE entries SET local = 1000000 WHERE local = ?", (intent,))
    connection.close()
    assert (await counted(folder)).executed_again == 1


async def test_another_recorded_result_is_a_wrong_result(folder: Path) -> None:
    first, *others = PLAN.runs
    turn = next(step for step in first.steps if isinstance(step, Turn))
    call = msgspec.structs.replace(turn.calls[0], answer={**turn.calls[0].answer, "content": "something else"})
    steps = tuple(Turn(turn.message, (call,)) if step is turn else step for step in first.steps)
    plan = msgspec.structs.replace(PLAN, runs=(Run(first.number, steps), *others))
    figures = await counted(folder, plan)
    assert (figures.wrong_results, figures.lost_history_items) == (1, 1) and not figures.good


async def test_a_message_that_is_gone_from_one_device_is_lost_and_its_digest_differs(folder: Path) -> None:
    with sqlite3.connect(folder / "run-0-device-2.db") as connection:
        stream = stream_id(PLAN.runs[0].task, StreamName.HISTORY)
        connection.execute(
            "DELETE FROM entries WHERE local = (SELECT min(local) FROM entries WHERE stream = ?)", (stream,)
        )
    connection.close()
    figures = await counted(folder)
    assert figures.lost_history_items == 1 and not figures.digests_equal and not figures.good


async def test_a_result_that_one_device_lacks_is_a_wrong_result(folder: Path) -> None:
    with sqlite3.connect(folder / "run-0-device-2.db") as connection:
        stream = stream_id(PLAN.runs[0].task, StreamName.STATE)
        connection.execute("DELETE FROM entries WHERE stream = ? AND kind = 'call'", (stream,))
    connection.close()
    assert (await counted(folder)).wrong_results == 3


async def test_an_answer_that_differs_from_the_recording_is_a_wrong_result(folder: Path) -> None:
    asks = (folder / "asks.jsonl").read_text().splitlines()
    line = json.loads(next(line for line in asks if json.loads(line)["outcome"] == "answered"))
    with (folder / "asks.jsonl").open("a") as log:
        log.write(json.dumps({**line, "sha256": "0" * 64}) + "\n")
    assert (await counted(folder)).wrong_results == 1


async def test_a_guarded_call_counts_as_refused_only_while_its_tool_is_irreversible(folder: Path) -> None:
    plan = msgspec.structs.replace(PLAN, rules={**PLAN.rules, "order_part": ToolRule(Effect.READ)})
    figures = await counted(folder, plan)
    assert figures.refused_for_authority == 0 and figures.wrong_results == 2


async def test_the_answer_says_in_words_and_status_what_was_found(folder: Path) -> None:
    figures = await counted(folder)
    good = answer_of(figures, 3, 2, 1.0)
    bad = answer_of(msgspec.structs.replace(figures, lost_history_items=1), 3, 2, 1.0)
    assert (good.status, bad.status) == (0, 1)
    assert good.document["good"] is True and bad.document["good"] is False


async def test_the_answer_names_the_calls_that_a_key_kept_back_and_counts_by_tool(folder: Path) -> None:
    kept = tuple(KeptBack(150, number, "book", Fate.PREVENTED) for number in range(50))
    found = msgspec.structs.replace(
        await counted(folder), irreversible=60, prevented=50, done=10, refused_for_authority=0, kept_back=kept
    )
    found = msgspec.structs.replace(found, by_tool={"book": {Fate.DONE: 10, Fate.PREVENTED: 50}})
    answer = answer_of(found, 3, 2, 1.0)
    assert answer.status == 0
    by_tool, listed = (part for part in answer.parts[1:] if isinstance(part, Table))
    assert by_tool.rows == (("book", "60", "10", "0", "50", "0", "0"),)
    assert listed.rows[0] == ("150", "0", "book", "prevented") and len(listed.rows) == 40
    assert any(isinstance(part, str) and "10 more" in part for part in answer.parts)
    document = json.loads(msgspec.json.encode(answer.document))
    assert len(document["kept_back"]) == 50 and document["by_tool"]["book"] == {"done": 10, "prevented": 50}
    assert document["kept_back"][0] == {"run": 150, "call": 0, "tool": "book", "fate": "prevented"}


async def test_without_an_authority_there_is_nothing_to_tell_by_tool(folder: Path) -> None:
    assert len(answer_of(await counted(folder), 3, 2, 1.0).parts) == 2
