"""How a task ends at the relay: cleaned up, expired, purged; and what a device hears that had read more."""

import pytest
from msgspec.structs import replace

from server_relay.effects import ReadDue, Received, Tick
from server_relay.records import EmptyStream, PassTime, PurgeTask, TaskImage
from sync_core.errors import StoreFull
from sync_core.frames import (
    BlobMissing,
    BlobPiece,
    BlobWanted,
    Heads,
    Purge,
    Push,
    SnapshotOffer,
    StreamHead,
)
from tests.server_relay.ending_tasks import (
    BLOB,
    DESKTOP,
    FRESH,
    GRACE_S,
    HISTORY,
    KEEP_S,
    RESULT,
    STATE,
    TASK,
    TTL_S,
    cleaning,
    completed,
    decided,
    done,
    epochs,
    expiring,
    image,
    pass_s,
    said,
    sha,
)
from tests.server_relay.harness import Harness, position


@pytest.fixture
def harness() -> Harness:
    return cleaning()


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


def test_a_disk_that_is_full_when_it_is_time_to_look_costs_nobody_the_connection() -> None:
    harness = expiring()
    phone = harness.login("phone")
    phone.push(TASK, decided(1))
    harness.tick(TTL_S * 1000)
    harness.tick(600_000)
    phone.push(TASK, said(1))
    harness.model.fail_next(StoreFull("The disk is full."))
    harness.tick(600_000)
    assert harness.relay.counts["commits_failed"] == 1
    assert phone.closed is None
    phone.push(TASK, decided(1), said(1))
    pass_s(harness, 2 * TTL_S)
    assert image(harness).stored_no == 0
