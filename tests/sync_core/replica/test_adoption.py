"""Snapshots at the relay (rule F): offered, confirmed by what a device computes itself, adopted, or refused alone."""

import hashlib

import msgspec
import pytest
from pycrdt import Doc, Map

from sync_core.document.view import TaskView
from sync_core.entry import Snapshot, decode_snapshot, encode_record
from sync_core.frames import (
    BlobPiece,
    BlobStored,
    BlobWanted,
    Entries,
    Heads,
    Hello,
    SnapshotConfirmed,
    SnapshotOffer,
    SnapshotRef,
    SnapshotWanted,
    StreamHead,
)
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import TaskDiverged
from sync_core.replica.writes import CompactStream
from tests.sync_core.replica.fleet import TASK, Device
from tests.sync_core.replica.solo import EPOCH, STATE, Log, Solo, log_of

HISTORY = f"{TASK}:history"


def work(author: Device) -> None:
    for number in range(3):
        author.append("n", f"{author.name} {number}\n")
    author.ask(c.AppendHistory(author.ref(), TASK, ('{"role":"user"}',)), object)


@pytest.fixture
def logs() -> tuple[Log, Log]:
    logs = log_of(work)
    return logs[StreamName.STATE], logs[StreamName.HISTORY]


def reader(logs: tuple[Log, Log]) -> Solo:
    """A device that has merged both logs."""
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(logs[0].head, logs[1].head)
    phone.hear(logs[0].frame(), logs[1].frame())
    assert isinstance(phone.replies.pop(1), TaskView)
    phone.forget()
    return phone


def made(logs: tuple[Log, Log], stream: str = STATE) -> tuple[Snapshot, bytes]:
    """A snapshot of a stream, as an honest device makes it."""
    maker = reader(logs)
    maker.hear(SnapshotWanted(stream))
    (sha256,) = maker.image.uploads
    data = maker.disk.load_blob(TASK, sha256)
    assert data is not None
    return decode_snapshot(data), data


def ref_of(snapshot: Snapshot, data: bytes, *, usable: bool, device: str = "desktop") -> SnapshotRef:
    return SnapshotRef(snapshot.covers_seq, hashlib.sha256(data).hexdigest(), snapshot.digest, device, usable)


def piece(data: bytes) -> BlobPiece:
    return BlobPiece(TASK, hashlib.sha256(data).hexdigest(), 0, len(data), data)


# --- adopting ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(logs: tuple[Log, Log]) -> tuple[Solo, Snapshot, bytes, StreamHead]:
    """A device that knows nothing, and the head of a stream whose tail begins above a usable snapshot."""
    snapshot, data = made(logs)
    head = StreamHead(StreamName.STATE, EPOCH, 4, 5, ref_of(snapshot, data, usable=True))
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    return phone, snapshot, data, head


def test_a_confirmed_snapshot_stands_for_the_entries_that_it_covers(
    fresh: tuple[Solo, Snapshot, bytes, StreamHead], logs: tuple[Log, Log]
) -> None:
    phone, snapshot, data, head = fresh
    phone.heads(head, logs[1].head)
    phone.hear(logs[1].frame(), piece(data))
    assert [write.covers_seq for write in phone.written(CompactStream)] == [4]
    assert phone.cursor() == 4
    (state, _) = phone.sent(Hello)[-1].streams
    assert (state.cursor, state.chain) == (4, snapshot.chain)
    phone.heads(head, logs[1].head)
    view = phone.replies[1]
    assert isinstance(view, TaskView)
    assert view.notes["n"].text == "author 0\nauthor 1\nauthor 2\n"


def changed(snapshot: Snapshot, **fields: object) -> bytes:
    return encode_record(msgspec.structs.replace(snapshot, **fields))


def with_another_root(document: bytes) -> bytes:
    doc: Doc[Map[str]] = Doc(client_id=70_009)
    doc.apply_update(document)
    doc["evil"] = Map({"key": "value"})
    return doc.get_update()


@pytest.mark.parametrize(
    "fault",
    [
        "garbage",
        "other content with its own digest",
        "another place",
        "a record of another place",
        "a root that no task has",
    ],
)
def test_a_snapshot_that_does_not_hold_what_was_confirmed_costs_its_task_alone(
    fresh: tuple[Solo, Snapshot, bytes, StreamHead], logs: tuple[Log, Log], fault: str
) -> None:
    phone, snapshot, _, head = fresh
    record = snapshot.records[0]
    other, _ = made((log_of(lambda author: author.append("n", "fake"))[StreamName.STATE], logs[1]))
    bad = {
        "garbage": b"garbage",
        "other content with its own digest": changed(other, covers_seq=4),
        "another place": changed(snapshot, covers_seq=3),
        "a record of another place": changed(snapshot, records=(msgspec.structs.replace(record, relay_seq=0),)),
        "a root that no task has": changed(snapshot, document=with_another_root(snapshot.document)),
    }[fault]
    assert head.snapshot is not None
    ref = msgspec.structs.replace(head.snapshot, sha256=hashlib.sha256(bad).hexdigest())
    head = msgspec.structs.replace(head, snapshot=ref)
    phone.heads(head, logs[1].head)
    phone.hear(piece(bad))
    assert phone.count(e.HangUp) == 0
    assert phone.written(CompactStream) == []
    assert phone.replica.status.diverged == (TASK,)
    wanted = len(phone.sent(BlobWanted))
    phone.hear(Heads(TASK, True, (head,), 0))
    phone.wait(4_000)
    assert len(phone.sent(BlobWanted)) == wanted


