"""The wire's whole vocabulary as two unions, and how a message of frames is encoded.

A websocket message is one MessagePack array of frames, at most `FRAME_BYTES_MAX` bytes; each frame is an array that
starts with its tag. A loop turn's frames for one connection travel in one message.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from sync_core.errors import ProtocolError
from sync_core.frames import (
    BlobAbsent,
    BlobMissing,
    BlobPiece,
    BlobStored,
    BlobWanted,
    DigestAt,
    Entries,
    Heads,
    Hello,
    Listing,
    ListTasks,
    Login,
    Purge,
    Push,
    Receipt,
    Refusal,
    Refused,
    SnapshotConfirmed,
    SnapshotOffer,
    SnapshotWanted,
    Unfollow,
    Welcome,
)
from sync_core.limits import FRAME_BYTES_MAX
from sync_core.petitions import AuthorityFrame, Petition

__all__ = [
    "ClientFrame",
    "Frame",
    "RelayFrame",
    "decode_client",
    "decode_relay",
    "encode",
    "encode_frame",
    "join",
]

_BlobFrame = BlobPiece | BlobWanted | BlobAbsent
_SnapshotFrame = SnapshotOffer | SnapshotConfirmed
ClientFrame = Login | Hello | Unfollow | Push | _BlobFrame | ListTasks | DigestAt | _SnapshotFrame | Petition | Purge
_LogFrame = Heads | Entries | Receipt | Refusal
_BlobAnswer = BlobPiece | BlobStored | BlobMissing
RelayFrame = Welcome | Refused | _LogFrame | _BlobAnswer | Listing | DigestAt | SnapshotWanted | AuthorityFrame
Frame = ClientFrame | RelayFrame

_encoder = msgspec.msgpack.Encoder()
_client_decoder: msgspec.msgpack.Decoder[list[ClientFrame]] = msgspec.msgpack.Decoder(list[ClientFrame])
_relay_decoder: msgspec.msgpack.Decoder[list[RelayFrame]] = msgspec.msgpack.Decoder(list[RelayFrame])


def encode_frame(frame: Frame) -> bytes:
    """Return one frame's bytes, to be joined into a message with others; built once for all its readers."""
    return _encoder.encode(frame)


def join(frames: list[bytes]) -> bytes:
    """Return the message of already encoded frames."""
    count = len(frames)
    if count < 16:
        return bytes((0x90 | count,)) + b"".join(frames)
    marker, size = (b"\xdc", 2) if count < 2**16 else (b"\xdd", 4)
    return marker + count.to_bytes(size, "big") + b"".join(frames)


def encode(frames: Iterable[Frame]) -> bytes:
    """Return the message of these frames; the caller keeps it within `FRAME_BYTES_MAX`."""
    return join([encode_frame(frame) for frame in frames])


def decode_client(message: bytes | str) -> list[ClientFrame]:
    """Return the frames that an endpoint sent; raises `ProtocolError` for text, size, or anything malformed."""
    return _decode(_client_decoder, message)


def decode_relay(message: bytes | str) -> list[RelayFrame]:
    """Return the frames that a relay sent; raises `ProtocolError` for text, size, or anything malformed."""
    return _decode(_relay_decoder, message)


T = TypeVar("T")


def _decode(decoder: msgspec.msgpack.Decoder[list[T]], message: bytes | str) -> list[T]:
    if isinstance(message, str):
        raise ProtocolError("A text message came where binary was expected.")
    if len(message) > FRAME_BYTES_MAX:
        raise ProtocolError(f"A message exceeds {FRAME_BYTES_MAX} bytes.")
    try:
        return decoder.decode(message)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise ProtocolError("A message is malformed.") from None
