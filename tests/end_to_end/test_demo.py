"""`segue demo` in real processes: as it is, with each planted fault, and with typed answers."""

import io
import json
import sqlite3
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from clients.demo.command import run_demo
from clients.demo.evidence import EXPECTED
from clients.demo.executions import read_executions
from clients.demo.stores import read_relay
from clients.demo.story import DESKTOP, PHONE, RELAY, Breakage, DemoFiles
from clients.demo.transcript import LineKind, read_transcript
from sync_core.errors import StoreDamaged

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"


def test_a_killed_phones_claim_is_finished_on_the_desktop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = DemoFiles(tmp_path / "run")
    status = run_demo(json_output=True, keep=files.folder)
    document = json.loads(capsys.readouterr().out)
    assert document["wrong"] == []
    assert status == 0
    assert {name: document[name] for name in EXPECTED} == EXPECTED
    assert document["seconds"] < 60

    # The two executions were the killed phone's; it and its successor are other processes than the desktop.
    executions = read_executions(files.executions)
    assert {execution.device for execution in executions} == {PHONE}
    pids = {device: {line.pid for line in read_transcript(files.transcript(device))} for device in (PHONE, DESKTOP)}
    assert len(pids[PHONE]) == 2 and len(pids[DESKTOP]) == 1 and not pids[PHONE] & pids[DESKTOP]
    assert executions[0].pid in pids[PHONE]

    # The desktop was started after the phone was gone, and asked for the cost centre alone.
    desktop = read_transcript(files.transcript(DESKTOP))
    assert [(line.kind, line.slot) for line in desktop if line.kind is LineKind.QUESTION] == [
        (LineKind.QUESTION, "cost_center")
    ]
    assert desktop[0].at_ms > executions[-1].at_ms

    # Every entry of the relay's log is one arrow to the relay and one to the other device, besides two in the legend.
    with sqlite3.connect(f"file:{files.store(RELAY)}?mode=ro", uri=True) as connection:
        (entries,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    connection.close()
    picture = ET.fromstring(files.picture.read_text("utf-8"))
    assert len([line for line in picture.iter(f"{SVG}line") if line.get("marker-end")]) == 2 * entries + 2
    assert len([each for each in picture.iter() if each.get("class") == "cross"]) == 1

    # A log that was changed afterwards is no evidence.
    with sqlite3.connect(files.store(RELAY)) as connection:
        connection.execute("UPDATE entries SET chain = zeroblob(16) WHERE relay_seq = 3")
    connection.close()
    with pytest.raises(StoreDamaged, match="chain"):
        read_relay(files.store(RELAY))


@pytest.mark.parametrize(
    ("break_", "figure", "told"),
    [
        ("rerun", "calls_executed_again", "read_invoice on the desktop"),
        ("lose-note", "note_lines_lost", "taxi receipt"),
    ],
)
def test_a_planted_fault_is_found_in_the_files(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    break_: Breakage,
    figure: str,
    told: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_demo(json_output=True, break_=break_) == 1
    document = json.loads(capsys.readouterr().out)
    assert document.get(figure) == 1, document["wrong"]
    assert any(told in sentence for sentence in document["wrong"])
    others = {name: expected for name, expected in EXPECTED.items() if name not in (figure, "calls_executed")}
    assert {name: document[name] for name in others} == others

    # Without --keep the picture alone is left.
    assert [str(path) for path in tmp_path.rglob("*") if path.is_file()] == [document["picture"]]


def test_typed_answers_are_taken_and_a_refused_one_is_no_second_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = b"\xff\xfe\nmarketing\nCC-2000\nneither\nCC-1077 (desktop)\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed), "utf-8"))
    assert run_demo(ask=True, json_output=True, keep=tmp_path / "run") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["questions_on_desktop"] == 1
    files = DemoFiles(tmp_path / "run")
    answers = {
        device: [line.text for line in read_transcript(files.transcript(device)) if line.kind is LineKind.ANSWER]
        for device in (PHONE, DESKTOP)
    }
    assert answers == {PHONE: ["neither", "CC-1077 (desktop)"], DESKTOP: ["\ufffd\ufffd", "marketing", "CC-2000"]}

    # Each device changed the value that was typed to another one.
    shown = {line.values for line in read_transcript(files.transcript(PHONE)) if line.kind is LineKind.CONFLICT}
    assert shown == {("CC-1077 (desktop)", "CC-2042 (phone)")}


def test_a_folder_with_files_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run_demo(json_output=True, keep=tmp_path) == 1
    assert "holds files already" in json.loads(capsys.readouterr().out)["wrong"][0]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_relay_that_cannot_start_is_reported_with_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "server_relay.py").write_text("raise SystemExit('no relay here')")
    monkeypatch.chdir(tmp_path)
    assert run_demo(keep=tmp_path / "run") == 1
    told = capsys.readouterr().out
    assert "relay process ended early" in told and "no relay here" in told
