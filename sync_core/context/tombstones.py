"""Tombstones of deleted tasks: one small row each, which outlives all else that the file held of the task."""

import msgspec

from sync_core.context.rows import SqlConnection, SqlRow, SqlValue, checksum
from sync_core.replica.writes import Tombstone

__all__ = ["put_tombstone", "tombstones"]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[bytes, ...])


def put_tombstone(connection: SqlConnection, tombstone: Tombstone) -> None:
    """Put a row in place of the one that stands for the task."""
    values: tuple[SqlValue, ...] = (
        tombstone.task,
        tombstone.version,
        tombstone.reason,
        _encoder.encode(tombstone.epochs),
        tombstone.set_aside,
        int(tombstone.told),
        tombstone.relay_time_ms,
    )
    connection.execute(
        "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*values, checksum(b"", *values))
    )


def tombstones(connection: SqlConnection) -> tuple[Tombstone, ...]:
    """Return every intact row, in key order."""
    rows = connection.execute("SELECT * FROM tombstones ORDER BY task")
    return tuple(found for row in rows if (found := _tombstone(row)) is not None)


def _tombstone(row: SqlRow) -> Tombstone | None:
    *values, stored = row
    if checksum(b"", *values) != stored:
        return None
    task, version, reason, epochs, set_aside, told, relay_time_ms = values
    assert isinstance(epochs, bytes)
    return msgspec.convert(
        {
            "task": task,
            "version": version,
            "reason": reason,
            "epochs": _decoder.decode(epochs),
            "set_aside": set_aside,
            "told": bool(told),
            "relay_time_ms": relay_time_ms,
        },
        Tombstone,
    )
