"""Separate operating-system processes: started, listened to, given cues, killed, and seen to be gone."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from clients.demo.messages import Message, MessageKind
from clients.demo.narrator import Narrator
from clients.demo.people import Person

__all__ = ["PATIENCE_S", "DemoProcess", "ProcessFailed", "ProcessLife"]

PATIENCE_S = 30
"""How long the parent waits for one mark or for an end, seconds."""
_STDERR_LINES_SHOWN = 12

T = TypeVar("T")


class ProcessLife(msgspec.Struct, frozen=True):
    """A process as its parent saw it; times are this machine's clock in milliseconds."""

    name: str
    pid: int
    started_ms: int
    ended_ms: int
    killed: bool


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
        self._started_ms = _now_ms()
        self._ended_ms = 0

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
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"},
            )
        return cls(name, process, errors, narrator)

    async def until(self, mark: str, person: Person) -> None:
        """Tell what the process says and let `person` answer what it asks, until it reaches `mark`."""
        while await self._told(await self.line(f"the {self.name}"), person) != mark:
            pass

    async def until_end(self, person: Person) -> None:
        """The same until the process ends by itself; raises `ProcessFailed` for any status but 0."""
        while line := await self._patiently(self._output().readline(), f"the end of the {self.name}"):
            await self._told(line, person)
        await self._ended()

    async def _told(self, line: bytes, person: Person) -> str:
        """Pass one message on; returns the mark that it reached, if any."""
        message = self.decoded(line, Message)
        if message.kind is MessageKind.QUESTION:
            self.tell(await person.answer(self.name, message.text))
        elif message.kind is MessageKind.SAID:
            self._narrator.line(self.name, message.text)
        return message.text if message.kind is MessageKind.REACHED else ""

    async def line(self, what: str) -> bytes:
        """Return the next line of its output; raises `ProcessFailed` if it ends or is silent for too long."""
        line = await self._patiently(self._output().readline(), what)
        if not line:
            await self._process.wait()
            raise self._failed(f"The {self.name} process ended early, with status {self._process.returncode}")
        return line

    def decoded(self, line: bytes, of: type[T]) -> T:
        """Return the value of one line of its output; raises `ProcessFailed` for anything else."""
        try:
            return msgspec.json.decode(line, type=of)
        except msgspec.MsgspecError:
            raise self._failed(f"The {self.name} process printed what nobody here understands: {line!r}") from None

    def tell(self, cue: str) -> None:
        """Write one line to its input; it fails at the next wait if the process is gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(cue.encode() + b"\n")

    async def kill(self) -> None:
        """Send SIGKILL, which no process can catch, and check that the operating system no longer knows the pid."""
        self._process.kill()
        status = await self._patiently(self._process.wait(), f"the end of the {self.name}")
        self._ended_ms = _now_ms()
        if status != -signal.SIGKILL:
            raise self._failed(f"The {self.name} process ended with status {status} before it could be killed")
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return
        raise self._failed(f"The {self.name} process is still there after SIGKILL")

    async def stop(self) -> None:
        """Ask it to end (SIGTERM) and wait for a good end."""
        self._process.terminate()
        await self._ended()

    async def clean_up(self) -> None:
        """End it by force if it still runs; for the way out after a failure."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def life(self) -> ProcessLife:
        """Return what the parent saw of it, once it has ended."""
        killed = self._process.returncode == -signal.SIGKILL
        return ProcessLife(self.name, self.pid, self._started_ms, self._ended_ms, killed)

    async def _ended(self) -> None:
        status = await self._patiently(self._process.wait(), f"the end of the {self.name}")
        self._ended_ms = _now_ms()
        if status != 0:
            raise self._failed(f"The {self.name} process ended with status {status}")

    def _output(self) -> asyncio.StreamReader:
        assert self._process.stdout is not None
        return self._process.stdout

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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
