"""Blobs at the relay: taken in pieces, verified when the last one is there, reachable within their task only.

An upload is resumed where it broke off: every piece is answered with what is held, and a piece that does not start
there is not kept.
"""

import hashlib
import re

from server_relay.effects import HashBlob, RelayRead
from server_relay.records import BlobRow, DropBlob, PutPiece, SetBlobAbsent
from server_relay.sessions import REQUESTS_MAX, Session, Turn
from server_relay.streams import Known, TaskLog
from sync_core.errors import ProtocolError
from sync_core.frames import BlobAbsent, BlobMissing, BlobPiece, BlobStored, BlobWanted
from sync_core.limits import BLOB_BYTES_MAX, BLOB_PIECE_BYTES

__all__ = ["PIECE_BYTES_MIN", "declare_absent", "take_piece", "want_blob"]

PIECE_BYTES_MIN = 4 * 1024
"""A smaller piece would let one blob become millions of rows; the last one may be smaller."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def take_piece(turn: Turn, log: TaskLog, session: Session, piece: BlobPiece, known: Known) -> tuple[RelayRead, ...]:
    """Keep a piece of a blob and say what is held; raises `ProtocolError` for one that cannot be right.

    Returns the read of the whole's hash, if this is the last one and there are others before it.
    """
    _check(piece.sha256)
    if not 0 <= piece.size_bytes <= BLOB_BYTES_MAX or len(piece.data) > BLOB_PIECE_BYTES:
        raise ProtocolError(f"A blob exceeds {BLOB_BYTES_MAX} bytes, or its piece {BLOB_PIECE_BYTES}.")
    if 0 < len(piece.data) < PIECE_BYTES_MIN and piece.offset + len(piece.data) < piece.size_bytes:
        raise ProtocolError(f"A piece that is not the last has at least {PIECE_BYTES_MIN} bytes.")
    row = log.blobs.get(piece.sha256, BlobRow(piece.sha256))
    starts_anew = row.held_bytes == 0 or row.size_bytes == piece.size_bytes
    end = piece.offset + len(piece.data)
    if row.complete or piece.offset != row.held_bytes or not starts_anew or end > piece.size_bytes:
        turn.reply(session, BlobStored(log.task, piece.sha256, row.held_bytes, row.complete))
        return ()
    complete = end == piece.size_bytes
    if complete:
        if row.held_bytes and known.digest is None:
            return (HashBlob(*log.key, piece.sha256, piece.data),)
        if (known.digest or hashlib.sha256(piece.data).hexdigest()) != piece.sha256:
            log.blobs[piece.sha256] = BlobRow(piece.sha256, absent=row.absent)
            turn.writes.append(DropBlob(*log.key, piece.sha256))
            turn.reply(session, BlobStored(log.task, piece.sha256, 0, False))
            return ()
    if piece.data or complete:
        absent = row.absent and not complete
        log.blobs[piece.sha256] = BlobRow(piece.sha256, piece.size_bytes, end, complete, absent)
        turn.writes.append(PutPiece(*log.key, piece.sha256, piece.offset, piece.size_bytes, piece.data, complete))
    turn.reply(session, BlobStored(log.task, piece.sha256, end, complete))
    return ()


def want_blob(turn: Turn, log: TaskLog, session: Session, wanted: BlobWanted) -> None:
    """Put the request for a piece in line, or say that the blob is not here."""
    _check(wanted.sha256)
    row = log.blobs.get(wanted.sha256)
    if row is None or not row.complete or not 0 <= wanted.offset <= row.size_bytes:
        turn.reply(session, BlobMissing(log.task, wanted.sha256, row is not None and row.absent))
        return
    if len(session.requests) >= REQUESTS_MAX:
        raise ProtocolError(f"More than {REQUESTS_MAX} requests wait on one connection.")
    session.requests.append(wanted)
    turn.pump[session.conn] = session


def declare_absent(turn: Turn, log: TaskLog, absent: BlobAbsent) -> None:
    """Remember that a device cannot deliver a blob, so that entries which name it may go on."""
    _check(absent.sha256)
    row = log.blobs.get(absent.sha256, BlobRow(absent.sha256))
    if not row.complete and not row.absent:
        log.blobs[absent.sha256] = BlobRow(row.sha256, row.size_bytes, row.held_bytes, False, True)
        turn.writes.append(SetBlobAbsent(*log.key, absent.sha256))


def _check(sha256: str) -> None:
    if not _SHA256.fullmatch(sha256):
        raise ProtocolError("The name of a blob is no SHA-256 in hex.")
