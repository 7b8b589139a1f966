"""What stands before a connection: sockets are counted, TLS is spoken, Host and Origin are looked at (rule H)."""

import contextlib
import os
import re
import ssl
from collections import Counter
from http import HTTPStatus
from pathlib import Path

from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Origin

from server_relay.config import RelaySettings, is_loopback
from sync_core.errors import ValueRefused

__all__ = ["Door", "TlsFiles", "named_hosts", "names_host", "raise_open_files"]

_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_FILES_BESIDE_SOCKETS = 64
_TOLD_SOCKETS = 64
"""Sockets of one address beyond its bound of connections: they are told why they are closed; further ones are not."""


class Door:
    """Counts a relay's sockets, and cuts off those beyond the bound before anything is read from them.

    The relay's own bounds, which it tells with a close code, come first; this one holds what has not come that far.
    `origins` may connect, besides who names none.
    """

    def __init__(self, settings: RelaySettings) -> None:
        self.cut_off = 0
        self.origins = (None, *(Origin(origin) for origin in settings.origins))
        self._of_address: Counter[str] = Counter()
        self._sockets_max = settings.connections_max + settings.connections_before_login_max
        self._of_address_max = settings.connections_per_address_max + _TOLD_SOCKETS
        self._hosts = named_hosts(settings.hosts, settings.host)

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return self._of_address.total()

    def lets_in(self, address: str) -> bool:
        """Count one more socket of an address; return whether it may stay."""
        if self.sockets >= self._sockets_max or self._of_address[address] >= self._of_address_max:
            self.cut_off += 1
            return False
        self._of_address[address] += 1
        return True

    def left(self, address: str) -> None:
        """A socket that was let in is closed."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def refusal(self, protocol: ServerProtocol, request: Request) -> Response | None:
        """Return the refusal of a request that names another host than this relay's, or two origins at once; which
        origins may connect is checked by websockets."""
        if not names_host(request, self._hosts):
            return protocol.reject(HTTPStatus.FORBIDDEN, "This relay is reached under another name.\n")
        if len(request.headers.get_all("Origin")) > 1:
            return protocol.reject(HTTPStatus.FORBIDDEN, "A request comes from one origin.\n")
        return None


def named_hosts(hosts: tuple[str, ...], bound_to: str) -> frozenset[str]:
    """Return the names that a Host header may have: the ones given, else those of loopback if that is what the address
    is bound to; empty for any."""
    if not hosts and is_loopback(bound_to):
        return _LOOPBACK_HOSTS | {bound_to.lower()}
    return frozenset(host.lower() for host in hosts)


def names_host(request: Request, hosts: frozenset[str]) -> bool:
    """Return whether a request has exactly one Host header, well formed, with one of these names or addresses."""
    named = request.headers.get_all("Host")
    match = _HOST.fullmatch(named[0]) if len(named) == 1 else None
    return match is not None and (not hosts or (match["v6"] or match["name"]).lower() in hosts)


class TlsFiles:
    """Certificate and key: read at the start, and again when they were renewed, for connections from then on."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Read them; raises `ValueRefused` if they cannot be used."""
        self._cert, self._key = cert, key
        self.trouble = ""
        self._seen = self._look()
        self.context = self._current = self._load()
        # Each handshake takes the pair that stands then: a context is never changed while one uses it.
        self.context.sni_callback = self._take_current

    def _take_current(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        handshake.context = self._current

    def reread(self) -> None:
        """Look at the files again; what cannot be used leaves the last ones in force, and `trouble` says so."""
        seen = self._look()
        if seen == self._seen and not self.trouble:
            return
        self._seen = seen
        try:
            self._current = self._load()
        except ValueRefused as error:
            self.trouble = error.sentence
        else:
            self.trouble = ""

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without the function a locked key would be asked for on the terminal.
            context.load_cert_chain(self._cert, self._key, password=lambda: "")
        except (OSError, ValueError):
            raise ValueRefused(
                "The certificate and its key cannot be used.",
                hint="Two PEM files that belong together, the key in clear.",
            ) from None
        return context

    def _look(self) -> tuple[int, ...]:
        seen: list[int] = []
        for path in (self._cert, self._key):
            with contextlib.suppress(OSError):
                state = os.stat(path)
                seen += (state.st_mtime_ns, state.st_size, state.st_ino)
        return tuple(seen)


def raise_open_files(sockets: int) -> int | None:
    """Let this process open as many files as that many sockets need, as far as the system allows; return how many it
    may open then, None where there is no such bound."""
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sockets + _FILES_BESIDE_SOCKETS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft
