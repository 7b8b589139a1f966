"""Tasks that come to their end at a relay, and what its mailbox then holds of them."""

import hashlib
from pathlib import Path

from msgspec.structs import replace

from server_relay.config import RelaySettings
from server_relay.effects import LoadTask, TaskLoaded
from server_relay.records import TaskImage
from sync_core.entry import CallOutcome, Completion, Entry, EntryKind, VersionDecision, encode_record
from sync_core.frames import (
    BlobPiece,
)
from sync_core.ids import StreamName
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import history_entry

__all__ = [
    "BLOB",
    "DESKTOP",
    "FRESH",
    "GRACE_S",
    "HISTORY",
    "KEEP_S",
    "PHONE",
    "RESULT",
    "STATE",
    "TASK",
    "TTL_S",
    "called",
    "cleaning",
    "completed",
    "decided",
    "done",
    "epochs",
    "expiring",
    "image",
    "pass_s",
    "said",
    "sha",
]

TASK = "expense/TRIP-118"
STATE, HISTORY = StreamName.STATE, StreamName.HISTORY
PHONE, DESKTOP, FRESH = 700_001, 800_002, 900_003
GRACE_S, TTL_S, KEEP_S = 3_600, 7_200, 86_400
BLOB, RESULT = b"a long message", b"a long result"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def said(seq: int, writer: int = PHONE, device: str = "phone", blob: str | None = None) -> Entry:
    return replace(history_entry(TASK, writer, seq, device), blob=blob)


def decided(seq: int, version: int = 1, writer: int = PHONE, device: str = "phone") -> Entry:
    payload = encode_record(VersionDecision(version, device))
    return Entry(f"{TASK}:state", writer, seq, EntryKind.VERSION, payload, device)


def done(seq: int, read: tuple[tuple[str, int, int], ...] = (), writer: int = PHONE, device: str = "phone") -> Entry:
    payload = encode_record(Completion(1, device, read))
    return Entry(f"{TASK}:state", writer, seq, EntryKind.COMPLETION, payload, device)


def called(seq: int) -> Entry:
    payload = encode_record(CallOutcome("scan", 1, "a1", True))
    return Entry(f"{TASK}:state", PHONE, seq, EntryKind.CALL, payload, "phone", 0, sha(RESULT))


def cleaning() -> Harness:
    """A relay that cleans up after an hour, with a clock that has ticked once."""
    settings = RelaySettings(
        db=Path("unused"), clean_up_grace_s=GRACE_S, tombstone_keep_s=KEEP_S, clock_jump_s_max=3_600
    )
    harness = Harness(settings=settings)
    harness.tick()
    return harness


def expiring() -> Harness:
    harness = Harness(settings=RelaySettings(db=Path("unused"), task_ttl_s=TTL_S, clean_up_grace_s=GRACE_S))
    harness.tick()
    return harness


def image(harness: Harness) -> TaskImage:
    answer = harness.model.read(LoadTask("acme", TASK))
    assert isinstance(answer, TaskLoaded)
    return answer.image


def epochs(harness: Harness) -> dict[StreamName, bytes]:
    return {stream.name: stream.epoch for stream in image(harness).streams}


def pass_s(harness: Harness, seconds: int) -> None:
    """Let time pass, and what is due then happen."""
    harness.tick(seconds * 1000)
    harness.tick(harness.settings.sweep_every_ms)


def completed(harness: Harness) -> Client:
    """A phone that worked, said something with a blob, made a call with one, and completed the task."""
    phone = harness.login("phone")
    phone.hello(TASK)
    for data in (BLOB, RESULT):
        phone.send(BlobPiece(TASK, sha(data), 0, len(data), data))
    phone.push(TASK, decided(1), said(1), said(2, blob=sha(BLOB)), called(2), done(3))
    phone.frames.clear()
    return phone
