"""Read tokens as text: which writes of a slot the caller has seen, short enough to be pasted.

A token is the slot's live write ids, sorted, packed and written in base32 (letters and digits only), with a check in
front, so that a token that was cut short is refused instead of being taken for another set.
"""

import base64
import binascii
import hashlib

from clients.config import WrongUsage

__all__ = ["decode_token", "encode_token"]

_ID_BYTES = 8
_CHECK_BYTES = 1


def encode_token(write_ids: frozenset[str]) -> str:
    """Return the token of a set of write ids, each of 16 hex digits."""
    packed = b"".join(bytes.fromhex(write_id) for write_id in sorted(write_ids))
    return base64.b32encode(_check(packed) + packed).decode().rstrip("=").lower()


def decode_token(text: str) -> frozenset[str]:
    """Return the write ids of a token; raises `WrongUsage` for text that is none."""
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8), casefold=True)
    except (binascii.Error, ValueError):
        raise _no_token() from None
    packed = data[_CHECK_BYTES:]
    write_ids = frozenset(packed[start : start + _ID_BYTES].hex() for start in range(0, len(packed), _ID_BYTES))
    if len(packed) % _ID_BYTES or encode_token(write_ids) != text.lower():
        raise _no_token()
    return write_ids


def _check(packed: bytes) -> bytes:
    return hashlib.sha256(packed).digest()[:_CHECK_BYTES]


def _no_token() -> WrongUsage:
    return WrongUsage("This is not a read token.", hint="Copy the whole token that `segue slot list` shows.")
