"""`segue` in processes of their own: devices that run one command after another, and a relay."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["ROOT", "TASK", "Device", "Done", "running_relay"]

ROOT = Path(__file__).resolve().parents[2]
TASK = "expense/TRIP-118"


class Done(msgspec.Struct):
    """A command that has ended."""

    status: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The one document on standard output."""
        assert self.out.count("\n") == 1, self.out
        document: dict[str, Any] = json.loads(self.out)
        return document


class Device:
    """A device of its own: a home folder, and the relay that its commands are pointed at."""

    def __init__(self, home: Path, name: str, relay: str, **settings: str) -> None:
        self.home = home
        named = {f"SEGUE_{key.upper()}": value for key, value in settings.items()}
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SEGUE_")},
            "PYTHONPATH": str(ROOT),
            "SEGUE_HOME": str(home),
            "SEGUE_DEVICE": name,
            "SEGUE_SUBJECT": "acme",
            "SEGUE_RELAY": relay,
            **named,
        }

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """Run one command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "clients.desktop", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def json(self, *arguments: str, status: int | None = 0) -> dict[str, Any]:
        """Run a command with --json, check how it ended unless `status` is None, and return its document."""
        done = self.run(*arguments, "--json")
        assert done.status == status or status is None, done
        assert done.err == "", done
        return done.json()


@contextmanager
def running_relay(folder: Path, *arguments: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "clients.desktop", "relay", "--db", str(folder / "relay.db"), *arguments, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        assert process.wait(20) == 0
