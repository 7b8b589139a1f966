"""What a relay receipted is there after kill -9; what it did not is taken once on the next push (SE-06, RS-04)."""

import asyncio
import os
import signal
from pathlib import Path
from random import Random

import pytest
from websockets.exceptions import ConnectionClosed

from sync_core.entry import Entry
from sync_core.frames import Heads, Push, Receipt
from tests.server_relay.wire_client import WireClient, history_entry
from tests.soak.relay_process import RelayProcess

ENTRIES = 400
WRITERS = 4


class Progress:
    """Counts receipts of all devices, and tells when so many have come."""

    def __init__(self) -> None:
        self.count = self._target = 0
        self._reached = asyncio.Event()

    def add(self, count: int) -> None:
        self.count += count
        if self.count >= self._target:
            self._reached.set()

    async def reaches(self, target: int) -> None:
        """Wait until so many receipts have come."""
        self._target = target
        self._reached.clear()
        self.add(0)
        await self._reached.wait()


class Device:
    """Pushes numbered entries of one writer, as fast as a window of outstanding ones allows; logs each receipt."""

    def __init__(self, number: int, progress: Progress) -> None:
        self.progress = progress
        self.name = f"device-{number}"
        self.writer = 700_000 + number
        self.task = f"task-{number % 2}"
        self.receipted: dict[int, int] = {}
        self.window = asyncio.Event()
        self.text = f'"{"x" * (number * 300)}"'

    def entry(self, seq: int) -> Entry:
        return history_entry(self.task, self.writer, seq, self.name, self.text)

    async def run(self, port: int) -> None:
        """Push what is not receipted, until all is or the connection ends."""
        try:
            async with await WireClient.open(port, self.name) as client, asyncio.TaskGroup() as group:
                group.create_task(self._push(client))
                group.create_task(self._listen(client))
        except* (ConnectionClosed, OSError):
            pass

    async def _push(self, client: WireClient) -> None:
        for seq in range(len(self.receipted) + 1, ENTRIES + 1):
            while seq - len(self.receipted) > 64:
                self.window.clear()
                await self.window.wait()
            await client.send(Push(self.task, (self.entry(seq),)))

    async def _listen(self, client: WireClient) -> None:
        while len(self.receipted) < ENTRIES:
            receipt = await client.next(Receipt)
            for seq in range(receipt.first_seq, receipt.last_seq + 1):
                self.receipted[seq] = receipt.first_relay_seq + seq - receipt.first_seq
            self.progress.add(receipt.last_seq - receipt.first_seq + 1)
            self.window.set()


async def log_of(port: int, task: str) -> dict[int, tuple[int, int]]:
    """Read a task as a device that met nobody; return (writer, writer_seq) by place."""
    async with await WireClient.open(port, "reader") as reader:
        await reader.follow(task)
        heads = await reader.next(Heads)
        total = heads.streams[0].head if heads.streams else 0
        return {entry.relay_seq or 0: (entry.writer, entry.writer_seq) for entry in await reader.entries(total)}


def check(log: dict[int, tuple[int, int]], devices: list[Device], *, all_stored: bool = False) -> None:
    """Every receipted entry is at the place that its receipt named; nothing is there twice, no writer has a hole."""
    assert sorted(log) == list(range(1, len(log) + 1))
    assert len(set(log.values())) == len(log)
    for device in devices:
        for seq, place in device.receipted.items():
            assert log[place] == (device.writer, seq)
        seqs = [seq for _, (writer, seq) in sorted(log.items()) if writer == device.writer]
        assert seqs == list(range(1, len(seqs) + 1))
        assert not all_stored or len(seqs) == ENTRIES


async def kill_again_and_again(folder: Path, number: signal.Signals, seed: int) -> int:
    """End a relay after a random number of receipts until all is receipted; return how often that was."""
    rng = Random(seed)
    relay, progress = RelayProcess(folder / "relay.db", folder / "relay.log"), Progress()
    devices = [Device(count, progress) for count in range(WRITERS)]
    kills = 0
    while progress.count < ENTRIES * WRITERS:
        await relay.start()
        for task in ("task-0", "task-1"):
            check(await log_of(relay.port, task), [device for device in devices if device.task == task])
        running = [asyncio.create_task(device.run(relay.port)) for device in devices]
        async with asyncio.timeout(60):
            await progress.reaches(min(progress.count + rng.randint(1, 400), ENTRIES * WRITERS))
        await relay.stop(number)
        kills += 1
        await asyncio.gather(*running)
    await relay.start()
    for task in ("task-0", "task-1"):
        check(await log_of(relay.port, task), [device for device in devices if device.task == task], all_stored=True)
    await relay.stop(signal.SIGTERM)
    return kills


@pytest.mark.parametrize(("number", "seed"), [(signal.SIGKILL, 1), (signal.SIGKILL, 2), (signal.SIGTERM, 3)])
async def test_a_receipt_outlives_the_relay(tmp_path: Path, number: signal.Signals, seed: int) -> None:
    assert await kill_again_and_again(tmp_path, number, seed) >= 3


@pytest.mark.campaign
async def test_a_receipt_outlives_a_thousand_kills(tmp_path: Path) -> None:
    """RS-04, at full length."""
    seed = kills = 0
    while kills < int(os.environ.get("SEGUE_RELAY_KILLS", "1000")):
        seed += 1
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills += await kill_again_and_again(folder, signal.SIGKILL, 1_000 + seed)
