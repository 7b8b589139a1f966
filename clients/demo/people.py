"""The person who answers a device's question: a script, or whoever sits at the terminal."""

import asyncio
import io
import sys
from collections.abc import Mapping
from typing import Protocol

from clients.demo.narrator import Narrator

__all__ = ["Person", "ScriptedPerson", "TypingPerson"]


class Person(Protocol):
    """Answers a question that a device asked."""

    async def answer(self, device: str, question: str) -> str:
        """Return one line of answer, without its end."""


class ScriptedPerson:
    """Answers each device's questions with the lines written for it, one after the other."""

    def __init__(self, narrator: Narrator, answers: Mapping[str, tuple[str, ...]]) -> None:
        self._narrator = narrator
        self._answers = {device: list(lines) for device, lines in answers.items()}

    async def answer(self, device: str, question: str) -> str:
        """Return the next scripted line of this device; a question beyond the script is answered with the last one."""
        self._narrator.line(device, f"asks: {question}")
        lines = self._answers[device]
        answer = lines.pop(0) if len(lines) > 1 else lines[0]
        self._narrator.line("you", f"{answer}   (scripted; with --ask you type it)")
        return answer


class TypingPerson:
    """Takes lines from standard input, with a prompt on standard error; the script stands in once input has ended."""

    def __init__(self, narrator: Narrator, stand_in: Person) -> None:
        self._narrator = narrator
        self._stand_in = stand_in
        if isinstance(sys.stdin, io.TextIOWrapper):
            # What is typed may be no UTF-8; it is then an answer that does not fit, and not the end of the story.
            sys.stdin.reconfigure(errors="replace")

    async def answer(self, device: str, question: str) -> str:
        """Return the line that was typed."""
        self._narrator.arrived()
        print(f"  {device} asks: {question}\n  > ", end="", file=sys.stderr, flush=True)
        line: str = "" if sys.stdin is None else await asyncio.to_thread(sys.stdin.readline)
        if line:
            return line.strip()
        print("(no more input: the script answers)", file=sys.stderr, flush=True)
        return await self._stand_in.answer(device, question)
