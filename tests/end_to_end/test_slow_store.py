"""SE-26: a relay whose store is slower than the edits, and fails now and then."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.effects import RelayAnswer, RelayRead
from server_relay.mailbox.mailbox import Mailbox
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.records import MailboxStats, MailboxWrite
from server_relay.server import serve
from sync_core import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.errors import StoreFull
from sync_core.ids import Entropy

TASK, NOTE = "expense/TRIP-118", "worklog"
_COMMIT_S = 0.25
_DEVICES, _LINES, _FAILURES = 6, 25, 2


class SlowMailbox:
    """A real mailbox whose commits take long, and of which every fifth fails."""

    durable = True

    def __init__(self, inner: Mailbox) -> None:
        self._inner = inner
        self.commits = self.failed = self.running = self.most_running = 0

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(_COMMIT_S)
            self.commits += 1
            if self.commits % 5 == 0:
                self.failed += 1
                raise StoreFull("The disk is full.")
            await self._inner.commit(writes)
        finally:
            self.running -= 1

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        return await self._inner.read(reads)

    async def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        await self._inner.mark_restored(entropy, now_ms)

    async def stats(self) -> MailboxStats:
        return await self._inner.stats()

    async def close(self) -> None:
        await self._inner.close()


async def _write(device: Endpoint, mailbox: SlowMailbox) -> int:
    """Write lines until enough commits failed meanwhile; return how many. How many commits they take is chance."""
    written = 0
    async with device.task(TASK, create=True) as task:
        while written < _LINES or mailbox.failed < _FAILURES:
            await task.notes.append(NOTE, f"{device.device} {written}\n")
            written += 1
            await asyncio.sleep(0.05)
    return written


@pytest.mark.slow
async def test_order_is_kept_nothing_is_lost_and_no_storm_follows(tmp_path: Path) -> None:
    settings = RelaySettings(db=tmp_path / "relay.db", port=0)
    mailbox = SlowMailbox(await SqliteMailbox.open(settings.db))
    relay = await serve(settings, mailbox)
    url, backoff = f"ws://127.0.0.1:{relay.port}", Backoff(first_s=0.2, cap_s=1.0)
    devices = [
        await Endpoint.open(tmp_path / f"{n}.db", subject="acme", device=f"d{n}", relay=url, backoff=backoff)
        for n in range(_DEVICES)
    ]
    try:
        async with asyncio.timeout(120):
            written = await asyncio.gather(*(_write(device, mailbox) for device in devices))
            for _ in range(2):
                await asyncio.gather(*(device.synced() for device in devices))
            texts = []
            for device in devices:
                async with device.task(TASK, access="read") as task:
                    texts.append(task.view.notes[NOTE].text)
        assert len(set(texts)) == 1
        lines = texts[0].splitlines()
        for device, count in zip(devices, written, strict=True):
            own = [line for line in lines if line.startswith(f"{device.device} ")]
            assert own == [f"{device.device} {number}" for number in range(count)]
        metrics = await relay.metrics()
        assert mailbox.failed >= _FAILURES and mailbox.most_running == 1
        # A failed commit costs each device one connection; nobody comes again and again.
        assert metrics.counts["connections"] <= _DEVICES * (mailbox.failed + 2)
        # A tick or a digest may wait for the commit under way, and no more than that.
        assert metrics.waiting_events < 10 and not metrics.waiting_bytes
    finally:
        for device in devices:
            await device.aclose()
        await relay.close()
