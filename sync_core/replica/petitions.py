"""Petitions: what only the authority can answer is asked on the link that stands, or refused at once.

Rules:
1. Without a link to an authority, or from a store that is not durable, nothing is asked: `NeedsAuthority`. A link that
   ends, and an answer that does not come, end the waiting in the same way.
2. A petition is sent once the relay's heads are reached and nothing of the task waits to be sent: what this device
   holds, also of a lost log, is at the relay before it is asked for anything (rule J of the design).
3. A claim whose answer was lost is asked again under the same attempt, as long as this opening never began it: the
   authority then gives the same grant back. One that is in doubt meanwhile is reported as not started first.
"""

from collections.abc import Iterable

import msgspec

from sync_core.document.calls import Call, CallRecorded, CallState
from sync_core.entry import EntryKind
from sync_core.errors import (
    InDoubt,
    NeedsAuthority,
    ReadOnly,
    Refused,
    ResultUnavailable,
    RunningElsewhere,
    SegueError,
    ValueRefused,
)
from sync_core.ids import new_hex_id
from sync_core.parts import HOLDERS, LIFTERS, roles_of
from sync_core.petitions import (
    AuthorityFrame,
    Claim,
    ClaimAnswer,
    ClaimVerdict,
    LiftBarrier,
    Petition,
    Ruled,
    SettleDoubt,
)
from sync_core.petitions import HoldSlot as HoldSlotFrame
from sync_core.replica import commands as c
from sync_core.replica.core import Core
from sync_core.replica.effects import Fail, Reply
from sync_core.replica.local import say_not_started
from sync_core.replica.table import TaskTable
from sync_core.replica.task import TaskReplica

__all__ = ["Petitions"]

_ATTEMPTS_MAX = 1_000
"""Attempts without an answer that are remembered, the newest."""
_NO_TASK = "_"
"""Stands where a petition of the whole subject names a task, if this device knows none."""


class _Open(msgspec.Struct):
    """A petition whose answer is owed. `task` is None for one of the whole subject."""

    frame: Petition
    task: TaskReplica | None
    deadline_ms: int
    asked: bool = False
    ruled: bool = False


