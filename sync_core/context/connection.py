"""One connection to the file: how it is opened, what is set on it, and how large the files may grow (rule G)."""

import sqlite3
from functools import partial
from pathlib import Path

from sync_core.context.migrations import identify, migrate, record_device

__all__ = ["PRAGMAS", "connect"]

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)
"""Set at every open. `fullfsync` matters on macOS only, where a plain fsync does not reach the disk."""

_LOG_BYTES_MAX = 8 * 1024 * 1024
_BUSY_TIMEOUT_S = 0.5


def connect(
    path: Path, subject: str, store_bytes_max: int | None = None, device: str | None = None
) -> sqlite3.Connection:
    """Open a claimed file, set it up and bring its schema up to date; `store_bytes_max` in bytes.

    Raises `StoreUnusable`, with the file untouched, if it is not this subject's (and device's) store of a known
    version, and sqlite3's errors for what the disk does.
    """
    # Made on one thread, then used on aiosqlite's alone.
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        # Damaged text must reach the checksum instead of failing the whole query.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        if identify(connection, subject, device):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for pragma in PRAGMAS:
            connection.execute(pragma)
        _bound(connection, store_bytes_max)
        migrate(connection, subject)
        if device is not None:
            record_device(connection, device)
    except BaseException:
        connection.close()
        raise
    return connection


def _bound(connection: sqlite3.Connection, store_bytes_max: int | None) -> None:
    """Bound the log, and with `store_bytes_max` the database, so that both together stay below it."""
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    log_bytes = _LOG_BYTES_MAX if store_bytes_max is None else min(_LOG_BYTES_MAX, store_bytes_max // 4)
    connection.execute(f"PRAGMA wal_autocheckpoint = {max(1, log_bytes // (2 * page_bytes))}")
    connection.execute(f"PRAGMA journal_size_limit = {log_bytes}")
    if store_bytes_max is not None:
        connection.execute(f"PRAGMA max_page_count = {max(1, (store_bytes_max - log_bytes) // page_bytes)}")
