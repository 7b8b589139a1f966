"""From an old backup nothing is lost that any endpoint still holds: the commands as an operator runs them (rule J)."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from sync_core import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.opening import Opening
from tests.soak.relay_process import RelayProcess

TASK, NOTE = "expense/TRIP-118", "worklog"


async def command(*arguments: str) -> str:
    """Run a command of the relay; return what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "server_relay", *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def write(device: Endpoint, first: int, count: int) -> None:
    async with device.task(TASK, create=True) as task:
        for number in range(first, first + count):
            await task.notes.append(NOTE, f"{device.device} {number}\n")
            await task.slots.confirm(f"last_{device.device}", number)


async def text_of(device: Endpoint) -> tuple[str, ...]:
    async with device.task(TASK, access="read") as task:
        return (task.view.notes[NOTE].text, *(str(slot.value) for _, slot in sorted(task.view.slots.items())))


@pytest.mark.slow
async def test_a_backup_made_while_devices_write_is_put_back_and_they_bring_what_it_lacks(tmp_path: Path) -> None:
    db, backup = tmp_path / "relay.db", tmp_path / "backup.db"
    relay = RelayProcess(db, tmp_path / "relay.log")
    await relay.start()

    def opened(name: str) -> Opening[Endpoint]:
        url, backoff = f"ws://127.0.0.1:{relay.port}", Backoff(0.05, 0.2)
        return Endpoint.open(tmp_path / f"{name}.db", subject="acme", device=name, relay=url, backoff=backoff)

    async with asyncio.timeout(120):
        async with opened("phone") as phone, opened("desk") as desk:
            await asyncio.gather(write(phone, 0, 20), write(desk, 0, 20))
            said = await asyncio.gather(
                write(phone, 20, 30), write(desk, 20, 30), command("backup", "--db", str(db), "--to", str(backup))
            )
            assert "backup.db" in said[-1]
            await asyncio.gather(write(phone, 50, 20), write(desk, 50, 20))
            await asyncio.gather(phone.synced(), desk.synced())
            before = await text_of(phone)
        assert len(before[0].splitlines()) == 140

        await relay.stop(signal.SIGKILL)
        await command("restore", "--db", str(db), "--from", str(backup))
        await command("verify", str(db))
        await relay.start()
        try:
            # One device is enough: it holds what both have written.
            async with opened("desk") as desk, opened("newcomer") as newcomer:
                async with desk.task(TASK):
                    await desk.synced()
                assert await text_of(desk) == await text_of(newcomer)
                assert sorted((await text_of(newcomer))[0].splitlines()) == sorted(before[0].splitlines())
        finally:
            await relay.stop(signal.SIGTERM)
