"""Plays one recorded run as a task: before every call the work moves to another device, and things go wrong there."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from clients.desktop.rehearse.dependence import dependents
from clients.desktop.rehearse.devices import Device
from clients.desktop.rehearse.logs import Ask, AskOutcome, LineLog, content_sha256
from clients.desktop.rehearse.recording import RecordedCall, Run, Said
from clients.desktop.rehearse.relay_process import LEASE_S
from clients.desktop.rehearse.rules import ToolRule, rule_of
from clients.desktop.rehearse.schedule import Move
from clients.desktop.rehearse.stand_ins import Asking
from sync_core import AlreadyDone, DidNotHappen, NeedsAuthority, PlannedCall, RunningElsewhere
from sync_core.endpoint.points import CallPoint
from sync_core.values import parse

__all__ = ["Player"]

_LEASES_MAX = 20


class Player:
    """Plays runs, one after the other, on the devices of one lane. `called` is told after every call.

    With `authority` a refused call waits until its device is back at the relay; without one it stays refused.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        rules: Mapping[str, ToolRule],
        authority: bool,
        log: LineLog[Ask],
        numbers: Iterator[int],
        called: Callable[[], None],
    ) -> None:
        self._devices = devices
        self._rules = rules
        self._waiting = {AskOutcome.KILLED, AskOutcome.RUNNING, *([AskOutcome.REFUSED] if authority else [])}
        self._log = log
        self._numbers = numbers
        self._called = called
        self._away: dict[int, int] = {}
        self._prevented: frozenset[int] = frozenset()

    async def play(self, run: Run, moves: Sequence[Move]) -> None:
        """Play a run to its end, bring every device back, and ask each one for every call once more."""
        due = iter(moves)
        holder = 0
        asked: list[tuple[RecordedCall, PlannedCall]] = []
        self._prevented = frozenset()
        for device in self._devices:
            await device.begin(run)
        await self._devices[holder].task(create=True)
        for step in run.steps:
            task = await self._devices[holder].task()
            if isinstance(step, Said):
                await task.history.append(step.message)
                continue
            pending = await task.history.append_turn(step.message)
            for call in step.calls:
                move = next(due)
                if await self._move(run, call, pending[call.place], holder, move):
                    asked.append((call, pending[call.place]))
                holder = move.holder
                self._called()
        await self._gather()
        for device in self._devices:
            for call, planned in asked:
                await self._ask_again(device, run, call, planned)

    async def _move(self, run: Run, call: RecordedCall, wanted: PlannedCall, holder: int, move: Move) -> bool:
        """Carry the work to the move's device and ask there; then, if that is away or dead, elsewhere.

        Returns whether the call came to a result that can be asked for again. If it did not, or the model garbled it,
        what the recorded agent was told goes into the history, so that the conversation can go on.
        """
        self._count_spells()
        first = self._devices[move.device]
        for number in dict.fromkeys((holder, move.device, move.holder)):
            await self._ready(number)
        if move.offline:
            await first.network.cut()
            self._away[move.device] = move.spell_calls
        outcome = None if call.given is None else await self._come_to_an_end(run, call, wanted, move)
        if outcome is AskOutcome.ANSWERED:
            return True
        if outcome is AskOutcome.PREVENTED and not rule_of(self._rules, call.tool).failed(call.result):
            self._prevented |= {call.number}
        task = await self._devices[move.holder].task()
        await task.history.append(call.answer, answers=wanted)
        return outcome is AskOutcome.REFUSED

    async def _come_to_an_end(self, run: Run, call: RecordedCall, wanted: PlannedCall, move: Move) -> AskOutcome:
        """Ask the move's device, then the one elsewhere; for what still waits, the first one back at the relay."""
        first = self._devices[move.device]
        if call.number in dependents(run, self._prevented):
            asked = next(self._numbers)
            self._log.append(Ask(asked, run.number, call.number, first.name, AskOutcome.DEPENDENT))
            return AskOutcome.DEPENDENT
        outcome = await self._ask(first, run, call, wanted, move.kill)
        if move.elsewhere is not None:
            outcome = await self._ask(self._devices[move.elsewhere], run, call, wanted, None)
            for _ in range(_LEASES_MAX):
                if outcome is not AskOutcome.RUNNING:
                    break
                # The first device died with the key; when its lease is over, the call is in doubt.
                await asyncio.sleep(LEASE_S)
                outcome = await self._ask(self._devices[move.elsewhere], run, call, wanted, None)
        elif outcome is AskOutcome.KILLED:
            outcome = await self._ask(first, run, call, wanted, None)
        if outcome in self._waiting:
            await self._ready(move.device)
            outcome = await self._ask(first, run, call, wanted, None)
        return outcome

    def _count_spells(self) -> None:
        for number in list(self._away):
            self._away[number] -= 1
            if self._away[number] <= 0:
                self._return(number)

    def _return(self, number: int) -> None:
        self._away.pop(number, None)
        self._devices[number].network.restore()

    async def _ready(self, number: int) -> None:
        """Bring a device back, have all its work at the relay and all of the relay's on it."""
        self._return(number)
        await self._devices[number].task()
        await self._devices[number].synced()

    async def _ask(
        self, device: Device, run: Run, call: RecordedCall, wanted: PlannedCall, kill: CallPoint | None
    ) -> AskOutcome:
        number = next(self._numbers)
        outcome = AskOutcome.ANSWERED
        told: object = None
        task = await device.task()
        # As this device sees it waiting; the recorded one if it is answered there already.
        pending = next((each for each in await task.pending_calls() if each.step == wanted.step), wanted)
        try:
            message = await device.ask(pending, Asking(number, run.number, call), kill)
            if message is None:
                outcome = AskOutcome.KILLED
            else:
                told = message["content"]
        except NeedsAuthority:
            outcome = AskOutcome.REFUSED
        except RunningElsewhere:
            outcome = AskOutcome.RUNNING
        except AlreadyDone as done:
            outcome = AskOutcome.PREVENTED
            told = None if done.result_text is None else parse(done.result_text)
        except DidNotHappen:
            outcome = AskOutcome.DID_NOT_HAPPEN
        self._log.append(Ask(number, run.number, call.number, device.name, outcome, _digest(told)))
        return outcome

    async def _ask_again(self, device: Device, run: Run, call: RecordedCall, planned: PlannedCall) -> None:
        """Ask through `call` and past the history: only the record of the call can answer, and nothing may run."""
        number = next(self._numbers)
        try:
            content = await device.call_again(planned, Asking(number, run.number, call))
            self._log.append(Ask(number, run.number, call.number, device.name, AskOutcome.ANSWERED, _digest(content)))
        except NeedsAuthority:
            self._log.append(Ask(number, run.number, call.number, device.name, AskOutcome.REFUSED))

    async def _gather(self) -> None:
        for number in range(len(self._devices)):
            await self._ready(number)
        for device in self._devices:
            await device.synced()
            # What is large comes to a device when it is read. From here on the files alone must hold everything.
            await (await device.task()).history.items()


def _digest(content: object) -> str | None:
    return None if content is None else content_sha256(str(content))
