"""What the README shows works when pasted, and says what the code says."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clients.desktop.rehearse.rules import Label, read_rules
from clients.desktop.routes import routes
from server_relay.config import RelaySettings
from server_relay.lifetimes import TOMBSTONE_BYTES
from server_relay.settings import SETTING_NAMES, flag_of
from sync_core.limits import TOMBSTONE_KEEP_MS
from tests.readme_states import diagram

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def block(after: str, language: str) -> str:
    """Return the first code block of a language after some text."""
    at = README.index(after)
    found = re.compile(rf"```{language}\n(.*?)```", re.DOTALL).search(README, at)
    assert found is not None
    return found[1]


def test_the_rules_of_a_rehearsal_are_taken_as_shown(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(block("TOOLS.json names", "json"))
    rules = read_rules(tmp_path / "tools.json")
    assert rules["cancel_reservation"].undoes({"reservation_id": "A1"}) == ("book_reservation", "A1")
    assert rules["book_reservation"].label_of('{"reservation_id": "A1"}') == "A1"
    pattern = re.search(r'\{"pattern": ("[^"]+")\}', README)
    assert pattern is not None
    shown = Label(pattern=json.loads(pattern[1]))
    assert shown.of("You are booked as A1.") == "A1"


def test_the_times_after_which_a_task_ends_are_those_of_the_settings() -> None:
    settings = RelaySettings(db=Path("unused"))
    day_s = 24 * 3600
    assert f"{settings.clean_up_grace_s // day_s} days (`--clean-up-grace-s`)" in README
    assert f"tombstones are kept for {settings.tombstone_keep_s // day_s} days" in README
    assert settings.tombstone_keep_s * 1000 == TOMBSTONE_KEEP_MS
    assert settings.task_ttl_s is None
    assert TOMBSTONE_BYTES <= 1024
    flags = {flag for name in SETTING_NAMES for flag in flag_of(name)}
    assert {"--clean-up-grace-s", "--task-ttl-s", "--clock-confirmed"} <= flags


def run(code: list[str], folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    return subprocess.run(code, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_agent_loop_runs_as_pasted_and_its_tool_runs_once(tmp_path: Path) -> None:
    code = block("An agent that starts on one device", "python")
    (tmp_path / "agent_loop.py").write_text(code)
    done = run([sys.executable, "agent_loop.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(the tool runs)") == 1
    phone, desktop = done.stdout.split("--- the task on the phone:")
    assert "(the tool runs)" in phone
    assert "Which cost centre pays?" in desktop
    on_desktop = desktop.split("--- the task on the desktop:")[1]
    assert '<data kind="result" author="phone">' in on_desktop
    assert "- amount (proposed)" in on_desktop
    assert "291.84" in on_desktop


def test_the_payment_runs_as_pasted_and_each_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "payment.py").write_text(block("## Calls that cannot be undone", "python"))
    done = run([sys.executable, "payment.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:5] == ["paid 50", "paid 50", "in_doubt", "paid 500", "2 payments"]


def test_the_agent_loop_is_short() -> None:
    lines = block("An agent that starts on one device", "python").splitlines()
    assert len([line for line in lines if line.strip()]) <= 40
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    "settings", [["-c", str(ROOT / "pyproject.toml")], ["-o", "asyncio_mode=auto"]], ids=["here", "elsewhere"]
)
def test_the_test_of_a_users_own_tool_passes_as_pasted(tmp_path: Path, settings: list[str]) -> None:
    (tmp_path / "test_mine.py").write_text(block("Test a tool of your own", "python"))
    assert "asyncio_mode = auto" in README
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *settings, "test_mine.py"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_tool_is_verified_as_pasted(tmp_path: Path) -> None:
    (tmp_path / "test_book.py").write_text(block("checked before it meets the real system", "python"))
    settings = ["-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "-s"]
    done = run([sys.executable, "-m", "pytest", "-q", *settings, "test_book.py"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The tool book_flight is idempotent." in done.stdout


def test_the_doctor_answers_as_pasted_for_the_tools_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(block("checked before it meets the real system", "python"))
    command = block("`segue doctor` answers it", "sh").replace(
        ".venv/bin/segue", f"{sys.executable} -m clients.desktop"
    )
    done = run([*shlex.split(command), "--json"], tmp_path, SEGUE_HOME=str(tmp_path / "home"), SEGUE_RELAY="none")
    document = json.loads(done.stdout)
    # No relay, so no authority: that is the guarantee that is missing here.
    assert (done.returncode, document["routes"][0]["code"]) == (1, "authority")
    assert "no_authority" in [finding["code"] for finding in document["findings"] if finding["severity"] == "High"]


def test_the_routes_of_the_readme_are_those_of_the_doctor() -> None:
    told = README.split("## Which route?")[1].split("## ")[0].lower()
    for route in routes(None):
        assert route.question.lower() in told


def test_the_commands_work_as_pasted_in_order(tmp_path: Path) -> None:
    start, use = block("## The command line", "sh"), block("and in another", "sh")
    python = shlex.quote(sys.executable)
    segue = f"{python} -m clients.desktop"
    home = str(tmp_path)
    script = f"{start.strip()} >relay.log 2>&1 &\nrelay=$!\ntrap 'kill $relay' EXIT\n"
    script += "for _ in $(seq 100); do grep -q 8700 relay.log && break; sleep 0.1; done\n" + use
    script = script.replace(".venv/bin/segue", segue).replace("/tmp/segue-readme", home)
    port = free_port()
    done = run(["bash", "-euc", script.replace("8700", str(port))], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CC-1042" in done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_state_diagram_is_the_table() -> None:
    assert block("printed from its table", "mermaid").strip() == diagram()


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
