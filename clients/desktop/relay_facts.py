"""What is known of a relay beside what it tells a device: from its settings, and from its figures."""

from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import msgspec

from clients.config import WrongUsage
from clients.desktop.facts import RelayFacts
from clients.desktop.surroundings import exposed_among, memory_file_system

__all__ = ["with_figures", "with_settings"]

_TIMEOUT_S = 5.0


def with_settings(relay: RelayFacts, config: Path) -> RelayFacts:
    """Return what is known of a relay, with what its file of settings says; raises `ValueRefused` for a bad file."""
    from server_relay.settings import read_relay_settings

    settings = read_relay_settings({}, {}, config).settings
    return msgspec.structs.replace(
        relay,
        expires=settings.task_ttl_s is not None,
        # What the relay told itself is newer than what its settings say.
        authority=settings.authority if relay.authority is None else relay.authority,
        durable=not memory_file_system(settings.db),
        open_files=exposed_among([settings.db, *([settings.tls_key] if settings.tls_key else [])]),
    )


def with_figures(relay: RelayFacts, url: str) -> RelayFacts:
    """Return what is known of a relay, with what its /metrics say; raises `WrongUsage` if they cannot be read."""
    from server_relay.command.top import read_scrape

    if not url.startswith(("http://", "https://")):
        raise WrongUsage("--relay-metrics takes an http:// or https:// URL.")
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            figures = read_scrape(answer.read().decode())
        suspended = figures["clock_suspended", ""] > 0
    except (OSError, HTTPException, ValueError, KeyError):
        raise WrongUsage(
            f"The relay's figures cannot be read at {url}.", hint="Start the relay with --metrics-port."
        ) from None
    return msgspec.structs.replace(relay, clock_suspended=suspended)
