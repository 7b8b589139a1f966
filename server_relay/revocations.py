"""Who was shut out before the token's expiry: the revocation list, one line of text for each.

    # a comment
    token 5f2c9a…            the token with this id (claim `jti`)
    device acme/phone        every token of this device of this subject
    principal anna           every token of this principal

A list in which one line cannot be understood is refused as a whole: half a list would let somebody in.
"""

import msgspec

from server_relay.admission import Grant
from sync_core.errors import ValueRefused
from sync_core.ids import check_name

__all__ = ["REVOCATION_LINES_MAX", "Revocations", "parse_revocations"]

REVOCATION_LINES_MAX = 100_000


class Revocations(msgspec.Struct, frozen=True):
    """Tokens by id, devices as (subject, device), principals."""

    tokens: frozenset[str] = frozenset()
    devices: frozenset[tuple[str, str]] = frozenset()
    principals: frozenset[str] = frozenset()

    def revoke(self, grant: Grant) -> bool:
        """Return whether what was granted is withdrawn."""
        return (
            grant.principal in self.principals
            or (grant.subject, grant.device) in self.devices
            or (grant.token_id != "" and grant.token_id in self.tokens)
        )


def parse_revocations(text: str) -> Revocations:
    """Return the list that a file holds; raises `ValueRefused`, naming a line by its number, never by its text."""
    tokens: set[str] = set()
    devices: set[tuple[str, str]] = set()
    principals: set[str] = set()
    lines = text.split("\n")
    if len(lines) > REVOCATION_LINES_MAX:
        raise ValueRefused(f"The revocation list has more than {REVOCATION_LINES_MAX} lines.")
    for number, line in enumerate(lines, 1):
        kind, _, what = line.strip().partition(" ")
        what = what.strip()
        if not kind or kind.startswith("#"):
            continue
        try:
            if kind == "device":
                subject, _, device = what.partition("/")
                devices.add((check_name(subject, "subject"), check_name(device, "device")))
            elif kind in ("token", "principal") and what:
                (tokens if kind == "token" else principals).add(what)
            else:
                raise ValueRefused("")
        except ValueRefused:
            raise ValueRefused(
                f"Line {number} of the revocation list cannot be understood.",
                hint="Write token ID, device SUBJECT/DEVICE or principal NAME, one on a line.",
            ) from None
    return Revocations(frozenset(tokens), frozenset(devices), frozenset(principals))
