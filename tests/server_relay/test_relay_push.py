"""What a relay makes of a push: stored and receipted, known, or refused with a reason."""

import hashlib

import pytest

from server_relay.admission import Grant, Role
from server_relay.effects import Send, Written
from server_relay.records import AppendStored, StartStream
from sync_core.entry import Entry, EntryKind, VersionDecision, encode_record, entry_hash
from sync_core.frames import BlobAbsent, BlobPiece, Login, Push, Receipt, Refusal, RefusalCode
from sync_core.limits import PAYLOAD_BYTES_MAX
from tests.server_relay.harness import Client, Harness, chain_of
from tests.server_relay.wire_client import history_entry
from tests.sync_core.updates import entry, note, section, slot, update

TASK = "expense/TRIP-118"
PHONE, DESKTOP = 700_001, 800_002


def item(seq: int, writer: int = PHONE, device: str = "phone") -> Entry:
    return history_entry(TASK, writer, seq, device)


def version(seq: int, writer: int = PHONE, device: str = "phone") -> Entry:
    payload = encode_record(VersionDecision(seq, "anna"))
    return Entry(f"{TASK}:state", writer, seq, EntryKind.VERSION, payload, device)


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def phone(harness: Harness) -> Client:
    client = harness.login("phone")
    client.hello(TASK)
    client.frames.clear()
    return client


def refusals(client: Client) -> list[tuple[RefusalCode, int, int]]:
    return [(refusal.code, refusal.writer_seq, refusal.expected_seq) for refusal in client.take(Refusal)]


# --- stored -----------------------------------------------------------------------------------------------------------


def test_everything_is_appended_before_anything_is_receipted(phone: Client) -> None:
    effects = phone.push(TASK, item(1), item(2))
    start, append, send = effects
    assert isinstance(start, Written)
    assert isinstance(start.write, StartStream)
    assert isinstance(append, Written)
    assert isinstance(append.write, AppendStored)
    assert [row.relay_seq for row in append.write.entries] == [1, 2]
    assert isinstance(send, Send)
    assert [type(frame) for frame in phone.frames] == [Receipt]


def test_a_run_of_entries_is_one_receipt(phone: Client) -> None:
    phone.push(TASK, item(1), item(2), version(1), item(3))
    receipts = phone.take(Receipt)
    assert [(r.stream, r.first_seq, r.last_seq, r.first_relay_seq) for r in receipts] == [
        (f"{TASK}:history", 1, 2, 1),
        (f"{TASK}:state", 1, 1, 1),
        (f"{TASK}:history", 3, 3, 3),
    ]


def test_stored_entries_carry_hash_and_chain_of_their_content(harness: Harness, phone: Client) -> None:
    phone.push(TASK, item(1), item(2))
    append = harness.writes[-1]
    assert isinstance(append, AppendStored)
    assert [row.content_hash for row in append.entries] == [entry_hash(item(1)), entry_hash(item(2))]
    assert append.entries[-1].chain == chain_of(item(1), item(2))


def test_what_a_device_claims_of_its_place_is_not_believed(harness: Harness, phone: Client) -> None:
    phone.push(
        TASK, Entry(f"{TASK}:history", PHONE, 1, EntryKind.HISTORY, item(1).payload, "phone", 0, None, 77, "eve")
    )
    desktop = harness.login("desktop")
    desktop.hello(TASK)
    (came,) = desktop.entries()
    assert (came.relay_seq, came.vouched_by) == (1, None)


def test_a_device_that_does_not_follow_the_task_gets_its_receipt(harness: Harness) -> None:
    phone = harness.login("phone")
    phone.push(TASK, item(1))
    assert phone.receipts() == [(PHONE, 1, 1)]


def test_entries_pushed_at_once_by_many_are_one_commit(harness: Harness) -> None:
    clients = [harness.login(f"d{number}") for number in range(5)]
    events = [
        event
        for number, client in enumerate(clients)
        for event in client.received(Push(TASK, (item(1, PHONE + number, f"d{number}"),)))
    ]
    harness.turn(*events)
    appends = [write for write in harness.writes if isinstance(write, AppendStored)]
    assert [len(append.entries) for append in appends] == [5]
    assert [client.receipts() for client in clients] == [[(PHONE + n, 1, n + 1)] for n in range(5)]


# --- known ------------------------------------------------------------------------------------------------------------


def test_an_entry_that_is_known_is_receipted_again_at_its_place(harness: Harness, phone: Client) -> None:
    phone.push(TASK, item(1), item(2), item(3))
    phone.frames.clear()
    before = len(harness.writes)
    phone.push(TASK, item(2), item(3))
    assert phone.receipts() == [(PHONE, 2, 2), (PHONE, 3, 3)]
    assert len(harness.writes) == before


def test_known_and_new_entries_of_one_push_are_both_answered(phone: Client) -> None:
    phone.push(TASK, item(1), item(2))
    phone.frames.clear()
    phone.push(TASK, item(1), item(2), item(3), item(2), item(4))
    assert sorted(set(phone.receipts())) == [(PHONE, n, n) for n in (1, 2, 3, 4)]


