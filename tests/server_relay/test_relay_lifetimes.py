"""How a task ends at the relay: cleaned up, expired, purged; and what a device hears that had read more."""

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from server_relay.admission import admit_anyone
from server_relay.config import RelaySettings
from server_relay.effects import LoadTask, ReadDue, Received, TaskLoaded, Tick
from server_relay.lifetimes import DEAD_EPOCHS_MAX, TOMBSTONE_BYTES
from server_relay.records import EmptyStream, PassTime, PurgeTask, TaskImage
from sync_core.entry import CallOutcome, Completion, Entry, EntryKind, VersionDecision, encode_record
from sync_core.frames import (
    BlobMissing,
    BlobPiece,
    BlobWanted,
    Heads,
    Listing,
    ListTasks,
    Purge,
    Push,
    Refusal,
    RefusalCode,
    Refused,
    SnapshotOffer,
    StreamHead,
)
from sync_core.ids import StreamName
from sync_core.parts import Role
from tests.server_relay.harness import Client, Harness, position
from tests.server_relay.wire_client import history_entry

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


@pytest.fixture
def harness() -> Harness:
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


# --- clean-up ---------------------------------------------------------------------------------------------------------


def test_after_the_grace_time_history_and_its_blobs_go_and_the_rest_stays(harness: Harness) -> None:
    phone = completed(harness)
    before = epochs(harness)
    pass_s(harness, GRACE_S - 120)
    assert epochs(harness) == before
    pass_s(harness, 180)
    found = {stream.name: stream for stream in image(harness).streams}
    assert (found[STATE].head, found[STATE].epoch, found[HISTORY].head) == (3, before[STATE], 0)
    assert found[HISTORY].epoch != before[HISTORY]
    assert [blob.sha256 for blob in image(harness).blobs] == [sha(RESULT)]
    assert image(harness).summary.cleaned
    (heads,) = phone.take(Heads)
    assert heads.streams == (
        StreamHead(HISTORY, found[HISTORY].epoch, 0),
        StreamHead(STATE, before[STATE], 3),
    )
    again = phone.hello(TASK, position(HISTORY, before[HISTORY], (said(1), said(2, blob=sha(BLOB)))))
    assert again.streams[0] == StreamHead(HISTORY, found[HISTORY].epoch, 0, emptied=True)
    assert not again.streams[1].emptied
    phone.send(BlobWanted(TASK, sha(BLOB)))
    assert phone.take(BlobMissing)
    writes = len(harness.writes)
    pass_s(harness, 2 * GRACE_S)
    assert [write for write in harness.writes[writes:] if not isinstance(write, PassTime)] == []


def test_the_snapshots_of_what_stays_stay(harness: Harness) -> None:
    phone = completed(harness)
    before = epochs(harness)
    for name, covers in ((STATE, 3), (HISTORY, 2)):
        data = f"snapshot of {name.value}".encode()
        phone.send(BlobPiece(TASK, sha(data), 0, len(data), data))
        phone.send(SnapshotOffer(f"{TASK}:{name.value}", before[name], covers, b"d" * 32, sha(data)))
    assert len(image(harness).blobs) == 4
    pass_s(harness, 2 * GRACE_S)
    kept = {sha(RESULT), sha(b"snapshot of state")}
    assert {blob.sha256 for blob in image(harness).blobs} == kept
    offers = {head.name: head.snapshot for head in phone.hello(TASK).streams}
    assert offers[HISTORY] is None
    assert offers[STATE] is not None
    assert offers[STATE].sha256 == sha(b"snapshot of state")


def test_a_task_that_another_device_edited_unread_is_not_cleaned_up_before_it_is_completed_again(
    harness: Harness,
) -> None:
    phone = completed(harness)
    desktop = harness.login("desktop")
    desktop.push(TASK, said(1, DESKTOP, "desktop"))
    pass_s(harness, 2 * GRACE_S)
    assert (image(harness).summary.completed, image(harness).summary.edited) == (True, True)
    assert {stream.name: stream.head for stream in image(harness).streams} == {HISTORY: 3, STATE: 3}
    phone.push(TASK, done(4, (("history", DESKTOP, 1),)))
    assert not image(harness).summary.edited
    pass_s(harness, 2 * GRACE_S)
    assert {stream.name: stream.head for stream in image(harness).streams} == {HISTORY: 0, STATE: 4}


def test_a_higher_version_opens_the_task_again_and_nothing_is_cleaned_up(harness: Harness) -> None:
    phone = completed(harness)
    phone.push(TASK, decided(4, 2))
    pass_s(harness, 2 * GRACE_S)
    assert not image(harness).summary.completed
    assert not [write for write in harness.writes if isinstance(write, EmptyStream)]


