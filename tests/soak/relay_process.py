"""A relay as its own command runs it, ended by SIGTERM or SIGKILL and started again on the same file.

`python -m tests.soak.relay_process` is the relay's command with a thread beside it: for each line of its input it
prints what SQLite holds in memory.
"""

import asyncio
import json
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from server_relay.__main__ import main
from tests.soak.trend import cache_bytes

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
                sys.executable, "-m", __name__, *arguments, stdin=PIPE, stdout=PIPE, stderr=log
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

    async def cache_bytes(self) -> int:
        """Ask the running relay what SQLite holds in its memory."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return int(await self._process.stdout.readline())


def _answer() -> None:
    for _ in sys.stdin:
        print(cache_bytes(), flush=True)


if __name__ == "__main__":
    threading.Thread(target=_answer, daemon=True).start()
    sys.exit(main())
