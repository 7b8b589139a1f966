"""What a mailbox does to a file that was restored: nothing in it may pass for the last word any more (rule J)."""

import sqlite3

from server_relay.key_records import EPOCH_BYTES, later_era, lost_guard
from server_relay.mailbox.key_rows import guard_of, put_guard
from server_relay.mailbox.schema import transaction
from sync_core.ids import Entropy

__all__ = ["mark_restored"]

_KNOW_SUBJECTS = "INSERT OR IGNORE INTO subjects SELECT DISTINCT subject, 1, 0, 0 FROM tasks"
_RAISE_SUBJECT = "UPDATE subjects SET era = ?1, barrier = ?1, opened = 0 WHERE subject = ?2"


def mark_restored(connection: sqlite3.Connection, entropy: Entropy, now_ms: int) -> None:
    """Give every stream a new epoch, count every task as lost, raise every subject's barrier: all or nothing."""
    with transaction(connection):
        past: dict[int, list[bytes]] = {}
        for stream, epoch in connection.execute("SELECT id, epoch FROM streams ORDER BY id").fetchall():
            past.setdefault(stream >> 2, []).append(epoch)
            connection.execute(
                "UPDATE streams SET epoch = ?, tail_from = 1, usable = NULL, offered = NULL WHERE id = ?",
                (entropy(EPOCH_BYTES), stream),
            )
        for task, *columns in connection.execute("SELECT id, opened_version, lost, lists FROM tasks").fetchall():
            put_guard(connection, task, lost_guard(guard_of(*columns), past.get(task, ())))
        connection.execute(_KNOW_SUBJECTS)
        for subject, era in connection.execute("SELECT subject, era FROM subjects").fetchall():
            connection.execute(_RAISE_SUBJECT, (later_era(era, now_ms), subject))
