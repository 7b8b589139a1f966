"""The files that say who may take part: secrets or public keys, and the revocation list, read again when they change.

A file that cannot be understood when the relay starts keeps it from starting. One that cannot be understood later
changes nothing: what was read last stays in force, and `trouble` says so until the file is right again.
"""

import os
from pathlib import Path

from server_relay.admission import admit_anyone
from server_relay.config import RelaySettings, read_secrets
from server_relay.revocations import Revocations, parse_revocations
from server_relay.tokens import Access, TokenGate, TokenKeys, read_public_keys
from sync_core.errors import SegueError, ValueRefused

__all__ = ["AccessFiles"]

_Seen = tuple[int, int, int]


class AccessFiles:
    """Reads what the settings name. `access` is what stands, `trouble` why the files as they are now do not, or ''."""

    def __init__(self, settings: RelaySettings) -> None:
        """Read the files; raises `ValueRefused` if one cannot be understood."""
        self._settings = settings
        self._seen = self._look()
        self.access = self._read()
        self.trouble = ""

    def reread(self) -> bool:
        """Look at the files again; return whether `access` is a new one."""
        seen = self._look()
        if seen == self._seen and not self.trouble:
            return False
        self._seen = seen
        try:
            self.access = self._read()
        except SegueError as error:
            self.trouble = error.sentence
            return False
        self.trouble = ""
        return True

    def _look(self) -> tuple[_Seen | None, ...]:
        settings = self._settings
        return tuple(_signature(path) for path in (settings.auth_secret_file, settings.auth_keys, settings.revocations))

    def _read(self) -> Access:
        settings = self._settings
        if settings.is_open:
            return Access(admit_anyone)
        gate = TokenGate(_keys(settings))
        revoked = Revocations() if settings.revocations is None else _revocations(settings.revocations)
        return Access(gate, revoked, gate.key_ids)


def _keys(settings: RelaySettings) -> TokenKeys:
    if settings.auth_keys is not None:
        return read_public_keys(settings.auth_keys)
    if settings.auth_secret_file is not None:
        return read_secrets(settings.auth_secret_file)
    return (settings.secret or "",)


def _revocations(path: Path) -> Revocations:
    try:
        return parse_revocations(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise ValueRefused("The revocation list cannot be read.", hint="An empty file is an empty list.") from None


def _signature(path: Path | None) -> _Seen | None:
    if path is None:
        return None
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
