"""Work on slots: declare, propose, confirm, resolve, clear, with tokens from the views that the user saw."""

import json
from typing import TYPE_CHECKING

from sync_core.document.slots import CandidateStatus, Slot, SlotDefinition, SlotState
from sync_core.replica.commands import ClearSlot, DeclareSlot, WriteSlot
from tests.simulation.journal import DeclareOp, SlotOp

if TYPE_CHECKING:
    from tests.simulation.workload import User

__all__ = ["SLOTS", "SlotWork"]

SLOTS = ("cost_center", "budget", "currency")


class SlotWork:
    """What a user does with slots. The tag of a write is its source; most values are unique, some agree on purpose."""

    def __init__(self, user: "User") -> None:
        self._user = user

    def step(self, task: str) -> None:
        """Do one thing with one slot."""
        rng = self._user.rng
        name = rng.choice(SLOTS)
        slot = self._seen(task, name)
        choice = rng.random()
        if choice < 0.12 or (slot is None and choice < 0.25):
            self._declare(task, name)
        elif choice < 0.2 and slot is not None and slot.token:
            self._clear(task, name, slot)
        elif choice < 0.5 and not (slot is not None and slot.state is SlotState.CONFLICTED):
            self._write(task, name, CandidateStatus.PROPOSED, slot)
        else:
            self._write(task, name, CandidateStatus.CONFIRMED, slot)

    def _seen(self, task: str, name: str) -> Slot | None:
        view = self._user.seen.get(task)
        return None if view is None else view.slots.get(name)

    def _token(self, slot: Slot | None) -> frozenset[str]:
        """What the user has read; now and then it read nothing at all."""
        return frozenset() if slot is None or self._user.rng.random() < 0.1 else slot.token

    def _write(self, task: str, name: str, status: CandidateStatus, slot: Slot | None) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("s")
        agree = user.rng.random() < 0.15
        text = json.dumps("agreed" if agree else f"value {tag}")
        op = SlotOp(
            number=number,
            device=user.device.label,
            task=task,
            tag=tag,
            slot=name,
            status=status,
            token=self._token(slot),
        )
        self._ask(op, WriteSlot(user.device.next_ref(), task, name, text, status, op.token, source=tag))

    def _clear(self, task: str, name: str, slot: Slot) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("s")
        op = SlotOp(
            number=number,
            device=user.device.label,
            task=task,
            tag=tag,
            slot=name,
            status=None,
            token=slot.token,
        )
        self._ask(op, ClearSlot(user.device.next_ref(), task, name, op.token))

    def _ask(self, op: SlotOp, command: WriteSlot | ClearSlot) -> None:
        def done(slot: object) -> None:
            assert isinstance(slot, Slot) or (slot is None and op.status is None)

        self._user.write(op, command, done)

    def _declare(self, task: str, name: str) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("d")
        op = DeclareOp(number=number, device=user.device.label, task=task, tag=tag, slot=name)
        definition = SlotDefinition(ask=f"Which {name}? {tag}", schema='{"type":"string"}', required=True)
        user.write(op, DeclareSlot(user.device.next_ref(), task, name, definition))
