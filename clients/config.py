"""Settings of a Segue program on this machine: by flag, else by `SEGUE_*` in the environment, else by file.

`SEGUE_HOME` names one private folder for the store and `config.toml`; without it the platform's data and configuration
folders are used. A token is never a flag: arguments of a process can be read by every user of the machine.
"""

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sync_core.errors import SegueError, ValueRefused
from sync_core.ids import check_name

__all__ = ["DEFAULT_RELAY", "Settings", "WrongUsage", "private_folder", "read_settings"]

DEFAULT_RELAY = "ws://127.0.0.1:8700"
_KEYS = ("relay", "subject", "device", "token", "token_file", "store")
_NO_RELAY = frozenset({"", "none", "off"})


class WrongUsage(SegueError):
    """A command or a setting that cannot be understood; the exit status is 2."""

    code = "wrong_usage"
    status = 400
    default_hint = "Try --help."


class Settings(msgspec.Struct, frozen=True):
    """What a program needs to open its endpoint.

    `relay` and `token` are None where there is none. `own_folder` is the folder that Segue keeps for itself.
    """

    relay: str | None
    subject: str
    device: str
    token: str | None
    store: Path
    own_folder: Path

    def __repr__(self) -> str:
        """Everything but the token, which is shown as set or not."""
        token = "set" if self.token else "not set"
        return (
            f"Settings(relay={self.relay!r}, subject={self.subject!r}, device={self.device!r}, token is {token}, "
            f"store={str(self.store)!r})"
        )


class _Folders(msgspec.Struct, frozen=True):
    data: Path
    config: Path


def read_settings(
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    *,
    platform: str = sys.platform,
    home: Path | None = None,
    hostname: str = "",
) -> Settings:
    """Return the settings that stand: a flag before the environment, the environment before the file.

    `flags` has the keys relay, subject, device, token_file and store; None or absent means not given. `hostname` names
    the device if nothing else does. Raises `WrongUsage` for a file that cannot be read or names an unknown setting,
    and `ValueRefused` for a bad subject or device.
    """
    folders = _folders(environment, platform, home or Path.home())
    named = {key: environment[f"SEGUE_{key.upper()}"] for key in _KEYS if f"SEGUE_{key.upper()}" in environment}
    given = {key: value for key, value in flags.items() if value is not None}
    levels = [given, named, _read_file(folders.config / "config.toml")]
    subject = check_name(_first(levels, "subject") or "personal", "subject")
    device = check_name(_first(levels, "device") or _device_of(hostname), "device")
    store = _first(levels, "store")
    relay = _first(levels, "relay")
    if relay is None:
        relay = DEFAULT_RELAY
    return Settings(
        relay=None if relay.strip().lower() in _NO_RELAY else _check_relay(relay.strip()),
        subject=subject,
        device=device,
        token=_token(levels),
        store=Path(store).expanduser() if store else folders.data / f"{subject}.{device}.db",
        own_folder=folders.data,
    )


def private_folder(settings: Settings) -> None:
    """Make the store's folder, for its owner alone (mode 0700).

    A folder of the user's own choice is taken as it is. Raises `WrongUsage` if it cannot be made, or if it is Segue's
    own and others may enter it.
    """
    folder = settings.store.parent
    try:
        is_there = folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        open_to_others = os.name == "posix" and folder.stat().st_mode & 0o077
    except OSError as error:
        raise WrongUsage(f"The folder {folder} cannot be used: {os.strerror(error.errno or 0)}.") from None
    if is_there and open_to_others and folder == settings.own_folder:
        raise WrongUsage("Segue's own folder is open to other users.", hint=f"chmod 700 {folder}")


def _folders(environment: Mapping[str, str], platform: str, home: Path) -> _Folders:
    own = environment.get("SEGUE_HOME")
    if own:
        return _Folders(Path(own).expanduser(), Path(own).expanduser())
    if platform == "darwin":
        support = home / "Library" / "Application Support" / "segue"
        return _Folders(support, support)
    if platform == "win32":
        local = environment.get("LOCALAPPDATA") or str(home / "AppData" / "Local")
        roaming = environment.get("APPDATA") or str(home / "AppData" / "Roaming")
        return _Folders(Path(local) / "segue", Path(roaming) / "segue")
    data = environment.get("XDG_DATA_HOME") or str(home / ".local" / "share")
    config = environment.get("XDG_CONFIG_HOME") or str(home / ".config")
    return _Folders(Path(data) / "segue", Path(config) / "segue")


def _read_file(path: Path) -> dict[str, str]:
    """Paths in the file are relative to the file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise WrongUsage(f"{path} cannot be read as TOML.", hint="Correct the file, or remove it.") from None
    if "token" in content and os.name == "posix" and path.stat().st_mode & 0o077:
        raise WrongUsage(f"{path} holds a token and is open to other users.", hint=f"chmod 600 {path}")
    for key, value in content.items():
        if key not in _KEYS:
            raise WrongUsage(f"{path} names an unknown setting.", hint=f"Known are {', '.join(_KEYS)}.")
        if not isinstance(value, str):
            raise WrongUsage(f"The setting {key} in {path} is not text.", hint=f'Write {key} = "…".')
    for key in ("token_file", "store"):
        if content.get(key):
            content[key] = str(path.parent / Path(content[key]).expanduser())
    return content


def _first(levels: list[dict[str, str]], key: str) -> str | None:
    return next((level[key] for level in levels if key in level), None)


def _token(levels: list[dict[str, str]]) -> str | None:
    """The token of the first level that has one, as text or in a file."""
    for level in levels:
        if level.get("token"):
            return level["token"].strip()
        if level.get("token_file"):
            return _read_token(Path(level["token_file"]).expanduser())
    return None


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise WrongUsage(f"The token file {path} cannot be read.", hint="Make one with segue token.") from None
    if not token:
        raise WrongUsage(f"The token file {path} is empty.", hint="Make one with segue token.")
    return token


def _check_relay(relay: str) -> str:
    # What an address is, the engine knows; it is not imported for help.
    from sync_core.endpoint.transport import check_address

    try:
        return check_address(relay)
    except ValueRefused:
        raise WrongUsage(
            "The relay's address is not a ws:// or wss:// URL.", hint=f"For example {DEFAULT_RELAY}, or none."
        ) from None


def _device_of(hostname: str) -> str:
    """A device name made from the machine's: the same each time, so that the store is found again."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", hostname.partition(".")[0]).strip("-")
    return f"{name[:56]}-cli" if name else "desktop-cli"
