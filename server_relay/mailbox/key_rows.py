"""The authority's rows in a mailbox: keys of a subject, and what guards a task."""

import sqlite3
from collections.abc import Iterator

import msgspec

from server_relay.effects import KeysRead, ReadKeys
from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, KeyState, SubjectRow, TaskGuard, forgotten
from server_relay.records import EndKeys, PutKeys

__all__ = [
    "barrier_is_up",
    "end_keys",
    "forget_keys",
    "guard_of",
    "lower_barrier",
    "put_guard",
    "put_keys",
    "read_keys",
]

_PUT_SUBJECT = "INSERT OR REPLACE INTO subjects VALUES (?, ?, ?, ?)"
_PUT_KEY = (
    "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?) ON CONFLICT (subject, place) DO UPDATE SET tool ="
    " excluded.tool, label = excluded.label, state = excluded.state, task = excluded.task, row = excluded.row,"
    " ended_ms = CASE excluded.state WHEN 'running' THEN NULL ELSE ended_ms END"
)
_END_KEYS = "UPDATE keys SET ended_ms = ? WHERE subject = ? AND task = ? AND (entity OR NOT ?)"
_KEYS_TO_FORGET = """SELECT subject, place, row FROM keys WHERE ended_ms < ? AND NOT EXISTS (
    SELECT 1 FROM tasks WHERE tasks.subject = keys.subject AND tasks.task = keys.task AND stored_no > 0
    AND NOT (cleaned AND entity))"""
_PUT_GRANT = "INSERT OR REPLACE INTO grants VALUES (?, ?, ?, ?)"
_PUT_APPROVAL = "INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KEY_AT = "SELECT row FROM keys WHERE subject = ? AND place = ?"
_KEYS_OF_LABEL = "SELECT row FROM keys WHERE subject = ? AND tool = ? AND label = ? AND label != '' ORDER BY place"
_GRANT = "SELECT row FROM grants WHERE task = ? AND attempt = ?"
_APPROVALS = (
    "SELECT version, step, tool, digest, principal, approved, relay_seq, used FROM approvals"
    " WHERE task = ? AND version = ? AND step = ? AND tool = ? AND digest = ? ORDER BY principal"
)

_Lists = tuple[tuple[bytes, ...], tuple[str, ...], tuple[str, ...]]

_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder(KeyRow).decode
_decode_grant = msgspec.msgpack.Decoder(GrantRow).decode
_decode_lists = msgspec.msgpack.Decoder(_Lists).decode


def put_guard(connection: sqlite3.Connection, task: int, guard: TaskGuard) -> None:
    """Write what guards a task."""
    lists: _Lists = (guard.past, guard.held, guard.running)
    connection.execute(
        "UPDATE tasks SET opened_version = ?, lost = ?, lists = ? WHERE id = ?",
        (guard.opened_version, guard.lost, _encode(lists) if any(lists) else None, task),
    )


def guard_of(opened_version: int, lost: int, lists: bytes | None) -> TaskGuard:
    """Return what guards a task, from its columns."""
    past, held, running = _decode_lists(lists) if lists is not None else ((), (), ())
    return TaskGuard(opened_version, bool(lost), past, held, running)


def put_keys(connection: sqlite3.Connection, task: int, write: PutKeys) -> None:
    """Write rows of the subject, and the task's grants and approvals."""
    subject, row = write.subject, write.subject_row
    if row is not None:
        connection.execute(_PUT_SUBJECT, (subject, row.era, row.barrier, row.opened))
    for key in write.rows:
        connection.execute(_PUT_KEY, (subject, *_key_values(key)))
    for grant in write.grants:
        connection.execute(_PUT_GRANT, (task, grant.attempt, grant.place, _encode(grant)))
    for approval in write.approvals:
        connection.execute(_PUT_APPROVAL, (task, *msgspec.structs.astuple(approval)))


def end_keys(connection: sqlite3.Connection, write: EndKeys) -> None:
    """Note since when the keys of a task are kept for their time."""
    connection.execute(_END_KEYS, (write.at_ms, write.subject, write.task, write.entities_only))


def forget_keys(connection: sqlite3.Connection, before_ms: int) -> None:
    """Forget the keys of tasks that ended before, and did not begin anew since."""
    for subject, place, packed in connection.execute(_KEYS_TO_FORGET, (before_ms,)).fetchall():
        before = _decode_key(packed)
        after = forgotten(before)
        if after is None:
            connection.execute("DELETE FROM keys WHERE subject = ? AND place = ?", (subject, place))
        elif after.state is KeyState.FREE:
            connection.execute(_PUT_KEY, (subject, *_key_values(after)))
            connection.execute("UPDATE keys SET ended_ms = NULL WHERE subject = ? AND place = ?", (subject, place))


def barrier_is_up(connection: sqlite3.Connection, subject: str) -> bool:
    """Return whether a subject's log was lost and nobody has said yet that nothing is missing."""
    row = connection.execute("SELECT barrier FROM subjects WHERE subject = ?", (subject,)).fetchone()
    return row is not None and row[0] > 0


def lower_barrier(connection: sqlite3.Connection, subject: str) -> None:
    """Let every key of the subject be granted again that nobody has."""
    connection.execute("UPDATE subjects SET barrier = 0 WHERE subject = ?", (subject,))
    connection.execute("UPDATE tasks SET lost = 0, opened_version = version WHERE subject = ?", (subject,))


def read_keys(connection: sqlite3.Connection, task: int | None, read: ReadKeys) -> KeysRead:
    """Return the answer to a read of keys; `task` is None if nothing of the task is kept."""
    found = connection.execute(
        "SELECT era, barrier, opened FROM subjects WHERE subject = ?", (read.subject,)
    ).fetchone()
    subject_row = SubjectRow(found[0], found[1], bool(found[2])) if found is not None else SubjectRow()
    grants = [_decode_grant(row) for attempt in read.attempts for row in _packed(connection, _GRANT, task, attempt)]
    places = dict.fromkeys((*read.places, *(grant.place for grant in grants)))
    rows = [_decode_key(row) for place in places for row in _packed(connection, _KEY_AT, read.subject, place)]
    for label in read.labels:
        labelled = (_decode_key(row) for row in _packed(connection, _KEYS_OF_LABEL, read.subject, *label))
        rows += (row for row in labelled if row.place not in places)
    approvals = tuple(
        ApprovalRow(version, step, tool, digest, principal, bool(approved), relay_seq, bool(used))
        for call in read.calls
        for version, step, tool, digest, principal, approved, relay_seq, used in connection.execute(
            _APPROVALS, (task, *call)
        )
    )
    return KeysRead(read, subject_row, tuple({row.place: row for row in rows}.values()), tuple(grants), approvals)


def _key_values(key: KeyRow) -> tuple[str | bool | bytes, ...]:
    return (key.place, key.tool, key.label, key.state.value, key.task, bool(key.entity), _encode(key))


def _packed(connection: sqlite3.Connection, query: str, *values: str | int | None) -> Iterator[bytes]:
    return (row for (row,) in connection.execute(query, values).fetchall())
