"""Recovered entries and snapshots after a lost log (rule J): everything held anywhere comes back, once."""

import hashlib

import pytest
from msgspec.structs import replace

from server_relay.effects import ReadBlob
from server_relay.records import AppendStored, Cover
from sync_core.entry import (
    CallIntent,
    CallOutcome,
    Effect,
    Entry,
    EntryKind,
    Snapshot,
    VersionDecision,
    WriterRow,
    encode_record,
)
from sync_core.frames import BlobPiece, Listing, ListTasks, Receipt, Refusal, RefusalCode
from sync_core.ids import StreamName
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import history_entry
from tests.sync_core.updates import note, section, update

TASK = "expense/TRIP-118"
STATE = f"{TASK}:state"
PHONE, DESKTOP, FRESH = 700_001, 800_002, 900_003


def item(seq: int, writer: int = PHONE, device: str = "phone") -> Entry:
    return history_entry(TASK, writer, seq, device)


def call(seq: int, record: CallIntent | CallOutcome, relay_seq: int | None = None) -> Entry:
    return Entry(STATE, PHONE, seq, EntryKind.CALL, encode_record(record), "phone", 0, None, relay_seq)


INTENT = CallIntent("scan", 1, "read_invoice", Effect.READ, "d" * 64, "a1", 1)
OUTCOME = CallOutcome("scan", 1, "a1", True, result="1")


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def desktop(harness: Harness) -> Client:
    return harness.login("desktop")


def codes(client: Client) -> list[RefusalCode]:
    return [refusal.code for refusal in client.take(Refusal)]


def test_a_device_brings_back_the_work_of_a_killed_one(harness: Harness, desktop: Client) -> None:
    old = [replace(item(seq), relay_seq=seq + 40) for seq in (1, 2)]
    desktop.push(TASK, *old, item(1, DESKTOP, "desktop"), recovered=True)
    assert desktop.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2), (DESKTOP, 1, 3)]
    reader = harness.login("reader")
    reader.hello(TASK)
    assert [(e.device, e.vouched_by, e.relay_seq) for e in reader.entries()] == [
        ("phone", "desktop", 1),
        ("phone", "desktop", 2),
        ("desktop", "desktop", 3),
    ]


def test_what_two_devices_bring_back_is_there_once(harness: Harness, desktop: Client) -> None:
    desktop.push(TASK, item(1), item(2), recovered=True)
    tablet = harness.login("tablet")
    tablet.push(TASK, item(1), item(2), item(3), recovered=True)
    assert tablet.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2), (PHONE, 3, 3)]
    reader = harness.login("reader")
    reader.hello(TASK)
    assert [e.writer_seq for e in reader.entries()] == [1, 2, 3]


def test_other_content_under_a_number_is_not_taken(harness: Harness, desktop: Client) -> None:
    desktop.push(TASK, item(1), recovered=True)
    desktop.push(TASK, history_entry(TASK, PHONE, 1, "phone", '"other"'), recovered=True)
    assert codes(desktop) == [RefusalCode.WRITER_REUSED]


def test_the_owner_goes_on_under_its_writer_and_nobody_else_does(harness: Harness, desktop: Client) -> None:
    desktop.push(TASK, item(1), recovered=True)
    desktop.push(TASK, item(2, PHONE, "desktop"), recovered=True)
    assert codes(desktop) == [RefusalCode.GUARD]
    phone = harness.login("phone")
    phone.push(TASK, item(2))
    assert phone.receipts() == [(PHONE, 2, 2)]


def test_recovered_entries_pass_the_guard_too(desktop: Client) -> None:
    bad = Entry(STATE, PHONE, 1, EntryKind.UPDATE, update(section(DESKTOP, 0, note("x"))), "phone")
    desktop.push(TASK, bad, item(2), recovered=True)
    assert codes(desktop) == [RefusalCode.GUARD, RefusalCode.GAP]


def test_a_recovered_entry_goes_on_without_its_blob(desktop: Client) -> None:
    desktop.push(TASK, replace(item(1), blob="a" * 64), recovered=True)
    assert desktop.receipts() == [(PHONE, 1, 1)]


# --- snapshots --------------------------------------------------------------------------------------------------------


def snapshot(*, clock: int = 5, seqs: int = 4, records: tuple[Entry, ...] = ()) -> Snapshot:
    document = update(section(PHONE, 0, note("hello"[:clock]))) if clock else b""
    rows = (WriterRow(PHONE, "phone", clock, seqs),)
    return Snapshot(STATE, b"old-epoch", 90, bytes(16), document, records, rows, bytes(32))


def bring(client: Client, what: Snapshot, *later: Entry, seq: int = 1) -> Entry:
    """Upload a snapshot and push it as one recovered entry, with later ones."""
    data = encode_record(what)
    sha = hashlib.sha256(data).hexdigest()
    client.send(BlobPiece(TASK, sha, 0, len(data), data))
    entry = Entry(STATE, FRESH, seq, EntryKind.SNAPSHOT, b"", "desktop", 0, sha)
    client.push(TASK, entry, *later, recovered=True)
    return entry


