"""A demo process's side of the stage: it says what it does, waits for its cue, and asks its user."""

import asyncio
import sys

import msgspec

from clients.demo.messages import Message, MessageKind
from clients.demo.story import DemoFiles
from clients.demo.transcript import LineKind, Transcript

__all__ = ["Stage"]


class Stage:
    """Speaks to the parent over the standard streams and keeps the device's transcript."""

    def __init__(self, device: str, files: DemoFiles) -> None:
        self.device = device
        self.files = files
        self.transcript = Transcript(files.transcript(device))

    def said(self, text: str) -> None:
        """Tell the newcomer what this device just did."""
        self._send(MessageKind.SAID, text)

    def reached(self, mark: str) -> None:
        """Tell the parent that this device got as far as `mark`."""
        self._send(MessageKind.REACHED, mark)

    async def cue(self, expected: str) -> None:
        """Wait until the parent gives this cue; the process ends if the parent is gone."""
        line = await self._line()
        if line != expected:
            raise SystemExit(f"The {self.device} waits for the cue {expected!r} and was given {line!r}.")

    async def ask(self, slot: str, question: str) -> str:
        """Ask the user and return the answer; the question is in the transcript before it is shown."""
        self.transcript.add(LineKind.QUESTION, slot=slot, text=question)
        return await self._answer(slot, question)

    async def ask_again(self, slot: str, reason: str, question: str) -> str:
        """Say why the answer was refused and take another one; it is still the same question."""
        self.transcript.add(LineKind.REFUSED, slot=slot, text=reason)
        return await self._answer(slot, f"{reason} {question}")

    async def _answer(self, slot: str, question: str) -> str:
        self._send(MessageKind.QUESTION, question)
        answer = await self._line()
        self.transcript.add(LineKind.ANSWER, slot=slot, text=answer)
        return answer

    async def _line(self) -> str:
        line: str = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise SystemExit(f"The {self.device} lost its parent process.")
        return line.strip()

    def _send(self, kind: MessageKind, text: str) -> None:
        print(msgspec.json.encode(Message(kind, text)).decode(), flush=True)
