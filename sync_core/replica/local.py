"""Local commands on an open task: the document changes, the entry is written, the new view is announced, then answered.

Every function checks before it changes: a refused command leaves document, outbox and store as they were.
"""

import hashlib
from collections.abc import Callable
from typing import TypeVar

from sync_core.document.approvals import request_id
from sync_core.document.calls import CallBegun, CallRecorded
from sync_core.document.document import TaskDocument, Touched
from sync_core.document.notes import MergedNote
from sync_core.entry import CallOutcome, EntryKind, HistoryItem, Record, encode_record
from sync_core.errors import BaseUnknown, Closed, NeedsAuthority, TooLarge
from sync_core.ids import StreamName, new_writer
from sync_core.keys import idempotency_key
from sync_core.limits import BASE_PIN_KEEP_MS, BLOB_BYTES_MAX, HISTORY_INLINE_BYTES_MAX, RESULT_INLINE_BYTES_MAX
from sync_core.replica import commands as c
from sync_core.replica.effects import Reply
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import PinBase, PutBlob

__all__ = ["carry_out", "merge_note", "say_not_started"]

_PIN_AGAIN_MS = BASE_PIN_KEEP_MS // 7
"""A text that is read again and again is pinned anew long before the store lets the pin go."""


def _document(task: TaskReplica) -> TaskDocument:
    if task.document is None:
        raise Closed("The task is not open here.")
    return task.document


def _answer(task: TaskReplica, ref: int, value: object) -> None:
    task.core.emit(Reply(ref, value))


def _update(task: TaskReplica, update: bytes, *, slot: str | None = None, note: str | None = None) -> None:
    """Write an update of the document; nothing is written for one that changed nothing."""
    if update:
        task.append(StreamName.STATE, EntryKind.UPDATE, update)
        slots = frozenset() if slot is None else frozenset({slot})
        notes = frozenset() if note is None else frozenset({note})
        task.announce([Touched(slots, notes)], local=True)


def _record(task: TaskReplica, name: StreamName, kind: EntryKind, record: Record, blob: str | None = None) -> Touched:
    """Write a record and take it into the document's tables."""
    entry = task.append(name, kind, encode_record(record), blob=blob)
    return _document(task).record(entry)


def _put_blob(task: TaskReplica, data: bytes) -> str:
    if len(data) > BLOB_BYTES_MAX:
        raise TooLarge(f"The result exceeds {BLOB_BYTES_MAX} bytes.", hint="Store it elsewhere and record where.")
    sha256 = hashlib.sha256(data).hexdigest()
    task.core.write(PutBlob(task.key, sha256, data, upload=True))
    task.transfers.uploads.add(sha256)
    return sha256


# --- slots ------------------------------------------------------------------------------------------------------------


def _declare_slot(task: TaskReplica, command: c.DeclareSlot) -> None:
    update = _document(task).declare_slot(command.name, command.definition, task.core.wall_ms)
    _update(task, update, slot=command.name)
    _answer(task, command.ref, _document(task).view().slots[command.name])


def _check_not_held(task: TaskReplica, name: str) -> None:
    if _document(task).slot(name).for_authority:
        raise NeedsAuthority(
            f"The slot {name} is held by the authority, which alone writes it.",
            hint="Confirm a value, from a device whose role may.",
        )


def _write_slot(task: TaskReplica, command: c.WriteSlot) -> None:
    _check_not_held(task, command.name)
    update = _document(task).write_slot(
        command.name, command.text, command.status, command.token, command.source, task.core.wall_ms
    )
    _update(task, update, slot=command.name)
    _answer(task, command.ref, _document(task).view().slots[command.name])


def _clear_slot(task: TaskReplica, command: c.ClearSlot) -> None:
    _check_not_held(task, command.name)
    _update(task, _document(task).clear_slot(command.name, command.token), slot=command.name)
    _answer(task, command.ref, _document(task).slot(command.name))


# --- notes ------------------------------------------------------------------------------------------------------------


def _read_note(task: TaskReplica, command: c.ReadNote) -> None:
    note = _document(task).note(command.name)
    relay_time_ms = task.core.session.relay_time_ms
    pinned_sha256, pinned_at_ms = task.loaded.pinned.get(command.name, ("", 0))
    if pinned_sha256 != note.content_sha256 or relay_time_ms - pinned_at_ms >= _PIN_AGAIN_MS:
        task.loaded.pinned[command.name] = (note.content_sha256, relay_time_ms)
        state = _document(task).base_state()
        task.core.write(PinBase(task.key, command.name, note.content_sha256, state, relay_time_ms))
    _answer(task, command.ref, note)


