"""What a relay refuses to start with."""

from pathlib import Path

import pytest

from server_relay.config import SECRET_BYTES_MIN, SECRETS_MAX, RelaySettings, is_loopback, read_secrets
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


def test_secrets_are_read_line_by_line_without_blanks_around_them(tmp_path: Path) -> None:
    file, new, old = tmp_path / "secret", "n" * SECRET_BYTES_MIN, "o" * SECRET_BYTES_MIN
    file.write_text(f"  {new}\n")
    assert read_secrets(file) == (new,)
    file.write_text(f"{new}\r\n\n {old}\n")
    assert read_secrets(file) == (new, old)
    with pytest.raises(ValueRefused, match="cannot be read"):
        read_secrets(tmp_path / "missing")


@pytest.mark.parametrize(
    "content",
    ["", "\n \n", "short\n", f"{'s' * SECRET_BYTES_MIN}\nshort\n", f"{'s' * SECRET_BYTES_MIN}\n" * 2,
     "\n".join(f"{number:0{SECRET_BYTES_MIN}}" for number in range(SECRETS_MAX + 1))],
)  # fmt: skip
def test_a_file_of_secrets_is_taken_whole_or_not_at_all(tmp_path: Path, content: str) -> None:
    (tmp_path / "secret").write_text(content)
    with pytest.raises(ValueRefused) as caught:
        read_secrets(tmp_path / "secret")
    assert "ssss" not in str(caught.value)


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(ValueRefused, match="port"):
        RelaySettings(DB, port=port)
    assert RelaySettings(DB, port=65_535).port == 65_535
