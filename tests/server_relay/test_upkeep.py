"""Backup while the relay goes on, verification that finds every fault, compaction, files for their owner (RS-36)."""

import asyncio
import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from server_relay.__main__ import main
from server_relay.command.control import BackedUp, Compacted, ask, control_path
from server_relay.command.restoring import restore
from server_relay.command.service import Service
from server_relay.config import RelaySettings
from server_relay.mailbox import copying
from server_relay.mailbox.schema import STORED_NO_BITS
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.mailbox.verifying import verify_file
from server_relay.server import serve
from sync_core.errors import Closed, StoreDamaged, StoreUnusable
from sync_core.frames import BlobPiece, BlobStored
from sync_core.ids import StreamName
from sync_core.limits import BLOB_PIECE_BYTES
from tests.contracts.mailbox_suite import append, start, stored
from tests.server_relay.wire_client import WireClient, history_entry

TASK, PHONE = "expense/TRIP-118", 700_001
BLOB = Random(1).randbytes(BLOB_PIECE_BYTES + 5_000)
SHA = hashlib.sha256(BLOB).hexdigest()


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    return RelaySettings(db=tmp_path / "relay.db", port=0)


async def fill(settings: RelaySettings, entries: int = 20) -> None:
    """A store with two subjects, three tasks, entries and a blob."""
    relay = await serve(settings)
    for subject in ("acme", "umbrella"):
        async with await WireClient.open(relay.port, "phone", subject=subject) as phone:
            await phone.push(TASK, *(history_entry(TASK, PHONE, seq, "phone") for seq in range(1, entries + 1)))
            await phone.receipts(entries)
            await phone.send(BlobPiece(TASK, SHA, 0, len(BLOB), BLOB[:BLOB_PIECE_BYTES]))
            await phone.send(BlobPiece(TASK, SHA, BLOB_PIECE_BYTES, len(BLOB), BLOB[BLOB_PIECE_BYTES:]))
            await phone.next(BlobStored, lambda told: told.complete)
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push("other", history_entry("other", PHONE, 1, "phone"))
        await phone.receipts(1)
    await relay.close()


# --- verify -----------------------------------------------------------------------------------------------------------


async def test_a_store_that_was_used_is_sound(settings: RelaySettings) -> None:
    await fill(settings)
    verdict = verify_file(settings.db)
    assert verdict.problems == ()
    assert (verdict.subjects, verdict.tasks, verdict.streams, verdict.entries, verdict.blobs) == (2, 3, 3, 41, 2)


STREAM = "(SELECT id FROM streams WHERE head = 20 LIMIT 1)"
FAULTS = {
    "bytes are damaged": f"UPDATE entries SET wire = zeroblob(9) WHERE relay_seq = 5 AND stream = {STREAM}",
    "has 20 entries up to 21, its row says 21": f"UPDATE entries SET writer_seq = 21 WHERE relay_seq = 4 AND stream ="
    f" {STREAM}; UPDATE writers SET next_seq = 22",
    "UTF-8": f"UPDATE entries SET wire = CAST(x'ff' AS TEXT) WHERE relay_seq = 5 AND stream = {STREAM}",
    "the chain breaks at place 7": f"UPDATE entries SET chain = zeroblob(16) WHERE relay_seq = 7 AND stream = {STREAM}",
    "place 3 is missing": f"DELETE FROM entries WHERE relay_seq = 3 AND stream = {STREAM}",
    "the head says place 20, the log ends at 19": f"DELETE FROM entries WHERE relay_seq = 20 AND stream = {STREAM}",
    "the head says place 21": "UPDATE streams SET head = head + 1",
    "its row says 99": f"UPDATE writers SET next_seq = 100 WHERE stream = {STREAM}",
    "its row says 0": f"DELETE FROM writers WHERE stream = {STREAM}",
    "lies outside its task": "UPDATE tasks SET stored_no = 1",
    "is of no task": "DELETE FROM tasks WHERE task = 'other'",
    "entries are of no stream": f"DELETE FROM streams WHERE id = {STREAM}",
    "is not whole": "UPDATE pieces SET data = zeroblob(length(data)) WHERE offset = 0",
    f"blob {SHA} is not whole": "DELETE FROM pieces WHERE offset > 0",
    "another than its row says": f"UPDATE entries SET writer_seq = 1000 WHERE relay_seq = 4 AND stream = {STREAM}",
    "SQLite: wrong # of entries in index": "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET"
    " sql = replace(sql, 'stored_no > 0', 'stored_no > 1') WHERE name = 'tasks_by_age'",
}


