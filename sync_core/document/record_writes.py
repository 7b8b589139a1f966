"""Local writes of a task that are no updates of its document: calls, plans, versions, history.

Each validates first and changes nothing if it raises. A record is only made here, and counts once it was given its
entry.
"""

import msgspec

from sync_core.completion import WriterTables
from sync_core.document.approvals import ApprovalState, approval_of, request_id
from sync_core.document.calls import Call, CallRecorded, CallState, check_arguments, check_begin
from sync_core.document.handover import check_hand_over
from sync_core.document.records import Records, Touched
from sync_core.document.view import TaskView
from sync_core.entry import (
    CallIntent,
    CallOutcome,
    Completion,
    Effect,
    Entry,
    HandOver,
    HistoryItem,
    HistoryPop,
    Plan,
    VersionDecision,
)
from sync_core.errors import TooLarge, ValueRefused, VersionMismatch
from sync_core.ids import Entropy, check_step, new_hex_id
from sync_core.limits import ARGUMENT_INLINE_BYTES_MAX, RECORD_NUMBER_MAX
from sync_core.rulings import Approval, ApprovalRequest

__all__ = ["RecordWrites"]


class RecordWrites:
    """The part of a `TaskDocument` that makes records; `entropy` gives fresh ids."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._records = Records()
        self._view: TaskView | None = None

    # --- calls --------------------------------------------------------------------------------------------------------

    def set_running(self, attempts: frozenset[str]) -> None:
        """Say which attempts execute in this opening right now: their steps show as running, not as in doubt."""
        self._view = None
        self._records.run(attempts)

    def begin_call(
        self,
        version: int,
        step: str,
        tool: str,
        effect: Effect,
        arguments_digest: str,
        arguments: str | None,
        running: frozenset[str],
        granted: str = "",
    ) -> CallIntent | CallRecorded:
        """Return the record of a step that succeeded, else the intent of a new attempt.

        `running` are the attempts of this opening that execute right now; `granted` is the attempt to which the
        authority gave the key of a call that cannot be undone. Raises `VersionMismatch`, `KeyReused`,
        `InDoubt`, `NeedsAuthority`, `ResultUnavailable`.
        """
        check_step(step)
        self._check_version(version)
        call = self._records.calls().get((version, step))
        if not check_begin(call, step, effect, arguments_digest, running, granted) and call is not None:
            return CallRecorded(call)
        attempt = granted or new_hex_id(self._entropy)
        self.set_running(running | {attempt})
        if arguments is not None and len(arguments.encode()) > ARGUMENT_INLINE_BYTES_MAX:
            arguments = None
        return CallIntent(step, version, tool, effect, arguments_digest, attempt, self._next_n(), arguments)

    def end_call(
        self,
        version: int,
        step: str,
        attempt: str,
        ok: bool,
        result: str | None,
        error: str | None,
        blob: str | None,
        *,
        lost: bool = False,
        unsure: bool = False,
        token: int = 0,
        label: str = "",
    ) -> CallOutcome:
        """Return the outcome of an attempt; `result` is canonical JSON, None if it is in the entry's `blob` or lost."""
        call = self._records.calls().get((version, step))
        if call is None or all(known.attempt != attempt for known in call.attempts):
            raise ValueRefused(f"The step {step} has no such attempt.", hint="Begin the call first.")
        self.set_running(self._records.running - {attempt})
        lost = lost or (ok and result is None and blob is None)
        return CallOutcome(step, version, attempt, ok, None if blob else result, error, lost, unsure, token, label)

    def claimable(self, version: int, step: str, arguments_digest: str) -> Call | None:
        """Return the record of a step for which the authority is to be asked, None for one that has none.

        Raises `VersionMismatch`, and `KeyReused` for other arguments than those of what happened or may have.
        """
        check_step(step)
        self._check_version(version)
        call = self._records.calls().get((version, step))
        check_arguments(call, step, arguments_digest)
        return call

    def request_approval(
        self, version: int, step: str, tool: str, arguments_digest: str, arguments: str
    ) -> ApprovalRequest | None:
        """Return the request for a person's approval of exactly this call, None if it was asked for already."""
        check_step(step)
        self._check_version(version)
        if request_id(step, version, tool, arguments_digest) in self._records.guarded.approvals():
            return None
        shown = arguments if len(arguments.encode()) <= ARGUMENT_INLINE_BYTES_MAX else None
        return ApprovalRequest(step, version, tool, arguments_digest, self._next_n(), shown)

    def give_approval(self, approval: str, device: str, approved: bool, reason: str) -> Approval | None:
        """Return this device's yes or no to a request; None if it said something that was not ruled on yet, or if its
        yes stands.

        Raises `ValueRefused` for a request that is not there, or shows other arguments than it asks to approve.
        """
        request = self._records.guarded.approvals().get(approval)
        if request is None:
            raise ValueRefused("There is no such request for approval.", hint="Take one from task.approvals.")
        guarded = self._records.guarded
        stands = approved and request.state is ApprovalState.APPROVED and guarded.stands_from(approval, device)
        if stands or guarded.waits_to_be_ruled(approval, device):
            return None
        return approval_of(request, approved, reason)

    def plan_call(self, version: int, step: str, tool: str, arguments: str, requires: tuple[str, ...]) -> Plan | None:
        """Return the plan of a step, None if it is planned like that already or was done. Raises `VersionMismatch`."""
        check_step(step)
        self._check_version(version)
        if len(arguments.encode()) > ARGUMENT_INLINE_BYTES_MAX:
            raise TooLarge(f"Planned arguments exceed {ARGUMENT_INLINE_BYTES_MAX} bytes.", hint="Name a file or note.")
        call = self._records.calls().get((version, step))
        if call is not None:
            if call.state in (CallState.DONE, CallState.RESULT_UNAVAILABLE, CallState.KEY_CONFLICT):
                return None
            planned = (call.planned_arguments, call.requires)
            if planned == (arguments, requires) and call.tool == tool:
                return None
        return Plan(step, version, tool, arguments, self._next_n(), requires)

    def decide_version(self, version: int, decided_by: str, epoch: bytes = b"") -> VersionDecision:
        """Return the decision for a higher business version; raises `VersionMismatch` for one that is not higher.

        `epoch` is that of the task's `state` log as this device knows it.
        """
        if not self._records.version < version <= RECORD_NUMBER_MAX:
            raise VersionMismatch(f"The task is at version {self._records.version}; a decision needs a higher one.")
        return VersionDecision(version, decided_by, epoch)

    def _check_version(self, version: int) -> None:
        if version != self._records.version:
            raise VersionMismatch(f"The task is at version {self._records.version}, this handle at {version}.")

    def _next_n(self) -> int:
        return min(self._records.highest_n + 1, RECORD_NUMBER_MAX)

    # --- completion ---------------------------------------------------------------------------------------------------

    def complete(self, version: int, device: str, tables: WriterTables) -> Completion | None:
        """Return the completion of the standing version, None if it is finished or on its way from this device.

        `tables` are the writer tables as they stand here. Raises `VersionMismatch`.
        """
        self._check_version(version)
        return self._records.complete(device, tables)

    def judged(self, view: TaskView, tables: WriterTables) -> TaskView:
        """Return a view whose completion the writer tables have judged."""
        completion = self._records.judged(view.completion, tables)
        return view if completion is view.completion else msgspec.structs.replace(view, completion=completion)

    def place(self, entry: Entry) -> Touched | None:
        """Take note of the number of a record that is here already; return what that changes, None for most."""
        touched = self._records.place(entry)
        if touched is not None:
            self._view = None
        return touched

    # --- history ------------------------------------------------------------------------------------------------------

    def append_history(self, messages: tuple[str, ...], answers: str | None) -> tuple[HistoryItem, ...]:
        """Return the items of messages (canonical JSON each); `answers` is the step whose output the one message is."""
        ids = [new_hex_id(self._entropy) for _ in range(len(messages) + 1)]
        return self._records.history.append(messages, answers, ids)

    def pop_history(self) -> HistoryPop | None:
        """Return the pop of the last visible item, None if there is none."""
        return self._records.history.pop()

    # --- the hand-over ------------------------------------------------------------------------------------------------

    def hand_over(self, version: int, text: str) -> HandOver:
        """Return the hand-over of a business version; raises `HandedOver`, `VersionMismatch`, for a bad text."""
        check_hand_over(text)
        self._check_version(version)
        self._records.handovers.check(version)
        return HandOver(version, text)
