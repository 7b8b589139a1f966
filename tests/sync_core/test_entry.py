"""The Entry: what its hash covers, how the chain runs, and that garbage is no record."""

import hashlib
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_core.entry import (
    CHAIN_BYTES,
    CHAIN_START,
    CallIntent,
    CallOutcome,
    Completion,
    Effect,
    Entry,
    EntryKind,
    HistoryItem,
    HistoryPop,
    Plan,
    Record,
    Snapshot,
    VersionDecision,
    WriterRow,
    chain_next,
    decode_record,
    decode_snapshot,
    encode_record,
    entry_hash,
)
from sync_core.errors import EntryRefused

ENTRY = Entry("expense/TRIP-118:state", 2**52 + 1, 3, EntryKind.UPDATE, b"\x00\x00", "phone", 17, "0" * 64)

RECORDS: list[tuple[EntryKind, Record]] = [
    (EntryKind.CALL, CallIntent("invoice", 1, "read_invoice", Effect.READ, "d" * 64, "a" * 16, 4, '{"path":"é"}')),
    (EntryKind.CALL, CallIntent("pay", 2, "bank", Effect.IRREVERSIBLE, "d", "a", 1)),
    (EntryKind.CALL, CallOutcome("invoice", 1, "a" * 16, True, result="[1.10E0]")),
    (EntryKind.CALL, CallOutcome("invoice", 1, "a" * 16, False, error="ValueError")),
    (EntryKind.CALL, CallOutcome("invoice", 1, "a" * 16, True, lost=True)),
    (EntryKind.PLAN, Plan("scan", 1, "read_invoice", "{}", 2, ("files", "camera"))),
    (EntryKind.VERSION, VersionDecision(2, "anna")),
    (EntryKind.COMPLETION, Completion(2, "anna")),
    (EntryKind.HISTORY, HistoryItem("i" * 16, "r" * 16, 3, 0, '{"role":"user"}')),
    (EntryKind.HISTORY, HistoryItem("i" * 16, "r" * 16, 3, 1, None, "i/0")),
    (EntryKind.HISTORY, HistoryPop("i" * 16)),
]


def test_the_hash_covers_all_content_and_neither_place_nor_voucher() -> None:
    changes = {
        "stream": "expense/TRIP-118:history",
        "writer": 2**52 + 2,
        "writer_seq": 4,
        "kind": EntryKind.PLAN,
        "payload": b"\x00\x01",
        "device": "desktop",
        "at_ms": 18,
        "blob": "1" * 64,
    }
    hashes = {entry_hash(msgspec.structs.replace(ENTRY, **{field: value})) for field, value in changes.items()}
    assert len(hashes | {entry_hash(ENTRY)}) == len(changes) + 1
    assert set(changes) | {"relay_seq", "vouched_by"} == set(ENTRY.__struct_fields__)
    assert entry_hash(msgspec.structs.replace(ENTRY, relay_seq=9, vouched_by="desktop")) == entry_hash(ENTRY)


def test_the_hash_is_the_same_in_every_version_of_segue() -> None:
    assert entry_hash(ENTRY).hex() == "c0fdef35137755fee8a89929f8ab7cd9c2faa3467c6143c9e9ac8950a5410c66"


def test_the_chain_is_the_first_16_bytes_of_the_sha256_of_what_was_and_what_comes() -> None:
    content = entry_hash(ENTRY)
    first = chain_next(CHAIN_START, content)
    assert first == hashlib.sha256(bytes(16) + content).digest()[:16]
    assert len(first) == len(CHAIN_START) == CHAIN_BYTES == 16


def test_the_chain_tells_order_from_order() -> None:
    hashes = [entry_hash(msgspec.structs.replace(ENTRY, writer_seq=seq)) for seq in (1, 2)]
    there, back = CHAIN_START, CHAIN_START
    for one, other in zip(hashes, reversed(hashes), strict=True):
        there, back = chain_next(there, one), chain_next(back, other)
    assert there != back


@pytest.mark.parametrize(("kind", "record"), RECORDS, ids=lambda part: type(part).__name__)
def test_a_record_comes_back_from_its_payload(kind: EntryKind, record: Record) -> None:
    assert decode_record(kind, encode_record(record)) == record


@pytest.mark.parametrize(("kind", "record"), RECORDS, ids=lambda part: type(part).__name__)
def test_a_record_is_of_its_own_kind_only(kind: EntryKind, record: Record) -> None:
    payload = encode_record(record)
    for other in EntryKind:
        if other is not kind:
            with pytest.raises(EntryRefused):
                decode_record(other, payload)


@given(st.sampled_from(EntryKind), st.binary(max_size=200))
def test_garbage_is_refused_and_raises_nothing_else(kind: EntryKind, payload: bytes) -> None:
    with pytest.raises(EntryRefused):
        decode_record(kind, payload)
    with pytest.raises(EntryRefused):
        decode_snapshot(payload)


def test_deep_and_cut_payloads_are_refused() -> None:
    rng = random.Random(24)
    for kind, record in RECORDS:
        whole = encode_record(record)
        for payload in (whole[:-1], whole[: rng.randrange(len(whole))], whole + b"\x00", b"\x91" * 100_000):
            with pytest.raises(EntryRefused):
                decode_record(kind, payload)


def test_a_field_of_another_type_is_refused_without_showing_it() -> None:
    secret = "CC-1042"
    payload = msgspec.msgpack.encode({"type": "version", "version": secret, "decided_by": "anna"})
    with pytest.raises(EntryRefused) as refused:
        decode_record(EntryKind.VERSION, payload)
    assert secret not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_snapshot_comes_back_from_its_payload() -> None:
    rows = (WriterRow(5, "phone", 7, 3), WriterRow(6, "desktop", 0, 1, True))
    snapshot = Snapshot("a:state", bytes(8), 9, CHAIN_START, b"\x00\x00", (ENTRY,), rows, bytes(32))
    assert decode_snapshot(encode_record(snapshot)) == snapshot
