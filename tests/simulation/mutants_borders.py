"""Planted faults of the borders: calls that cannot be undone, at the device and at the authority, and purges."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from server_relay import authority, evidence, intake, petitions
from server_relay.key_records import ApprovalRow, KeyState
from server_relay.records import PutKeys
from sync_core.document.document import TaskDocument
from sync_core.entry import EntryKind, decode_record
from sync_core.replica import frames, recovery
from sync_core.replica.link import Link
from sync_core.replica.writes import PutEntry
from sync_core.rulings import ApprovalRequest
from tests.simulation.patching import Context, late_writes, patched

__all__ = ["BORDER_MUTANTS"]


def _effect_before_intent() -> Context:
    """The tool runs as soon as the key is granted; its intent is written with what comes next."""

    def is_intent(write: object) -> bool:
        return isinstance(write, PutEntry) and write.own and b"IRREVERSIBLE" in write.entry.payload

    return late_writes(is_intent)


def _lease_frees() -> Context:
    original = authority.end_lease

    def end_lease(row: Any, *rest: Any) -> Any:
        after, doubted = original(row, *rest)
        return replace(after, state=KeyState.FREE), doubted

    return patched((authority, "end_lease", end_lease), (petitions, "end_lease", end_lease))


def _token_ignored() -> Context:
    """Every grant of a key bears the token of the first one."""
    original = authority._grant

    def grant(row: Any, claim: Any, asker: Any, approval: Any) -> Any:
        decided = original(row, claim, asker, approval)
        token = row.token or decided.row.token
        rulings = tuple(replace(ruling, token=token) for ruling in decided.rulings)
        return replace(
            decided,
            row=replace(decided.row, token=token),
            grant=replace(decided.grant, token=token),
            rulings=rulings,
            answer=replace(decided.answer, token=token),
        )

    return patched((authority, "_grant", grant))


def _approval_from_document() -> Context:
    """A request, which anybody may write into the task, counts as the approval that it asks for."""
    original = evidence.take_evidence

    def take_evidence(turn: Any, log: Any, entry: Any, *rest: Any) -> None:
        original(turn, log, entry, *rest)
        asked = decode_record(entry.kind, entry.payload) if entry.kind is EntryKind.PLAN else None
        if isinstance(asked, ApprovalRequest):
            call = (asked.version, asked.step, asked.tool, asked.arguments_digest)
            turn.writes.append(PutKeys(*log.key, approvals=(ApprovalRow(*call, "the document", True, 1),)))

    return patched((intake, "take_evidence", take_evidence))


def _failure_recorded_as_success() -> Context:
    original = TaskDocument.end_call

    def end_call(
        self: TaskDocument, version: int, step: str, attempt: str, ok: bool, result: Any, *rest: Any, **more: Any
    ) -> Any:
        if more.get("token"):
            more["unsure"] = False
            return original(self, version, step, attempt, True, result or '"failed"', *rest, **more)
        return original(self, version, step, attempt, ok, result, *rest, **more)

    return patched((TaskDocument, "end_call", end_call))


def _tombstone_ignored() -> Context:
    """A device takes a log that was purged for one that was lost, and brings everything back."""

    def is_over(self: Link, task: Any, frame: Any) -> bool:
        return False

    return patched((Link, "_is_over", is_over), (frames, "empty_log", recovery.start_epoch))


# Each with a seed that has caught it.
BORDER_MUTANTS: tuple[tuple[str, Callable[[], Context], tuple[int, ...]], ...] = (
    ("effect before intent", _effect_before_intent, (6,)),
    ("lease frees instead of doubting", _lease_frees, (116,)),
    ("fencing token ignored", _token_ignored, (104,)),
    ("approval read from the document", _approval_from_document, (43,)),
    ("failure recorded as success", _failure_recorded_as_success, (39,)),
    ("tombstone ignored", _tombstone_ignored, (65,)),
)
