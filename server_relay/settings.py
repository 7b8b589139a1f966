"""A relay's settings from outside: by flag, else `SEGUE_RELAY_*` in the environment, else by TOML file.

Every field of `RelaySettings` can be set in each of these ways under its own name; only the secret has no flag and no
key in the file, since both are read by more people than a secret is for: a file of secrets is named instead.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_type_hints

import msgspec

from server_relay.config import RelaySettings
from sync_core.errors import ValueRefused

__all__ = [
    "HELP",
    "SETTING_NAMES",
    "Configured",
    "Setting",
    "flag_of",
    "is_list",
    "is_switch",
    "read_relay_settings",
]

_SECRET, _SECRET_FILE = "secret", "auth_secret_file"
_ENVIRONMENT = "SEGUE_RELAY_"
_OTHER_VARIABLES = ("secret", "config")

HELP = {
    "db": "the relay's SQLite file; made if it is missing",
    "host": "the address to listen on",
    "port": "the port to listen on; 0 picks a free one",
    "auth_secret_file": "file with the secrets that sign tokens (HS256), one a line; read again when it changes;"
    " without it and --auth-keys the relay is open, on loopback only",
    "auth_keys": "file with the Ed25519 public keys that check tokens (PEM or JWKS); read again when it changes",
    "revocations": "file with the tokens, devices and principals that are shut out; read again when it changes",
    "access_reread_ms": "how often keys, revocations and certificate are looked at for changes",
    "tls_cert": "file with the certificate chain (PEM); with it the relay speaks wss only",
    "tls_key": "file with the certificate's private key (PEM)",
    "origins": "a browser origin that may connect; repeatable",
    "hosts": "a host name the relay is reached by; repeatable",
    "metrics_host": "the address for /healthz, /readyz and /metrics",
    "metrics_port": "the port for /healthz, /readyz and /metrics; none by default, 0 picks a free one",
    "log_format": "text or json: one line for each event, on standard error",
    "connections_max": "connections in all",
    "connections_per_address_max": "connections from one address",
    "connections_before_login_max": "connections that have not signed in",
    "login_timeout_ms": "how long a connection may take to sign in",
    "stalled_reader_ms": "how long a reader may take nothing of what waits for it",
    "follows_max": "tasks that one connection follows",
    "frames_per_minute_max": "frames that one device sends in a minute",
    "entries_per_minute_max": "entries that one device sends in a minute",
    "streams_per_minute_max": "streams that one device begins in a minute",
    "bytes_per_minute_max": "bytes that one device sends in a minute",
    "poisons_per_minute_max": "entries whose bytes no device may read, that one device sends in a minute",
    "snapshot_tail_entries": "entries behind the last snapshot, from which on a device is asked for a new one",
    "snapshot_asked_every_ms": "how often it is asked for",
    "safety_window_entries": "entries that a snapshot covers and that are served all the same",
    "idle_task_ms": "how long a task that nobody follows stays in memory",
    "authority": "whether the relay rules on calls that cannot be undone",
    "lease_ms": "how long a device that is gone keeps the right to such a call before it is in doubt",
    "clean_up_grace_s": "how long after its last entry a completed task keeps its history",
    "task_ttl_s": "how long after its last entry a task is deleted everywhere, finished or not; never by default",
    "sweep_every_ms": "how often it is looked for what is due",
    "tombstone_keep_s": "how long a task that went is kept from being brought back",
    "key_keep_s": "how long after its task's end the key of a guarded call is known to be taken",
    "clock_confirmed": "an admin confirms that the clock is right, although it jumped",
    "clock_jump_s_max": "how far the clock may jump before nothing expires until an admin confirms the time",
    "store_bytes_max": "size of the store from which on nothing more is taken; no bound by default",
}
"""What each setting is, in a few words."""

_SHORT_FLAGS = {"origins": ("--origin",), "hosts": ("--name",), _SECRET_FILE: ("--auth", "--auth-secret-file")}


class Setting(msgspec.Struct, frozen=True):
    """One setting: what stands, and where it comes from. A secret is shown as set or not."""

    name: str
    value: str
    origin: str


class Configured(msgspec.Struct, frozen=True):
    """The settings to run with, each of them as it is shown, and variables that look like a setting and are none."""

    settings: RelaySettings
    shown: tuple[Setting, ...]
    unknown: tuple[str, ...]


_TYPES = get_type_hints(RelaySettings)
SETTING_NAMES: tuple[str, ...] = tuple(name for name in RelaySettings.__struct_fields__ if name != _SECRET)
"""Every setting that has a flag, in the order in which they are shown."""


def flag_of(name: str) -> tuple[str, ...]:
    """Return a setting's flags; the first is the one to use."""
    return _SHORT_FLAGS.get(name, (f"--{name.replace('_', '-')}",))