class Petitions:
    """The petitions of a Replica that are not answered yet."""

    def __init__(self, core: Core, table: TaskTable) -> None:
        self._core = core
        self._table = table
        self._open: dict[int, _Open] = {}
        self._attempts: dict[Claim, str] = {}
        self._begun: dict[str, Claim] = {}
        self._late: dict[int, _Open] = {}

    # --- what is asked ------------------------------------------------------------------------------------------------

    def claim(self, task: TaskReplica, command: c.ClaimCall) -> None:
        """Ask for the right to make a call, or answer with its record; raises what stands in the way here."""
        assert task.document is not None
        call = task.document.claimable(command.version, command.step, command.arguments_digest)
        if call is not None and call.state is CallState.DONE:
            self._core.emit(Reply(command.ref, CallRecorded(call)))
            return
        if call is not None and call.state is CallState.RESULT_UNAVAILABLE:
            raise ResultUnavailable(f"The step {command.step} was done, but its result was not recorded.")
        self._core.session.check_may_write(EntryKind.CALL)
        try:
            self._check_reachable()
        except NeedsAuthority:
            if call is not None and call.state is CallState.IN_DOUBT:
                raise InDoubt(f"The step {command.step} was started and has no outcome.") from None
            raise
        claim = Claim(
            task.key,
            command.ref,
            command.version,
            command.step,
            command.tool,
            command.arguments_digest,
            "",
            command.entity,
            command.releases,
            command.needs_approval,
            command.checked,
        )
        attempt = self._attempt(task, claim, call)
        task.loaded.running.add(attempt)
        task.document.set_running(frozenset(task.loaded.running))
        self._ask(msgspec.structs.replace(claim, attempt=attempt), task)

    def _attempt(self, task: TaskReplica, claim: Claim, call: Call | None) -> str:
        """The attempt of an earlier claim of the same whose answer was lost, else a fresh one."""
        same = msgspec.structs.replace(claim, request=0)
        attempt = self._attempts.get(same, "")
        known = next((a for a in call.attempts if a.attempt == attempt), None) if call is not None else None
        if known is not None and known.ok is None and known.doubt:
            say_not_started(task, claim.version, claim.step, attempt, known.token)
        if not attempt or (known is not None and (known.doubt or known.ok is not None)):
            attempt = self._attempts[same] = new_hex_id(self._core.entropy)
            if len(self._attempts) > _ATTEMPTS_MAX:
                # Asked for again it is a fresh attempt, and the old one's key waits for its lease.
                del self._attempts[next(iter(self._attempts))]
        # Somebody waits for it again, so an answer to an earlier question of it frees nothing.
        self._late = {ref: late for ref, late in self._late.items() if _attempt_of(late) != attempt}
        return attempt

    def begun(self, attempt: str) -> None:
        """The intent of a granted attempt was written: it is never asked for again."""
        for claim in [claim for claim, known in self._attempts.items() if known == attempt]:
            self._begun[attempt] = claim
            del self._attempts[claim]

    def not_begun(self, attempt: str) -> None:
        """The commit of that intent failed, so its call did not start."""
        claim = self._begun.pop(attempt, None)
        task = self._table.get(claim.task) if claim is not None else None
        if claim is not None and task is not None:
            self._attempts[claim] = attempt
            task.loaded.running.discard(attempt)

    def settle(self, task: TaskReplica, command: c.SettleCall) -> None:
        """Say of a call in doubt whether it happened."""
        self._core.session.check_may_write(EntryKind.CALL)
        if not command.tool:
            raise ValueRefused(
                f"Step {command.step} is not in doubt here.", hint="Only a call in doubt takes a verdict."
            )
        self._check_reachable()
        frame = SettleDoubt(
            task.key,
            command.ref,
            command.version,
            command.step,
            command.tool,
            command.happened,
            command.entity,
            command.result,
            command.label,
            command.by_probe,
        )
        self._ask(frame, task)

    def hold(self, task: TaskReplica, command: c.HoldSlot) -> None:
        """Have the authority hold a slot, or give one that it holds a value."""
        self._core.session.check_role(roles_of(EntryKind.UPDATE) if command.text is None else HOLDERS)
        self._check_reachable()
        self._ask(HoldSlotFrame(task.key, command.ref, command.name, command.text), task)

    def lift(self, command: c.LiftBarrier) -> None:
        """Say that nothing is missing any more."""
        self._core.session.check_role(LIFTERS)
        self._check_reachable()
        task = next(iter(sorted(self._table.tasks)), _NO_TASK)
        self._ask(LiftBarrier(task, command.ref), None)

    def _check_reachable(self) -> None:
        session = self._core.session
        if not self._core.settings.durable:
            raise NeedsAuthority("This device's store is volatile, so it cannot keep what a guarded call needs.")
        if not session.logged_in:
            raise NeedsAuthority("The authority cannot be reached: there is no link to a relay.", hint=_LATER)
        if not session.authority:
            raise NeedsAuthority("The relay of this link rules on nothing: what it keeps is volatile.")

    def _ask(self, frame: Petition, task: TaskReplica | None) -> None:
        deadline_ms = self._core.now_ms + self._core.settings.petition_timeout_ms
        self._open[frame.request] = _Open(frame, task, deadline_ms)
        if task is None:
            self._send(self._open[frame.request])
        else:
            self._table.touch(task)

    def _send(self, petition: _Open) -> None:
        petition.asked = True
        self._core.send(petition.frame)

    # --- what is answered ---------------------------------------------------------------------------------------------

    def on_answer(self, frame: AuthorityFrame) -> None:
        """Take the authority's answer; one that nobody waits for any more changes nothing."""
        petition = self._open.get(frame.request)
        if petition is None or not petition.asked or petition.ruled:
            self._on_late(frame)
            return
        if petition.task is not None:
            self._table.touch(petition.task)
        if isinstance(frame, ClaimAnswer) and isinstance(petition.frame, Claim):
            del self._open[frame.request]
            if frame.verdict is ClaimVerdict.IN_DOUBT:
                # Perhaps it is this very attempt, granted in an answer that was lost: rule 3 needs to know it again.
                self._stop_running(petition)
            elif frame.verdict is not ClaimVerdict.GRANTED:
                self._forget_attempt(petition)
            self._core.emit(Reply(frame.request, c.Claimed(petition.frame.attempt, frame)))
        elif isinstance(frame, Ruled) and frame.code:
            del self._open[frame.request]
            self._core.emit(Fail(frame.request, _refusal(frame)))
        elif petition.task is None:
            del self._open[frame.request]
            self._core.emit(Reply(frame.request, None))
        else:
            # The ruling itself comes as an entry: whoever asked is to see it.
            petition.ruled = True
            self._table.following.want(petition.task)

    def _on_late(self, frame: AuthorityFrame) -> None:
        """A grant that nobody waits for any more is given back: its call was not started, and will not be."""
        late = self._late.pop(frame.request, None)
        granted = isinstance(frame, ClaimAnswer) and frame.verdict is ClaimVerdict.GRANTED
        if late is None or late.task is None or not granted or late.task.document is None:
            return
        if self._table.get(late.task.key) is not late.task:
            # The task was evicted meanwhile: there is nothing here any more to write it into.
            return
        assert isinstance(frame, ClaimAnswer) and isinstance(late.frame, Claim)
        self._forget_attempt(late)
        self._table.touch(late.task)
        say_not_started(late.task, late.frame.version, late.frame.step, late.frame.attempt, frame.token)

    def pump(self, touched: Iterable[TaskReplica]) -> None:
        """Send what may be sent now, and answer what was ruled and is merged here."""
        if not self._open:
            return
        tasks = {task.key for task in touched}
        for ref, petition in list(self._open.items()):
            task = petition.task
            if task is None or task.key not in tasks or not self._is_up_to_date(task):
                continue
            if petition.ruled:
                del self._open[ref]
                self._core.emit(Reply(ref, None))
            elif not petition.asked and not len(task.outbox):
                self._send(petition)

    def _is_up_to_date(self, task: TaskReplica) -> bool:
        here = task.document is not None and not task.loading and not task.must_bring_back
        told = task.follow.known is not None and self._table.following.is_fresh(task)
        return here and told and not task.behind

    # --- when no answer comes -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Give up on what waited too long."""
        # What was begun before this tick is committed, or was told not to be.
        self._begun.clear()
        late = [ref for ref, petition in self._open.items() if self._core.now_ms >= petition.deadline_ms]
        asked = [ref for ref in late if self._open[ref].asked]
        self._give_up(asked, NeedsAuthority("The authority did not answer in time.", hint=_LATER))
        sentence = "The authority was not asked: what this device holds of the task is still on its way to the relay."
        waiting = [ref for ref in late if ref not in asked]
        self._give_up(waiting, NeedsAuthority(sentence, hint="Wait for synced(), then call the step again."))

    def on_link_lost(self) -> None:
        """Nothing will be answered in this session."""
        self._give_up(list(self._open), NeedsAuthority("The link to the authority was lost.", hint=_LATER))
        self._late.clear()

    def cancel(self, ref: int) -> None:
        """The caller gave up waiting."""
        petition = self._open.pop(ref, None)
        if petition is not None:
            self._leave(ref, petition)

    def fail(self, task: TaskReplica, error: SegueError) -> None:
        """The task cannot be read, or is forgotten."""
        self._attempts = {claim: attempt for claim, attempt in self._attempts.items() if claim.task != task.key}
        self._give_up([ref for ref, petition in self._open.items() if petition.task is task], error)

    def _give_up(self, refs: Iterable[int], error: SegueError) -> None:
        for ref in refs:
            petition = self._open.pop(ref)
            self._leave(ref, petition)
            # What was ruled stands, whether or not its entry has come.
            self._core.emit(Reply(ref, None) if petition.ruled else Fail(ref, error))

    def _leave(self, ref: int, petition: _Open) -> None:
        self._stop_running(petition)
        if petition.asked and _attempt_of(petition):
            self._late[ref] = petition

    def _forget_attempt(self, petition: _Open) -> None:
        assert isinstance(petition.frame, Claim)
        self._attempts.pop(msgspec.structs.replace(petition.frame, request=0, attempt=""), None)
        self._stop_running(petition)

    def _stop_running(self, petition: _Open) -> None:
        task, frame = petition.task, petition.frame
        if task is not None and isinstance(frame, Claim):
            task.loaded.running.discard(frame.attempt)
            if task.document is not None:
                task.document.set_running(frozenset(task.loaded.running))


def _attempt_of(petition: _Open) -> str:
    return petition.frame.attempt if isinstance(petition.frame, Claim) else ""


_LATER = "Connect to the relay, then call the step again; it waits."


def _refusal(frame: Ruled) -> SegueError:
    if frame.code == "role":
        return ReadOnly(frame.sentence, hint="Log in with a token whose role may do this.")
    if frame.code == "running":
        return RunningElsewhere(frame.sentence)
    if frame.code == "not_in_doubt":
        return ValueRefused(frame.sentence)
    return Refused(frame.sentence)