def test_known_entries_are_found_after_a_restart(harness: Harness, phone: Client) -> None:
    phone.push(TASK, item(1), item(2))
    harness.restart()
    again = harness.login("phone")
    again.push(TASK, item(1), item(2), item(3))
    assert again.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2), (PHONE, 3, 3)]


def test_a_number_used_for_other_content_is_refused_and_never_receipted(phone: Client) -> None:
    phone.push(TASK, item(1), item(2))
    phone.frames.clear()
    phone.push(TASK, history_entry(TASK, PHONE, 2, "phone", '"other"'), item(3))
    assert refusals(phone) == [(RefusalCode.WRITER_REUSED, 2, 3)]
    assert phone.receipts() == []


def test_what_follows_a_reused_number_is_refused_too_and_every_time(harness: Harness, phone: Client) -> None:
    """It was written on top of something that the log does not hold; the device is waiting for an answer."""
    phone.push(TASK, item(1), item(2))
    phone.push(TASK, history_entry(TASK, PHONE, 2, "phone", '"other"'), item(3))
    phone.frames.clear()
    for _ in range(2):
        phone.push(TASK, item(3), item(4))
        assert refusals(phone) == [(RefusalCode.WRITER_REUSED, 3, 3)]
    phone.push(TASK, item(1), item(2), item(1, PHONE + 1))
    assert phone.receipts() == [(PHONE, 1, 1), (PHONE, 2, 2), (PHONE + 1, 1, 3)]
    fresh = harness.login("phone")
    fresh.push(TASK, item(3))
    assert fresh.receipts() == [(PHONE, 3, 4)]


def test_an_entry_that_came_twice_in_one_turn_is_stored_once(harness: Harness, phone: Client) -> None:
    harness.turn(*phone.received(Push(TASK, (item(1),)), Push(TASK, (item(1), item(2)))))
    assert set(phone.receipts()) == {(PHONE, 1, 1), (PHONE, 2, 2)}
    assert sum(len(write.entries) for write in harness.writes if isinstance(write, AppendStored)) == 2


# --- refused ----------------------------------------------------------------------------------------------------------


def test_a_hole_is_refused_until_it_is_filled(harness: Harness, phone: Client) -> None:
    """SE-08."""
    phone.push(TASK, item(1))
    phone.frames.clear()
    phone.push(TASK, item(3), item(4))
    assert refusals(phone) == [(RefusalCode.GAP, 3, 2)]
    assert phone.receipts() == []
    phone.push(TASK, item(2), item(3))
    assert phone.receipts() == [(PHONE, 2, 2), (PHONE, 3, 3)]
    desktop = harness.login("desktop")
    desktop.hello(TASK)
    assert [came.writer_seq for came in desktop.entries()] == [1, 2, 3]


def test_a_refusal_stops_that_writer_only(phone: Client) -> None:
    phone.push(TASK, item(2), item(1), item(1, PHONE + 1), version(1))
    assert refusals(phone) == [(RefusalCode.GAP, 2, 1)]
    assert phone.receipts() == [(PHONE + 1, 1, 1), (PHONE, 1, 1)]


def test_a_device_writes_in_its_own_name_only(phone: Client) -> None:
    phone.push(TASK, item(1, DESKTOP, "desktop"))
    assert refusals(phone) == [(RefusalCode.GUARD, 1, 1)]


def test_a_writer_belongs_to_the_device_that_used_it_first(harness: Harness, phone: Client) -> None:
    phone.push(TASK, item(1))
    desktop = harness.login("desktop")
    desktop.push(TASK, item(2, PHONE, "desktop"))
    assert refusals(desktop) == [(RefusalCode.GUARD, 2, 2)]


def test_a_writer_belongs_to_the_principal_that_used_it_first() -> None:
    def admit(login: Login, now_ms: int) -> Grant:
        return Grant(login.token, login.device, login.subject, Role.WRITE)

    harness = Harness(admit)
    harness.login("phone", token="anna").push(TASK, item(1))
    eve = harness.login("phone", token="eve")
    eve.push(TASK, item(2))
    assert refusals(eve) == [(RefusalCode.GUARD, 2, 2)]
    harness.restart()
    eve, anna = harness.login("phone", token="eve"), harness.login("phone", token="anna")
    eve.push(TASK, item(2))
    anna.push(TASK, item(2))
    assert refusals(eve) == [(RefusalCode.GUARD, 2, 2)]
    assert anna.receipts() == [(PHONE, 2, 2)]


@pytest.mark.parametrize("stream", ["other:history", f"{TASK}:nothing", TASK, "", f"{TASK}:authority", "\0"])
def test_an_entry_goes_to_a_stream_of_its_own_task_only(harness: Harness, phone: Client, stream: str) -> None:
    phone.push(TASK, Entry(stream, PHONE, 1, EntryKind.HISTORY, item(1).payload, "phone"))
    assert refusals(phone) == [(RefusalCode.GUARD, 1, 1)]
    assert harness.writes == []


