"""Settings of a relay: where it listens, what it keeps to, and what it refuses to start with."""

import ipaddress
from pathlib import Path
from typing import Literal

import msgspec

from sync_core.errors import ValueRefused

__all__ = ["ACCESS_REREAD_MS_MAX", "SECRETS_MAX", "SECRET_BYTES_MIN", "RelaySettings", "is_loopback", "read_secrets"]

SECRET_BYTES_MIN = 32
SECRETS_MAX = 16
ACCESS_REREAD_MS_MAX = 25_000
"""With the time that reading takes, what is withdrawn is so within 30 s."""


class RelaySettings(msgspec.Struct, frozen=True):
    """Every setting has its unit in its name. Raises `ValueRefused` for a host that is not loopback without a secret:
    only a loopback relay may be open, for trying out; and for what is no port.

    `secret` signs tokens (HS256), or those of `auth_secret_file` do. `origins` are the browser origins that may
    connect; none by default. `hosts` are the names under which the relay is reached, for the Host check; any if empty.
    `auth_keys` is the file of public keys that check tokens instead of a secret; `revocations` the file of what is
    withdrawn. All three are looked at every `access_reread_ms`, and read again when they changed, as are certificate
    and key of `tls_…`. `metrics_…` is where figures and health are told, nowhere without a port. `…_per_minute_max`
    bound what one device sends, over all its connections; `streams` are those that it begins, `poisons` entries whose
    bytes no device may read. `clean_up_grace_s` after its last entry a completed task loses its history; `task_ttl_s`
    after it any task goes, None for never; `tombstone_keep_s` long nothing brings it back, and `key_keep_s` long the
    keys of its calls stay taken. What is due is looked for every `sweep_every_ms`; nothing ends while the clock is in
    doubt, until somebody says `clock_confirmed`. `authority`: the relay rules on calls that cannot be undone, if its
    store is durable; such a call is in doubt `lease_ms` after the connection that claimed it closed, or the relay was
    started again.
    """

    db: Path
    host: str = "127.0.0.1"
    port: int = 8700
    secret: str | None = None
    auth_secret_file: Path | None = None
    auth_keys: Path | None = None
    revocations: Path | None = None
    access_reread_ms: int = 5_000
    tls_cert: Path | None = None
    tls_key: Path | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    log_format: Literal["text", "json"] = "text"
    connections_max: int = 4_096
    connections_per_address_max: int = 1_024
    connections_before_login_max: int = 1_024
    login_timeout_ms: int = 5_000
    stalled_reader_ms: int = 30_000
    follows_max: int = 20_000
    frames_per_minute_max: int = 240_000
    entries_per_minute_max: int = 1_200_000
    streams_per_minute_max: int = 60_000
    bytes_per_minute_max: int = 1024**3
    poisons_per_minute_max: int = 64
    snapshot_tail_entries: int = 2_000
    snapshot_asked_every_ms: int = 60_000
    safety_window_entries: int = 256
    idle_task_ms: int = 10_000
    clean_up_grace_s: int = 7 * 24 * 3_600
    task_ttl_s: int | None = None
    tombstone_keep_s: int = 90 * 24 * 3_600
    key_keep_s: int = 730 * 24 * 3_600
    sweep_every_ms: int = 60_000
    clock_jump_s_max: int = 3_600
    clock_confirmed: bool = False
    store_bytes_max: int | None = None
    authority: bool = True
    lease_ms: int = 30_000

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16 or not 0 <= (self.metrics_port or 0) < 2**16:
            raise ValueRefused("A port is from 0 to 65535.", hint="Leave it out for 8700; 0 picks a free one.")
        if (self.tls_cert is None) is not (self.tls_key is None):
            raise ValueRefused("A certificate and its private key are named together.", hint="--tls-cert, --tls-key.")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and value < 0:
                raise ValueRefused(f"The setting {name} is below 0.")
        if not 0 < self.access_reread_ms <= ACCESS_REREAD_MS_MAX:
            raise ValueRefused(
                f"The setting access_reread_ms is from 1 to {ACCESS_REREAD_MS_MAX}.",
                hint="What was withdrawn ends within that time.",
            )
        if self.is_open and not is_loopback(self.host):
            raise ValueRefused(
                "A relay without a secret listens on loopback only.",
                hint="Give --auth-secret-file or --auth-keys to check tokens, or leave --host at 127.0.0.1.",
            )
        if sum(way is not None for way in (self.secret, self.auth_secret_file, self.auth_keys)) > 1:
            raise ValueRefused("Tokens are checked with secrets or with public keys, not with both.")
        if self.is_open and self.revocations is not None:
            raise ValueRefused(
                "An open relay checks no tokens, so it can withdraw none.",
                hint="Give --auth-secret-file or --auth-keys.",
            )
        if min(self.task_ttl_s or 1, self.clean_up_grace_s + 1, self.tombstone_keep_s + 1) < 1:
            raise ValueRefused("A time to live is at least a second, and no other time is below zero.")
        if self.secret is not None:
            _check_secret(self.secret)

    @property
    def is_open(self) -> bool:
        """Whether no tokens are asked for."""
        return self.secret is None and self.auth_secret_file is None and self.auth_keys is None


def is_loopback(host: str) -> bool:
    """Return whether a host names this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_secrets(path: Path) -> tuple[str, ...]:
    """Return the secrets that a file holds, one on a line, without blanks around them; the first one signs.

    Raises `ValueRefused` if the file cannot be read, holds none or too many, one twice, or one that is too short.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ValueRefused("The secret's file cannot be read.", hint="Check the path and its permissions.") from None
    secrets = tuple(line.strip() for line in lines if line.strip())
    if not 0 < len(set(secrets)) == len(secrets) <= SECRETS_MAX:
        raise ValueRefused(
            "The secret's file holds no secrets that can be used.",
            hint=f"1 to {SECRETS_MAX} different ones, one a line.",
        )
    for secret in secrets:
        _check_secret(secret)
    return secrets


def _check_secret(secret: str) -> None:
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise ValueRefused(
            f"The secret is shorter than {SECRET_BYTES_MIN} bytes.",
            hint='Make one with python -c "import secrets; print(secrets.token_hex(32))".',
        )