def is_list(name: str) -> bool:
    """Return whether a setting's flag may be repeated."""
    return bool(_TYPES[name] == tuple[str, ...])


def is_switch(name: str) -> bool:
    """Return whether a setting's flag stands alone, as --x or --no-x."""
    return _TYPES[name] is bool


def read_relay_settings(
    flags: Mapping[str, str | Sequence[str] | None], environment: Mapping[str, str], config: Path | None
) -> Configured:
    """Return the settings that stand: a flag before the environment, the environment before the file.

    `flags` are by setting name, None for one that was not given. `config` is the TOML file; its paths are relative to
    it. Raises `ValueRefused` for a file that cannot be read, a name that is no setting, and a value that does not fit.
    """
    levels = _levels(flags, environment, config)
    values: dict[str, object] = {}
    shown: list[Setting] = []
    for name in SETTING_NAMES:
        origin, raw = next(((origin, level[name]) for origin, level in levels if name in level), ("default", None))
        if name == _SECRET_FILE:
            secret = environment.get(f"{_ENVIRONMENT}SECRET")
            if secret is not None and not origin.startswith("flag"):
                origin, values[_SECRET] = f"environment {_ENVIRONMENT}SECRET", secret.strip()
            elif raw is not None:
                values[_SECRET_FILE] = _convert(name, raw, strict=False)
            is_set = values.keys() & {_SECRET, _SECRET_FILE}
            shown.append(Setting(_SECRET, "set" if is_set else "not set", origin))
            continue
        if raw is not None:
            values[name] = _convert(name, raw, strict=origin.startswith("file"))
        elif name == "db":
            raise ValueRefused("The relay's file is not named.", hint="Give --db FILE.")
        shown.append(Setting(name, "", origin))
    settings = msgspec.convert(values, RelaySettings)
    known = {_ENVIRONMENT + name.upper() for name in (*SETTING_NAMES, *_OTHER_VARIABLES)}
    unknown = sorted(name for name in environment if name.startswith(_ENVIRONMENT) and name not in known)
    return Configured(settings, tuple(_show(settings, setting) for setting in shown), tuple(unknown))


_Level = tuple[str, dict[str, object]]


def _levels(
    flags: Mapping[str, str | Sequence[str] | None], environment: Mapping[str, str], config: Path | None
) -> list[_Level]:
    levels: list[_Level] = [
        (f"flag {flag_of(name)[0]}", {name: value}) for name, value in flags.items() if value not in (None, [], ())
    ]
    for name in SETTING_NAMES:
        variable = _ENVIRONMENT + name.upper()
        if variable in environment:
            text = environment[variable]
            levels.append((f"environment {variable}", {name: text.split(",") if is_list(name) else text}))
    if config is not None:
        levels.append((f"file {config}", _read_file(config)))
    return levels


def _read_file(path: Path) -> dict[str, object]:
    try:
        content: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueRefused(f"{path} cannot be read as TOML.", hint="Correct the file, or name another one.") from None
    for name, value in content.items():
        if name not in SETTING_NAMES:
            raise ValueRefused(
                f"{path} names the unknown setting {_printable(name)}.",
                hint="segue relay --show-config lists them; a secret is named by auth_secret_file.",
            )
        if isinstance(value, str) and Path in _members(name):
            content[name] = str(path.parent / Path(value).expanduser())
    return content


def _members(name: str) -> tuple[object, ...]:
    kind = _TYPES[name]
    return getattr(kind, "__args__", (kind,))


def _convert(name: str, raw: object, strict: bool) -> object:
    """A flag and a variable are text; what a file holds has a type of its own, which must be the right one."""
    try:
        if Path in _members(name):
            return Path(msgspec.convert(raw, str)).expanduser()
        return msgspec.convert(raw, _TYPES[name], strict=strict)
    except msgspec.ValidationError:
        raise ValueRefused(
            f"The setting {name} does not fit.", hint=f"It is {HELP.get(name, 'one of the relay')}."
        ) from None


def _show(settings: RelaySettings, setting: Setting) -> Setting:
    if setting.name == _SECRET:
        return setting
    return msgspec.structs.replace(setting, value=_text(settings, setting.name))


def _text(settings: RelaySettings, name: str) -> str:
    value = getattr(settings, name)
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:64])
