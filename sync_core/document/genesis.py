"""The genesis update: the first two structs of every document, equal bytes on every device.

Two honest creations of one map key overwrite each other, so nobody creates `meta`: its bytes follow from subject and
key alone, under a reserved writer id, and every document starts from them. It is no entry of the log.
"""

import hashlib

from sync_core.ids import GENESIS_WRITER
from sync_core.values import canonical

__all__ = ["SCHEMA_VERSION", "document_id", "genesis_update"]

SCHEMA_VERSION = "1"
_MAP_STRING = b"\x28\x01"
_ANY_STRING = b"\x01\x77"


def document_id(subject: str, task: str) -> str:
    """Return the document's id: 64 hex digits that follow from subject and task key."""
    return hashlib.sha256(canonical([subject, task]).encode()).hexdigest()


def genesis_update(subject: str, task: str) -> bytes:
    """Return the genesis as a Yjs update: `meta.document` and `meta.schema`, clocks 0 and 1 of the reserved writer."""
    fields = (("document", document_id(subject, task)), ("schema", SCHEMA_VERSION))
    structs = b"".join(_MAP_STRING + _text("meta") + _text(key) + _ANY_STRING + _text(value) for key, value in fields)
    return bytes((1, len(fields), GENESIS_WRITER, 0)) + structs + b"\x00"


def _text(text: str) -> bytes:
    """Every text here is shorter than 128 bytes, so its length is one byte."""
    return bytes((len(text),)) + text.encode()
