"""Slots: structured parameters as a multi-value register with read tokens.

A write deletes exactly the candidates that its caller has read and inserts one under a fresh write id, so a value that
arrived while the agent was thinking survives as a second candidate. Nothing is ever chosen by clock.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from sync_core.checked import check_text
from sync_core.errors import TooLarge, ValueRefused
from sync_core.ids import check_name
from sync_core.limits import RECORD_NUMBER_MAX, SLOT_VALUE_BYTES_MAX, SLOT_VALUE_DEPTH_MAX, SLOT_WRITE_BYTES_MAX
from sync_core.values import JsonValue, canonical, parse

__all__ = [
    "HELD_BY_AUTHORITY",
    "Candidate",
    "CandidateStatus",
    "Slot",
    "SlotDefinition",
    "SlotState",
    "StoredDefinition",
    "decode_write",
    "derive_slot",
    "encode_write",
]


HELD_BY_AUTHORITY = "authority"
"""The `held_by` of a slot that only the authority writes; any other name is for people to read."""


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


class StoredDefinition(msgspec.Struct, frozen=True):
    """One surviving definition of a slot; `definition` is None for one that this program cannot read."""

    n: int
    definition: SlotDefinition | None


class Candidate(msgspec.Struct, frozen=True):
    """One surviving write of a slot. `text` is the value as canonical JSON; `at_ms` is for display only.

    A write that this program cannot read is shown as it is stored, with `readable` false.
    """

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

    def __repr__(self) -> str:
        """Never shows the value: a candidate does not know whether its slot is secret."""
        return (
            f"Candidate(write_id={self.write_id!r}, status={self.status.value!r}, n={self.n}, author={self.author!r})"
        )


class Slot(msgspec.Struct, frozen=True):
    """An immutable snapshot of a slot; it carries its own read token.

    `candidates` has one per distinct value that counts for the state (the highest (n, write_id) of each value, highest
    first); `proposals` are proposed values beside a confirmed one. `token` holds the ids of all live writes.
    `redefined`: definitions that differ are live at once, and the highest (n, key) is shown.
    `schema_error` flags a stored value that fails the definition that is shown now. `held`: the authority holds the
    slot, its value is the authority's, and nobody writes it here.
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
    held: bool = False

    @property
    def for_authority(self) -> bool:
        """Whether only the authority writes the slot: it holds it, or was declared to."""
        return self.held or (self.definition is not None and self.definition.held_by == HELD_BY_AUTHORITY)

    @property
    def value(self) -> JsonValue:
        """The one value of a proposed or confirmed slot; None if missing or conflicted."""
        if self.state in (SlotState.PROPOSED, SlotState.CONFIRMED):
            return self.candidates[0].value
        return None


# --- what is stored ---------------------------------------------------------------------------------------------------


class _StoredWrite(msgspec.Struct):
    """The JSON text under a key of `slots`; short field names, because every device keeps every byte."""

    v: msgspec.Raw
    st: str
    n: int
    a: str
    t: int
    s: str | None = None


_CODE_OF = {CandidateStatus.PROPOSED: "p", CandidateStatus.CONFIRMED: "c"}
_STATUS_OF = {code: status for status, code in _CODE_OF.items()}
_decoder = msgspec.json.Decoder(_StoredWrite)
_AT_MS_MAX = 253_402_300_799_999
"""The end of the year 9999: later times cannot be shown."""


