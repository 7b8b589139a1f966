"""What a relay refuses to start with."""

from pathlib import Path

import pytest

from server_relay.config import SECRET_BYTES_MIN, RelaySettings, is_loopback, read_secret
from sync_core.errors import ValueRefused

DB = Path("relay.db")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_may_be_open(host: str) -> None:
    assert is_loopback(host)
    assert RelaySettings(DB, host).secret is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "relay.example.org", ""])
def test_any_other_host_needs_a_secret(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueRefused, match="loopback"):
        RelaySettings(DB, host)
    assert RelaySettings(DB, host, secret="s" * SECRET_BYTES_MIN).host == host


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueRefused, match="shorter"):
        RelaySettings(DB, secret="s" * (SECRET_BYTES_MIN - 1))


def test_a_secret_is_read_without_blanks_around_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("  s3cret\n")
    assert read_secret(file) == "s3cret"
    with pytest.raises(ValueRefused):
        read_secret(tmp_path / "missing")


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(ValueRefused, match="port"):
        RelaySettings(DB, port=port)
    assert RelaySettings(DB, port=65_535).port == 65_535
