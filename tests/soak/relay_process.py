"""A relay as its own command runs it, ended by SIGTERM or SIGKILL and started again on the same file."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

__all__ = ["RelayProcess"]


class RelayProcess:
    """`port` is the present one, `pid` 0 while it is down."""

    def __init__(self, db: Path, log: Path) -> None:
        self._db = db
        self._log = log
        self._process: Process | None = None
        self.port = 0

    @property
    def pid(self) -> int:
        """The process, 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start it and wait until it listens."""
        arguments = ("--db", str(self._db), "--port", "0", "--connections-per-address-max", "4096", "--json")
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "server_relay", *arguments, stdout=PIPE, stderr=log
            )
        assert process.stdout is not None
        self.port = int(json.loads(await process.stdout.readline())["port"])
        self._process = process

    async def stop(self, number: signal.Signals) -> None:
        """End it with a signal and wait until it is gone."""
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(number)
            await process.wait()
