"""The command where extras are not installed: it says which one is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run_without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.modules[{package!r}] = None; from clients.desktop.__main__ import main; main()"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("typer", "cli", ("tasks",)),
        ("jwt", "relay", ("token", "--device", "phone", "--subject", "acme", "--principal", "ann")),
        ("jwt", "relay", ("relay", "--port", "0")),
        ("pypdf", "demo", ("demo",)),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    tmp_path: Path, package: str, extra: str, command: tuple[str, ...]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of at least thirty-two bytes, for tests")
    secret.chmod(0o600)
    options = {"token": ("--auth", str(secret)), "relay": ("--auth", str(secret), "--db", str(tmp_path / "r.db"))}
    done = run_without(package, *command, *options.get(command[0], ()))
    assert (done.returncode, done.stdout) == (1, "")
    # The relay is a program of its own, too, and tells it in a line of its own.
    told = [f"This needs the package {package}; install it with: pip install 'segue[{extra}]'"]
    if command[0] != "relay":
        told = [f"Error: This command needs the package {package}.", f"Install it with: pip install 'segue[{extra}]'"]
    assert done.stderr.splitlines() == told


def test_any_other_missing_module_is_no_matter_of_extras() -> None:
    assert "ModuleNotFoundError" in run_without("msgspec", "tasks").stderr