def test_a_refusal_does_not_repeat_an_endless_name(phone: Client) -> None:
    phone.push(TASK, Entry("x" * 200_000, PHONE, 1, EntryKind.HISTORY, b"", "phone"))
    (refusal,) = phone.take(Refusal)
    assert len(refusal.stream) < 300


def test_a_payload_beyond_the_bound_is_too_large(phone: Client) -> None:
    payload = bytes(PAYLOAD_BYTES_MAX + 1)
    phone.push(TASK, Entry(f"{TASK}:state", PHONE, 1, EntryKind.UPDATE, payload, "phone"))
    assert refusals(phone) == [(RefusalCode.TOO_LARGE, 1, 1)]


def test_a_refused_first_entry_makes_no_stream(harness: Harness, phone: Client) -> None:
    phone.push(TASK, Entry(f"{TASK}:state", PHONE, 1, EntryKind.UPDATE, b"\xff\xff\xff", "phone"))
    assert refusals(phone) == [(RefusalCode.GUARD, 1, 1)]
    assert harness.writes == []
    assert phone.hello(TASK).streams == ()


# --- clock squatting, delete-ahead, forged author (RS-29) -------------------------------------------------------------


def honest(writer: int, writer_seq: int, first_clock: int, device: str) -> Entry:
    return entry(writer, writer_seq, update(section(writer, first_clock, note("hello"))), device)


def test_squatting_and_deleting_ahead_are_refused_and_the_victim_goes_on(harness: Harness) -> None:
    phone, eve = harness.login("phone"), harness.login("eve")
    stream = honest(PHONE, 1, 0, "phone").stream
    task = stream.rpartition(":")[0]
    phone.push(task, honest(PHONE, 1, 0, "phone"))
    next_clock = 5
    attacks = [
        update(section(PHONE, next_clock, note("x"))),
        update(section(DESKTOP, 3, note("x"))),
        update(deletes=((PHONE, next_clock, 1000),)),
        update(deletes=((999_999, 0, 1),)),
        update(section(PHONE, next_clock, b"\x00\x05")),
    ]
    for attack in attacks:
        eve.push(task, entry(DESKTOP, 1, attack, "eve"))
        assert [code for code, _, _ in refusals(eve)] == [RefusalCode.GUARD]
    phone.frames.clear()
    phone.push(task, honest(PHONE, 2, next_clock, "phone"))
    assert phone.receipts() == [(PHONE, 2, 2)]


def test_an_honest_overwrite_of_anothers_slot_passes(harness: Harness) -> None:
    phone, desktop = harness.login("phone"), harness.login("desktop")
    first = entry(PHONE, 1, update(section(PHONE, 0, slot())), "phone")
    task = first.stream.rpartition(":")[0]
    phone.push(task, first)
    key = "cost_center/fedcba9876543210"
    second = update(section(DESKTOP, 0, slot(key=key)), deletes=((PHONE, 0, 1),))
    desktop.push(task, entry(DESKTOP, 1, second, "desktop"))
    assert desktop.receipts() == [(DESKTOP, 1, 2)]


# --- blobs that entries name ------------------------------------------------------------------------------------------


def with_blob(seq: int, sha256: str) -> Entry:
    return Entry(f"{TASK}:history", PHONE, seq, EntryKind.HISTORY, item(seq).payload, "phone", 0, sha256)


def test_an_entry_waits_for_the_blob_that_it_names(phone: Client) -> None:
    data = b"result" * 1000
    sha = hashlib.sha256(data).hexdigest()
    phone.push(TASK, with_blob(1, sha), item(2))
    assert refusals(phone) == [(RefusalCode.BLOB_MISSING, 1, 1)]
    phone.send(BlobPiece(TASK, sha, 0, len(data), data[:5000]), Push(TASK, (with_blob(1, sha),)))
    assert refusals(phone) == [(RefusalCode.BLOB_MISSING, 1, 1)]
    phone.send(BlobPiece(TASK, sha, 5000, len(data), data[5000:]), Push(TASK, (with_blob(1, sha),)))
    assert phone.receipts() == [(PHONE, 1, 1)]


def test_an_entry_goes_on_without_a_blob_that_is_declared_absent(phone: Client) -> None:
    phone.send(BlobAbsent(TASK, "a" * 64), Push(TASK, (with_blob(1, "a" * 64),)))
    assert phone.receipts() == [(PHONE, 1, 1)]


def test_a_blob_of_another_task_does_not_help(phone: Client) -> None:
    sha = hashlib.sha256(b"x").hexdigest()
    phone.send(BlobPiece("other", sha, 0, 1, b"x"), Push(TASK, (with_blob(1, sha),)))
    assert refusals(phone) == [(RefusalCode.BLOB_MISSING, 1, 1)]