def test_what_is_said_after_a_clean_up_goes_after_the_grace_time_too(harness: Harness) -> None:
    phone = completed(harness)
    pass_s(harness, 2 * GRACE_S)
    first = epochs(harness)
    phone.push(TASK, said(1, FRESH))
    assert not image(harness).summary.cleaned
    pass_s(harness, 2 * GRACE_S)
    second = epochs(harness)
    assert image(harness).streams[0].head == 0
    assert first[HISTORY] != second[HISTORY]
    heads = phone.hello(TASK, position(HISTORY, first[HISTORY], (said(1, FRESH),)))
    assert heads.streams[0].emptied


def test_a_completed_task_without_a_conversation_is_looked_at_once(harness: Harness) -> None:
    phone = harness.login("phone")
    phone.push(TASK, decided(1), done(2))
    pass_s(harness, 2 * GRACE_S)
    assert image(harness).summary.cleaned
    assert epochs(harness).keys() == {STATE}
    writes = len(harness.writes)
    pass_s(harness, 2 * GRACE_S)
    assert [write for write in harness.writes[writes:] if not isinstance(write, PassTime)] == []


# --- purge ------------------------------------------------------------------------------------------------------------


def test_a_purge_leaves_a_tombstone_and_tells_every_follower(harness: Harness) -> None:
    phone = completed(harness)
    desktop = harness.login("desktop")
    desktop.hello(TASK)
    desktop.frames.clear()
    before = epochs(harness)
    desktop.send(Purge(TASK, 1, (before[STATE],)))
    for client in (phone, desktop):
        (heads,) = client.take(Heads)
        assert (heads.known, heads.streams, heads.answers) == (False, (), 0)
        assert (heads.purged_version, heads.purged_for) == (1, "purged")
    left = image(harness)
    assert (left.stored_no, left.streams, left.steps, left.blobs, left.completions) == (0, (), (), (), ())
    assert left.tombstone is not None
    assert (left.tombstone.version, set(left.tombstone.epochs)) == (1, set(before.values()))
    phone.send(ListTasks(1))
    harness.drain()
    assert phone.take(Listing)[0].tasks == ()


def test_nothing_that_was_read_of_a_purged_task_comes_back(harness: Harness) -> None:
    phone = completed(harness)
    before = epochs(harness)
    phone.send(Purge(TASK, 1))
    harness.restart()
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, position(HISTORY, before[HISTORY], (said(1),)))
    assert (heads.known, heads.purged_version) == (False, 1)
    assert heads.streams == (StreamHead(HISTORY, b"", 0, emptied=True),)
    desktop.push(TASK, said(1), decided(1, 2, DESKTOP, "desktop"), recovered=True)
    desktop.push(TASK, said(1, DESKTOP, "desktop"), decided(1, 1, DESKTOP, "desktop"))
    refusals = desktop.take(Refusal)
    assert [refusal.code for refusal in refusals] == [RefusalCode.TOMBSTONE] * 4
    desktop.send(BlobPiece(TASK, sha(BLOB), 0, len(BLOB), BLOB))
    assert desktop.take(BlobMissing)
    assert image(harness).stored_no == 0


def test_a_live_decision_for_a_higher_version_begins_it_anew(harness: Harness) -> None:
    phone = completed(harness)
    before = epochs(harness)
    phone.send(Purge(TASK, 1))
    phone.hello(TASK)
    phone.push(TASK, decided(1, 2, FRESH), said(1, FRESH))
    assert phone.receipts() == [(FRESH, 1, 1), (FRESH, 1, 1)]
    assert image(harness).summary.version == 2
    harness.restart()
    desktop = harness.login("desktop")
    heads = desktop.hello(TASK, position(STATE, before[STATE], (decided(1),)))
    assert (heads.known, heads.purged_version) == (True, 1)
    assert {head.name: head.emptied for head in heads.streams} == {HISTORY: False, STATE: True}
    assert [entry.writer for entry in desktop.entries()] == [FRESH, FRESH]


def test_a_purge_of_a_lower_version_than_stands_changes_nothing(harness: Harness) -> None:
    phone = completed(harness)
    phone.push(TASK, decided(4, 2))
    phone.frames.clear()
    for recovered in (False, True):
        phone.send(Purge(TASK, 1, recovered=recovered))
        (heads,) = phone.take(Heads)
        assert (heads.known, heads.purged_version) == (True, 0)
    assert image(harness).stored_no == 6


def test_a_relay_that_lost_its_tombstone_learns_it_before_anything_comes_back(harness: Harness) -> None:
    """The file was lost, or restored from before the purge."""
    phone = harness.login("phone")
    phone.send(Purge(TASK, 3, (b"epoch-01",), recovered=True))
    (heads,) = phone.take(Heads)
    assert (heads.known, heads.purged_version) == (False, 3)
    heads = phone.hello(TASK, replace(position(STATE, b"epoch-01", (decided(1),)), own=()))
    assert heads.streams == (StreamHead(STATE, b"", 0, emptied=True),)
    phone.send(Purge(TASK, 2, (b"epoch-00",), recovered=True))
    tombstone = image(harness).tombstone
    assert tombstone is not None
    assert (tombstone.version, tombstone.epochs) == (3, (b"epoch-01", b"epoch-00"))
    writes = len(harness.writes)
    phone.send(Purge(TASK, 3, (b"epoch-01",), recovered=True))
    assert len(harness.writes) == writes