def text(seq: int, clock: int) -> Entry:
    payload = update(section(PHONE, clock, note("x")))
    return Entry(STATE, PHONE, seq, EntryKind.UPDATE, payload, "phone")


def test_a_recovered_snapshot_raises_the_writer_table(harness: Harness, desktop: Client) -> None:
    bring(desktop, snapshot(), text(4, 5))
    assert desktop.receipts() == [(FRESH, 1, 1), (PHONE, 4, 2)]
    harness.restart()
    phone = harness.login("phone")
    phone.push(TASK, text(5, 6))
    assert phone.receipts() == [(PHONE, 5, 3)]


def test_what_a_recovered_snapshot_covers_is_receipted_at_its_place(harness: Harness, desktop: Client) -> None:
    bring(desktop, snapshot())
    phone = harness.login("phone")
    phone.push(TASK, text(1, 0), text(2, 1), text(3, 2), recovered=True)
    (receipt,) = phone.take(Receipt)
    assert (receipt.first_seq, receipt.last_seq, receipt.first_relay_seq, receipt.covered) == (1, 3, 1, True)


def test_a_second_snapshot_covers_only_what_is_new(harness: Harness, desktop: Client) -> None:
    bring(desktop, snapshot(clock=2, seqs=2))
    bring(desktop, snapshot(), seq=2)
    covers = [write.covers for write in harness.writes if isinstance(write, AppendStored)]
    state = StreamName.STATE
    assert covers == [(Cover(state, PHONE, 1, 1, 1),), (Cover(state, PHONE, 2, 3, 2),)]
    phone = harness.login("phone")
    phone.push(TASK, text(1, 0), text(2, 1), text(3, 2), recovered=True)
    assert phone.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2), (PHONE, 3, 2)]


def test_the_snapshots_of_one_push_are_in_memory_one_at_a_time(desktop: Client) -> None:
    entries = []
    for number, (clock, seqs) in enumerate(((2, 2), (4, 3), (5, 4)), start=1):
        data = encode_record(snapshot(clock=clock, seqs=seqs))
        sha = hashlib.sha256(data).hexdigest()
        desktop.send(BlobPiece(TASK, sha, 0, len(data), data))
        entries.append(Entry(STATE, FRESH, number, EntryKind.SNAPSHOT, b"", "desktop", 0, sha))
    effects = desktop.push(TASK, *entries, recovered=True)
    assert [effect.sha256 for effect in effects if isinstance(effect, ReadBlob)] == [entries[0].blob]
    assert desktop.receipts() == [(FRESH, 1, 1), (FRESH, 2, 2), (FRESH, 3, 3)]


def test_a_snapshot_that_leaves_a_hole_is_refused(desktop: Client) -> None:
    document = update(section(PHONE, 3, note("hello")))
    bring(desktop, replace(snapshot(), document=document, writers=(WriterRow(PHONE, "phone", 8, 4),)))
    assert codes(desktop) == [RefusalCode.GUARD]


def test_a_snapshot_of_another_stream_or_no_snapshot_is_refused(desktop: Client) -> None:
    bring(desktop, replace(snapshot(), stream="other:state"))
    sha = hashlib.sha256(b"nothing").hexdigest()
    desktop.send(BlobPiece(TASK, sha, 0, 7, b"nothing"))
    desktop.push(TASK, Entry(STATE, FRESH, 1, EntryKind.SNAPSHOT, b"", "desktop", 0, sha), recovered=True)
    assert codes(desktop) == [RefusalCode.GUARD, RefusalCode.GUARD]


def test_a_snapshot_needs_its_blob_and_a_recovery(desktop: Client) -> None:
    entry = Entry(STATE, FRESH, 1, EntryKind.SNAPSHOT, b"", "desktop", 0, "a" * 64)
    desktop.push(TASK, entry, recovered=True)
    desktop.push(TASK, entry)
    assert codes(desktop) == [RefusalCode.BLOB_MISSING, RefusalCode.GUARD]


def test_records_of_a_recovered_snapshot_count_in_the_listing_once(harness: Harness, desktop: Client) -> None:
    desktop.push(TASK, call(1, INTENT), recovered=True)
    bring(desktop, snapshot(clock=0, seqs=3, records=(call(1, INTENT, 1), call(2, OUTCOME, 2))))
    version = Entry(STATE, PHONE, 3, EntryKind.VERSION, encode_record(VersionDecision(4, "anna")), "phone")
    desktop.push(TASK, version, recovered=True)
    desktop.send(ListTasks(1))
    (task,) = desktop.take(Listing)[0].tasks
    assert (task.calls_done, task.calls_in_doubt, task.version) == (1, 0, 4)
