"""TaskDocument: what a task is, as one device holds it: the merged document of slots and notes, and the records.

What comes goes in by `load`, `merge`, `numbered`, `merge_document` and `record`. The rest are local writes: each
validates first and changes nothing if it raises. A write of the document is applied at once and returns its update; a
record is only made, and counts once `record` was given its entry.

Rules:
1. Entries come in the order of the log (the contiguous prefix), own ones in the order in which they were written.
2. An entry is judged against exactly the numbered entries before it (see `ledger`), before anything changes.
3. After `DocumentBroken` the instance must be dropped: what pycrdt was doing may be half done.
"""

from collections.abc import Iterable, Mapping, Sequence

from sync_core.document.diff import Edit, diff
from sync_core.document.digest import digest_of
from sync_core.document.genesis import genesis_update
from sync_core.document.growth import Growth
from sync_core.document.ledger import Ledger
from sync_core.document.note_table import NoteTable, edit_base, load_base
from sync_core.document.notes import Note, NoteMerge, check_base, check_text, find_once, overlap
from sync_core.document.record_writes import RecordWrites
from sync_core.document.records import Touched
from sync_core.document.shared import Changes, DocumentBroken, MapEdit, SharedDoc
from sync_core.document.slot_table import SlotTable
from sync_core.document.slots import CandidateStatus, Slot, SlotDefinition
from sync_core.document.view import TaskView
from sync_core.entry import Entry, EntryKind, WriterRow
from sync_core.ids import Entropy, StreamName, check_note, new_hex_id
from sync_core.scan import Scan, scan_document, scan_update

__all__ = ["DocumentBroken", "TaskDocument", "Touched"]