def _write_note(task: TaskReplica, command: c.WriteNote) -> None:
    update = _document(task).write_note(command.name, command.text, command.content_sha256)
    _answer_note(task, command.ref, command.name, update)


def _edit_note(task: TaskReplica, command: c.EditNote) -> None:
    _answer_note(task, command.ref, command.name, _document(task).edit_note(command.name, command.old, command.new))


def _append_note(task: TaskReplica, command: c.AppendNote) -> None:
    _answer_note(task, command.ref, command.name, _document(task).append_note(command.name, command.text))


def _delete_note(task: TaskReplica, command: c.DeleteNote) -> None:
    _update(task, _document(task).delete_note(command.name, command.content_sha256), note=command.name)
    _answer(task, command.ref, None)


def _answer_note(task: TaskReplica, ref: int, name: str, update: bytes) -> None:
    _update(task, update, note=name)
    _answer(task, ref, _document(task).note(name))


def merge_note(task: TaskReplica, command: c.MergeNote, state: bytes | None) -> None:
    """Merge a text made from a pinned base into the current one; the base's state was read from the store."""
    task.core.session.check_may_write(EntryKind.UPDATE)
    if state is None:
        raise BaseUnknown("This device never read that text of the note, or read it too long ago.")
    scratch = new_writer(task.core.entropy)
    merge = _document(task).merge_note(command.name, command.text, command.base_sha256, state, scratch)
    if merge.update:
        task.append(StreamName.STATE, EntryKind.UPDATE, merge.update, writer=merge.writer)
        task.announce([Touched(notes=frozenset({command.name}))], local=True)
    _answer(task, command.ref, MergedNote(_document(task).note(command.name), merge.overlap))


# --- calls ------------------------------------------------------------------------------------------------------------


def _begin_call(task: TaskReplica, command: c.BeginCall) -> None:
    document = _document(task)
    begun = document.begin_call(
        command.version,
        command.step,
        command.tool,
        command.effect,
        command.arguments_digest,
        command.arguments,
        frozenset(task.loaded.running),
        command.granted,
    )
    if isinstance(begun, CallRecorded):
        # The grant is left to its lease: that it did not happen would free the key of what another device did.
        task.loaded.running.discard(command.granted)
        document.set_running(frozenset(task.loaded.running))
        _answer(task, command.ref, begun)
        return
    task.core.session.check_may_write(EntryKind.CALL)
    task.loaded.running.add(begun.attempt)
    task.announce([_record(task, StreamName.STATE, EntryKind.CALL, begun)], local=True)
    key = command.key or idempotency_key(task.core.subject, task.key, command.version, command.step)
    _answer(task, command.ref, CallBegun(begun.attempt, key, command.token))


def _end_call(task: TaskReplica, command: c.EndCall) -> None:
    result, blob, lost = command.result, None, False
    if result is not None and len(result.encode()) > RESULT_INLINE_BYTES_MAX:
        try:
            blob, result = _put_blob(task, result.encode()), None
        except TooLarge:
            result, lost = None, True
    outcome = _document(task).end_call(
        command.version,
        command.step,
        command.attempt,
        command.ok,
        result,
        command.error,
        blob,
        lost=lost,
        unsure=command.unsure,
        token=command.token,
        label=command.label,
    )
    task.loaded.running.discard(command.attempt)
    task.announce([_record(task, StreamName.STATE, EntryKind.CALL, outcome, blob)], local=True)
    _answer(task, command.ref, CallRecorded(_document(task).view().calls[(command.version, command.step)]))


def say_not_started(task: TaskReplica, version: int, step: str, attempt: str, token: int) -> None:
    """Record of an attempt that was granted here, and never begun, that it did not happen."""
    outcome = CallOutcome(step, version, attempt, False, None, "It was not started.", token=token)
    task.loaded.running.discard(attempt)
    _document(task).set_running(frozenset(task.loaded.running))
    task.announce([_record(task, StreamName.STATE, EntryKind.CALL, outcome)], local=True)


def _plan_call(task: TaskReplica, command: c.PlanCall) -> None:
    plan = _document(task).plan_call(command.version, command.step, command.tool, command.arguments, command.requires)
    if plan is not None:
        task.announce([_record(task, StreamName.STATE, EntryKind.PLAN, plan)], local=True)
    _answer(task, command.ref, None)


def _request_approval(task: TaskReplica, command: c.RequestApproval) -> None:
    request = _document(task).request_approval(
        command.version, command.step, command.tool, command.arguments_digest, command.arguments
    )
    if request is not None:
        task.announce([_record(task, StreamName.STATE, EntryKind.PLAN, request)], local=True)
    approval = request_id(command.step, command.version, command.tool, command.arguments_digest)
    _answer(task, command.ref, approval)


