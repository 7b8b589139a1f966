"""`task.slots`: read and write structured parameters; the handle remembers which candidates its caller has read."""

from collections.abc import Iterator, Mapping, Set

from sync_core.checked import check_instance, check_text, refused
from sync_core.document.definitions import check_definition, check_value
from sync_core.document.slots import HELD_BY_AUTHORITY, Candidate, CandidateStatus, Slot, SlotDefinition, SlotState
from sync_core.endpoint.handle import Handle
from sync_core.endpoint.recorded import RecordedCall
from sync_core.errors import TooLarge, ValueRefused
from sync_core.ids import check_name
from sync_core.limits import SLOT_VALUE_BYTES_MAX, SLOT_VALUE_DEPTH_MAX
from sync_core.replica.commands import ClearSlot, DeclareSlot, HoldSlot, WriteSlot
from sync_core.values import canonical

__all__ = ["ReadToken", "Slots", "Source", "in_order"]

ReadToken = Slot | Set[str]
"""What a writer has read: a slot's snapshot, or its token."""
Source = str | RecordedCall
"""Where a value came from: a call of this task, or a text of your own."""

_NOTHING_READ: frozenset[str] = frozenset()


class Slots:
    """The slots of one handle.

    A write deletes only what was read: the candidates of `read`, or, left out, those that this handle last gave out
    for the slot through `slots[…]`, `missing()`, `conflicted()` or a brief, or wrote itself. `items()` gives every slot
    with its own token, and iterating gives the names; neither moves anything.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._tokens: dict[str, frozenset[str]] = {}

    # --- reading ------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Slot:
        """Return the slot as it stands, missing if nobody wrote it; raises `ValueRefused` for what is no name."""
        known = self._handle.view.slots
        name = check_name(name, "slot name")
        slot = known.get(name) or Slot(name, SlotState.MISSING)
        self._tokens[name] = slot.token
        return slot

    def __contains__(self, name: object) -> bool:
        """Whether the task has a slot of this name, declared or written; it does not count as reading."""
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order in which the slots are asked."""
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in in_order(self._handle.view.slots))

    def missing(self) -> tuple[Slot, ...]:
        """Return the declared slots without a value: required ones first, then by their order and name."""
        return self._give_out(SlotState.MISSING)

    def conflicted(self) -> tuple[Slot, ...]:
        """Return the slots with several values, none of which was chosen."""
        return self._give_out(SlotState.CONFLICTED)

    def items(self) -> tuple[tuple[str, Slot], ...]:
        """Return (name, slot) of every slot, in the order in which they are asked."""
        return tuple((slot.name, slot) for slot in in_order(self._handle.view.slots))

    def _give_out(self, state: SlotState) -> tuple[Slot, ...]:
        found = tuple(
            slot
            for slot in in_order(self._handle.view.slots)
            if slot.state is state and (slot.definition is not None or state is not SlotState.MISSING)
        )
        self._tokens.update((slot.name, slot.token) for slot in found)
        return found

    def note_read(self, tokens: Mapping[str, frozenset[str]]) -> None:
        """Remember what was shown to the caller otherwise, by slot name."""
        self._tokens.update(tokens)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def declare(
        self,
        name: str,
        *,
        ask: str,
        schema: Mapping[str, object] | None = None,
        required: bool = False,
        secret: bool = False,
        order: int = 0,
        held_by: str | None = None,
    ) -> Slot:
        """Say what a slot is for.

        `ask` is the question for a person, `schema` a JSON Schema checked when a value is confirmed, `secret` keeps the
        value out of logs, errors, briefs and exports, `order` sorts the questions. `held_by="authority"` gives the slot
        to the authority: from then on it is confirmed through it alone, by roles that may, and its value is the
        authority's on every device. Raises `ValueRefused`, `TooLarge`; `NeedsAuthority`, nothing being stored.
        """
        self._handle.check_writable()
        if schema is not None:
            check_instance(schema, Mapping, "schema", "a mapping, a JSON Schema")
        text = None if schema is None else canonical(dict(schema), "schema")
        definition = check_definition(SlotDefinition(ask, text, required, secret, order, held_by))
        slot_name = check_name(name, "slot name")
        known = self._handle.view.slots.get(slot_name)
        if held_by == HELD_BY_AUTHORITY and (known is None or not known.held):
            await self._handle.runner.tell(HoldSlot(self._handle.ref(), self._handle.key, slot_name))
        return await self._handle.runner.ask(
            DeclareSlot(self._handle.ref(), self._handle.key, slot_name, definition), Slot
        )

    async def propose(
        self, name: str, value: object, *, read: ReadToken | None = None, source: Source | None = None
    ) -> Slot:
        """Write a value that still waits for confirmation; replaces the proposals that were read."""
        return await self._write(name, value, CandidateStatus.PROPOSED, read, source)

    async def confirm(
        self, name: str, value: object, *, read: ReadToken | None = None, source: Source | None = None
    ) -> Slot:
        """Write a value that stands; replaces the candidates that were read. Raises `ValueRefused` by the schema."""
        return await self._write(name, value, CandidateStatus.CONFIRMED, read, source)

    async def resolve(self, name: str, candidate: Candidate, *, read: ReadToken | None = None) -> Slot:
        """Settle a conflict: confirm one candidate's value in place of all that were read."""
        check_instance(candidate, Candidate, "candidate", "one of the slot's candidates")
        if not candidate.readable:
            raise ValueRefused("This candidate cannot be read, so it cannot be chosen.", hint="Confirm another value.")
        token = self._token(check_name(name, "slot name"), read) | {candidate.write_id}
        return await self._write(name, candidate.value, CandidateStatus.CONFIRMED, token, candidate.source)

    async def clear(self, name: str, *, read: ReadToken | None = None) -> Slot:
        """Delete the candidates that were read; a write that was not read survives."""
        self._handle.check_writable()
        name = check_name(name, "slot name")
        token = self._token(name, read)
        await self._handle.runner.tell(ClearSlot(self._handle.ref(), self._handle.key, name, token))
        self._tokens[name] = self._tokens.get(name, _NOTHING_READ) - token
        return self._handle.view.slots.get(name) or Slot(name, SlotState.MISSING)

    async def _write(
        self, name: str, value: object, status: CandidateStatus, read: ReadToken | None, source: Source | None
    ) -> Slot:
        handle = self._handle
        handle.check_writable()
        name = check_name(name, "slot name")
        used = self._token(name, read)
        origin = _origin(source)
        text = self._text(name, value)
        known = handle.view.slots.get(name)
        if known is not None and known.for_authority:
            return await self._confirm_held(known, text, status)
        slot = await handle.runner.ask(WriteSlot(handle.ref(), handle.key, name, text, status, used, origin), Slot)
        # What was read and still lives stays read, and the own write is known: it has the highest Lamport number.
        newest = max((*slot.candidates, *slot.proposals), key=lambda candidate: candidate.n)
        own = {newest.write_id} if (newest.text, newest.status) == (text, status) else _NOTHING_READ
        self._tokens[name] = (self._tokens.get(name, _NOTHING_READ) - used) | (used & slot.token) | own
        return slot

    async def _confirm_held(self, slot: Slot, text: str, status: CandidateStatus) -> Slot:
        """Have the authority give a slot that it holds this value."""
        if status is CandidateStatus.PROPOSED:
            raise ValueRefused(
                f"The slot {slot.name} is held by the authority, which takes no proposals.", hint="Confirm the value."
            )
        if len(text) > SLOT_VALUE_BYTES_MAX:
            raise TooLarge(f"A slot's value exceeds {SLOT_VALUE_BYTES_MAX} bytes of ASCII JSON.")
        if slot.definition is not None:
            check_value(slot.name, slot.definition, slot.secret, text)
        await self._handle.runner.tell(HoldSlot(self._handle.ref(), self._handle.key, slot.name, text))
        return self._handle.view.slots[slot.name]

    def _text(self, name: str, value: object) -> str:
        """The value as canonical JSON. A refusal names the part of the value, but not of a secret one."""
        try:
            return canonical(value, name, SLOT_VALUE_DEPTH_MAX)
        except ValueRefused as error:
            slot = self._handle.view.slots.get(name)
            if slot is None or not slot.secret:
                raise
            raise ValueRefused(f"The value of {name} is not what a slot can hold.", hint=error.hint) from None

    def _token(self, name: str, read: ReadToken | None) -> frozenset[str]:
        if read is None:
            return self._tokens.get(name, _NOTHING_READ)
        if isinstance(read, Slot):
            return read.token
        if not isinstance(read, Set) or not all(isinstance(write_id, str) for write_id in read):
            raise refused("read", "a slot, its token or None", read, hint="Pass what task.slots[…] gave you.")
        return frozenset(read)


def _origin(source: Source | None) -> str | None:
    if source is None:
        return None
    if isinstance(source, RecordedCall):
        return f"call:{source.step}"
    if isinstance(source, str):
        return check_text(source, "source")
    raise refused("source", "text or a recorded call", source, hint="Pass task.calls[…], or a text of your own.")


def in_order(slots: Mapping[str, Slot]) -> list[Slot]:
    """Return the slots sorted for showing: required ones first, then by order and name."""

    def place(slot: Slot) -> tuple[bool, int, str]:
        definition = slot.definition
        return (definition is None or not definition.required, definition.order if definition else 0, slot.name)

    return sorted(slots.values(), key=place)
