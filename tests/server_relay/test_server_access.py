"""Keys and revocations of a running relay: read again when they change, in force on live sockets."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from server_relay.admission import Role
from server_relay.config import RelaySettings
from server_relay.server import serve
from server_relay.sessions import CLOSE_POLICY
from server_relay.tokens import make_token
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.errors import ValueRefused
from sync_core.frames import Login, Receipt, Refused, Welcome
from sync_core.replica.changes import LinkState
from tests.server_relay.wire_client import WireClient, history_entry

TASK, PHONE = "expense/TRIP-118", 700_001
OLD, NEW = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def token(key: Ed25519PrivateKey | str, device: str = "phone", life_s: int = 60) -> str:
    return make_token(
        key,
        principal="anna",
        device=device,
        subject="acme",
        role=Role.WRITE,
        expires_s=int(time.time()) + life_s,
        token_id=f"token of {device}",
    )


def pem(*keys: Ed25519PrivateKey) -> bytes:
    return b"".join(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for key in keys)


def refused(client: WireClient) -> list[tuple[str, bool]]:
    return [(frame.code, frame.final) for frame in client.frames if isinstance(frame, Refused)]


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110 (nobody tells when)
            await asyncio.sleep(0)


async def until_admitted(port: int, text: str) -> None:
    """Wait until this token of the desk is taken."""

    async def admitted() -> bool:
        async with await WireClient.raw(port) as desk:
            await desk.send(Login(1, "acme", "desk", text))
            return isinstance(await desk.next(object), Welcome)

    async with asyncio.timeout(30):
        while not await admitted():
            pass


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    (tmp_path / "keys.pem").write_bytes(pem(OLD, NEW))
    (tmp_path / "revoked").write_text("")
    return RelaySettings(
        db=tmp_path / "relay.db",
        port=0,
        auth_keys=tmp_path / "keys.pem",
        revocations=tmp_path / "revoked",
        access_reread_ms=20,
    )


async def test_a_revoked_device_loses_its_live_socket_for_good(settings: RelaySettings) -> None:
    relay = await serve(settings)
    assert settings.revocations is not None
    async with (
        await WireClient.open(relay.port, "phone", token=token(NEW)) as phone,
        await WireClient.open(relay.port, "desk", token=token(NEW, "desk")) as desk,
    ):
        settings.revocations.write_text("token token of phone\n")
        assert await phone.closed() == CLOSE_POLICY
        assert [(frame.code, frame.final) for frame in phone.frames if isinstance(frame, Refused)] == [
            ("revoked", True)
        ]
        await desk.push(TASK, history_entry(TASK, PHONE, 1, "desk"))
        await desk.next(Receipt)
        async with await WireClient.raw(relay.port) as again:
            await again.send(Login(1, "acme", "phone", token(NEW)))
            assert (await again.next(Refused)).final
    await relay.close()


async def test_a_key_that_was_rotated_out_ends_what_it_admitted(settings: RelaySettings) -> None:
    relay = await serve(settings)
    assert settings.auth_keys is not None
    async with (
        await WireClient.open(relay.port, "phone", token=token(OLD)) as phone,
        await WireClient.open(relay.port, "desk", token=token(NEW, "desk")) as desk,
    ):
        settings.auth_keys.write_bytes(pem(NEW))
        assert await phone.closed() == CLOSE_POLICY
        await (await desk.websocket.ping())
    await relay.close()


async def test_a_secret_is_rotated_without_a_restart(tmp_path: Path) -> None:
    old, new = "the old secret, of more than 32 bytes", "the new secret, of more than 32 bytes"
    file = tmp_path / "secret"
    file.write_text(f"{old}\n")
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, auth_secret_file=file, access_reread_ms=20))
    async with await WireClient.open(relay.port, "phone", token=token(old)) as phone:
        file.write_text(f"{new}\n{old}\n")
        await until_admitted(relay.port, token(new, "desk"))
        async with (
            await WireClient.open(relay.port, "desk", token=token(new, "desk")) as desk,
            await WireClient.open(relay.port, "other", token=token(old, "other")) as other,
        ):
            await (await phone.websocket.ping())
            # Half a file changes nothing.
            file.write_text(new[:20])
            await until(lambda: relay.access_trouble != "")
            await (await phone.websocket.ping())
            file.write_text(f"{new}\n")
            assert await phone.closed() == await other.closed() == CLOSE_POLICY
            assert refused(phone) == [("revoked", True)]
            await (await desk.websocket.ping())
    async with await WireClient.raw(relay.port) as late:
        await late.send(Login(1, "acme", "phone", token(old)))
        assert (await late.next(Refused)).final
    await relay.close()


async def test_a_list_that_cannot_be_understood_leaves_the_last_one_in_force(settings: RelaySettings) -> None:
    assert settings.revocations is not None
    settings.revocations.write_text("device acme/phone\n")
    relay = await serve(settings)
    settings.revocations.write_text("nonsense\n")
    await until(lambda: relay.access_trouble != "")
    async with await WireClient.raw(relay.port) as phone:
        await phone.send(Login(1, "acme", "phone", token(NEW)))
        assert (await phone.next(Refused)).code == "revoked"
    settings.revocations.write_text("")
    await until(lambda: relay.access_trouble == "")
    async with await WireClient.open(relay.port, "phone", token=token(NEW)):
        pass
    await relay.close()


async def test_a_relay_does_not_start_with_files_that_it_cannot_understand(settings: RelaySettings) -> None:
    assert settings.auth_keys is not None
    assert settings.revocations is not None
    settings.revocations.write_text("nonsense\n")
    with pytest.raises(ValueRefused, match="Line 1"):
        await serve(settings)
    settings.revocations.unlink()
    with pytest.raises(ValueRefused, match="cannot be read"):
        await serve(settings)
    settings.revocations.write_text("")
    settings.auth_keys.write_text("no key")
    with pytest.raises(ValueRefused, match="no keys"):
        await serve(settings)
    settings.auth_keys.write_bytes(pem(NEW))
    await (await serve(settings)).close()


async def test_a_token_that_ends_closes_the_socket_within_five_seconds_unless_it_is_renewed(
    settings: RelaySettings,
) -> None:
    """RS-24, SE-19."""
    relay = await serve(settings)
    async with (
        await WireClient.open(relay.port, "phone", token=token(NEW, life_s=2)) as phone,
        await WireClient.open(relay.port, "desk", token=token(NEW, "desk", life_s=2)) as desk,
    ):
        began_s = time.monotonic()
        await desk.send(Login(1, "acme", "desk", token(NEW, "desk")))
        await desk.next(Welcome)
        assert await phone.closed() == CLOSE_POLICY
        assert time.monotonic() - began_s < 2 + 5
        assert refused(phone) == [("credentials", False)]
        await desk.push(TASK, history_entry(TASK, PHONE, 1, "desk"))
        await desk.next(Receipt)
    await relay.close()


# --- with a real endpoint ---------------------------------------------------------------------------------------------


QUICK = Backoff(first_s=0.01, cap_s=0.05)


async def linked(phone: Endpoint, state: LinkState) -> None:
    async with asyncio.timeout(30):
        while phone.status.link is not state:
            await phone.stats()


async def test_a_revoked_endpoint_stops_and_keeps_its_work_for_when_it_may_come_again(
    settings: RelaySettings, tmp_path: Path
) -> None:
    """SE-22."""
    relay = await serve(settings)
    url = f"ws://127.0.0.1:{relay.port}"
    assert settings.revocations is not None
    asked: list[str] = []

    def source() -> str:
        asked.append(token(NEW))
        return asked[-1]

    options = {"subject": "acme", "device": "phone", "relay": url, "backoff": QUICK}
    async with Endpoint.open(tmp_path / "phone.db", token=source, **options) as phone:  # type: ignore[arg-type]
        task = await phone.task(TASK, create=True)
        await task.slots.confirm("kept", 1)
        await phone.synced()
        settings.revocations.write_text("principal anna\n")
        await linked(phone, LinkState.REFUSED)
        await task.slots.confirm("unsent", 2)
        before = len(asked)
        for _ in range(50):
            await phone.stats()
        assert len(asked) == before
        assert phone.status.unsent > 0
        async with await WireClient.raw(relay.port) as stranger:
            await stranger.send(Login(1, "acme", "desk", token(NEW, "desk")))
            assert (await stranger.next(Refused)).code == "revoked"
    settings.revocations.write_text("")
    await until_admitted(relay.port, token(NEW, "desk"))
    async with Endpoint.open(tmp_path / "phone.db", token=source, **options) as phone:  # type: ignore[arg-type]
        task = await phone.task(TASK)
        await phone.synced(timeout_s=30)
        assert phone.status.unsent == 0
        assert task.slots["unsent"].value == 2
    await relay.close()


async def test_an_endpoint_whose_token_ends_comes_back_alone_with_a_fresh_one(
    settings: RelaySettings, tmp_path: Path
) -> None:
    """SE-19: tokens that live a second; the source fails twice in between."""
    relay = await serve(settings)
    asked: list[int] = []

    async def source() -> str:
        asked.append(1)
        await asyncio.sleep(0)
        if len(asked) in (2, 3):
            raise ConnectionError("the identity provider is away")
        return token(NEW, life_s=1 if len(asked) == 1 else 60)

    async with Endpoint.open(
        tmp_path / "phone.db",
        subject="acme",
        device="phone",
        relay=f"ws://127.0.0.1:{relay.port}",
        token=source,
        backoff=QUICK,
    ) as phone:
        task = await phone.task(TASK, create=True)
        await linked(phone, LinkState.LIVE)
        async with asyncio.timeout(30):
            while len(asked) < 4:
                await task.slots.confirm(f"edit{len(asked)}", 1)
                await phone.stats()
        await phone.synced(timeout_s=30)
        assert phone.status.unsent == 0
        # It is asked once more if the fresh token came just when the connection ended.
        assert len(asked) in (4, 5)
    await relay.close()


async def test_an_endpoint_renews_its_token_and_its_connection_never_ends(
    settings: RelaySettings, tmp_path: Path
) -> None:
    """SE-19, RS-24: the first token lives 3 s, and work goes on beyond that on the one connection."""
    relay = await serve(settings)
    asked: list[int] = []
    ends_s = time.monotonic() + 3

    def source() -> str:
        asked.append(1)
        return token(NEW, life_s=3 if len(asked) == 1 else 60)

    async with Endpoint.open(
        tmp_path / "phone.db", subject="acme", device="phone", relay=f"ws://127.0.0.1:{relay.port}", token=source
    ) as phone:
        task = await phone.task(TASK, create=True)
        await linked(phone, LinkState.LIVE)
        links: set[LinkState] = set()
        async with asyncio.timeout(30):
            while time.monotonic() < ends_s + 1.5:
                await phone.stats()
                links.add(phone.status.link)
        assert links == {LinkState.LIVE}
        await task.slots.confirm("late", 1)
        await phone.synced(timeout_s=30)
        assert len(asked) == 2
        assert (await relay.metrics()).counts["connections"] == 1
    await relay.close()
