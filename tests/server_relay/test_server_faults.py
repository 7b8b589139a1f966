"""The relay over real sockets when something fails: damage costs who asks for it, and nobody stops it by waiting."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.effects import LoadTask, RelayAnswer, RelayRead
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.records import MailboxStats, MailboxWrite
from server_relay.server import serve
from server_relay.sessions import CLOSE_TRY_LATER
from sync_core.errors import StoreDamaged
from sync_core.frames import Heads, Receipt
from sync_core.ids import Entropy
from tests.server_relay.wire_client import WireClient, history_entry

DAMAGED, WHOLE = "expense/damaged", "expense/whole"


class DamagedMailbox:
    """A mailbox that cannot read one task; a commit can be held back, so that what comes meanwhile shares a turn."""

    durable = True

    def __init__(self, inner: SqliteMailbox) -> None:
        self.inner = inner
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.reads: list[int] = []

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        await self.open_gate.wait()
        await self.inner.commit(writes)

    async def read(self, reads: Sequence[RelayRead]) -> list[RelayAnswer]:
        self.reads.append(len(reads))
        if any(isinstance(read, LoadTask) and read.task == DAMAGED for read in reads):
            raise StoreDamaged("An entry of the relay's log is damaged.")
        return await self.inner.read(reads)

    async def mark_restored(self, entropy: Entropy, now_ms: int) -> None:
        await self.inner.mark_restored(entropy, now_ms)

    async def stats(self) -> MailboxStats:
        return await self.inner.stats()

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    return RelaySettings(db=tmp_path / "relay.db", port=0)


async def test_a_damaged_task_costs_only_who_asks_for_it_the_connection(settings: RelaySettings) -> None:
    mailbox = DamagedMailbox(await SqliteMailbox.open(settings.db))
    relay = await serve(settings, mailbox)
    async with (
        await WireClient.open(relay.port, "phone") as phone,
        await WireClient.open(relay.port, "unlucky") as unlucky,
        await WireClient.open(relay.port, "lucky") as lucky,
    ):
        await phone.push(WHOLE, history_entry(WHOLE, 700_001, 1, "phone"))
        await phone.next(Receipt)
        mailbox.open_gate.clear()
        await phone.push(WHOLE, history_entry(WHOLE, 700_001, 2, "phone"))
        await (await phone.websocket.ping())
        await unlucky.follow(DAMAGED)
        await lucky.follow("expense/other")
        for client in (unlucky, lucky):
            # Its answer says that what was sent before is there.
            await (await client.websocket.ping())
        mailbox.open_gate.set()
        assert await unlucky.closed() == CLOSE_TRY_LATER
        assert not (await lucky.next(Heads)).known
        assert (await phone.next(Receipt)).first_relay_seq == 2
    assert max(mailbox.reads) == 2
    await relay.close()


async def test_who_stops_waiting_for_the_end_does_not_bring_it_about(settings: RelaySettings) -> None:
    relay = await serve(settings)
    waiting = asyncio.create_task(relay.closed())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(WHOLE, history_entry(WHOLE, 700_001, 1, "phone"))
        assert (await phone.next(Receipt)).first_relay_seq == 1
    await relay.close()