def _give_approval(task: TaskReplica, command: c.GiveApproval) -> None:
    approval = _document(task).give_approval(command.approval, task.core.device, command.approved, command.reason)
    if approval is not None:
        task.announce([_record(task, StreamName.AUTHORITY, EntryKind.APPROVAL, approval)], local=True)
    _answer(task, command.ref, None)


def _complete(task: TaskReplica, command: c.CompleteTask) -> None:
    completion = _document(task).complete(command.version, task.core.device, task.tables)
    if completion is not None:
        task.announce([_record(task, StreamName.STATE, EntryKind.COMPLETION, completion)], local=True)
    assert task.view is not None
    _answer(task, command.ref, task.view.completion)


# --- history ----------------------------------------------------------------------------------------------------------


def _append_history(task: TaskReplica, command: c.AppendHistory) -> None:
    if any(len(message.encode()) > BLOB_BYTES_MAX for message in command.messages):
        raise TooLarge(f"A message exceeds {BLOB_BYTES_MAX} bytes.", hint="Store it elsewhere and say where.")
    items = _document(task).append_history(command.messages, command.answers)
    for item in items:
        _record_item(task, item)
    task.announce([Touched(history=True)], local=True)
    _answer(task, command.ref, tuple(item.item for item in items))


def _record_item(task: TaskReplica, item: HistoryItem) -> None:
    message = item.message
    if message is not None and len(message) > HISTORY_INLINE_BYTES_MAX:
        blob = _put_blob(task, message.encode())
        item = HistoryItem(item.item, item.run, item.n, item.index, None, item.answers)
        _record(task, StreamName.HISTORY, EntryKind.HISTORY, item, blob)
    else:
        _record(task, StreamName.HISTORY, EntryKind.HISTORY, item)


def _pop_history(task: TaskReplica, command: c.PopHistory) -> None:
    history = _document(task).view().history
    pop = _document(task).pop_history()
    if pop is None:
        _answer(task, command.ref, None)
        return
    task.announce([_record(task, StreamName.HISTORY, EntryKind.HISTORY, pop)], local=True)
    _answer(task, command.ref, next(entry for entry in history if entry.item == pop.item))


# --- the hand-over ----------------------------------------------------------------------------------------------------


def _hand_over(task: TaskReplica, command: c.HandOverTask) -> None:
    record = _document(task).hand_over(command.version, command.text)
    task.announce([_record(task, StreamName.HANDOVER, EntryKind.HANDOVER, record)], local=True)
    _answer(task, command.ref, _document(task).view().handovers[command.version])


_Handler = Callable[[TaskReplica, c.TaskCommand], None]
_T = TypeVar("_T")


def _typed(handler: Callable[[TaskReplica, _T], None]) -> _Handler:
    return handler  # type: ignore[return-value]


_WRITES: dict[type, tuple[EntryKind, _Handler]] = {
    c.DeclareSlot: (EntryKind.UPDATE, _typed(_declare_slot)),
    c.WriteSlot: (EntryKind.UPDATE, _typed(_write_slot)),
    c.ClearSlot: (EntryKind.UPDATE, _typed(_clear_slot)),
    c.WriteNote: (EntryKind.UPDATE, _typed(_write_note)),
    c.EditNote: (EntryKind.UPDATE, _typed(_edit_note)),
    c.AppendNote: (EntryKind.UPDATE, _typed(_append_note)),
    c.DeleteNote: (EntryKind.UPDATE, _typed(_delete_note)),
    c.EndCall: (EntryKind.CALL, _typed(_end_call)),
    c.PlanCall: (EntryKind.PLAN, _typed(_plan_call)),
    c.RequestApproval: (EntryKind.PLAN, _typed(_request_approval)),
    c.GiveApproval: (EntryKind.APPROVAL, _typed(_give_approval)),
    c.CompleteTask: (EntryKind.COMPLETION, _typed(_complete)),
    c.AppendHistory: (EntryKind.HISTORY, _typed(_append_history)),
    c.PopHistory: (EntryKind.HISTORY, _typed(_pop_history)),
    c.HandOverTask: (EntryKind.HANDOVER, _typed(_hand_over)),
}
_READS: dict[type, _Handler] = {c.ReadNote: _typed(_read_note), c.BeginCall: _typed(_begin_call)}


def carry_out(task: TaskReplica, command: c.TaskCommand) -> None:
    """Carry out a command on a task whose document is here; raises `SegueError` before anything changed."""
    write = _WRITES.get(type(command))
    if write is None:
        _READS[type(command)](task, command)
        return
    kind, handler = write
    task.core.session.check_may_write(kind)
    handler(task, command)
