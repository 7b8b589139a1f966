"""SlotTable: the live writes and definitions of all slots, kept up to date key by key, and the slots derived from them.

One write costs the same whatever the document holds: only the slots that were touched are derived anew.
"""

from collections.abc import Iterable, Mapping

import msgspec

from sync_core.document.definitions import (
    check_definition,
    check_value,
    decode_definition,
    encode_definition,
    schema_error,
)
from sync_core.document.shared import MapEdit
from sync_core.document.slots import (
    Candidate,
    CandidateStatus,
    Slot,
    SlotDefinition,
    SlotState,
    StoredDefinition,
    decode_write,
    derive_slot,
    encode_write,
)
from sync_core.errors import ValueRefused
from sync_core.ids import check_name
from sync_core.limits import RECORD_NUMBER_MAX, SLOT_VALUE_DEPTH_MAX
from sync_core.values import canonical, parse

__all__ = ["SlotTable"]


class SlotTable:
    """Slots by name. `author` is the device whose writes are made here."""

    def __init__(self, author: str) -> None:
        self._author = author
        self._stored: dict[str, dict[str, str]] = {"slots": {}, "slotdefs": {}}
        self._writes: dict[str, dict[str, Candidate]] = {}
        self._definitions: dict[str, dict[str, StoredDefinition]] = {}
        self._highest: dict[str, int] = {}
        self._secret: set[str] = set()
        self._slots: dict[str, Slot] = {}
        self._stale: set[str] = set()

    # --- what came ----------------------------------------------------------------------------------------------------

    def change(self, root: str, changes: Mapping[str, str | None]) -> set[str]:
        """Take what a transaction did to a map root; return the names of the slots that it touched."""
        touched = set()
        stored = self._stored[root]
        for key, text in changes.items():
            name, _, write_id = key.partition("/")
            touched.add(name)
            if text is None:
                stored.pop(key, None)
                (self._writes if root == "slots" else self._definitions).get(name, {}).pop(write_id, None)
                continue
            stored[key] = text
            if root == "slots":
                self._add_write(name, write_id, text)
            else:
                self._add_definition(name, write_id, text)
        self._stale |= touched
        return touched

    def _add_write(self, name: str, write_id: str, text: str) -> None:
        candidate = decode_write(write_id, text)
        self._writes.setdefault(name, {})[write_id] = candidate
        self._highest[name] = max(self._highest.get(name, 0), candidate.n)

    def _add_definition(self, name: str, write_id: str, text: str) -> None:
        stored = decode_definition(text)
        self._definitions.setdefault(name, {})[write_id] = stored
        if stored.definition is not None and stored.definition.secret:
            self._secret.add(name)

    # --- what is shown ------------------------------------------------------------------------------------------------

    def slot(self, name: str) -> Slot:
        """Return a slot; a missing one without definition for a name that nobody wrote or declared."""
        return self.slots().get(name) or Slot(name, SlotState.MISSING, secret=name in self._secret)

    def slots(self) -> Mapping[str, Slot]:
        """Return every slot that has a live write or definition. The mapping is never changed afterwards."""
        if self._stale:
            slots = dict(self._slots)
            for name in sorted(self._stale):
                slot = self._derive(name)
                if slot is None:
                    slots.pop(name, None)
                else:
                    slots[name] = slot
            self._slots = slots
            self._stale = set()
        return self._slots

    def _derive(self, name: str) -> Slot | None:
        writes, definitions = self._writes.get(name), self._definitions.get(name)
        if not writes and not definitions:
            return None
        slot = derive_slot(name, (writes or {}).values(), definitions or {}, name in self._secret)
        error = _first_error(slot)
        return slot if error is None else msgspec.structs.replace(slot, schema_error=error)

    def rows(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return what is stored under the live keys of both roots, sorted: what a digest covers."""
        return sorted(self._stored["slots"].items()), sorted(self._stored["slotdefs"].items())

    # --- local writes -------------------------------------------------------------------------------------------------

    def declare(self, name: str, definition: SlotDefinition, at_ms: int, write_id: str) -> MapEdit | None:
        """Return the edit that makes this the one definition of the slot, or None if it already is.

        A slot that is secret stays so, whatever the new definition says.
        """
        check_name(name, "slot name")
        if name in self._secret:
            definition = msgspec.structs.replace(definition, secret=True)
        definition = check_definition(definition)
        live = self._definitions.get(name, {})
        if live and all(stored.definition == definition for stored in live.values()):
            return None
        n = min(1 + max((stored.n for stored in live.values()), default=0), RECORD_NUMBER_MAX)
        text = encode_definition(definition, n, self._author, at_ms)
        return MapEdit("slotdefs", _keys(name, live), ((f"{name}/{write_id}", text),))

    def write(
        self,
        name: str,
        text: str,
        status: CandidateStatus,
        token: frozenset[str],
        source: str | None,
        at_ms: int,
        write_id: str,
    ) -> MapEdit:
        """Return the edit of a write: it deletes what is live of the token (of a proposal: only proposals).

        Raises `ValueRefused` (also by the schema, if the value is confirmed) or `TooLarge`.
        """
        check_name(name, "slot name")
        text = self._canonical(name, text)
        n = min(1 + self._highest.get(name, 0), RECORD_NUMBER_MAX)
        stored = encode_write(text, status, n, self._author, source, at_ms)
        if status is CandidateStatus.CONFIRMED:
            slot = self.slot(name)
            if slot.definition is not None:
                check_value(name, slot.definition, slot.secret, text)
        live = self._writes.get(name, {})
        read = [write_id for write_id in token if write_id in live]
        if status is CandidateStatus.PROPOSED:
            read = [write_id for write_id in read if live[write_id].status is CandidateStatus.PROPOSED]
        return MapEdit("slots", _keys(name, read), ((f"{name}/{write_id}", stored),))

    def _canonical(self, name: str, text: str) -> str:
        """Return the value's canonical text. A refusal names the part of the value, but not of a secret one."""
        try:
            return canonical(parse(text), name, SLOT_VALUE_DEPTH_MAX)
        except ValueRefused:
            if name not in self._secret:
                raise
            raise ValueRefused(f"The value of {name} is not what JSON can hold.") from None

    def clear(self, name: str, token: frozenset[str]) -> MapEdit:
        """Return the edit that deletes what is live of the token."""
        check_name(name, "slot name")
        return MapEdit("slots", _keys(name, token & self._writes.get(name, {}).keys()))


def _keys(name: str, write_ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name}/{write_id}" for write_id in sorted(write_ids))


def _first_error(slot: Slot) -> str | None:
    """Return how the first shown value fails the shown definition."""
    if slot.definition is None or slot.definition.schema is None:
        return None
    for candidate in (*slot.candidates, *slot.proposals):
        error = schema_error(slot.definition, slot.secret, candidate.text) if candidate.readable else None
        if error is not None:
            return error
    return None