class TaskDocument(RecordWrites):
    """A task's content under one writer id. `device` is the author of its writes; `entropy` gives fresh ids."""

    def __init__(self, subject: str, task: str, device: str, writer: int, entropy: Entropy) -> None:
        super().__init__(entropy)
        self._task = task
        self._genesis = genesis_update(subject, task)
        self._shared = SharedDoc(writer, self._genesis)
        self._slots = SlotTable(device)
        self._notes = NoteTable(self._shared)
        self._ledger = Ledger()
        self._growth = Growth(self._shared.state_bytes)

    @property
    def writer(self) -> int:
        """The writer id of this instance's updates."""
        return self._shared.writer

    # --- what comes ---------------------------------------------------------------------------------------------------

    def load(self, document: bytes, entries: Iterable[Entry], *, in_log: bool = True) -> None:
        """Take what this device's store holds: a merged document (or b""), then entries of all streams in their order.

        `in_log` is false for a merged document of an earlier log that this log does not hold yet: it is shown, but no
        verdict may stand on it. An entry of kind snapshot holds nothing itself; its content goes in by
        `merge_document`, before what follows. Raises `DocumentBroken`.
        """
        entries = tuple(entries)
        updates = [entry for entry in entries if entry.kind is EntryKind.UPDATE]
        judged = document if in_log else b""
        self._ledger.load(judged, (entry.payload for entry in updates if entry.relay_seq is not None))
        payloads = [entry.payload for entry in updates]
        self._take(self._shared.apply([document, *payloads] if document else payloads))
        if document or payloads:
            self._growth.recount(self._shared.clocks(), None if payloads else document)
        for entry in entries:
            if entry.kind is not EntryKind.UPDATE:
                self._records.add(entry)

    def merge(self, entry: Entry, scan: Scan | None = None) -> Touched:
        """Take a numbered entry that the guard let pass; `scan` is the guard's, if at hand.

        Raises `EntryRefused` before any change if it overwrites a key or hangs text on a slot; `DocumentBroken`.
        """
        if entry.kind is not EntryKind.UPDATE:
            return self.record(entry)
        scan = scan_update(entry.payload) if scan is None else scan
        self._ledger.admit(scan)
        self._growth.add_scanned(entry.payload, scan)
        return self._take(self._shared.apply((entry.payload,)))

    def numbered(self, entry: Entry, scan: Scan | None = None) -> None:
        """Judge an own update, already in the document, that got its number; see `place` for a record.

        Raises `EntryRefused` as `merge` does; the caller then builds the document anew without it.
        """
        if entry.kind is EntryKind.UPDATE:
            self._ledger.admit(scan_update(entry.payload) if scan is None else scan)

    def merge_document(self, document: bytes, records: Iterable[Entry]) -> Touched:
        """Take the content of a snapshot; what is here already is left as it is.

        Raises `EntryRefused` before any change if the document does not pass the scan or hangs text on a slot.
        """
        touched = []
        if document:
            self._ledger.admit(scan_document(document), is_document=True)
            touched.append(self._take(self._shared.apply((document,))))
            self._growth.recount(self._shared.clocks())
        touched.extend(self.record(entry) for entry in records)
        return Touched(
            frozenset().union(*(part.slots for part in touched)),
            frozenset().union(*(part.notes for part in touched)),
            frozenset().union(*(part.calls for part in touched)),
            frozenset().union(*(part.approvals for part in touched)),
            any(part.history for part in touched),
            any(part.version for part in touched),
            any(part.completed for part in touched),
            frozenset().union(*(part.handovers for part in touched)),
        )

    def record(self, entry: Entry) -> Touched:
        """Take an entry that is no update, own or foreign; one that is there already changes nothing."""
        self._view = None
        return self._records.add(entry)

    def _take(self, changes: Changes) -> Touched:
        """Bring the tables up to date with what a transaction did."""
        self._view = None
        slots: set[str] = set()
        if changes.slots:
            slots |= self._slots.change("slots", changes.slots)
        if changes.slotdefs:
            slots |= self._slots.change("slotdefs", changes.slotdefs)
        if changes.notes:
            self._notes.change(changes.notes)
        return Touched(frozenset(slots), frozenset(changes.notes))

    # --- slots --------------------------------------------------------------------------------------------------------

    def slot(self, name: str) -> Slot:
        """Return a slot, a missing one for a name that nobody wrote or declared."""
        return self._records.guarded.held_slot(self._slots.slot(name))

    def declare_slot(self, name: str, definition: SlotDefinition, at_ms: int) -> bytes:
        """Make this the slot's definition, in place of those that are live here; return the update.

        Returns b"" if it stands already. Raises `ValueRefused` for a schema that is not acceptable, `TooLarge`.
        """
        self._growth.check()
        return self._write(self._slots.declare(name, definition, at_ms, new_hex_id(self._entropy)))

    def write_slot(
        self, name: str, text: str, status: CandidateStatus, token: frozenset[str], source: str | None, at_ms: int
    ) -> bytes:
        """Propose or confirm a value (canonical JSON), in place of the writes of the token; return the update.

        Raises `ValueRefused` (also by the schema, if it is confirmed), `TooLarge` (the value, or the task's writes).
        """
        self._growth.check()
        write_id = new_hex_id(self._entropy)
        return self._write(self._slots.write(name, text, status, token, source, at_ms, write_id))

    def clear_slot(self, name: str, token: frozenset[str]) -> bytes:
        """Delete the writes of the token; return the update, b"" if none of them is live."""
        return self._write(self._slots.clear(name, token))

    def _write(self, edit: MapEdit | None) -> bytes:
        if edit is None or not (edit.deletes or edit.sets):
            return b""
        update, changes = self._shared.write((edit,))
        self._growth.add(update, len(edit.sets), 0)
        self._take(changes)
        return update

    # --- notes --------------------------------------------------------------------------------------------------------

    def note(self, name: str) -> Note:
        """Return a note, one with empty text if it is not there; raises `ValueRefused` for a bad name."""
        return self._notes.note(check_note(name))

    def write_note(self, name: str, text: str, content_sha256: str | None) -> bytes:
        """Replace a note's text, made from the text with this hash (None: no note); return the update.

        The same text again succeeds whatever the hash. Raises `PreconditionFailed`, `TooLarge`, `ValueRefused`.
        """
        note = self.note(name)
        check_text(name, text)
        if text == note.text:
            return b""
        check_base(note, content_sha256)
        return self._edit(name, diff(note.text, text))

    def edit_note(self, name: str, old: str, new: str) -> bytes:
        """Replace the one place where `old` stands in the current text; return the update."""
        note = self.note(name)
        at = find_once(note, old)
        text = note.text[:at] + new + note.text[at + len(old) :]
        check_text(name, text)
        return self._edit(name, diff(note.text, text))

    def append_note(self, name: str, text: str) -> bytes:
        """Put a text behind the current one; return the update."""
        note = self.note(name)
        check_text(name, note.text + text)
        return self._edit(name, [Edit(len(note.text), len(note.text), text)] if text else [])

    def delete_note(self, name: str, content_sha256: str) -> bytes:
        """Delete a note whose text has this hash; return the update. Raises `PreconditionFailed`."""
        note = self.note(name)
        if not note.text:
            return b""
        check_base(note, content_sha256)
        return self._edit(name, [Edit(0, len(note.text), "")])

    def base_state(self) -> bytes:
        """Return the state to pin when a note is read, from which a later merge is made."""
        return self._shared.state_bytes()

    def merge_note(self, name: str, text: str, base_sha256: str, base_state: bytes, scratch_writer: int) -> NoteMerge:
        """Merge a text, made from the base with this hash and state, into the current one.

        With the base still current the live id writes, else a scratch document with the fresh id `scratch_writer`.
        Raises `BaseUnknown`, `TooLarge`, `ValueRefused`.
        """
        note = self.note(name)
        check_text(name, text)
        if text == note.text:
            return NoteMerge(b"", self.writer)
        if base_sha256 == note.content_sha256:
            return NoteMerge(self._edit(name, diff(note.text, text)), self.writer)
        self._growth.check()
        base = load_base(scratch_writer, self._genesis, name, base_state)
        base_text, update = edit_base(base, self._shared, name, base_sha256, text)
        if update:
            base.apply((self._shared.state_bytes(),))
            check_text(name, base.note_text(name))
            self._growth.add_scanned(update, scan_update(update))
            self._take(self._shared.apply((update,)))
        return NoteMerge(update, scratch_writer, overlap(base_text, text, note.text))

    def _edit(self, name: str, edits: Sequence[Edit]) -> bytes:
        if not edits:
            return b""
        if any(edit.text for edit in edits):
            self._growth.check()
        update, changes = self._shared.write(notes={name: edits})
        units = sum(len(edit.text.encode("utf-16-le")) // 2 for edit in edits)
        self._growth.add(update, 0, units)
        self._take(changes)
        return update

    # --- reading ------------------------------------------------------------------------------------------------------

    def view(self) -> TaskView:
        """Return an immutable picture of the task; only what changed since the last one is built anew."""
        if self._view is None:
            self._view = TaskView(
                self._task,
                self._records.version,
                self._records.guarded.held(self._slots.slots()),
                self._notes.notes(),
                self._records.calls(),
                self._records.history.visible(),
                self._records.completion(),
                self._growth.writes,
                self._records.guarded.approvals(),
                self._records.handovers.texts(),
            )
        return self._view

    def digest(self, stream: StreamName, writers: Mapping[int, WriterRow]) -> bytes:
        """Return the canonical hash of a stream's content and writer table, equal on any device with the same entries.

        Neither local order nor places in the log enter it, but which of several hand-overs stands.
        """
        content: list[object] = [self._records.rows(stream)]
        if stream is StreamName.STATE:
            content += [*self._slots.rows(), self._notes.rows()]
        elif stream is StreamName.HANDOVER:
            content += self._records.handovers.rows()
        return digest_of(stream.value, content, writers.values())

    def state_bytes(self) -> bytes:
        """Return the document as one merged update, for compaction and snapshots."""
        return self._shared.state_bytes()