def encode_write(text: str, status: CandidateStatus, n: int, author: str, source: str | None, at_ms: int) -> str:
    """Return what is stored for a write; `text` is the value as canonical JSON.

    Raises `TooLarge` for a value over 4 KB or a write over 8 KB, `ValueRefused` for a source that is no text.
    """
    if len(text) > SLOT_VALUE_BYTES_MAX:
        hint = "Keep it in a note or a result. A letter beyond ASCII counts as 6 bytes."
        raise TooLarge(f"A slot's value exceeds {SLOT_VALUE_BYTES_MAX} bytes of ASCII JSON.", hint=hint)
    at_ms = min(max(at_ms, 0), _AT_MS_MAX)
    from_source = "" if source is None else f',"s":{canonical(check_text(source, "source"))}'
    stored = f'{{"a":"{author}","n":{n}{from_source},"st":"{_CODE_OF[status]}","t":{at_ms},"v":{text}}}'
    if len(stored) > SLOT_WRITE_BYTES_MAX:
        raise TooLarge(f"A slot's value and source exceed {SLOT_WRITE_BYTES_MAX} bytes.", hint="Shorten the source.")
    return stored


def decode_write(write_id: str, stored: str) -> Candidate:
    """Return the candidate of a stored write; an unreadable one for anything that no honest writer stores."""
    try:
        found = _decoder.decode(stored)
        text = canonical(parse(bytes(found.v).decode()), depth_max=SLOT_VALUE_DEPTH_MAX)
        status = _STATUS_OF[found.st]
        check_name(found.a, "author")
        if not 0 < found.n <= RECORD_NUMBER_MAX or not 0 <= found.t <= _AT_MS_MAX or len(text) > SLOT_VALUE_BYTES_MAX:
            raise ValueRefused("A number or the value is out of range.")
    except (msgspec.MsgspecError, ValueRefused, KeyError, UnicodeError, RecursionError):
        return Candidate(write_id, stored, CandidateStatus.CONFIRMED, 0, "", None, 0, readable=False)
    return Candidate(write_id, text, status, found.n, found.a, found.s, found.t)


# --- what it means ----------------------------------------------------------------------------------------------------


def derive_slot(
    name: str,
    candidates: Iterable[Candidate],
    definitions: Mapping[str, StoredDefinition],
    secret: bool,
) -> Slot:
    """Return the slot of its live candidates and definitions (by write id); a pure function, order does not matter.

    Candidates are grouped by canonical value. Confirmed outranks proposed: with a confirmed value, proposals of other
    values are listed apart. An unreadable candidate may hold any value, so it stands for one of its own, and a slot
    with one is conflicted: nothing is chosen over it, and whoever has read it can resolve the slot.
    """
    live = tuple(candidates)
    groups: dict[str, list[Candidate]] = {}
    for candidate in live:
        groups.setdefault(candidate.text if candidate.readable else candidate.write_id, []).append(candidate)
    confirmed: list[Candidate] = []
    proposed: list[Candidate] = []
    readable = True
    for group in groups.values():
        standing = [candidate for candidate in group if candidate.status is CandidateStatus.CONFIRMED]
        (confirmed if standing else proposed).append(max(standing or group, key=_rank))
        readable = readable and group[0].readable
    counting = confirmed if any(candidate.readable for candidate in confirmed) else confirmed + proposed
    beside = [] if counting is not confirmed else proposed
    return Slot(
        name,
        _state(counting, readable),
        tuple(sorted(counting, key=_rank, reverse=True)),
        tuple(sorted(beside, key=_rank, reverse=True)),
        frozenset(candidate.write_id for candidate in live),
        _shown(definitions),
        len({stored.definition for stored in definitions.values()}) > 1,
        secret,
    )


def _state(counting: list[Candidate], readable: bool) -> SlotState:
    if not counting:
        return SlotState.MISSING
    if len(counting) > 1 or not readable:
        return SlotState.CONFLICTED
    return SlotState.CONFIRMED if counting[0].status is CandidateStatus.CONFIRMED else SlotState.PROPOSED


def _rank(candidate: Candidate) -> tuple[int, str]:
    return candidate.n, candidate.write_id


def _shown(definitions: Mapping[str, StoredDefinition]) -> SlotDefinition | None:
    readable = [(d.n, write_id, d.definition) for write_id, d in definitions.items() if d.definition is not None]
    return max(readable, key=lambda item: item[:2])[2] if readable else None
