"""Blobs: taken in pieces, resumed, verified, asked for, absent."""

import hashlib
from random import Random

import pytest

from server_relay.blobs import PIECE_BYTES_MIN
from server_relay.records import PutPiece
from sync_core.frames import BlobAbsent, BlobMissing, BlobPiece, BlobStored, BlobWanted
from sync_core.limits import BLOB_BYTES_MAX, BLOB_PIECE_BYTES
from tests.server_relay.harness import Client, Harness

TASK = "expense/TRIP-118"
DATA = Random(3).randbytes(3 * BLOB_PIECE_BYTES + 1_000)
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def phone(harness: Harness) -> Client:
    return harness.login("phone")


def piece(offset: int, data: bytes = DATA, size: int = BLOB_PIECE_BYTES, sha: str = SHA) -> BlobPiece:
    return BlobPiece(TASK, sha, offset, len(data), data[offset : offset + size])


def upload(client: Client, data: bytes = DATA) -> None:
    sha = hashlib.sha256(data).hexdigest()
    for offset in range(0, max(1, len(data)), BLOB_PIECE_BYTES):
        client.send(piece(offset, data, sha=sha))


def download(harness: Harness, client: Client, sha: str = SHA) -> bytes:
    data, size = b"", 1
    while len(data) < size:
        client.send(BlobWanted(TASK, sha, len(data)))
        harness.drain()
        (came,) = client.take(BlobPiece)
        assert came.offset == len(data)
        data, size = data + came.data, came.size_bytes
    return data


def test_a_blob_goes_up_in_pieces_and_comes_down_whole(harness: Harness, phone: Client) -> None:
    upload(phone)
    stored = phone.take(BlobStored)
    assert [(answer.offset, answer.complete) for answer in stored] == [
        (BLOB_PIECE_BYTES, False),
        (2 * BLOB_PIECE_BYTES, False),
        (3 * BLOB_PIECE_BYTES, False),
        (len(DATA), True),
    ]
    harness.restart()
    assert download(harness, harness.login("desktop")) == DATA


@pytest.mark.parametrize("size", [0, 1, BLOB_PIECE_BYTES])
def test_small_blobs_and_the_empty_one(harness: Harness, phone: Client, size: int) -> None:
    data = DATA[:size]
    sha = hashlib.sha256(data).hexdigest()
    upload(phone, data)
    assert phone.take(BlobStored) == [BlobStored(TASK, sha, size, True)]
    phone.send(BlobWanted(TASK, sha))
    assert phone.take(BlobPiece) == [BlobPiece(TASK, sha, 0, size, data)]


def test_a_piece_is_stored_before_it_is_answered(phone: Client) -> None:
    phone.hello(TASK)
    write, send = phone.send(piece(0))
    assert isinstance(write.write, PutPiece)  # type: ignore[union-attr]
    assert phone.take(BlobStored) == [BlobStored(TASK, SHA, BLOB_PIECE_BYTES, False)]
    assert send.conn == phone.conn  # type: ignore[union-attr]


def test_an_upload_goes_on_where_it_broke_off_even_from_another_device(harness: Harness, phone: Client) -> None:
    phone.send(piece(0))
    harness.restart()
    desktop = harness.login("desktop")
    desktop.send(piece(0))
    assert desktop.take(BlobStored) == [BlobStored(TASK, SHA, BLOB_PIECE_BYTES, False)]
    for offset in range(BLOB_PIECE_BYTES, len(DATA), BLOB_PIECE_BYTES):
        desktop.send(piece(offset))
    assert desktop.take(BlobStored)[-1].complete
    assert download(harness, desktop) == DATA


def test_a_piece_out_of_place_is_not_kept(harness: Harness, phone: Client) -> None:
    phone.send(piece(BLOB_PIECE_BYTES))
    assert phone.take(BlobStored) == [BlobStored(TASK, SHA, 0, False)]
    assert harness.writes == []


def test_bytes_that_do_not_match_their_hash_are_thrown_away(harness: Harness, phone: Client) -> None:
    wrong = bytes(len(DATA))
    for offset in range(0, len(wrong), BLOB_PIECE_BYTES):
        phone.send(piece(offset, wrong))
    assert phone.take(BlobStored)[-1] == BlobStored(TASK, SHA, 0, False)
    phone.send(BlobWanted(TASK, SHA))
    assert phone.take(BlobMissing) == [BlobMissing(TASK, SHA, False)]
    upload(phone)
    assert download(harness, phone) == DATA


def test_a_complete_blob_is_not_changed_by_later_pieces(harness: Harness, phone: Client) -> None:
    upload(phone)
    before = len(harness.writes)
    phone.send(piece(0), BlobAbsent(TASK, SHA), BlobPiece(TASK, SHA, 0, 5, b"other"))
    assert len(harness.writes) == before
    assert {answer.complete for answer in phone.take(BlobStored)[-2:]} == {True}
    assert download(harness, phone) == DATA


def test_a_blob_is_missing_in_another_task_and_another_subject(harness: Harness, phone: Client) -> None:
    upload(phone)
    phone.send(BlobWanted("other", SHA))
    assert phone.take(BlobMissing) == [BlobMissing("other", SHA, False)]
    eve = harness.login("phone", subject="umbrella")
    eve.send(BlobWanted(TASK, SHA))
    assert eve.take(BlobMissing) == [BlobMissing(TASK, SHA, False)]


def test_an_absent_blob_is_said_to_be_absent_until_a_device_delivers_it(harness: Harness, phone: Client) -> None:
    phone.send(BlobAbsent(TASK, SHA), BlobWanted(TASK, SHA))
    assert phone.take(BlobMissing) == [BlobMissing(TASK, SHA, True)]
    upload(phone)
    assert download(harness, phone) == DATA


@pytest.mark.parametrize(
    "frame",
    [
        BlobPiece(TASK, "../../etc", 0, 1, b"x"),
        BlobPiece(TASK, SHA.upper(), 0, 1, b"x"),
        BlobPiece(TASK, SHA, 0, BLOB_BYTES_MAX + 1, b"x"),
        BlobPiece(TASK, SHA, 0, -1, b""),
        BlobPiece(TASK, SHA, 0, 2**20, bytes(BLOB_PIECE_BYTES + 1)),
        BlobPiece(TASK, SHA, 0, 2**20, bytes(PIECE_BYTES_MIN - 1)),
        BlobWanted(TASK, "x"),
        BlobAbsent(TASK, ""),
    ],
)
def test_what_cannot_be_right_ends_the_session(harness: Harness, phone: Client, frame: BlobPiece) -> None:
    phone.send(frame)
    assert phone.closed is not None
    assert harness.writes == []


@pytest.mark.parametrize("offset", [-1, len(DATA) + 1])
def test_an_offset_outside_the_blob_finds_nothing(phone: Client, offset: int) -> None:
    upload(phone)
    phone.send(BlobWanted(TASK, SHA, offset))
    assert len(phone.take(BlobMissing)) == 1


def test_blob_pieces_come_after_entries_and_when_there_is_room(harness: Harness, phone: Client) -> None:
    upload(phone)
    slow = harness.login("slow")
    slow.reads = False
    for offset in range(0, len(DATA), 10_000):
        slow.send(BlobWanted(TASK, SHA, offset))
    assert 1 <= len(slow.take(BlobPiece)) <= 2
    slow.reads = True
    harness.drain()
    assert len(slow.take(BlobPiece)) > 30
