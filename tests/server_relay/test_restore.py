"""A backup in a store's place (rule J): nothing is lost that a device holds, and no running relay loses its store."""

import asyncio
import signal
import sqlite3
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from server_relay.__main__ import main
from server_relay.command.restoring import restore
from server_relay.config import RelaySettings
from server_relay.mailbox.verifying import verify_file
from server_relay.server import serve
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.opening import Opening
from sync_core.errors import StoreDamaged, StoreInUse, StoreUnusable
from sync_core.frames import Heads, Hello, Receipt, StreamPosition
from sync_core.ids import StreamName
from tests.server_relay.test_main import line_of, stop
from tests.server_relay.test_main import start as start_process
from tests.server_relay.test_upkeep import fill
from tests.server_relay.wire_client import WireClient, history_entry

TASK, PHONE = "expense/TRIP-118", 700_001


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    return RelaySettings(db=tmp_path / "relay.db", port=0)


async def test_devices_bring_back_what_a_backup_lacks(settings: RelaySettings, tmp_path: Path) -> None:
    """Rule J: every stream has a new epoch, so a device that read further says what it holds."""
    await fill(settings)
    assert await asyncio.to_thread(main, ["backup", "--db", str(settings.db), "--to", str(tmp_path / "b.db")]) == 0
    relay = await serve(settings)
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.follow(TASK)
        (before,) = (await phone.next(Heads)).streams
        await phone.push(TASK, history_entry(TASK, PHONE, 21, "phone"))
        await phone.receipts(1)
    await relay.close()
    replaced = await asyncio.to_thread(restore, settings.db, tmp_path / "b.db")
    assert replaced is not None
    assert verify_file(replaced).entries == 42
    assert verify_file(settings.db).problems == ()
    assert stat.S_IMODE(settings.db.stat().st_mode) == 0o600
    relay = await serve(settings)
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.send(Hello(TASK, (StreamPosition(StreamName.HISTORY, before.epoch, 21, bytes(16)),)))
        (after,) = (await phone.next(Heads)).streams
        assert (after.head, after.tail_from) == (20, 1)
        assert after.epoch != before.epoch
        await phone.push(TASK, history_entry(TASK, PHONE, 21, "phone"))
        assert (await phone.next(Receipt)).first_relay_seq == 21
    await relay.close()


async def test_endpoints_bring_back_all_that_an_old_backup_lacks(settings: RelaySettings, tmp_path: Path) -> None:
    """What the phone wrote after the backup, and what only the desktop still holds of it, reaches a third device."""
    relay = await serve(settings)
    port = relay.port

    def device(name: str) -> Opening[Endpoint]:
        return Endpoint.open(
            tmp_path / f"{name}.db",
            subject="acme",
            device=name,
            relay=f"ws://127.0.0.1:{port}",
            backoff=Backoff(first_s=0.01, cap_s=0.05),
        )

    async with device("phone") as phone:
        task = await phone.task(TASK, create=True)
        await task.slots.confirm("before", 1)
        await phone.synced()
        await relay.close()
        backup = ["backup", "--db", str(settings.db), "--to", str(tmp_path / "b.db")]
        assert await asyncio.to_thread(main, backup) == 0
        relay = await serve(replace(settings, port=port))
        await task.slots.confirm("after", 2)
        await task.history.append({"role": "user", "content": "after"})
        await phone.synced(timeout_s=30)
    # The phone is gone for good.
    async with device("desktop") as desktop:
        shared = await desktop.task(TASK)
        await desktop.synced(timeout_s=30)
        assert shared.slots["after"].value == 2
        await relay.close()
        await asyncio.to_thread(restore, settings.db, tmp_path / "b.db")
        assert verify_file(settings.db).entries < verify_file(settings.db.with_name("relay.db.replaced-1")).entries
        relay = await serve(replace(settings, port=port))
        await desktop.synced(timeout_s=30)
        async with device("tablet") as tablet:
            late = await tablet.task(TASK)
            await tablet.synced(timeout_s=30)
            assert (late.slots["before"].value, late.slots["after"].value) == (1, 2)
            assert [item["content"] for item in await late.history.items()] == ["after"]
        await relay.close()
    assert verify_file(settings.db).problems == ()


