"""A token that ends soon is renewed on the connection that stands; a source that cannot do so costs it nothing."""

import asyncio
from pathlib import Path

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.frames import Login, Welcome
from sync_core.replica.changes import LinkState
from sync_core.wire import decode_client, encode
from tests.sync_core.endpoint.memory_transport import MemoryConnection, MemoryTransport


async def _next_login(connection: MemoryConnection) -> Login:
    async with asyncio.timeout(30):
        while True:
            for frame in decode_client(await connection.receive()):
                if isinstance(frame, Login):
                    return frame


async def _until_reason(phone: Endpoint, reason: str) -> None:
    async with asyncio.timeout(30):
        while phone.status.reason != reason or phone.status.link is not LinkState.LIVE:
            await phone.stats()


async def test_a_renewal_is_a_login_on_the_same_connection_and_a_failure_is_only_told(tmp_path: Path) -> None:
    """SE-19: the source fails, gives the same token again, is cancelled, then works."""
    transport = MemoryTransport()
    answers = iter(["first", ConnectionError("secret-token"), "first", asyncio.CancelledError(), "second"])

    async def source() -> str:
        answer = next(answers)
        await asyncio.sleep(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async with Endpoint.open(
        tmp_path / "phone.db",
        subject="acme",
        device="phone",
        relay="memory:relay",
        backoff=Backoff(0.001, 0.01),
        chance=lambda: 0.5,
        transport=transport,
        token=source,
    ) as phone:
        connection = await transport.accept()
        assert (await _next_login(connection)).token == "first"
        # So short a life leaves no time for another try: each welcome brings one.
        for reason in (
            "credentials: ConnectionError",
            "credentials: the token ends soon, and its source has no other yet",
            "credentials: CancelledError",
        ):
            await connection.send(encode([Welcome(1, 0, "write", "ann", True, 30)]))
            await _until_reason(phone, reason)
        await connection.send(encode([Welcome(1, 0, "write", "ann", True, 30)]))
        assert (await _next_login(connection)).token == "second"
        await connection.send(encode([Welcome(1, 0, "write", "ann", True)]))
        await _until_reason(phone, "")
        assert transport.attempts == 1
