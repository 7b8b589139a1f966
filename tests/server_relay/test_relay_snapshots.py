"""Snapshots: asked for, offered by compare-and-swap, confirmed, then served instead of what they cover (rule F)."""

import hashlib
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from sync_core.entry import Entry
from sync_core.frames import BlobPiece, Heads, Hello, SnapshotConfirmed, SnapshotOffer, SnapshotRef, SnapshotWanted
from sync_core.ids import StreamName
from tests.server_relay.harness import Client, Harness, position
from tests.server_relay.wire_client import history_entry

TASK = "expense/TRIP-118"
STREAM = f"{TASK}:history"
PHONE, DESKTOP = 700_001, 800_002
DIGEST = b"d" * 32
ONE, TWO = b"snapshot one", b"snapshot two"


def item(seq: int, writer: int = PHONE, device: str = "phone") -> Entry:
    return history_entry(TASK, writer, seq, device)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def harness() -> Harness:
    settings = RelaySettings(db=Path("unused"), snapshot_tail_entries=10, safety_window_entries=3)
    return Harness(settings=settings)


@pytest.fixture
def phone(harness: Harness) -> Client:
    """A phone that follows the task, with ten entries stored."""
    phone = harness.login("phone")
    phone.hello(TASK)
    phone.push(TASK, *(item(seq) for seq in range(1, 11)))
    phone.frames.clear()
    return phone


def upload(client: Client, data: bytes) -> None:
    client.send(BlobPiece(TASK, sha(data), 0, len(data), data))


def offer(client: Client, epoch: bytes, data: bytes = ONE, covers: int = 8, previous: str = "") -> SnapshotRef | None:
    """Offer a snapshot; return what the relay then names as the latest."""
    upload(client, data)
    client.take(Heads)
    client.send(SnapshotOffer(STREAM, epoch, covers, DIGEST, sha(data), previous))
    return client.take(Heads)[-1].streams[0].snapshot


def confirm(client: Client, epoch: bytes, data: bytes = ONE, digest: bytes = DIGEST) -> None:
    client.send(SnapshotConfirmed(STREAM, epoch, sha(data), digest))


def test_an_offer_is_shown_to_the_followers_but_not_used(harness: Harness, phone: Client) -> None:
    desktop = harness.login("desktop")
    epoch = desktop.hello(TASK).streams[0].epoch
    assert offer(phone, epoch) == SnapshotRef(8, sha(ONE), DIGEST, "phone", False)
    (told,) = desktop.take(Heads)
    assert told.streams[0].snapshot == SnapshotRef(8, sha(ONE), DIGEST, "phone", False)
    assert told.streams[0].tail_from == 1
    fresh = harness.login("tablet")
    fresh.hello(TASK)
    assert len(fresh.entries()) == 10


@pytest.mark.parametrize("change", ["epoch", "covers", "zero", "blob", "previous"])
def test_an_offer_that_does_not_fit_changes_nothing(harness: Harness, phone: Client, change: str) -> None:
    epoch = phone.hello(TASK).streams[0].epoch
    upload(phone, ONE)
    before = list(harness.writes)
    phone.send(
        SnapshotOffer(
            STREAM,
            b"other" if change == "epoch" else epoch,
            {"covers": 11, "zero": 0}.get(change, 8),
            DIGEST,
            sha(TWO) if change == "blob" else sha(ONE),
            sha(TWO) if change == "previous" else "",
        )
    )
    assert phone.take(Heads)[-1].streams[0].snapshot is None
    assert harness.writes == before


def test_of_two_offers_at_once_the_first_stands(harness: Harness, phone: Client) -> None:
    desktop = harness.login("desktop")
    epoch = desktop.hello(TASK).streams[0].epoch
    offer(phone, epoch)
    latest = offer(desktop, epoch, TWO)
    assert latest is not None
    assert latest.sha256 == sha(ONE)
    latest = offer(desktop, epoch, TWO, previous=sha(ONE))
    assert latest is not None
    assert latest.sha256 == sha(TWO)


def test_a_snapshot_is_used_once_another_device_confirmed_its_digest(harness: Harness, phone: Client) -> None:
    desktop = harness.login("desktop")
    epoch = desktop.hello(TASK).streams[0].epoch
    offer(phone, epoch)
    confirm(phone, epoch)
    confirm(desktop, epoch, digest=b"x" * 32)
    confirm(desktop, epoch, TWO)
    confirm(desktop, b"old")
    assert desktop.hello(TASK).streams[0].snapshot == SnapshotRef(8, sha(ONE), DIGEST, "phone", False)
    confirm(desktop, epoch)
    head = phone.take(Heads)[-1].streams[0]
    assert head.snapshot == SnapshotRef(8, sha(ONE), DIGEST, "phone", True)
    assert head.tail_from == 8 + 1 - 3