def test_every_stream_of_a_restored_store_has_a_new_epoch_and_every_subject_its_barrier(
    settings: RelaySettings, tmp_path: Path
) -> None:
    """Also where no device read further than the backup: a key could be granted twice."""
    asyncio.run(fill(settings))
    assert main(["backup", "--db", str(settings.db), "--to", str(tmp_path / "b.db")]) == 0
    restore(settings.db, tmp_path / "b.db")
    epochs, barriers = [], []
    for path in (tmp_path / "b.db", settings.db):
        connection = sqlite3.connect(path)
        epochs += [epoch for (epoch,) in connection.execute("SELECT epoch FROM streams")]
        barriers.append(connection.execute("SELECT count(*) FROM subjects WHERE barrier > 0").fetchone()[0])
        connection.close()
    assert len(set(epochs)) == len(epochs) == 6
    assert barriers == [0, 2]


def test_a_running_relay_keeps_its_store(tmp_path: Path) -> None:
    db, backup = tmp_path / "relay.db", tmp_path / "backup.db"
    asyncio.run(fill(RelaySettings(db=db, port=0)))
    assert main(["backup", "--db", str(db), "--to", str(backup)]) == 0
    process = start_process("--db", db, "--port", "0", "--json")
    line_of(process)
    before = db.stat().st_ino
    with pytest.raises(StoreInUse):
        restore(db, backup)
    with pytest.raises(StoreInUse):
        verify_file(db)
    assert main(["restore", "--db", str(db), "--from", str(backup)]) == 1
    assert db.stat().st_ino == before
    assert stop(process, signal.SIGTERM) == 0
    assert main(["restore", "--db", str(db), "--from", str(backup)]) == 0
    assert db.stat().st_ino != before


def test_a_backup_that_is_not_sound_takes_no_place(settings: RelaySettings, tmp_path: Path) -> None:
    asyncio.run(fill(settings))
    main(["backup", "--db", str(settings.db), "--to", str(tmp_path / "b.db")])
    with sqlite3.connect(tmp_path / "b.db") as connection:
        connection.execute("DELETE FROM entries WHERE relay_seq = 3")
    connection.close()
    before = settings.db.read_bytes()
    with pytest.raises(StoreDamaged, match="place 3 is missing"):
        restore(settings.db, tmp_path / "b.db")
    with pytest.raises(StoreUnusable, match="one file"):
        restore(settings.db, settings.db)
    assert settings.db.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.db", "relay.db"]


@pytest.mark.parametrize("there", [None, b"", b"damaged" * 1_000])
def test_a_store_that_is_lost_or_unreadable_is_replaced(
    settings: RelaySettings, tmp_path: Path, there: bytes | None
) -> None:
    asyncio.run(fill(settings))
    main(["backup", "--db", str(settings.db), "--to", str(tmp_path / "b.db")])
    settings.db.unlink()
    settings.db.with_name("relay.db-wal").write_bytes(b"an old log")
    if there is not None:
        settings.db.write_bytes(there)
    replaced = restore(settings.db, tmp_path / "b.db")
    assert verify_file(settings.db).entries == 41
    assert not settings.db.with_name("relay.db-wal").exists()
    assert replaced is not None
    assert replaced.with_name(f"{replaced.name}-wal").read_bytes() == b"an old log"
    if there is not None:
        assert replaced.read_bytes() == there


def test_a_stopped_relays_own_store_may_be_the_backup_with_what_is_in_its_log_only(
    settings: RelaySettings, tmp_path: Path
) -> None:
    process = start_process("--db", settings.db, "--port", "0", "--json")
    port = line_of(process)["port"]
    assert isinstance(port, int)

    async def pushed() -> None:
        async with await WireClient.open(port, "phone") as phone:
            await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
            await phone.receipts(1)

    asyncio.run(pushed())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert settings.db.with_name("relay.db-wal").stat().st_size > 0
    restore(tmp_path / "new.db", settings.db)
    assert verify_file(tmp_path / "new.db").entries == 1
