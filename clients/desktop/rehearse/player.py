"""Plays one recorded run as a task: before every call the work moves to another device, and things go wrong there."""

import hashlib
from collections.abc import Callable, Iterator, Sequence

from clients.desktop.rehearse.devices import Device
from clients.desktop.rehearse.logs import Ask, AskOutcome, LineLog
from clients.desktop.rehearse.recording import RecordedCall, Run, Said
from clients.desktop.rehearse.schedule import Move
from clients.desktop.rehearse.stand_ins import Asking
from sync_core import NeedsAuthority, NeedsKey, PlannedCall
from sync_core.endpoint.points import CallPoint

__all__ = ["Player"]


class Player:
    """Plays runs, one after the other, on the devices of one lane. `called` is told after every call."""

    def __init__(
        self, devices: Sequence[Device], log: LineLog[Ask], numbers: Iterator[int], called: Callable[[], None]
    ) -> None:
        self._devices = devices
        self._log = log
        self._numbers = numbers
        self._called = called
        self._away: dict[int, int] = {}

    async def play(self, run: Run, moves: Sequence[Move]) -> None:
        """Play a run to its end, bring every device back, and ask each one for every call once more."""
        due = iter(moves)
        holder = 0
        asked: list[tuple[RecordedCall, PlannedCall]] = []
        await self._devices[holder].task(run.task, create=True)
        for step in run.steps:
            task = await self._devices[holder].task(run.task)
            if isinstance(step, Said):
                await task.history.append(step.message)
                continue
            pending = await task.history.append_turn(step.message)
            for call in step.calls:
                move = next(due)
                await self._move(run, call, pending[call.place], holder, move)
                holder = move.holder
                if call.given is not None:
                    asked.append((call, pending[call.place]))
                self._called()
        await self._gather(run)
        for device in self._devices:
            for call, planned in asked:
                await self._ask_again(device, run, call, planned)

    async def _move(self, run: Run, call: RecordedCall, wanted: PlannedCall, holder: int, move: Move) -> None:
        """Carry the work to the move's device and ask there; then, if that is away or dead, elsewhere.

        A call that the model garbled cannot be asked for: its answer goes into the history as recorded.
        """
        self._count_spells()
        first = self._devices[move.device]
        for number in dict.fromkeys((holder, move.device, move.device if move.elsewhere is None else move.elsewhere)):
            await self._ready(number, run)
        if move.offline:
            await first.network.cut()
            self._away[move.device] = move.spell_calls
        if call.given is None:
            await (await first.task(run.task)).history.append(call.answer, answers=wanted)
            return
        await self._ask(first, run, call, await self._pending(first, run, wanted), move.kill)
        if move.elsewhere is not None:
            other = self._devices[move.elsewhere]
            await self._ask(other, run, call, await self._pending(other, run, wanted), None)
        elif move.kill is not None:
            await self._ask(first, run, call, await self._pending(first, run, wanted), None)

    def _count_spells(self) -> None:
        for number in list(self._away):
            self._away[number] -= 1
            if self._away[number] <= 0:
                self._return(number)

    def _return(self, number: int) -> None:
        self._away.pop(number, None)
        self._devices[number].network.restore()

    async def _ready(self, number: int, run: Run) -> None:
        """Bring a device back, have all its work at the relay and all of the relay's on it."""
        self._return(number)
        await self._devices[number].task(run.task)
        await self._devices[number].synced()

    async def _pending(self, device: Device, run: Run, wanted: PlannedCall) -> PlannedCall:
        """The call as this device sees it waiting; the recorded one if it is answered there already."""
        task = await device.task(run.task)
        return next((call for call in await task.pending_calls() if call.step == wanted.step), wanted)

    async def _ask(
        self, device: Device, run: Run, call: RecordedCall, pending: PlannedCall, kill: CallPoint | None
    ) -> None:
        number = next(self._numbers)
        outcome, message = AskOutcome.ANSWERED, None
        try:
            message = await device.ask(run.task, pending, Asking(number, run.number, call), kill)
            if message is None:
                outcome = AskOutcome.KILLED
        except (NeedsAuthority, NeedsKey):
            # What the recorded agent was told goes into the history, so that the conversation can go on.
            outcome = AskOutcome.REFUSED
            task = await device.task(run.task)
            await task.history.append(call.answer, answers=pending)
        self._log.append(
            Ask(number, run.number, call.number, device.name, outcome, _digest(message and message["content"]))
        )

    async def _ask_again(self, device: Device, run: Run, call: RecordedCall, planned: PlannedCall) -> None:
        """Ask through `call` and past the history: only the record of the call can answer, and nothing may run."""
        number = next(self._numbers)
        try:
            content = await device.call_again(run.task, planned, Asking(number, run.number, call))
            self._log.append(Ask(number, run.number, call.number, device.name, AskOutcome.ANSWERED, _digest(content)))
        except (NeedsAuthority, NeedsKey):
            self._log.append(Ask(number, run.number, call.number, device.name, AskOutcome.REFUSED))

    async def _gather(self, run: Run) -> None:
        for number in range(len(self._devices)):
            await self._ready(number, run)
        for device in self._devices:
            await device.synced()
            # What is large comes to a device when it is read. From here on the files alone must hold everything.
            await (await device.task(run.task)).history.items()


def _digest(content: object) -> str | None:
    return None if content is None else hashlib.sha256(str(content).encode()).hexdigest()