@pytest.mark.parametrize("fault", list(FAULTS))
async def test_every_fault_is_found(settings: RelaySettings, fault: str) -> None:
    await fill(settings)
    with sqlite3.connect(settings.db) as connection:
        connection.executescript(FAULTS[fault])
    connection.close()
    assert any(fault in problem for problem in verify_file(settings.db).problems), verify_file(settings.db).problems


async def test_content_that_is_not_what_was_hashed_is_found(settings: RelaySettings) -> None:
    """Whoever forges an entry also mends its checksum; the chain tells."""
    await fill(settings)
    with sqlite3.connect(settings.db) as connection:
        (wire,) = connection.execute("SELECT wire FROM entries WHERE relay_seq = 2 LIMIT 1").fetchone()
        forged = wire.replace(b"phone", b"photo")
        connection.execute("UPDATE entries SET wire = ?, checksum = ? WHERE wire = ?", (forged, crc32(forged), wire))
    connection.close()
    assert any("is not what was hashed at place 2" in problem for problem in verify_file(settings.db).problems)


async def test_what_cannot_be_read_at_all_is_told(settings: RelaySettings, tmp_path: Path) -> None:
    for content in (b"", b"nonsense" * 1_000):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises((StoreUnusable, StoreDamaged)):
            verify_file(tmp_path / "other")
    with pytest.raises(StoreUnusable):
        verify_file(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


async def test_verify_changes_nothing(settings: RelaySettings) -> None:
    await fill(settings)
    before = settings.db.read_bytes()
    verify_file(settings.db)
    assert settings.db.read_bytes() == before


# --- backup -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def mailbox(settings: RelaySettings) -> AsyncIterator[SqliteMailbox]:
    mailbox = await SqliteMailbox.open(settings.db)
    yield mailbox
    await mailbox.close()


async def test_commits_and_reads_go_on_during_a_backup_and_are_in_it(
    mailbox: SqliteMailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PORTION_PAGES", 1)
    rows = [stored(number, number, name=StreamName.HISTORY, size=20_000) for number in range(1, 401)]
    await mailbox.commit([start(StreamName.HISTORY), append(*rows[:300])])
    backup = asyncio.create_task(mailbox.back_up(tmp_path / "backup.db"))
    # It is begun before the first of these commits.
    await asyncio.sleep(0)
    for row in rows[300:400]:
        await mailbox.commit([append(row)])
        assert (await mailbox.stats()).entries == row.relay_seq
    assert await backup == (tmp_path / "backup.db").stat().st_size
    with sqlite3.connect(tmp_path / "backup.db") as copy:
        (count,) = copy.execute("SELECT count(*) FROM entries").fetchone()
        assert 300 < count <= 400
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT head FROM streams").fetchone() == (count,)
    copy.close()


async def test_a_backup_of_a_relay_that_works_is_sound(settings: RelaySettings, tmp_path: Path) -> None:
    await fill(settings)
    mailbox = await SqliteMailbox.open(settings.db)
    relay = await serve(settings, mailbox)
    async with await WireClient.open(relay.port, "phone", subject="third") as phone:
        backup = asyncio.create_task(mailbox.back_up(tmp_path / "backup.db"))
        for seq in range(1, 30):
            await phone.push(TASK, history_entry(TASK, PHONE, seq, "phone"))
            await phone.receipts(1)
        await backup
    await relay.close()
    assert verify_file(tmp_path / "backup.db").problems == ()


async def test_a_backup_takes_the_place_of_nothing(mailbox: SqliteMailbox, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "busy.part").write_text("another")
    for name in ("there", "link", "busy"):
        with pytest.raises(StoreUnusable):
            await mailbox.back_up(tmp_path / name)
    with pytest.raises(StoreUnusable):
        await mailbox.back_up(tmp_path / "no folder" / "x")
    assert (tmp_path / "there").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


async def test_a_relay_that_stops_breaks_its_backup_off_and_leaves_nothing(
    settings: RelaySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PORTION_PAGES", 1)
    mailbox = await SqliteMailbox.open(settings.db)
    rows = [stored(number, number, size=100_000) for number in range(1, 101)]
    await mailbox.commit([start(), append(*rows)])
    backup = asyncio.create_task(mailbox.back_up(tmp_path / "backup.db"))
    await mailbox.stats()
    await mailbox.close()
    with pytest.raises(Closed):
        await backup
    assert not list(tmp_path.glob("backup*"))


@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_every_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """RS-36."""
    before = os.umask(umask)
    try:
        service = await Service.start(RelaySettings(db=tmp_path / "store" / "relay.db", port=0))
        async with await WireClient.open(service.port, "phone") as phone:
            await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
            await phone.receipts(1)
            await asyncio.to_thread(
                ask, tmp_path / "store" / "relay.db", "backup", BackedUp, str(tmp_path / "store" / "b.db")
            )
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "store").iterdir()}
        await service.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    assert modes == dict.fromkeys(("relay.db", "relay.db-wal", "relay.db-control", "b.db"), 0o600)


async def test_a_store_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    with pytest.raises(StoreUnusable, match="symbolic link"):
        await serve(RelaySettings(db=tmp_path / "link.db", port=0))
    with pytest.raises(StoreUnusable):
        restore(tmp_path / "link.db", tmp_path / "real.db")


@pytest.mark.parametrize(("mode", "welcome"), [(0o777, False), (0o1777, True), (0o755, True), (0o770, True)])
async def test_a_folder_in_which_anybody_may_replace_files_is_refused(tmp_path: Path, mode: int, welcome: bool) -> None:
    """RS-36."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    opening = SqliteMailbox.open(folder / "relay.db")
    if welcome:
        await (await opening).close()
    else:
        with pytest.raises(StoreUnusable, match="replace files"):
            await opening
        assert not list(folder.iterdir())


# --- by the operator --------------------------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


async def test_the_running_relay_makes_the_backup_and_compacts(
    settings: RelaySettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(settings)
    service = await Service.start(settings)
    run: Callable[..., object] = lambda *arguments: asyncio.to_thread(main, [*map(str, arguments)])  # noqa: E731
    backup = tmp_path / "backup.db"
    assert await run("backup", "--db", settings.db, "--to", backup, "--json") == 0  # type: ignore[misc]
    assert told(capsys)["by_the_relay"] is True
    assert await run("backup", "--db", settings.db, "--to", backup) == 1  # type: ignore[misc]
    assert "there already" in capsys.readouterr().err
    assert await run("compact", "--db", settings.db, "--json") == 0  # type: ignore[misc]
    assert told(capsys)["event"] == "compacted"
    async with await WireClient.open(service.port, "phone") as phone:
        await phone.follow(TASK)
        assert len(await phone.entries(20)) == 20
    await service.close()
    assert not control_path(settings.db).exists()
    assert await run("verify", backup, "--json") == 0  # type: ignore[misc]
    assert told(capsys)["entries"] == 41


def test_without_a_relay_the_command_does_it_itself(
    settings: RelaySettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(settings))
    assert main(["backup", "--db", str(settings.db), "--to", str(tmp_path / "b.db"), "--json"]) == 0
    assert told(capsys)["by_the_relay"] is False
    assert main(["compact", "--db", str(settings.db)]) == 0
    assert main(["compact", "--db", str(tmp_path / "missing.db")]) == 1
    assert not (tmp_path / "missing.db").exists()
    assert verify_file(tmp_path / "b.db").problems == ()


async def test_what_the_relay_is_not_asked_it_does_not_do(settings: RelaySettings) -> None:
    service = await Service.start(settings)
    relative = b'{"do": "backup", "with": "relative"}\n'
    for line in (b"\n", b"nonsense\n", b"[]\n", b'{"do": "rm"}\n', relative, b"x" * 99_999):
        reader, writer = await asyncio.open_unix_connection(str(control_path(settings.db)))
        writer.write(line)
        answer = await reader.readline()
        assert not answer or json.loads(answer)["failed"] is True
        writer.close()
    await service.close()


def test_compaction_gives_back_the_room_of_what_was_deleted(settings: RelaySettings) -> None:
    async def grown_and_shrunk() -> None:
        mailbox = await SqliteMailbox.open(settings.db)
        rows = [stored(number, number, size=50_000) for number in range(1, 101)]
        await mailbox.commit([start(), append(*rows)])
        await mailbox.close()
        with sqlite3.connect(settings.db) as connection:
            connection.execute(f"DELETE FROM entries WHERE place & {(1 << STORED_NO_BITS) - 1} > 10")
        connection.close()
        mailbox = await SqliteMailbox.open(settings.db)
        before, after = await mailbox.compact()
        assert after < before / 5
        assert (await mailbox.stats()).entries == 10
        await mailbox.close()

    asyncio.run(grown_and_shrunk())


async def test_a_file_in_the_place_of_the_control_socket_is_left_alone(settings: RelaySettings) -> None:
    control_path(settings.db).write_text("mine")
    service = await Service.start(settings)
    async with await WireClient.open(service.port, "phone"):
        assert ask(settings.db, "compact", Compacted) is None
    await service.close()
    assert control_path(settings.db).read_text() == "mine"
