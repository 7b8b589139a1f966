"""Yjs v1 updates by hand, and the marker by which a receiver finds an update again: no CRDT library is measured with.

Every value carries a marker: a magic word, then 28 hex digits of sender, send time and number, all of them letters that
JSON, a Yjs string and MessagePack leave as they are. So it survives batching and merging at the server, and a receiver
finds it with one regular expression in whatever arrived.
"""

import re
import struct
from collections.abc import Iterator

__all__ = ["MARK", "MapWriter", "marked", "marks_of", "numbers_in", "read_varuint", "varbytes", "varuint"]

MAGIC = "mRk"
MARK = re.compile(MAGIC.encode() + rb"([0-9a-f]{28})")
_MARKER = struct.Struct("<HdI")


def marked(sender: int, t: float, seq: int) -> str:
    """Return a value that names its sender (16 bits), the second at which it was due, and its number (32 bits)."""
    return MAGIC + _MARKER.pack(sender, t, seq).hex()


def marks_of(found: list[bytes]) -> Iterator[tuple[int, float, int]]:
    """Return (sender, second at which it was due, number) of each of what `MARK` found."""
    return _MARKER.iter_unpack(bytes.fromhex(b"".join(found).decode()))


def numbers_in(data: bytes) -> set[int]:
    """Return the numbers of all markers in these bytes."""
    return {_MARKER.unpack(bytes.fromhex(mark.decode()))[2] for mark in MARK.findall(data)}


def varuint(value: int) -> bytes:
    """Return an unsigned integer in the variable-length form of the format."""
    out = bytearray()
    while value > 127:
        out.append(0x80 | (value & 127))
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varuint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer at a place, and the place behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def varbytes(data: bytes) -> bytes:
    """Return bytes behind their length."""
    return varuint(len(data)) + data


class MapWriter:
    """One Yjs client id that sets keys of the root map `slots`, as `Map.set` does."""

    def __init__(self, client: int) -> None:
        self.id = varuint(client)
        self.clock = 0
        self._last: dict[str, int] = {}

    def set(self, key: str, value: str) -> bytes:
        """Return the update that sets one key."""
        return self.set_many([(key, value)])

    def set_many(self, items: list[tuple[str, str]]) -> bytes:
        """Return one update that sets several distinct keys; what they held before is deleted with it."""
        start = self.clock
        structs = bytearray()
        deleted: list[int] = []
        for key, value in items:
            before = self._last.get(key)
            # One JSON string: content kind 8 with one value, which is a string (119).
            content = b"\x01\x77" + varbytes(value.encode())
            if before is None:
                structs += b"\x28\x01" + varbytes(b"slots") + varbytes(key.encode()) + content
            else:
                structs += b"\xa8" + self.id + varuint(before) + content
                deleted.append(before)
            self._last[key] = self.clock
            self.clock += 1
        ranges = b"".join(varuint(clock) + b"\x01" for clock in sorted(deleted))
        gone = b"\x01" + self.id + varuint(len(deleted)) + ranges if deleted else b"\x00"
        return b"\x01" + varuint(len(items)) + self.id + varuint(start) + bytes(structs) + gone

    def state_vector(self) -> bytes:
        """Return the state vector of a reader that has all of this writer."""
        return b"\x01" + self.id + varuint(self.clock)