def test_a_device_reads_what_it_holds_before_a_snapshot_may_replace_it(logs: tuple[Log, Log]) -> None:
    phone = reader(logs)
    phone.crash()
    phone.log_in()
    assert phone.replica.loaded == 0
    ref = SnapshotRef(8, "a" * 64, bytes(32), "desktop", usable=True)
    phone.heads(StreamHead(StreamName.STATE, EPOCH, 9, 8, ref), logs[1].head)
    assert phone.sent(BlobWanted) == [BlobWanted(TASK, "a" * 64, 0)]
    phone.wait(1_000)
    assert phone.replica.loaded == 1


# --- offering and confirming ------------------------------------------------------------------------------------------


def test_an_offer_of_another_device_is_confirmed_from_the_own_log_once_a_session(logs: tuple[Log, Log]) -> None:
    snapshot, data = made(logs)
    ref = ref_of(snapshot, data, usable=False)
    phone = reader(logs)
    head = StreamHead(StreamName.STATE, EPOCH, 4, 1, ref)
    phone.hear(Heads(TASK, True, (head,), 0), Heads(TASK, True, (head,), 0))
    confirmed = SnapshotConfirmed(STATE, EPOCH, ref.sha256, ref.digest)
    assert phone.sent(SnapshotConfirmed) == [confirmed]
    assert phone.sent(BlobWanted) == []
    phone.drop_link()
    phone.log_in()
    phone.heads(head, logs[1].head)
    assert phone.sent(SnapshotConfirmed) == [confirmed, confirmed]


def test_offers_of_several_streams_are_all_checked(logs: tuple[Log, Log]) -> None:
    refs = [ref_of(*made(logs, stream), usable=False) for stream in (STATE, HISTORY)]
    phone = reader(logs)
    heads = (
        StreamHead(StreamName.STATE, EPOCH, 4, 1, refs[0]),
        StreamHead(StreamName.HISTORY, EPOCH, 1, 1, refs[1]),
    )
    phone.hear(Heads(TASK, True, heads, 0))
    assert {frame.sha256 for frame in phone.sent(SnapshotConfirmed)} == {ref.sha256 for ref in refs}


def test_an_offer_with_another_digest_is_not_confirmed(logs: tuple[Log, Log]) -> None:
    snapshot, data = made(logs)
    ref = msgspec.structs.replace(ref_of(snapshot, data, usable=False), digest=bytes(32))
    phone = reader(logs)
    phone.hear(Heads(TASK, True, (StreamHead(StreamName.STATE, EPOCH, 4, 1, ref),), 0))
    assert phone.sent(SnapshotConfirmed) == []


def test_an_offer_of_a_later_place_is_checked_once_that_is_reached(logs: tuple[Log, Log]) -> None:
    longer = log_of(work, "author", "tablet")
    state = longer[StreamName.STATE]
    snapshot, data = made((state, longer[StreamName.HISTORY]))
    phone = reader(logs)
    ref = ref_of(snapshot, data, usable=False)
    phone.hear(Heads(TASK, True, (StreamHead(StreamName.STATE, EPOCH, 7, 1, ref),), 0))
    assert phone.sent(SnapshotConfirmed) == []
    phone.hear(Entries(STATE, EPOCH, state.entries[4:]))
    phone.wait(200)
    assert [frame.digest for frame in phone.sent(SnapshotConfirmed)] == [ref.digest]


def test_an_own_snapshot_is_offered_once_stored_and_confirmed_from_a_fresh_download_in_another_session(
    logs: tuple[Log, Log],
) -> None:
    phone = reader(logs)
    phone.hear(SnapshotWanted(STATE))
    (sha256,) = phone.image.uploads
    data = phone.disk.load_blob(TASK, sha256)
    assert data is not None
    assert phone.sent(SnapshotOffer) == []
    phone.hear(BlobStored(TASK, sha256, len(data), complete=True))
    snapshot = decode_snapshot(data)
    assert phone.sent(SnapshotOffer) == [SnapshotOffer(STATE, EPOCH, 4, snapshot.digest, sha256, "")]
    head = StreamHead(StreamName.STATE, EPOCH, 4, 1, ref_of(snapshot, data, usable=False, device="phone"))
    phone.hear(Heads(TASK, True, (head,), 0))
    assert phone.sent(BlobWanted) == []
    phone.drop_link()
    phone.log_in()
    phone.heads(head, logs[1].head)
    assert phone.sent(BlobWanted) == [BlobWanted(TASK, sha256, 0)]
    phone.hear(piece(data))
    assert phone.sent(SnapshotConfirmed) == [SnapshotConfirmed(STATE, EPOCH, sha256, snapshot.digest)]
    assert TaskDiverged(TASK, STATE, "phone") not in phone.changes
