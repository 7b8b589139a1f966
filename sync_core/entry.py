"""The Entry: the one record that travels from disk to disk, and what its payload holds for each kind.

The row on the phone's disk, the frame on the wire, the row in the relay and the row on the desktop are this struct.
Payloads of kind `update` are Yjs v1 updates; every other payload is one of the structs below as MessagePack.
"""

import hashlib
from enum import StrEnum

import msgspec

from sync_core.errors import EntryRefused
from sync_core.rulings import Approval, ApprovalRequest, Ruling

__all__ = [
    "CHAIN_BYTES",
    "CHAIN_START",
    "BytesRefused",
    "CallIntent",
    "CallOutcome",
    "CallRecord",
    "Completion",
    "Effect",
    "Entry",
    "EntryKind",
    "HandOver",
    "HistoryItem",
    "HistoryPop",
    "HistoryRecord",
    "Plan",
    "PlanRecord",
    "Record",
    "Snapshot",
    "VersionDecision",
    "WriterRow",
    "chain_next",
    "decode_record",
    "decode_snapshot",
    "encode_record",
    "entry_hash",
    "stored_form",
]

CHAIN_BYTES = 16
CHAIN_START = bytes(CHAIN_BYTES)
"""The chain before the first entry of a log."""


class BytesRefused(EntryRefused):
    """The guard refuses an entry for its bytes alone: they are so in any stream and at any time."""


class EntryKind(StrEnum):
    """What an entry's payload is."""

    UPDATE = "update"
    CALL = "call"
    PLAN = "plan"
    VERSION = "version"
    COMPLETION = "completion"
    HISTORY = "history"
    HANDOVER = "handover"
    APPROVAL = "approval"
    RULING = "ruling"
    SNAPSHOT = "snapshot"


class Effect(StrEnum):
    """The class of change that a tool makes; a tool that says nothing is IRREVERSIBLE."""

    READ = "READ"
    IDEMPOTENT = "IDEMPOTENT"
    IRREVERSIBLE = "IRREVERSIBLE"


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One record of a stream.

    `writer_seq` counts from 1 without a gap per (stream, writer). `relay_seq` is the place in the stream's one order,
    None until the relay has stored it. `device` wrote it; `at_ms` is that device's clock, for display only. `blob` is
    the SHA-256 (hex) of the one blob that the payload names, if any. `vouched_by` is the device that brought a
    recovered entry back (rule J); it and `relay_seq` are no part of the content.
    """

    stream: str
    writer: int
    writer_seq: int
    kind: EntryKind
    payload: bytes
    device: str
    at_ms: int = 0
    blob: str | None = None
    relay_seq: int | None = None
    vouched_by: str | None = None


_packer = msgspec.msgpack.Encoder()
_STORED_FIELDS = bytes((0x90 | len(Entry.__struct_fields__),))
"""The head of a MessagePack array of all fields of an entry."""


def entry_hash(entry: Entry) -> bytes:
    """Return the SHA-256 of an entry's content: everything but `relay_seq` and `vouched_by`."""
    return hashlib.sha256(_content(entry)).digest()


def stored_form(entry: Entry, relay_seq: int, vouched_by: str | None) -> tuple[bytes, bytes]:
    """Return an entry's hash and, encoded, the entry at its place: its content, which is hashed, and what the relay
    adds to it."""
    content = _content(entry)
    wire = _STORED_FIELDS + content[1:] + _packer.encode(relay_seq) + _packer.encode(vouched_by)
    return hashlib.sha256(content).digest(), wire


def _content(entry: Entry) -> bytes:
    return _packer.encode(
        (
            entry.stream,
            entry.writer,
            entry.writer_seq,
            entry.kind,
            entry.payload,
            entry.device,
            entry.at_ms,
            entry.blob,
        )
    )


def chain_next(chain: bytes, content_hash: bytes) -> bytes:
    """Return the chain after an entry: the first 16 bytes of SHA-256(previous chain ‖ entry's hash) (rule J)."""
    return hashlib.sha256(chain + content_hash).digest()[:CHAIN_BYTES]


class CallIntent(msgspec.Struct, frozen=True, tag="intent", omit_defaults=True):
    """A call was about to start: durable before the tool runs.

    `attempt` is a fresh id per execution; `n` is 1 + the highest seen in the task's calls (Lamport), which orders
    attempts everywhere alike. `arguments` is canonical JSON, or None if it was too large to keep.
    """

    step: str
    version: int
    tool: str
    effect: Effect
    arguments_digest: str
    attempt: str
    n: int
    arguments: str | None = None


