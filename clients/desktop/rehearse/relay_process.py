"""The relay of a rehearsal: the real one, in a process of its own, on a free loopback port."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from sync_core.errors import SegueError

__all__ = ["LEASE_S", "RelayFailed", "running_relay"]

LEASE_S = 0.2
"""How long after its connection closed a device still has the keys that it was given, seconds.

Short, so that a rehearsal need not wait for the dead.
"""

_PATIENCE_S = 20


class RelayFailed(SegueError):
    """The relay of a rehearsal did not start."""

    code = "relay_failed"
    status = 503


class _Listening(msgspec.Struct):
    url: str


@asynccontextmanager
async def running_relay(folder: Path, authority: bool) -> AsyncIterator[str]:
    """Start a relay whose file lies in `folder`, and give its address; it is stopped at the end.

    Without `authority` it rules on no call that cannot be undone. Raises `RelayFailed` with what it said
    if it does not start.
    """
    # What was set for another relay, or for this user's own, is not for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SEGUE_RELAY_")}
    with (folder / "relay.log").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "server_relay", "--db", str(folder / "relay.db"), "--port", "0", "--json"),
            *("--lease-ms", str(int(LEASE_S * 1_000)), *([] if authority else ["--no-authority"])),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
        )
    try:
        yield await _address(process, folder / "relay.log")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _address(process: asyncio.subprocess.Process, errors: Path) -> str:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE_S)
        return msgspec.json.decode(line, type=_Listening).url
    except (TimeoutError, msgspec.MsgspecError):
        said = errors.read_text("utf-8", "replace").strip().splitlines()[-1:]
        raise RelayFailed("The relay did not start.", hint=" ".join(said)) from None
