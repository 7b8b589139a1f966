"""Blobs go up before the entry that names them, one at a time, and come down verified; both resume."""

import hashlib

import pytest

from sync_core.entry import EntryKind
from sync_core.frames import BlobAbsent, BlobMissing, BlobPiece, BlobStored, BlobWanted, Push, Refusal, RefusalCode
from sync_core.ids import StreamName
from sync_core.limits import BLOB_PIECE_BYTES
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.core import Core, ReplicaSettings
from sync_core.replica.session import SessionEvent
from sync_core.replica.transfers import Transfers
from sync_core.replica.writes import PutBlob, SetBlobState
from tests.sync_core.replica.fleet import TASK
from tests.sync_core.replica.solo import EPOCH, Log, Solo

DATA = bytes(range(256)) * 1_200
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def core() -> Core:
    core = Core("acme", "phone", lambda count: bytes(range(count)), ReplicaSettings(has_relay=True))
    core.session.on(SessionEvent.LINK_UP)
    core.session.on(SessionEvent.WELCOME)
    return core


@pytest.fixture
def transfers(core: Core) -> Transfers:
    return Transfers(core, TASK)


def sent(core: Core) -> list[object]:
    return [effect.frame for effect in core.take() if isinstance(effect, e.SendFrame)]


def begin_upload(core: Core, transfers: Transfers) -> list[object]:
    transfers.uploads.add(SHA)
    transfers.push(SHA)
    assert core.take() == [e.LoadBlob(TASK, SHA)]
    transfers.on_loaded(SHA, DATA)
    return sent(core)


def piece(offset: int, data: bytes = DATA, *, sha256: str = SHA) -> BlobPiece:
    return BlobPiece(TASK, sha256, offset, len(data), data[offset : offset + BLOB_PIECE_BYTES])


def test_a_blob_goes_up_piece_by_piece_from_where_the_relay_stands(core: Core, transfers: Transfers) -> None:
    assert begin_upload(core, transfers) == [piece(0)]
    assert not transfers.on_stored(BlobStored(TASK, SHA, 2 * BLOB_PIECE_BYTES, complete=False))
    assert sent(core) == [piece(2 * BLOB_PIECE_BYTES)]
    assert transfers.on_stored(BlobStored(TASK, SHA, len(DATA), complete=True))
    assert core.take() == [e.Written(SetBlobState(TASK, SHA, upload=False))]
    assert transfers.idle
    assert not transfers.uploads


def test_one_blob_goes_up_at_a_time_and_only_what_the_relay_lacks(core: Core, transfers: Transfers) -> None:
    transfers.push("0" * 64)
    assert core.take() == []
    begin_upload(core, transfers)
    transfers.uploads.add("1" * 64)
    transfers.push("1" * 64)
    assert core.take() == []


def test_a_blob_that_is_gone_here_is_declared_absent_and_waited_for_no_longer(core: Core, transfers: Transfers) -> None:
    transfers.uploads.add(SHA)
    transfers.push(SHA)
    core.take()
    transfers.on_loaded(SHA, None)
    assert core.take() == [
        e.SendFrame(BlobAbsent(TASK, SHA)),
        e.Written(SetBlobState(TASK, SHA, upload=False)),
    ]
    assert transfers.idle
    assert not transfers.uploads


def test_a_piece_without_an_answer_is_sent_again_after_three_seconds(core: Core, transfers: Transfers) -> None:
    begin_upload(core, transfers)
    core.now_ms = 2_999
    transfers.tick()
    assert sent(core) == []
    core.now_ms = 3_000
    transfers.tick()
    assert sent(core) == [piece(0)]


def test_an_upload_that_the_relay_turns_down_ends(core: Core, transfers: Transfers) -> None:
    begin_upload(core, transfers)
    assert transfers.on_missing(BlobMissing(TASK, SHA)) is None
    assert transfers.idle
    assert not transfers.uploads


def test_a_download_ends_with_its_last_byte_and_is_kept(core: Core, transfers: Transfers) -> None:
    download = transfers.fetch(SHA)
    assert sent(core) == [BlobWanted(TASK, SHA, 0)]
    assert transfers.fetch(SHA) is download
    assert transfers.on_piece(piece(0)) is None
    assert sent(core) == [BlobWanted(TASK, SHA, BLOB_PIECE_BYTES)]
    assert transfers.on_piece(piece(0)) is None
    assert transfers.on_piece(piece(BLOB_PIECE_BYTES)) is None
    assert transfers.on_piece(piece(2 * BLOB_PIECE_BYTES)) is download
    core.take()
    assert transfers.keep(download) == DATA
    assert core.take() == [e.Written(PutBlob(TASK, SHA, DATA, upload=False))]
    assert transfers.idle