def test_the_same_device_may_confirm_in_a_fresh_session(harness: Harness, phone: Client) -> None:
    epoch = phone.hello(TASK).streams[0].epoch
    offer(phone, epoch)
    harness.restart()
    phone = harness.login("phone")
    phone.hello(TASK)
    confirm(phone, epoch)
    assert phone.take(Heads)[-1].streams[0].snapshot == SnapshotRef(8, sha(ONE), DIGEST, "phone", True)


def usable(harness: Harness, phone: Client) -> bytes:
    desktop = harness.login("desktop")
    epoch = desktop.hello(TASK).streams[0].epoch
    offer(phone, epoch)
    confirm(desktop, epoch)
    return epoch


def test_a_new_reader_waits_for_the_snapshot_and_then_gets_the_tail(harness: Harness, phone: Client) -> None:
    epoch = usable(harness, phone)
    tablet = harness.login("tablet")
    head = tablet.hello(TASK).streams[0]
    assert head.snapshot == SnapshotRef(8, sha(ONE), DIGEST, "phone", True)
    phone.push(TASK, item(11))
    harness.drain()
    assert tablet.entries() == []
    tablet.hello(TASK, position(StreamName.HISTORY, epoch, tuple(item(seq) for seq in range(1, 9))))
    assert [entry.writer_seq for entry in tablet.entries()] == [9, 10, 11]


@pytest.mark.parametrize(("cursor", "waits"), [(4, True), (5, False), (8, False), (10, False)])
def test_a_reader_within_the_safety_window_needs_no_snapshot(
    harness: Harness, phone: Client, cursor: int, waits: bool
) -> None:
    epoch = usable(harness, phone)
    tablet = harness.login("tablet")
    tablet.hello(TASK, position(StreamName.HISTORY, epoch, tuple(item(seq) for seq in range(1, cursor + 1))))
    assert [entry.writer_seq for entry in tablet.entries()] == ([] if waits else list(range(cursor + 1, 11)))


def test_the_usable_snapshot_is_served_while_a_newer_one_waits(harness: Harness, phone: Client) -> None:
    epoch = usable(harness, phone)
    offer(phone, epoch, TWO, covers=10, previous=sha(ONE))
    fresh = harness.login("fresh").hello(TASK).streams[0]
    assert fresh.snapshot == SnapshotRef(8, sha(ONE), DIGEST, "phone", True)
    current = harness.login("current").hello(
        TASK, position(StreamName.HISTORY, epoch, tuple(item(seq) for seq in range(1, 11)))
    )
    assert current.streams[0].snapshot == SnapshotRef(10, sha(TWO), DIGEST, "phone", False)


def test_snapshots_survive_a_restart(harness: Harness, phone: Client) -> None:
    usable(harness, phone)
    harness.restart()
    head = harness.login("tablet").hello(TASK).streams[0]
    assert head.snapshot == SnapshotRef(8, sha(ONE), DIGEST, "phone", True)
    assert head.tail_from == 6


def test_a_new_epoch_serves_from_the_log_again(harness: Harness, phone: Client) -> None:
    epoch = usable(harness, phone)
    lost = tuple(item(seq) for seq in range(1, 12))
    tablet = harness.login("tablet")
    head = tablet.hello(TASK, position(StreamName.HISTORY, epoch, lost)).streams[0]
    assert head.epoch != epoch
    assert (head.snapshot, head.tail_from) == (None, 1)
    assert len(tablet.entries()) == 10


def test_one_writer_is_asked_for_a_snapshot_when_the_tail_is_long_and_not_too_often(
    harness: Harness, phone: Client
) -> None:
    desktop = harness.login("desktop")
    desktop.send(Hello(TASK))
    harness.drain()
    phone.push(TASK, item(11))
    asked = phone.take(SnapshotWanted) + desktop.take(SnapshotWanted)
    assert asked == [SnapshotWanted(STREAM)]
    phone.push(TASK, item(12))
    assert phone.take(SnapshotWanted) + desktop.take(SnapshotWanted) == []
    harness.tick(60_000)
    phone.push(TASK, item(13))
    assert len(phone.take(SnapshotWanted) + desktop.take(SnapshotWanted)) == 1


def test_a_fresh_snapshot_ends_the_asking(harness: Harness, phone: Client) -> None:
    usable(harness, phone)
    harness.tick(60_000)
    phone.take(SnapshotWanted)
    phone.push(TASK, item(11))
    assert phone.take(SnapshotWanted) == []
