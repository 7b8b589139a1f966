"""Slots: structured parameters as a multi-value register with read tokens.

A write deletes exactly the candidates that its caller has read and inserts one under a fresh write id, so a value that
arrived while the agent was thinking survives as a second candidate. Nothing is ever chosen by clock.
"""

from enum import StrEnum

import msgspec

from sync_core.values import JsonValue, parse

__all__ = ["Candidate", "CandidateStatus", "Slot", "SlotDefinition", "SlotState"]


class CandidateStatus(StrEnum):
    """What a write says of its value."""

    PROPOSED = "proposed"
    CONFIRMED = "confirmed"


class SlotState(StrEnum):
    """Derived from the live candidates, grouped by canonical value."""

    MISSING = "missing"
    PROPOSED = "proposed"
    CONFIRMED = "confirmed"
    CONFLICTED = "conflicted"


class SlotDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a slot is for. `schema` is a JSON Schema as canonical JSON text (≤ 8 KB, no remote `$ref`)."""

    ask: str
    schema: str | None = None
    required: bool = False
    secret: bool = False
    order: int = 0
    held_by: str | None = None


class Candidate(msgspec.Struct, frozen=True):
    """One surviving write of a slot. `text` is the value as canonical JSON; `at_ms` is for display only."""

    write_id: str
    text: str
    status: CandidateStatus
    n: int
    author: str
    source: str | None
    at_ms: int
    readable: bool = True

    @property
    def value(self) -> JsonValue:
        """The value; None for an unreadable candidate."""
        return parse(self.text) if self.readable else None


class Slot(msgspec.Struct, frozen=True):
    """An immutable snapshot of a slot; it carries its own read token.

    `candidates` has one per distinct value that counts for the state (the highest (n, write_id) of each value, highest
    first); `proposals` are proposed values beside a confirmed one. `token` holds the ids of all live writes.
    `schema_error` flags a stored value that fails the definition that is shown now.
    """

    name: str
    state: SlotState
    candidates: tuple[Candidate, ...] = ()
    proposals: tuple[Candidate, ...] = ()
    token: frozenset[str] = frozenset()
    definition: SlotDefinition | None = None
    redefined: bool = False
    secret: bool = False
    schema_error: str | None = None

    @property
    def value(self) -> JsonValue:
        """The one value of a proposed or confirmed slot; None if missing or conflicted."""
        if self.state in (SlotState.PROPOSED, SlotState.CONFIRMED):
            return self.candidates[0].value
        return None
