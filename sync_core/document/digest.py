"""The digest of one stream: a canonical hash of its content and writer table, equal on any two devices that hold it."""

import hashlib
from collections.abc import Iterable

import msgspec

from sync_core.entry import WriterRow

__all__ = ["digest_of"]

_encoder = msgspec.msgpack.Encoder()


def digest_of(stream: str, content: object, writers: Iterable[WriterRow]) -> bytes:
    """Return the SHA-256 of a stream's content, which is sorted already, and its writer rows, sorted by id here."""
    rows = sorted(writers, key=lambda row: row.writer)
    return hashlib.sha256(_encoder.encode((stream, content, rows))).digest()