class CallOutcome(msgspec.Struct, frozen=True, tag="outcome", omit_defaults=True):
    """How an attempt ended. `result` is canonical JSON; None with `ok` means it is in the entry's blob, or lost.

    `lost` says that the tool finished but its result could not be recorded. `unsure` says that a tool which cannot be
    undone raised, so that nobody knows whether it happened; without it such a failure says that it did not. `token` is
    the fencing token of a guarded call, 0 for any other, and `label` what the outside system calls what the call made.
    """

    step: str
    version: int
    attempt: str
    ok: bool
    result: str | None = None
    error: str | None = None
    lost: bool = False
    unsure: bool = False
    token: int = 0
    label: str = ""


class Plan(msgspec.Struct, frozen=True, tag="plan", omit_defaults=True):
    """A wanted call that waits for a capable device. `arguments` is canonical JSON of an object."""

    step: str
    version: int
    tool: str
    arguments: str
    n: int
    requires: tuple[str, ...] = ()


class VersionDecision(msgspec.Struct, frozen=True, tag="version", omit_defaults=True):
    """A business version and who decided it; the highest stands.

    `epoch` is that of the task's `state` log as the deciding device knew it, empty for a task that it never read from
    a relay: in another epoch the decision opens no key.
    """

    version: int
    decided_by: str
    epoch: bytes = b""


class Completion(msgspec.Struct, frozen=True, tag="completion", omit_defaults=True):
    """The task is finished; of one business version the first in relay order stands.

    `read` says how far each writer of every other device had been read: (stream name, writer, writer_seq).
    """

    version: int
    completed_by: str
    read: tuple[tuple[str, int, int], ...] = ()


class HandOver(msgspec.Struct, frozen=True, tag="handover", omit_defaults=True):
    """The closing text of a business version; of several the first in relay order stands."""

    version: int
    text: str


class HistoryItem(msgspec.Struct, frozen=True, tag="item", omit_defaults=True):
    """One message of the conversation. Order: runs by (n, run), then index; `answers` puts an output after its call.

    `message` is canonical JSON of the message; None means it is in the entry's blob.
    """

    item: str
    run: str
    n: int
    index: int
    message: str | None = None
    answers: str | None = None


class HistoryPop(msgspec.Struct, frozen=True, tag="pop", omit_defaults=True):
    """Removes one item; two pops of one item remove one. `also`: outputs of the same step that it hid."""

    item: str
    also: tuple[str, ...] = ()


CallRecord = CallIntent | CallOutcome
PlanRecord = Plan | ApprovalRequest
HistoryRecord = HistoryItem | HistoryPop
_StateRecord = CallRecord | PlanRecord | VersionDecision | Completion
Record = _StateRecord | HistoryRecord | HandOver | Approval | Ruling


class WriterRow(msgspec.Struct, frozen=True, array_like=True):
    """What a stream knows of a writer (rule D): its device, next clock of the document, next number, open or closed."""

    writer: int
    device: str
    next_clock: int = 0
    next_seq: int = 1
    closed: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """One stream's content at exactly `covers_seq` (rule F).

    `document` is the merged Yjs update (empty for a stream without a document), `records` are all entries of other
    kinds in relay order, `writers` is the whole writer table sorted by id, `digest` is the digest at that place.
    """

    stream: str
    epoch: bytes
    covers_seq: int
    chain: bytes
    document: bytes
    records: tuple[Entry, ...]
    writers: tuple[WriterRow, ...]
    digest: bytes


_RECORDS_OF_KIND: dict[EntryKind, msgspec.msgpack.Decoder[Record]] = {
    EntryKind.CALL: msgspec.msgpack.Decoder(CallRecord),
    EntryKind.PLAN: msgspec.msgpack.Decoder(PlanRecord),
    EntryKind.VERSION: msgspec.msgpack.Decoder(VersionDecision),
    EntryKind.COMPLETION: msgspec.msgpack.Decoder(Completion),
    EntryKind.HISTORY: msgspec.msgpack.Decoder(HistoryRecord),
    EntryKind.HANDOVER: msgspec.msgpack.Decoder(HandOver),
    EntryKind.APPROVAL: msgspec.msgpack.Decoder(Approval),
    EntryKind.RULING: msgspec.msgpack.Decoder(Ruling),
}
_snapshot_decoder = msgspec.msgpack.Decoder(Snapshot)


def encode_record(record: Record | Snapshot) -> bytes:
    """Return the payload of a record."""
    return _packer.encode(record)


def decode_record(kind: EntryKind, payload: bytes) -> Record:
    """Return the record of a payload; raises `BytesRefused` if it is not one of that kind."""
    decoder = _RECORDS_OF_KIND.get(kind)
    if decoder is None:
        raise BytesRefused("This kind of entry holds no record.")
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise BytesRefused("The payload is not a record of its kind.") from None


def decode_snapshot(payload: bytes) -> Snapshot:
    """Return the snapshot of a payload; raises `BytesRefused` if it is none. Check its size before."""
    try:
        return _snapshot_decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise BytesRefused("The payload is not a snapshot.") from None
