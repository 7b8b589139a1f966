"""A command that goes on for longer than its token lives reads the token's file again, and stays connected (SE-19)."""

import asyncio
import sys
import time
from pathlib import Path

from server_relay.admission import Role
from server_relay.config import RelaySettings
from server_relay.server import serve
from server_relay.tokens import make_token
from tests.end_to_end.command_line import TASK, Device
from tests.server_relay.wire_client import WireClient, history_entry

SECRET = "a secret of more than thirty-two bytes"
LIFE_S = 8


def token(device: str, ends_s: float) -> str:
    return make_token(SECRET, principal="kim", device=device, subject="acme", role=Role.WRITE, expires_s=round(ends_s))


async def test_a_watch_outlives_its_first_token_on_one_connection(tmp_path: Path) -> None:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, secret=SECRET))
    async with await WireClient.open(relay.port, "desk", token=token("desk", time.time() + 60)) as desk:
        await desk.push(TASK, history_entry(TASK, 700_001, 1, "desk"))
        await desk.receipts(1)
    file, ends_s = tmp_path / "token", time.time() + LIFE_S
    file.write_text(token("phone", ends_s))
    phone = Device(tmp_path / "phone", "phone", f"ws://127.0.0.1:{relay.port}", token_file=str(file))
    command = (sys.executable, "-m", "clients.desktop", "watch", TASK)
    watching = await asyncio.create_subprocess_exec(*command, env=phone.environment)
    try:
        while (await relay.metrics()).counts["connections"] < 2:
            assert watching.returncode is None and time.time() < ends_s
            await asyncio.sleep(0.05)
        file.write_text(token("phone", time.time() + 60))
        while time.time() < ends_s + 3:
            metrics = await relay.metrics()
            assert (metrics.connections, metrics.counts["connections"]) == (1, 2)
            await asyncio.sleep(0.1)
    finally:
        watching.terminate()
        await watching.wait()
        await relay.close()
