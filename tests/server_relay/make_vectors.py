"""Makes `vectors.json`, to test an endpoint in another language: `python -m tests.server_relay.make_vectors`.

Bytes are written as {"hex": …}. Whoever changes the wire runs this again, and sees in the difference what changed for
every other implementation.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import jwt
import msgspec

from server_relay.admission import Role
from server_relay.server import GOING_AWAY
from server_relay.sessions import CLOSE_POLICY, CLOSE_TRY_LATER
from server_relay.tokens import make_token
from sync_core import entry as entries
from sync_core import frames as f
from sync_core import limits
from sync_core import petitions as p
from sync_core.entry import CHAIN_START, Entry, EntryKind, Record, chain_next, encode_record, entry_hash
from sync_core.errors import EntryRefused, ValueRefused
from sync_core.guard import check_entry
from sync_core.ids import StreamName, check_task
from sync_core.keys import entity_key, idempotency_key
from sync_core.rulings import Approval, ApprovalRequest
from sync_core.values import canonical, digest_text
from sync_core.wire import Frame, encode
from tests.sync_core.updates import section, slot, update

__all__ = ["FILE", "text_of", "vectors"]

FILE = Path(__file__).with_name("vectors.json")

TASK, STREAM, WRITER = "expense/TRIP-118", "expense/TRIP-118:history", 4_503_599_627_370_497
EPOCH, DIGEST, CHAIN, SHA = bytes(range(8)), bytes(range(32)), bytes(range(16)), "ab" * 32
SECRET = "the secret of the test vectors, 32 bytes and more"
EXPIRES_S = 4_102_444_800

ITEM = entries.HistoryItem("item", "run", 1, 0, message='{"content":"hello","role":"user"}')
ENTRY = Entry(STREAM, WRITER, 1, EntryKind.HISTORY, encode_record(ITEM), "phone", 1_790_000_000_000)
STORED = msgspec.structs.replace(ENTRY, relay_seq=1)

TO_RELAY: tuple[Frame, ...] = (
    f.Login(f.WIRE_VERSION, "acme", "phone", "a token"),
    f.Hello(TASK, (), False, 1),
    f.Hello(TASK, (f.StreamPosition(StreamName.STATE, EPOCH, 7, CHAIN, ((WRITER, 3),)),), True, 2),
    f.Unfollow(TASK),
    f.Push(TASK, (ENTRY,)),
    f.Push(TASK, (msgspec.structs.replace(ENTRY, relay_seq=5),), True),
    f.BlobPiece(TASK, SHA, 0, 4, b"blob"),
    f.BlobWanted(TASK, SHA, 131_072),
    f.BlobAbsent(TASK, SHA),
    f.ListTasks(1, "expense/", "expense/TRIP-117"),
    f.DigestAt(STREAM, EPOCH, 7, DIGEST),
    f.SnapshotOffer(STREAM, EPOCH, 7, DIGEST, SHA, ""),
    f.SnapshotConfirmed(STREAM, EPOCH, SHA, DIGEST),
    f.Purge(TASK, 2, (EPOCH,)),
    p.Claim(TASK, 1, 1, "pay", "pay_invoice", SHA, "attempt", '"TRIP-118"', (("book", '"HATHAT"'),), True, True),
    p.SettleDoubt(TASK, 2, 1, "pay", "pay_invoice", True, result='{"paid":true}', label="P-1"),
    p.HoldSlot(TASK, 3, "amount", '"291.84"'),
    p.LiftBarrier(TASK, 4),
)
TO_ENDPOINT: tuple[Frame, ...] = (
    f.Welcome(f.WIRE_VERSION, 1_790_000_000_000, "write", "anna", True, 3_600_000),
    f.Refused("credentials", "The token has expired.", "Connect again with a fresh token.", False),
    f.Heads(TASK, False, (), 1_790_000_000_000, 1),
    f.Heads(
        TASK,
        True,
        (f.StreamHead(StreamName.STATE, EPOCH, 9, 3, f.SnapshotRef(7, SHA, DIGEST, "phone", True)),),
        1_790_000_000_000,
        2,
    ),
    f.Entries(STREAM, EPOCH, (STORED,)),
    f.Receipt(STREAM, EPOCH, WRITER, 1, 3, 8, chain=CHAIN),
    f.Receipt(STREAM, EPOCH, WRITER, 1, 3, 8, True),
    f.Refusal(STREAM, WRITER, 4, f.RefusalCode.GAP, "An earlier entry of this writer is missing.", 2),
    f.BlobPiece(TASK, SHA, 0, 4, b"blob"),
    f.BlobStored(TASK, SHA, 4, True),
    f.BlobMissing(TASK, SHA),
    f.Listing(
        1,
        (
            f.TaskListing(
                TASK, 1, (f.PlannedStep("scan", "scan_receipt", ("camera",)),), 2, 0, False, 1_790_000_000_000
            ),
        ),
        False,
    ),
    f.DigestAt(STREAM, EPOCH, 7, DIGEST, "phone"),
    f.SnapshotWanted(STREAM),
    p.ClaimAnswer(TASK, 1, p.ClaimVerdict.GRANTED, SHA, 2**32 + 1),
    p.Ruled(TASK, 2, "role", "This device may not settle a call."),
)

RECORDS: tuple[tuple[EntryKind, StreamName, Record], ...] = (
    (
        EntryKind.CALL,
        StreamName.STATE,
        entries.CallIntent("invoice", 1, "read_invoice", entries.Effect.READ, SHA, "attempt", 1, '{"path":"a.pdf"}'),
    ),
    (EntryKind.CALL, StreamName.STATE, entries.CallOutcome("invoice", 1, "attempt", True, '{"total":"291.84"}')),
    (EntryKind.PLAN, StreamName.STATE, entries.Plan("scan", 1, "scan_receipt", '{"page":1}', 1, ("camera",))),
    (EntryKind.PLAN, StreamName.STATE, ApprovalRequest("pay", 1, "pay_invoice", SHA, 1, '{"amount":"291.84"}')),
    (EntryKind.VERSION, StreamName.STATE, entries.VersionDecision(2, "anna", EPOCH)),
    (EntryKind.COMPLETION, StreamName.STATE, entries.Completion(1, "anna")),
    (EntryKind.HISTORY, StreamName.HISTORY, ITEM),
    (EntryKind.HISTORY, StreamName.HISTORY, entries.HistoryPop("item", ("output",))),
    (EntryKind.HANDOVER, StreamName.HANDOVER, entries.HandOver(1, "All is paid.")),
    (EntryKind.APPROVAL, StreamName.AUTHORITY, Approval("pay", 1, "pay_invoice", SHA, True, "seen")),
)

UPDATES = {
    "a slot is set": (update(section(WRITER, 0, slot())), True),
    "not from the writer's next clock": (update(section(WRITER, 1, slot())), False),
    "under another writer's id": (update(section(WRITER + 1, 0, slot())), False),
    "a deletion of clocks that are not there": (update(deletes=[(WRITER, 0, 5)]), False),
    "bytes behind the end": (update(section(WRITER, 0, slot())) + b"\0", False),
    "nothing at all": (b"", False),
    "an empty update": (bytes(2), True),
}

VALUES: tuple[object, ...] = (
    None, True, 0, -1, 2**63, 1.0, 0.1, 1e300, "", "é\u2028\"\\\n😀", [], {}, {"b": [1, {"a": None}], "a": "x", "ä": 1}
)  # fmt: skip

TASKS = ["expense/TRIP-118", "a", "A_-9/b", "x" * 64, "", "/", "a/", "a//b", "../x", "a.b", "con", "a/NUL", "a b", "é",
         "a:state", "x" * 65, "a\n"]  # fmt: skip


def vectors() -> dict[str, object]:
    """Return everything that the file holds."""
    return {
        "wire_version": f.WIRE_VERSION,
        "close_codes": {
            "going_away": GOING_AWAY,
            "policy": CLOSE_POLICY,
            "try_later": CLOSE_TRY_LATER,
            "too_big": 1009,
        },
        "limits": {name: getattr(limits, name) for name in limits.__all__},
        "to_relay": [_message(frame) for frame in TO_RELAY],
        "to_endpoint": [_message(frame) for frame in TO_ENDPOINT],
        "records": [_record(kind, name, record) for kind, name, record in RECORDS],
        "log": _log(),
        "updates": [_update(name, payload, stored) for name, (payload, stored) in UPDATES.items()],
        "canonical": [{"json": value, "canonical": canonical(value)} for value in VALUES],
        "digests": [{"text": text, "sha256": digest_text(text)} for text in ("", "hello", "é")],
        "keys": _keys(),
        "tasks": [{"task": task, "valid": _valid(task)} for task in TASKS],
        "tokens": {"secret": SECRET, "at_ms": 1_790_000_000_000, "login": ["acme", "phone"], "tokens": _tokens()},
    }


def _message(frame: Frame) -> dict[str, object]:
    message = encode([frame])
    return {"frame": type(frame).__name__, "value": msgspec.msgpack.decode(message)[0], "message": message}


def _record(kind: EntryKind, name: StreamName, record: Record) -> dict[str, object]:
    payload = encode_record(record)
    return {"kind": kind.value, "stream": name.value, "value": msgspec.msgpack.decode(payload), "payload": payload}


def _log() -> list[dict[str, object]]:
    """Three entries of a log: what is hashed of each, and the chain behind it."""
    chain, found = CHAIN_START, []
    for seq in (1, 2, 3):
        item = entries.HistoryItem(f"item{seq}", "run", 1, seq, message=f'"{seq}"')
        entry = Entry(
            STREAM, WRITER, seq, EntryKind.HISTORY, encode_record(item), "phone", blob=SHA if seq == 3 else None
        )
        chain = chain_next(chain, entry_hash(entry))
        found.append(
            {"entry": msgspec.to_builtins(entry, builtin_types=(bytes,)), "hash": entry_hash(entry), "chain": chain}
        )
    return found


def _update(name: str, payload: bytes, stored: bool) -> dict[str, object]:
    entry = Entry(f"{TASK}:state", WRITER, 1, EntryKind.UPDATE, payload, "phone")
    try:
        check_entry(entry, {})
    except EntryRefused:
        assert not stored, name
    else:
        assert stored, name
    return {"what": name, "writer": WRITER, "writer_seq": 1, "payload": payload, "stored": stored}


def _keys() -> list[dict[str, object]]:
    return [
        {"of": "call", "of_what": ["acme", TASK, 1, "pay"], "key": idempotency_key("acme", TASK, 1, "pay")},
        {"of": "entity", "of_what": ["acme", "book", '"HATHAT"', 2], "key": entity_key("acme", "book", '"HATHAT"', 2)},
    ]


def _valid(task: str) -> bool:
    try:
        return check_task(task) == task
    except ValueRefused:
        return False


def _tokens() -> list[dict[str, object]]:
    who = {"principal": "anna", "device": "phone", "subject": "acme", "role": Role.WRITE, "expires_s": EXPIRES_S}
    claims = {"sub": "anna", "device": "phone", "subject": "acme", "role": "write", "exp": EXPIRES_S}
    good = make_token(SECRET, **who)  # type: ignore[arg-type]
    limited = make_token(SECRET, **who, tasks=("expense",), token_id="t-1")  # type: ignore[arg-type]
    return [
        {"what": "all of the subject", "token": good, "admitted": True},
        {"what": "one task and what is below it", "token": limited, "admitted": True},
        {"what": "a claim that is not known", "token": _signed(claims | {"aud": "x"}), "admitted": False},
        {
            "what": "no expiry",
            "token": _signed({"sub": "anna", "device": "phone", "subject": "acme"}),
            "admitted": False,
        },
        {"what": "expired", "token": _signed(claims | {"exp": 1_700_000_000}), "admitted": False},
        {"what": "of another device", "token": _signed(claims | {"device": "desk"}), "admitted": False},
        {"what": "another algorithm", "token": _signed(claims, "HS384"), "admitted": False},
        {
            "what": "another header",
            "token": _signed(claims, headers={"jku": "https://evil.example"}),
            "admitted": False,
        },
        {"what": "a signature that is cut off", "token": good[:-2], "admitted": False},
    ]


def _signed(claims: dict[str, object], algorithm: str = "HS256", headers: dict[str, str] | None = None) -> str:
    return jwt.encode(claims, SECRET, algorithm=algorithm, headers=headers)


def text_of(made: dict[str, object]) -> str:
    """Return the file's text."""
    return json.dumps(_plain(made), indent=1, sort_keys=False) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(member) for member in value]
    return value


if __name__ == "__main__":
    FILE.write_text(text_of(vectors()))
    sys.stdout.write(f"{FILE.name}: {FILE.stat().st_size} bytes\n")
