"""Before a connection is one: TLS, Host, Origin, sockets without a login (RS-25)."""

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec.structs import replace
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from server_relay.config import RelaySettings
from server_relay.doors import TlsFiles, raise_open_files
from server_relay.server import RelayServer, serve
from server_relay.sessions import CLOSE_POLICY
from sync_core.errors import ValueRefused
from sync_core.frames import Hello, Login, Refused
from sync_core.limits import LOGIN_MESSAGE_BYTES_MAX
from sync_core.wire import decode_relay, encode
from tests.server_relay.wire_client import WireClient

TASK, PHONE = "expense/TRIP-118", 700_001


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    return RelaySettings(db=tmp_path / "relay.db", port=0)


@pytest.fixture
async def relay(settings: RelaySettings) -> AsyncIterator[RelayServer]:
    server = await serve(settings)
    yield server
    await server.close()


async def status(port: int, *headers: str) -> int:
    """Ask for a websocket with these headers; return the answer's status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [
        "GET / HTTP/1.1", *headers, "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "", "",
    ]  # fmt: skip
    writer.write("\r\n".join(lines).encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


# --- who may ask ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "https://app.example.evil.org", "https://app.example:444", "http://app.example",
     "http://[::1]", "https://xapp.example", "https://app.example/", "https://APP.example", "https://app.example "
     "https://evil.example", "file://", "http://127.0.0.1"],
)  # fmt: skip
async def test_only_listed_origins_may_connect(settings: RelaySettings, origin: str) -> None:
    """RS-25."""
    relay = await serve(replace(settings, origins=("https://app.example",)))
    assert await status(relay.port, "Host: localhost", f"Origin: {origin}") == 403
    assert await status(relay.port, "Host: localhost", "Origin: https://app.example") == 101
    assert await status(relay.port, "Host: localhost") == 101
    await relay.close()


async def test_two_origins_are_none(settings: RelaySettings) -> None:
    relay = await serve(replace(settings, origins=("https://app.example",)))
    both = ("Origin: https://app.example", "Origin: https://evil.example")
    assert await status(relay.port, "Host: localhost", *both) == 403
    await relay.close()


async def test_without_a_list_no_browser_may_connect(relay: RelayServer) -> None:
    assert await status(relay.port, "Host: localhost", "Origin: http://localhost") == 403


@pytest.mark.parametrize(
    ("host", "welcome"),
    [("localhost", True), ("LOCALHOST:80", True), ("127.0.0.1:1", True), ("[::1]:80", True), ("[::1]", True),
     ("rebound.example", False), ("localhost.evil.example", False), ("[::1]evil", False), ("[::1", False),
     ("::1", False), ("", False), ("localhost:", False), ("localhost:x", False), ("localhost@evil.example", False),
     ("localhost/", False), ("127.0.0.1.", False), ("2130706433", False)],
)  # fmt: skip
async def test_a_loopback_relay_is_reached_under_loopback_names_only(
    relay: RelayServer, host: str, welcome: bool
) -> None:
    assert await status(relay.port, f"Host: {host}") == (101 if welcome else 403)


async def test_a_relay_may_be_named(settings: RelaySettings) -> None:
    relay = await serve(replace(settings, hosts=("Relay.example.org",)))
    assert await status(relay.port, "Host: relay.example.org:8700") == 101
    assert await status(relay.port, "Host: localhost") == 403
    assert await status(relay.port, "Host: relay.example.org", "Host: relay.example.org") in (400, 403)
    await relay.close()


# --- strangers --------------------------------------------------------------------------------------------------------


async def test_sockets_beyond_the_bound_are_cut_off_before_anything_is_read(settings: RelaySettings) -> None:
    relay = await serve(replace(settings, connections_max=3, connections_before_login_max=2))
    silent = [await asyncio.open_connection("127.0.0.1", relay.port) for _ in range(12)]
    async with asyncio.timeout(30):
        while (await relay.metrics()).sockets_cut_off < 7:  # noqa: ASYNC110 (nobody tells when)
            await asyncio.sleep(0)
    metrics = await relay.metrics()
    assert (metrics.sockets, metrics.connections) == (5, 0)
    for _, writer in silent:
        writer.close()
    async with asyncio.timeout(30):
        while (await relay.metrics()).sockets:  # noqa: ASYNC110 (nobody tells when)
            await asyncio.sleep(0)
    async with await WireClient.open(relay.port, "phone"):
        pass
    await relay.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has more than one address on loopback from the start")
async def test_sockets_of_one_address_are_bounded_and_those_of_others_are_not(settings: RelaySettings) -> None:
    relay = await serve(replace(settings, host="localhost", connections_per_address_max=1))
    # 64 beyond the bound are told why; what comes then is cut off.
    held = [await asyncio.open_connection("127.0.0.1", relay.port) for _ in range(70)]
    async with asyncio.timeout(30):
        while (await relay.metrics()).sockets_cut_off < 5:  # noqa: ASYNC110 (nobody tells when)
            await asyncio.sleep(0)
    other = socket.create_connection(("127.0.0.1", relay.port), source_address=("127.0.0.2", 0))
    other.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    other.setblocking(False)
    answer = await asyncio.get_running_loop().sock_recv(other, 100)
    assert answer.startswith(b"HTTP/1.1 ")
    other.close()
    for _, writer in held:
        writer.close()
    await relay.close()


NAMES = ["../x", "a\0b", "con", "CON", "nul", "x" * 10_240, "a.b", ">", "*", "", " ", "a b", "a/../b", "/etc", "a//b",
         "a\n", "é", "a\u202eb", "ａ", "com1", "~", "a\\b", "%2e%2e"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_outside_the_grammar_is_refused_and_touches_no_file(
    relay: RelayServer, settings: RelaySettings, name: str
) -> None:
    """RS-34."""
    folder = settings.db.parent
    before = sorted(folder.rglob("*"))
    async with await WireClient.raw(relay.port) as by_subject:
        await by_subject.send(Login(1, name, "phone"))
        assert ((await by_subject.next(Refused)).code, await by_subject.closed()) == ("name", CLOSE_POLICY)
    async with await WireClient.raw(relay.port) as by_device:
        await by_device.send(Login(1, "acme", name))
        assert (await by_device.next(Refused)).code == "name"
    async with await WireClient.open(relay.port, "phone") as by_task:
        await by_task.send(Hello(name))
        assert (await by_task.next(Refused)).code == "value_refused"
    assert sorted(folder.rglob("*")) == before
    assert (await relay.metrics()).mailbox.tasks == 0


# --- TLS --------------------------------------------------------------------------------------------------------------


def certify(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """Write a self-signed certificate and its key."""
    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, None)
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return cert_file, key_file


def trusting(cert_file: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cert_file))


async def welcomed(port: int, context: ssl.SSLContext) -> str:
    async with connect(f"wss://localhost:{port}", ssl=context, proxy=None, compression=None) as websocket:
        await websocket.send(encode([Login(1, "acme", "phone")]))
        message = await websocket.recv()
        assert isinstance(message, bytes)
        return type(decode_relay(message)[0]).__name__


async def test_a_relay_with_a_certificate_speaks_tls_only(settings: RelaySettings, tmp_path: Path) -> None:
    cert_file, key_file = certify(tmp_path)
    relay = await serve(replace(settings, tls_cert=cert_file, tls_key=key_file))
    assert await welcomed(relay.port, trusting(cert_file)) == "Welcome"
    with pytest.raises(Exception, match=r"did not receive a valid HTTP response|connection closed|EOF"):
        await WireClient.raw(relay.port)
    old = trusting(cert_file)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await welcomed(relay.port, old) == "Welcome"
    await relay.close()


async def test_a_strangers_large_message_over_tls_ends_its_connection_only(
    settings: RelaySettings, tmp_path: Path
) -> None:
    cert_file, key_file = certify(tmp_path)
    relay = await serve(replace(settings, tls_cert=cert_file, tls_key=key_file))
    context = trusting(cert_file)
    async with connect(f"wss://localhost:{relay.port}", ssl=context, proxy=None, compression=None) as websocket:
        await websocket.send(bytes(2 * LOGIN_MESSAGE_BYTES_MAX))
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(websocket.recv(), 10)
    assert await asyncio.wait_for(welcomed(relay.port, context), 10) == "Welcome"
    assert (await relay.metrics()).counts["refused_too_large"] == 1
    await relay.close()


async def test_a_renewed_certificate_is_used_without_a_restart(settings: RelaySettings, tmp_path: Path) -> None:
    cert_file, key_file = certify(tmp_path)
    relay = await serve(replace(settings, tls_cert=cert_file, tls_key=key_file, access_reread_ms=20))
    before = trusting(cert_file)
    assert await welcomed(relay.port, before) == "Welcome"
    certify(tmp_path)
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(ssl.SSLError):
                # Handshakes go on all the time, and none may meet half a pair.
                assert await welcomed(relay.port, trusting(cert_file)) == "Welcome"
                break
    with pytest.raises(ssl.SSLError):
        await welcomed(relay.port, before)
    await relay.close()


def test_half_a_renewal_leaves_the_last_certificate_in_use(tmp_path: Path) -> None:
    cert_file, key_file = certify(tmp_path)
    whole = key_file.read_bytes()
    files = TlsFiles(cert_file, key_file)
    key_file.write_text("half")
    files.reread()
    assert "cannot be used" in files.trouble
    key_file.write_bytes(whole)
    files.reread()
    assert not files.trouble


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    cert_file, key_file = certify(tmp_path)
    (tmp_path / "other").mkdir()
    _, other = certify(tmp_path / "other")
    for pair in ((cert_file, other), (key_file, cert_file), (tmp_path / "missing", key_file)):
        with pytest.raises(ValueRefused):
            TlsFiles(*pair)


def test_open_files_are_raised_as_far_as_the_system_allows() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        assert raise_open_files(600) == (664 if hard == resource.RLIM_INFINITY else min(664, hard))
        assert raise_open_files(10) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
