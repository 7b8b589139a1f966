"""Blobs and pinned states: the large things of a task. A blob is verified against its name, a pin by its checksum."""

import hashlib

from sync_core.context.rows import SqlConnection, SqlValue, checksum
from sync_core.limits import BASE_PIN_KEEP_MS, BASE_PINS_PER_NOTE_MAX
from sync_core.replica.writes import PinBase, PutBlob

__all__ = ["SET_BLOB_STATE", "load_base", "load_blob", "pin_base", "put_blob"]

SET_BLOB_STATE = "UPDATE blobs SET upload = ? WHERE task = ? AND sha256 = ?"


def put_blob(connection: SqlConnection, write: PutBlob) -> None:
    """Keep a blob under its task and hash."""
    connection.execute(
        """INSERT INTO blobs (task, sha256, size_bytes, upload) VALUES (?, ?, ?, ?)
            ON CONFLICT (task, sha256) DO UPDATE SET size_bytes = excluded.size_bytes, upload = excluded.upload""",
        (write.task, write.sha256, len(write.data), int(write.upload)),
    )
    connection.execute(
        "INSERT OR REPLACE INTO blob_bytes (id, data) SELECT id, ? FROM blobs WHERE task = ? AND sha256 = ?",
        (write.data, write.task, write.sha256),
    )


def load_blob(connection: SqlConnection, task: str, sha256: str) -> bytes | None:
    """Return a blob, or None if it is not there or its bytes are not what its name says."""
    rows = connection.execute(
        "SELECT data FROM blob_bytes JOIN blobs USING (id) WHERE task = ? AND sha256 = ?", (task, sha256)
    )
    for (data,) in rows:
        if isinstance(data, bytes) and hashlib.sha256(data).hexdigest() == sha256:
            return data
    return None


def pin_base(connection: SqlConnection, write: PinBase) -> None:
    """Pin a state, and let pins go that are too old in relay time or too many for their note.

    A pin made before the device ever heard the relay's time (0) starts to age when it is first heard (rule K).
    """
    now_ms = write.relay_time_ms
    if now_ms:
        connection.execute("UPDATE pins SET relay_time_ms = ? WHERE relay_time_ms = 0", (now_ms,))
        connection.execute("DELETE FROM pins WHERE relay_time_ms < ?", (now_ms - BASE_PIN_KEEP_MS,))
    name: tuple[SqlValue, ...] = (write.task, write.note, write.sha256)
    # The order of pinning is the order of ids, so pinning again gives a new one.
    connection.execute("DELETE FROM pins WHERE task = ? AND note = ? AND sha256 = ?", name)
    connection.execute(
        "INSERT INTO pins (task, note, sha256, relay_time_ms, checksum, state) VALUES (?, ?, ?, ?, ?, ?)",
        (*name, now_ms, checksum(write.state, *name), write.state),
    )
    connection.execute(
        """DELETE FROM pins WHERE task = ?1 AND note = ?2 AND id <= (
            SELECT id FROM pins WHERE task = ?1 AND note = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)""",
        (write.task, write.note, BASE_PINS_PER_NOTE_MAX),
    )


def load_base(connection: SqlConnection, task: str, note: str, sha256: str) -> bytes | None:
    """Return a pinned state, or None if it is not there or damaged."""
    name = (task, note, sha256)
    rows = connection.execute("SELECT state, checksum FROM pins WHERE task = ? AND note = ? AND sha256 = ?", name)
    for state, stored in rows:
        if isinstance(state, bytes) and checksum(state, *name) == stored:
            return state
    return None
