"""A relay that is killed between the commit of a ruling and its answer has given a key to one attempt, and stays so."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from sync_core.entry import CallOutcome, Entry, EntryKind, VersionDecision, decode_record, encode_record
from sync_core.frames import Heads, Receipt
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict
from sync_core.rulings import Granted, Settled
from tests.server_relay.wire_client import WireClient

TASK, WRITER, DIGEST = "expense/TRIP-118", 700_001, "d" * 64


async def start(*command: str) -> tuple[Process, int]:
    """Start a relay; return its process and port."""
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE)
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())["port"]


async def start_dying(db: Path) -> tuple[Process, int]:
    return await start("-m", "tests.end_to_end.dying_relay", str(db))


async def start_whole(db: Path) -> tuple[Process, int]:
    return await start("-m", "server_relay", "--db", str(db), "--port", "0", "--json")


async def stop(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    await process.wait()


async def connect(port: int, device: str = "phone") -> WireClient:
    client = await WireClient.open(port, device)
    await client.follow(TASK)
    await client.next(Heads)
    return client


def record(seq: int, what: VersionDecision | CallOutcome) -> Entry:
    kind = EntryKind.CALL if isinstance(what, CallOutcome) else EntryKind.VERSION
    return Entry(f"{TASK}:state", WRITER, seq, kind, encode_record(what), "phone")


def claim(attempt: str, request: int = 1) -> Claim:
    return Claim(TASK, request, 1, "pay", "pay", DIGEST, attempt)


async def ask(client: WireClient, attempt: str) -> ClaimAnswer:
    await client.send(claim(attempt))
    return await client.next(ClaimAnswer)


async def die(client: WireClient, process: Process) -> None:
    """Wait for the end of a relay that was just sent what it does not survive; nothing of it is answered."""
    with pytest.raises(ConnectionClosed):
        await client.next(ClaimAnswer)
    assert await process.wait() == -signal.SIGKILL


async def test_the_attempt_whose_answer_was_lost_gets_the_same_grant_and_nobody_else_does(tmp_path: Path) -> None:
    db = tmp_path / "relay.db"
    process, port = await start_dying(db)
    phone = await connect(port)
    await phone.push(TASK, record(1, VersionDecision(1, "anna")))
    await phone.next(Receipt)
    await phone.send(claim("a1"))
    await die(phone, process)

    process, port = await start_whole(db)
    async with await connect(port, "desktop") as desktop, await connect(port) as phone:
        assert (await ask(desktop, "b1")).verdict is ClaimVerdict.RUNNING
        first = await ask(phone, "a1")
        second = await ask(phone, "a1")
        assert first.verdict is second.verdict is ClaimVerdict.GRANTED
        assert first.token == second.token == (1 << 32) + 1
    await stop(process)

    process, port = await start_dying(db)
    phone = await connect(port)
    said = record(2, CallOutcome("pay", 1, "a1", True, result='"paid"', token=first.token))
    await phone.push(TASK, said)
    await die(phone, process)

    process, port = await start_whole(db)
    async with await connect(port, "desktop") as desktop, await connect(port) as phone:
        await phone.push(TASK, said)
        assert (await phone.next(Receipt)).first_relay_seq == 2, "it was stored with its ruling"
        answer = await ask(desktop, "b2")
        assert (answer.verdict, answer.result) == (ClaimVerdict.DONE, '"paid"')
    async with await connect(port, "reader") as reader:
        came = await reader.entries(4)
        rulings = [decode_record(entry.kind, entry.payload) for entry in came if entry.kind is EntryKind.RULING]
        assert [type(ruling) for ruling in rulings] == [Granted, Settled]
    await stop(process)
