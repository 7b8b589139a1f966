"""Separate operating-system processes: started, listened to, given cues, killed, and seen to be gone."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

from clients.demo.messages import MessageKind, decode_message
from clients.demo.narrator import Narrator
from clients.demo.people import Person

__all__ = ["PATIENCE_S", "DemoProcess", "ProcessFailed"]

PATIENCE_S = 30
"""How long the parent waits for one mark or for an end, seconds."""
_STDERR_LINES_SHOWN = 12

T = TypeVar("T")


class ProcessFailed(Exception):
    """A process of the demo did not do what the story needs; the text holds its last lines of standard error."""


class DemoProcess:
    """One running process. Make it with `start`; `name` is also whom its lines are told as."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: Path, narrator: Narrator) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._errors = errors
        self._narrator = narrator

    @classmethod
    async def start(cls, name: str, arguments: Sequence[str], errors: Path, narrator: Narrator) -> "DemoProcess":
        """Start `python <arguments>` with pipes for its input and output and a file for its standard error."""
        with errors.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        return cls(name, process, errors, narrator)

    async def until(self, mark: str, person: Person) -> None:
        """Tell what the process says and let `person` answer what it asks, until it reaches `mark`."""
        while True:
            message = decode_message(await self.line(f"the {self.name} ({mark})"))
            if message.kind is MessageKind.QUESTION:
                self.tell(await person.answer(self.name, message.text))
            elif message.kind is MessageKind.SAID:
                self._narrator.line(self.name, message.text)
            elif message.text == mark:
                return

    async def line(self, what: str) -> bytes:
        """Return the next line of its output; raises `ProcessFailed` if it ends or is silent for too long."""
        assert self._process.stdout is not None
        line = await self._patiently(self._process.stdout.readline(), what)
        if not line:
            await self._process.wait()
            raise self._failed(f"The {self.name} process ended early, with status {self._process.returncode}")
        return line

    def tell(self, cue: str) -> None:
        """Write one line to its input; it fails at the next wait if the process is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(cue.encode() + b"\n")

    def kill(self) -> int:
        """Send SIGKILL, which no process can catch; returns the time of it, this machine's clock in milliseconds."""
        self._process.kill()
        return time.time_ns() // 1_000_000

    async def gone(self) -> None:
        """Wait until the killed process is gone, and check that the operating system no longer knows its pid."""
        status = await self._patiently(self._process.wait(), f"the end of the {self.name}")
        if status != -signal.SIGKILL:
            raise self._failed(f"The {self.name} process ended with status {status} before it could be killed")
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return
        raise self._failed(f"The {self.name} process is still there after SIGKILL")

    async def ended(self) -> None:
        """Wait for a good end; raises `ProcessFailed` for any status but 0."""
        status = await self._patiently(self._process.wait(), f"the end of the {self.name}")
        if status != 0:
            raise self._failed(f"The {self.name} process ended with status {status}")

    async def stop(self) -> None:
        """Ask it to end (SIGTERM) and wait for a good end."""
        self._process.terminate()
        await self.ended()

    async def clean_up(self) -> None:
        """End it by force if it still runs; for the way out after a failure."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _patiently(self, awaited: Coroutine[object, object, T], what: str) -> T:
        pending = asyncio.ensure_future(awaited)
        for seconds in range(1, PATIENCE_S + 1):
            done, _ = await asyncio.wait({pending}, timeout=1)
            if done:
                self._narrator.arrived()
                return pending.result()
            self._narrator.waiting(what, seconds)
        pending.cancel()
        raise self._failed(f"The {self.name} process did nothing for {PATIENCE_S} seconds while waited for: {what}")

    def _failed(self, sentence: str) -> ProcessFailed:
        lines = self._errors.read_text("utf-8", "replace").splitlines()[-_STDERR_LINES_SHOWN:]
        said = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return ProcessFailed(f"{sentence}. Its last words on standard error:\n{said}")
