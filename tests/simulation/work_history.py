"""Work on the history: assistant turns that call steps, the steps' outputs, and pops."""

import json
from typing import TYPE_CHECKING

from sync_core.document.history import HistoryEntry
from sync_core.replica.commands import AppendHistory, PopHistory
from tests.simulation.journal import HistoryOp, PopOp

if TYPE_CHECKING:
    from tests.simulation.workload import User

__all__ = ["HistoryWork"]


class HistoryWork:
    """What a user does with the conversation: say something, answer a call of the last turn it saw, take one back."""

    def __init__(self, user: "User") -> None:
        self._user = user

    def step(self, task: str) -> None:
        """Append a message, or an output, or pop."""
        choice = self._user.rng.random()
        if choice < 0.25:
            self._answer(task)
        elif choice < 0.4:
            self._pop(task)
        else:
            self._append(task, None)

    def _append(self, task: str, answers: str | None) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("h")
        role = "tool" if answers else "assistant"
        message = json.dumps({"content": tag, "role": role}, separators=(",", ":"))
        op = HistoryOp(number=number, device=user.device.label, task=task, tag=tag, message=message, answers=answers)

        def done(items: object) -> None:
            assert isinstance(items, tuple) and len(items) == 1
            op.item = items[0]

        user.write(op, AppendHistory(user.device.next_ref(), task, (message,), answers), done)

    def _answer(self, task: str) -> None:
        """Append the output of a call that the last seen assistant message made."""
        view = self._user.seen.get(task)
        asked = [item for item in view.history if item.answers is None] if view else []
        self._append(task, f"{asked[-1].item}/0" if asked else None)

    def _pop(self, task: str) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("z")
        op = PopOp(number=number, device=user.device.label, task=task, tag=tag)

        def done(item: object) -> None:
            op.item = item.item if isinstance(item, HistoryEntry) else ""

        user.write(op, PopHistory(user.device.next_ref(), task), done)