def test_bytes_that_are_not_what_their_name_says_are_thrown_away(transfers: Transfers) -> None:
    transfers.fetch("0" * 64)
    download = transfers.on_piece(piece(0, b"other bytes", sha256="0" * 64))
    assert download is not None
    assert download.data == b""


def test_what_the_replica_waits_for_goes_on_in_the_next_session_where_it_stands(
    core: Core, transfers: Transfers
) -> None:
    wanted, asked = transfers.fetch(SHA), transfers.fetch("0" * 64)
    wanted.snapshot = True
    asked.refs.append(5)
    transfers.on_piece(piece(0))
    assert transfers.stop() == [asked]
    core.take()
    transfers.restart()
    assert sent(core) == [BlobWanted(TASK, SHA, BLOB_PIECE_BYTES)]


def test_an_upload_begins_again_in_the_next_session(core: Core, transfers: Transfers) -> None:
    begin_upload(core, transfers)
    transfers.restart()
    transfers.push(SHA)
    assert core.take() == [e.LoadBlob(TASK, SHA)]


def test_a_download_without_an_answer_is_asked_for_again(core: Core, transfers: Transfers) -> None:
    transfers.fetch(SHA)
    transfers.on_piece(piece(0))
    core.take()
    core.now_ms = 3_000
    transfers.tick()
    assert sent(core) == [BlobWanted(TASK, SHA, BLOB_PIECE_BYTES)]


# --- in a session -----------------------------------------------------------------------------------------------------


def begin_large_call(phone: Solo) -> str:
    phone.open()
    phone.log_in()
    phone.heads(known=False)
    phone.call("scan", "x" * 10_000)
    return next(iter(phone.image.uploads))


def test_an_entry_is_pushed_once_the_relay_has_its_blob() -> None:
    phone = Solo()
    phone.drop_link()
    sha256 = begin_large_call(phone)
    pushed = [entry for push in phone.sent(Push) for entry in push.entries]
    assert sha256 not in [entry.blob for entry in pushed]
    phone.hear(BlobStored(TASK, sha256, 10_002, complete=True))
    assert phone.sent(Push)[-1].entries[-1].blob == sha256
    assert not phone.image.uploads


def test_an_entry_whose_blob_was_declared_absent_goes_on() -> None:
    phone = Solo()
    phone.drop_link()
    phone.open()
    phone.call("scan", "x" * 10_000)
    sha256 = next(iter(phone.image.uploads))
    phone.disk._current._blobs.pop((TASK, sha256))
    phone.log_in()
    phone.heads(known=False)
    assert phone.sent(BlobAbsent) == [BlobAbsent(TASK, sha256)]
    assert phone.sent(Push)[-1].entries[-1].blob == sha256


def test_a_blob_that_the_relay_lost_goes_up_again_before_its_entry() -> None:
    phone = Solo()
    phone.drop_link()
    sha256 = begin_large_call(phone)
    phone.hear(BlobStored(TASK, sha256, 10_002, complete=True))
    outcome = phone.unsent(EntryKind.CALL)[-1]
    phone.forget()
    phone.hear(Refusal(outcome.stream, outcome.writer, outcome.writer_seq, RefusalCode.BLOB_MISSING, "gone"))
    phone.wait(200)
    assert phone.sent(BlobPiece)[0].sha256 == sha256
    assert sha256 not in [entry.blob for push in phone.sent(Push) for entry in push.entries]


def test_a_result_that_only_the_relay_has_is_fetched_and_kept() -> None:
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK, True))
    phone.heads(Log(StreamName.STATE, (), EPOCH).head, known=False)
    phone.handle(c.FetchBlob(2, TASK, SHA))
    phone.hear(piece(0), piece(BLOB_PIECE_BYTES), piece(2 * BLOB_PIECE_BYTES))
    assert phone.replies[2] == DATA
    assert phone.disk.load_blob(TASK, SHA) == DATA
