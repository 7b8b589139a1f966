"""The servers that are measured: how each is started, what it speaks, and whether it stores."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from tests.benchmarks.peers.dialects import Dialect, HocuspocusDialect, RawDialect, YDialect
from tests.benchmarks.peers.load import NOW, Load
from tests.benchmarks.peers.segue_dialect import SegueDialect

__all__ = ["TAIL_ENTRIES_MAX", "TARGETS", "Server", "Target", "cpu_seconds", "quiet"]

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TAIL_ENTRIES_MAX = 100
"""Entries behind a snapshot before Segue's relay asks for the next one; so many are left in a settled document."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Target(msgspec.Struct, frozen=True):
    """A server. `command` may name {peers} (where they are installed), {here}, {python} (theirs) and {own} (Segue's).

    `rates` are where W1 and W2 begin, updates a second: near the answer, so that the ramp is short.
    """

    dialect: type[Dialect]
    path: str
    command: tuple[str, ...]
    environment: dict[str, str] = {}
    stores: bool = False
    rates: tuple[float, float] = (300.0, 2_000.0)


_HOCUSPOCUS = Target(
    HocuspocusDialect, "/", ("node", "{here}/servers/hocuspocus.mjs"), {"NODE_BASE": "{peers}/hocuspocus"}
)
_PYCRDT = Target(YDialect, "/{room}", ("{python}", "{here}/servers/pycrdt_websocket.py"))

TARGETS: dict[str, Target] = {
    "segue": Target(
        SegueDialect,
        "/",
        ("{own}", "-m", "tests.benchmarks.peers.servers.segue"),
        {"TAIL_ENTRIES_MAX": str(TAIL_ENTRIES_MAX)},
        stores=True,
        rates=(16_000, 6_000),
    ),
    "hocuspocus": msgspec.structs.replace(_HOCUSPOCUS, rates=(6_000, 4_000)),
    "hocuspocus-sqlite": msgspec.structs.replace(_HOCUSPOCUS, stores=True, rates=(6_000, 4_000)),
    "y-websocket-server": Target(
        YDialect,
        "/{room}",
        ("node", "{peers}/y-websocket-server/node_modules/@y/websocket-server/src/server.js"),
        {"HOST": "127.0.0.1"},
        rates=(2_000, 10_000),
    ),
    "pycrdt-websocket": msgspec.structs.replace(_PYCRDT, rates=(300, 2_500)),
    "pycrdt-websocket-sqlite": msgspec.structs.replace(_PYCRDT, stores=True, rates=(200, 300)),
    "bare-websockets": Target(
        RawDialect, "/{room}", ("{python}", "{here}/servers/bare_websockets.py"), rates=(2_000, 30_000)
    ),
}


class Server:
    """One target: started on a core of its own, measured, killed and started again; its files live in a folder."""

    def __init__(self, name: str, peers: Path, core: int) -> None:
        self.target = TARGETS[name]
        self.port = 0
        self._peers = peers
        self._core = core
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="peers-"))
        self._log: IO[bytes] = (self.folder / "server.log").open("ab")

    def start(self, *, wait: bool = True) -> None:
        """Start it on the port that it had, or on a free one, pinned to its core."""
        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        names = {
            "peers": str(self._peers),
            "here": str(HERE),
            "python": str(self._peers / "venv/bin/python"),
            "own": sys.executable,
        }
        environment = {name: value.format(**names) for name, value in self.target.environment.items()}
        environment |= {"PORT": str(self.port), "NODE_ENV": "production", "PYTHONPATH": str(ROOT)}
        if self.target.stores:
            environment["DB"] = str(self.folder / "db.sqlite")
        command = ["taskset", "-c", str(self._core), *(part.format(**names) for part in self.target.command)]
        self._process = subprocess.Popen(
            command,
            env=os.environ | environment,
            cwd=self.folder,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        if wait:
            self._wait_until_it_listens()

    def _wait_until_it_listens(self) -> None:
        end = NOW() + 20
        while NOW() < end:
            if self._process is None or self._process.poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise RuntimeError("the server does not listen: " + self.said())

    def said(self) -> str:
        """Return the end of what it printed."""
        return (self.folder / "server.log").read_bytes()[-600:].decode("utf8", "replace")

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def fresh(self) -> Load:
        """Start it anew with an empty store; return a load for it."""
        self.kill()
        for file in self.folder.glob("db.sqlite*"):
            file.unlink()
        self.port = 0
        self.start()
        return self.load()

    def load(self) -> Load:
        """Return a load for the running server."""
        return Load("127.0.0.1", self.port, self.target.path, self.target.dialect())

    def cpu_s(self) -> float:
        """Return the processor time that it has used, in seconds."""
        fields = Path(f"/proc/{self._pid()}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_bytes(self) -> int:
        """Return its resident memory."""
        return int(Path(f"/proc/{self._pid()}/statm").read_text().split()[1]) * _PAGE_BYTES

    def _pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    def close(self) -> None:
        """Kill it and remove its files."""
        self.kill()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def cpu_seconds() -> float:
    """Return the processor time that the whole machine has used, in seconds over all cores."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS


def quiet(wait: Callable[[float], None] = time.sleep, at_most_s: float = 15.0) -> None:
    """Wait until the rest of the machine is nearly idle, for a while at most; `wait` passes some seconds.

    A load must be polled meanwhile: who answers no ping is closed.
    """
    end = NOW() + at_most_s
    while NOW() < end:
        used, began = cpu_seconds(), NOW()
        wait(0.25)
        if (cpu_seconds() - used) / (NOW() - began) < 0.15:
            return
