"""A purged task leaves a tombstone, and nothing that was read of it comes back."""

import pytest
from msgspec.structs import replace

from server_relay.admission import admit_anyone
from server_relay.effects import Received
from server_relay.lifetimes import DEAD_EPOCHS_MAX, TOMBSTONE_BYTES
from sync_core.frames import (
    BlobMissing,
    BlobPiece,
    Heads,
    Listing,
    ListTasks,
    Purge,
    Push,
    Refusal,
    RefusalCode,
    Refused,
    StreamHead,
)
from sync_core.parts import Role
from tests.server_relay.ending_tasks import (
    BLOB,
    DESKTOP,
    FRESH,
    HISTORY,
    PHONE,
    STATE,
    TASK,
    cleaning,
    completed,
    decided,
    epochs,
    image,
    said,
    sha,
)
from tests.server_relay.harness import Harness, position


@pytest.fixture
def harness() -> Harness:
    return cleaning()


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
