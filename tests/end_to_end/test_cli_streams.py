"""The command line with streams as a shell can give them: closed, full, broken, in another encoding; and Ctrl-C."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.command_line import ROOT, TASK, Device

pytestmark = pytest.mark.slow


@pytest.fixture
def alone(tmp_path: Path) -> Device:
    """A device without a relay, with one slot whose value needs more than Latin-1."""
    device = Device(tmp_path / "home", "phone", "none")
    device.json("slot", "confirm", TASK, "who", "日本 🎉", "--create")
    return device


def shell(device: Device, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `segue` as part of a shell command; the exit status is that of segue."""
    line = f'segue() {{ "{sys.executable}" -m clients.desktop "$@"; }}; set -o pipefail; {command}'
    done = subprocess.run(
        ["bash", "-c", line], env={**device.environment, **environment}, capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr
    return done


@pytest.mark.parametrize("command", [f"show {TASK}", f"show {TASK} --json", "tasks", "stats --json"])
def test_a_closed_output_is_written_to_nothing(alone: Device, command: str) -> None:
    assert shell(alone, f"segue {command} >&-").returncode == 0
    assert shell(alone, f"segue {command} >&- 2>&-").returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("command", [f"show {TASK}", f"show {TASK} --json"])
def test_an_output_that_is_full_is_told_and_ends_with_1(alone: Device, command: str) -> None:
    done = shell(alone, f"segue {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: The answer cannot be written: ")


@pytest.mark.parametrize("command", [f"slot confirm {TASK} x -", f"note append {TASK} worklog"])
def test_a_closed_input_is_wrong_usage_and_nothing_is_written(alone: Device, command: str) -> None:
    done = shell(alone, f"segue {command} <&-")
    assert done.returncode == 2
    assert "no standard input" in done.stderr
    shown = alone.json("show", TASK)
    assert ([slot["name"] for slot in shown["slots"]], shown["notes"]) == (["who"], [])


def test_input_that_is_no_utf_8_is_wrong_usage_or_no_text(alone: Device) -> None:
    for encoding in ("utf-8:strict", "utf-8:surrogateescape"):
        done = shell(alone, f"printf '\\xff' | segue slot confirm {TASK} x -", PYTHONIOENCODING=encoding)
        assert done.returncode in (1, 2)
        assert done.stderr.startswith("Error: ")
    assert [slot["name"] for slot in alone.json("show", TASK)["slots"]] == ["who"]


def test_a_character_that_the_output_lacks_is_shown_as_an_escape(alone: Device) -> None:
    done = shell(alone, f"segue show {TASK}", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert "\\u65e5\\u672c \\U0001f389" in done.stdout
    printed = shell(alone, f"segue show {TASK} --json", PYTHONIOENCODING="latin-1").stdout
    assert json.loads(printed)["slots"][0]["value"] == "日本 🎉"


def test_ctrl_c_while_the_command_is_loaded_leaves_no_traceback(alone: Device, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = shell(alone, "segue tasks", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_conflict_in_the_list_shows_what_is_needed_to_settle_it(alone: Device) -> None:
    alone.json("slot", "confirm", TASK, "who", "Ann", "--read", "4m", status=1)
    listed = alone.run("slot", "list", TASK).out
    start = next(line.split()[0] for line in listed.splitlines() if line.split()[1:2] == ["Ann"])
    token = alone.json("slot", "list", TASK)["slots"][0]["read"]
    assert f"segue slot resolve {TASK} who CANDIDATE --read {token}" in listed
    assert alone.json("slot", "resolve", TASK, "who", start, "--read", token)["slot"]["value"] == "Ann"
