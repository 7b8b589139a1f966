"""What is watched of calls that cannot be undone: grants, effects, verdicts and approvals.

Three things are believed: what a device was told that it may do, what the outside system's books hold, and what the
relay's disk was given to keep. Somebody may say wrongly that something did not happen, or that nothing is missing: that
key is excused from having one effect only, and from nothing else.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from server_relay.records import AppendStored, MailboxWrite
from sync_core.document.calls import CallBegun, CallRecorded
from sync_core.entry import Entry, EntryKind, decode_record
from sync_core.parts import Role
from sync_core.petitions import ClaimAnswer
from sync_core.rulings import Approved, Granted, Settled, SettledBy
from tests.simulation import peek
from tests.simulation.driver import Violation
from tests.simulation.journal import Ending, GuardedOp

if TYPE_CHECKING:
    from tests.simulation.device import Device
    from tests.simulation.world import World

__all__ = ["GuardedChecks"]

_decoder = msgspec.msgpack.Decoder(Entry)


class _Denial(msgspec.Struct, frozen=True):
    """Somebody said that a key's effect did not happen: of the first `grants` grants, and of all up to this token."""

    key: str
    grants: int
    token: int = 0


class GuardedChecks:
    """The watcher of one world's guarded calls."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._denials: list[_Denial] = []
        self._said: set[str | None] = set()
        self._lost = 0
        self._unknowing: set[str] = set()

    # --- grants and effects -------------------------------------------------------------------------------------------

    def granted(self, op: GuardedOp) -> None:
        """An attempt may act now: under a token of its own, and nobody's end under a lower one is unknown.

        The device may have stood still since it was granted: then others may have had the key meanwhile.
        """
        first = 0
        if op.attempt in self._unknowing:
            # A store was deleted while nobody came who had seen what it held: a stated border.
            first = self._lost
            self._denials.append(_Denial(op.key, self._lost))
        grants = (*self.world.journal.guarded, op)
        same = [(n, other) for n, other in enumerate(grants) if n >= first and other.key == op.key]
        tokens = {other.token for _, other in same}
        if len(tokens) < len(same):
            raise Violation(f"the key of {op.step} was granted twice with token {op.token}")
        for number, other in same:
            if other.token < max(tokens):
                self._check_over(number, other)
        if op.needs_approval:
            self._check_approved(op)

    def _check_over(self, number: int, op: GuardedOp) -> None:
        """Somebody has had the key since: so it was known that this attempt did nothing, or somebody said so."""
        said_so = op.ending is Ending.DID_NOT_HAPPEN and op.asked_to_record
        if not said_so and not self._is_denied(number, op):
            raise Violation(f"the key of {op.step} was granted again, though nobody knows how it ended on {op.device}")

    def begun(self, device: "Device", op: GuardedOp, begun: CallBegun) -> None:
        """The tool may run now: under the key and the token of its grant, with a durable intent."""
        if (begun.attempt, begun.idempotency_key, begun.token) != (op.attempt, op.key, op.token):
            raise Violation(f"{op.step} runs on {op.device} under another key or token than was granted")
        self.world.checks.intent_is_durable(device, op.attempt, op.step)

    def _is_denied(self, number: int, op: GuardedOp) -> bool:
        denials = [denial for denial in self._denials if denial.key == op.key]
        return any(number < denial.grants or op.token <= denial.token for denial in denials)

    def _check_approved(self, op: GuardedOp) -> None:
        """Each grant uses up one approval of exactly this call, by somebody else who had the right."""
        what = (op.task, op.version, op.step, op.tool, op.digest)
        given = [
            approval
            for approval in self.world.journal.approvals
            if (approval.task, approval.version, approval.step, approval.tool, approval.digest) == what
            and approval.approved
            and approval.principal != op.principal
        ]
        used = [
            other
            for other in self.world.journal.guarded
            if (other.task, other.version, other.step, other.tool, other.digest) == what and other.attempt != op.attempt
        ]
        if len(used) >= len(given):
            raise Violation(f"{op.step} was granted to {op.device} with {len(given)} approvals, {len(used)} were used")

    def acted(self, op: GuardedOp) -> None:
        """An effect took place: the first of its key, unless somebody had said wrongly that there was none."""
        deeds = {deed.attempt for deed in self.world.outside.deeds if deed.key == op.key}
        if len(deeds) < 2:
            return
        made = [(n, other) for n, other in enumerate(self.world.journal.guarded) if other.attempt in deeds]
        if not any(self._is_denied(number, other) for number, other in made):
            who = " and ".join(other.device for _, other in made)
            raise Violation(f"the effect of {op.step} took place {len(deeds)} times, on {who}")

    def relay_lost(self) -> None:
        """The relay's store was deleted, or put back from a copy that does not know of every task."""
        self._lost = len(self.world.journal.guarded)

    def _note_grant(self, task: str, ruling: Granted) -> None:
        """Note a grant of a relay that has not heard that what stood on the key is lost."""
        mailbox, subject = self.world.relay.mailbox, self.world.subject
        is_known = bool(peek.task_guard(mailbox, subject, task).past)
        if ruling.entity:
            is_known = peek.subject_row(mailbox, subject).era > 1
        if self._lost and not is_known:
            self._unknowing.add(ruling.attempt)

    # --- what people say ----------------------------------------------------------------------------------------------

    def verdict_asked(self, result: str | None) -> None:
        """Somebody is about to say how a call ended; a result that they made up is one that may be shown."""
        self._said.add(result)

    def is_missing_something(self) -> bool:
        """Whether the relay does not know of a grant that was given."""
        return bool(self._missing())

    def lift_asked(self) -> None:
        """Somebody is about to say that nothing is missing: so they say that what is missing did not happen."""
        grants = len(self.world.journal.guarded)
        self._denials += [_Denial(op.key, grants) for op in self._missing()]

    def _missing(self) -> list[GuardedOp]:
        world = self.world
        known: set[str] = set()
        for task in {op.task for op in world.journal.guarded}:
            for entry in peek.mailbox_entries(world.relay.mailbox, world.subject, task):
                if entry.kind is EntryKind.RULING:
                    record = decode_record(entry.kind, entry.payload)
                    if isinstance(record, Granted | Settled):
                        known.add(record.attempt)
        return [op for op in world.journal.guarded if op.attempt not in known]

    # --- what is answered ---------------------------------------------------------------------------------------------

    def answered_done(self, answer: ClaimAnswer) -> None:
        """The authority says that a key is done: with the result of an attempt that had it, or what a person said."""
        self._check_result(answer.result, [op for op in self.world.journal.guarded if op.key == answer.key])

    def told_done(self, recorded: CallRecorded) -> None:
        """A device answers with a recorded result."""
        shown = recorded.call.shown
        if shown is None or not shown.ok:
            raise Violation(f"the step {recorded.call.step} was answered as done, without a success")
        attempts = {attempt.attempt for attempt in recorded.call.attempts}
        self._check_result(shown.result, [op for op in self.world.journal.guarded if op.attempt in attempts])

    def _check_result(self, result: str | None, ops: list[GuardedOp]) -> None:
        returned = {op.result for op in ops if op.ending is Ending.RETURNED and op.asked_to_record}
        if result not in returned and result not in self._said:
            raise Violation(f"a call is done with the result {result}, which no attempt returned and nobody said")

    # --- rulings ------------------------------------------------------------------------------------------------------

    def relay_committed(self, writes: Sequence[MailboxWrite]) -> None:
        """Look at each fresh ruling: it follows from what a tool or a person really said."""
        for write in writes:
            if isinstance(write, AppendStored):
                for stored in write.entries:
                    entry = _decoder.decode(stored.wire)
                    if entry.kind is EntryKind.RULING and entry.vouched_by is None:
                        self._check_ruling(write.task, decode_record(entry.kind, entry.payload))

    def _check_ruling(self, task: str, ruling: object) -> None:
        match ruling:
            case Approved():
                self._check_approver(task, ruling)
            case Granted():
                self._note_grant(task, ruling)
            case Settled(by=SettledBy.HOLDER):
                self._check_holder(ruling)
            case Settled(happened=False):
                self._denials.append(_Denial(ruling.key, len(self.world.journal.guarded), ruling.token))

    def _check_holder(self, ruling: Settled) -> None:
        op = next((op for op in self.world.journal.guarded if op.attempt == ruling.attempt), None)
        if op is None and not ruling.happened:
            return  # Its grant was never told to anybody: the device says that it was not started.
        if op is None or not op.asked_to_record:
            raise Violation(f"an attempt of {ruling.step} was settled by its holder, who never said how it ended")
        due = {Ending.RETURNED: True, Ending.DID_NOT_HAPPEN: False}.get(op.ending or Ending.RAISED)
        if due is not ruling.happened:
            ending = op.ending.value if op.ending else "not at all"
            raise Violation(f"{op.step} on {op.device} ended: {ending}; its holder's word counts as {ruling.happened}")

    def _check_approver(self, task: str, ruling: Approved) -> None:
        role = self.world.relay.roles.get(ruling.device, Role.ADMIN)
        what = (task, ruling.version, ruling.step, ruling.tool, ruling.arguments_digest)
        said = any(
            (op.task, op.version, op.step, op.tool, op.digest) == what
            and (op.approved, op.principal) == (ruling.approved, ruling.principal)
            for op in self.world.journal.approvals
        )
        if role not in (Role.APPROVE, Role.ADMIN) or not said:
            raise Violation(f"the relay took an approval of {ruling.step} that {ruling.principal} never gave")
