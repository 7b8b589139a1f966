"""The command line as a whole: every command explains itself, and nothing heavy is loaded to do so."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from clients.desktop.app import app

NAMES = {
    "tasks",
    "show",
    "brief",
    "slot",
    "note",
    "calls",
    "history",
    "watch",
    "token",
    "relay",
    "stats",
    "demo",
    "rehearse",
    "replay",
    "export",
    "restore",
    "evict",
    "doctor",
    "handover",
    "complete",
    "explain",
    "approvals",
    "approve",
    "reject",
    "doubts",
    "settle",
    "lift-barrier",
    "purge",
}


def paths(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, sub in getattr(command, "commands", {}).items():
        yield from paths(sub, (*path, name))


COMMANDS = [path for path in paths(get_command(app)) if path != ("relay",)]


def test_every_command_is_there() -> None:
    assert {path[0] for path in paths(get_command(app)) if path} == NAMES
    assert {path[1] for path in COMMANDS if path[:1] == ("slot",) and len(path) > 1} == {
        "list",
        "propose",
        "confirm",
        "resolve",
        "clear",
    }
    assert {path[1] for path in COMMANDS if path[:1] == ("note",) and len(path) > 1} == {
        "read",
        "write",
        "append",
        "merge",
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*path, "--help"])
    assert told.exit_code == 0 and "Usage:" in told.output and len(told.output.splitlines()) > 5


@pytest.mark.parametrize("group", [(), ("slot",), ("note",)], ids=" ".join)
def test_every_command_is_told_in_a_line_of_80_columns(group: tuple[str, ...]) -> None:
    lines = CliRunner().invoke(app, [*group, "--help"], env={"COLUMNS": "80"}).output.splitlines()
    first = lines.index("Commands:" if group else "A task:") + 1
    commands = [line for line in lines[first:] if line.startswith("  ")]
    names = [path[-1] for path in paths(get_command(app)) if path[:-1] == group and path]
    assert sorted(line.split()[0] for line in commands) == sorted(names)
    for line in commands:
        assert len(line) <= 80
        assert "..." not in line


def test_every_command_stands_in_a_group_of_the_help_and_the_groups_in_one_column() -> None:
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output.splitlines()
    assert "Other:" not in lines
    commands = [line for line in lines[lines.index("A task:") + 1 :] if line.startswith("  ")]
    assert len({len(line) - len(line.split(None, 1)[1]) for line in commands}) == 1


@pytest.mark.parametrize(
    ("arguments", "option"),
    [(["demo", "--break", "nonsense"], "--break"), (["brief", "task", "--view", "nonsense"], "--view")],
)
def test_a_wrong_choice_is_told_in_plain_words(arguments: list[str], option: str) -> None:
    told = CliRunner().invoke(app, arguments)
    assert f"Invalid value for '{option}': 'nonsense' is not one of" in told.output
    assert "Value error" not in told.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["show"],
        ["show", "a", "b"],
        ["tasks", "--colour"],
        ["tasks", "--state", "lost"],
        ["slot", "confirm", "task", "slot"],
        ["rehearse", "runs.json"],
        ["rehearse", "runs.json", "--tools", "t.json", "--devices", "0"],
        ["demo", "--break", "everything"],
        ["token", "--device", "phone"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_status_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("wait", ["nan", "-1", "inf", "1e300"])
def test_a_wait_that_is_no_time_is_wrong_usage(tmp_path: Path, wait: str) -> None:
    told = CliRunner().invoke(app, ["tasks", "--wait", wait, "--relay", "none"], env={"SEGUE_HOME": str(tmp_path)})
    assert told.exit_code == 2
    assert "--wait takes from 0" in told.output


def test_why_there_is_no_link_is_told_where_the_task_is_not_here(tmp_path: Path) -> None:
    environment = {"SEGUE_HOME": str(tmp_path), "SEGUE_RELAY": "ws://127.0.0.1:1"}
    told = CliRunner().invoke(app, ["show", "a/1"], env=environment)
    assert told.exit_code == 1
    assert "no connection to the relay" in told.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show"], "TASK"),
        (["nonsense"], "nonsense"),
        (["tasks", "--colour"], "--colour"),
        (["demo", "--break", "nonsense"], "'nonsense' is not one of"),
        (["slot", "confirm", "task"], "SLOT"),
        (["rehearse", "runs.json"], "--tools"),
    ],
)
def test_wrong_usage_is_one_document_with_json(
    arguments: list[str], told: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app([*arguments, "--json"])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, err) == (2, b"")
    error = json.loads(out)["error"]
    assert error["code"] == "wrong_usage"
    assert told in error["sentence"]


TOKEN = ["token", "--device", "phone", "--subject", "acme", "--principal", "kim"]


def test_a_token_is_made_only_as_a_relay_would_take_it() -> None:
    short = CliRunner().invoke(app, TOKEN, env={"SEGUE_AUTH_SECRET": "x" * 31})
    assert short.exit_code == 2
    assert "shorter than 32 bytes" in short.output
    for hours in ("1e300", "inf", "nan", "-1"):
        told = CliRunner().invoke(app, [*TOKEN, "--hours", hours], env={"SEGUE_AUTH_SECRET": "x" * 32})
        assert told.exit_code == 2, hours
    assert CliRunner().invoke(app, TOKEN, env={"SEGUE_AUTH_SECRET": "x" * 32}).exit_code == 0


def test_the_version_and_short_help_are_told() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"segue {version('segue')}\n")
    for group in ([], ["slot"], ["slot", "confirm"]):
        assert CliRunner().invoke(app, [*group, "-h"]).output == CliRunner().invoke(app, [*group, "--help"]).output


def test_help_loads_neither_the_engine_nor_rich() -> None:
    program = (
        "import sys\nfrom clients.desktop.app import app\n"
        "heavy = [name for name in ('pycrdt', 'websockets', 'aiosqlite', 'jsonschema', 'rich.table', 'jwt')"
        " if name in sys.modules]\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