def test_entries_of_the_turn_that_purges_go_too_and_were_receipted(harness: Harness) -> None:
    phone = completed(harness)
    harness.turn(Received(phone.conn, Push(TASK, (said(3),))), Received(phone.conn, Purge(TASK, 1)))
    assert phone.receipts() == [(PHONE, 3, 3)]
    assert image(harness).stored_no == 0
    assert harness.model.stats().entries == 0


def test_a_reader_purges_nothing(harness: Harness) -> None:
    completed(harness)
    harness.admit = lambda login, now_ms: replace(admit_anyone(login, now_ms), role=Role.READ)
    harness.restart()
    reader = harness.login("tv")
    reader.send(Purge(TASK, 1))
    assert reader.take(Heads)[0].known
    assert harness.relay.counts["refused_role"] == 1
    assert image(harness).stored_no == 5


@pytest.mark.parametrize(
    "purge", [Purge(TASK, 0), Purge(TASK, 1, reason="x"), Purge(TASK, 1, (b"e",) * 17), Purge(TASK, 1, (b"e" * 9,))]
)
def test_a_purge_out_of_bounds_costs_the_connection(harness: Harness, purge: Purge) -> None:
    phone = completed(harness)
    phone.send(purge)
    assert phone.take(Refused)
    assert image(harness).stored_no == 5


def test_a_tombstone_is_small_whatever_was_purged(harness: Harness) -> None:
    phone = harness.login("phone")
    for number in range(DEAD_EPOCHS_MAX + 9):
        phone.send(Purge(TASK, 1, (number.to_bytes(8, "big"),), recovered=True))
    tombstone = image(harness).tombstone
    assert tombstone is not None
    assert len(tombstone.epochs) == DEAD_EPOCHS_MAX
    assert sum(map(len, tombstone.epochs)) + len(tombstone.reason) + 64 < TOMBSTONE_BYTES


# --- expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finished", [False, True])
def test_a_task_expires_so_long_after_its_last_entry(finished: bool) -> None:
    harness = expiring()
    phone = harness.login("phone")
    phone.hello(TASK)
    phone.push(TASK, decided(1), said(1))
    pass_s(harness, TTL_S - 120)
    phone.push(TASK, *([done(2)] if finished else [said(2)]))
    pass_s(harness, TTL_S - 120)
    assert image(harness).stored_no == 3
    phone.frames.clear()
    pass_s(harness, 180)
    assert image(harness).stored_no == 0
    (heads,) = phone.take(Heads)
    assert (heads.purged_version, heads.purged_for) == (1, "completed" if finished else "expired")


def test_nothing_ends_while_the_clock_is_in_doubt() -> None:
    harness = expiring()
    harness.login("phone").push(TASK, decided(1), done(2))
    for _ in range(5):
        harness.tick(TTL_S * 1000, suspended=True)
    assert image(harness).stored_no == 2
    assert not [write for write in harness.writes if isinstance(write, PassTime)]
    harness.tick()
    assert image(harness).stored_no == 2
    harness.tick(harness.settings.sweep_every_ms)
    assert image(harness).stored_no == 0


def test_many_tasks_expire_page_by_page() -> None:
    harness = expiring()
    phone = harness.login("phone")
    for number in range(150):
        phone.push(f"t/{number}", replace(decided(1), stream=f"t/{number}:state"))
    harness.tick(TTL_S * 1000 + 1)
    left = [harness.model.stats().entries]
    for _ in range(5):
        harness.tick(1_000)
        left.append(harness.model.stats().entries)
    assert left == [86, 22, 0, 0, 0, 0]
    assert harness.relay.tasks_held <= 150
    harness.tick(20_000)
    assert harness.relay.tasks_held == 0


def test_the_mailbox_is_asked_about_once_a_minute(harness: Harness) -> None:
    asked = 0
    for _ in range(180):
        harness.tick(1_000)
        asked += any(isinstance(effect, ReadDue) for effect in harness.effects)
    assert asked == 3
    assert len([write for write in harness.writes if isinstance(write, PassTime)]) == 1


def test_an_old_tombstone_is_forgotten(harness: Harness) -> None:
    completed(harness).send(Purge(TASK, 1))
    pass_s(harness, KEEP_S - 120)
    assert image(harness).tombstone is not None
    pass_s(harness, 1_200)
    assert image(harness) == TaskImage("acme", TASK)


def test_a_task_that_was_just_written_to_does_not_end_in_that_turn() -> None:
    harness = expiring()
    phone = harness.login("phone")
    phone.push(TASK, decided(1))
    harness.tick(TTL_S * 1000)
    harness.now_ms += harness.settings.sweep_every_ms
    harness.turn(Received(phone.conn, Push(TASK, (said(1),))), Tick())
    harness.tick()
    assert image(harness).stored_no == 2
    assert not [write for write in harness.writes if isinstance(write, PurgeTask)]
    assert image(harness).tombstone is None
