"""A log and devices on it, without network or store: the guard, one order, the contiguous prefix, nothing else."""

import random

import msgspec

from sync_core.document.document import TaskDocument, Touched
from sync_core.document.slots import CandidateStatus, SlotDefinition
from sync_core.entry import CallIntent, Effect, Entry, EntryKind, Record, WriterRow, encode_record
from sync_core.guard import check_entry
from sync_core.ids import StreamName, new_writer

SUBJECT = "acme"
TASK = "expense/TRIP-118"
PROPOSED = CandidateStatus.PROPOSED
CONFIRMED = CandidateStatus.CONFIRMED
STATE = StreamName.STATE
HISTORY = StreamName.HISTORY
HANDOVER = StreamName.HANDOVER

_KINDS = {
    "CallIntent": (STATE, EntryKind.CALL),
    "CallOutcome": (STATE, EntryKind.CALL),
    "Plan": (STATE, EntryKind.PLAN),
    "VersionDecision": (STATE, EntryKind.VERSION),
    "Completion": (STATE, EntryKind.COMPLETION),
    "HistoryItem": (HISTORY, EntryKind.HISTORY),
    "HistoryPop": (HISTORY, EntryKind.HISTORY),
    "HandOver": (HANDOVER, EntryKind.HANDOVER),
}


class Log:
    """A task's streams in one list, in the order in which they were stored; `rows` is the writer table."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.rows: dict[StreamName, dict[int, WriterRow]] = {STATE: {}, HISTORY: {}, HANDOVER: {}}

    def store(self, entry: Entry) -> Entry:
        """Guard, number and keep an entry."""
        stream = StreamName(entry.stream.rpartition(":")[2])
        row, _ = check_entry(entry, self.rows[stream])
        self.rows[stream][row.writer] = row
        numbered = msgspec.structs.replace(entry, relay_seq=len(self.entries) + 1)
        self.entries.append(numbered)
        return numbered


class Device:
    """One opening of a task on a device: a document, own entries that wait, and how far the log was read."""

    def __init__(self, name: str, rng: random.Random, log: Log | None = None) -> None:
        self.name = name
        self.rng = rng
        self.log = log or Log()
        self.outbox: list[Entry] = []
        self.own: list[Entry] = []
        self.cursor = 0
        self._seqs: dict[tuple[str, int], int] = {}
        self.document = self.fresh_document()

    def fresh_document(self) -> TaskDocument:
        """Return an empty document under a fresh writer id."""
        return TaskDocument(SUBJECT, TASK, self.name, new_writer(self.rng.randbytes), self.rng.randbytes)

    # --- writing ------------------------------------------------------------------------------------------------------

    def entry(
        self, stream: StreamName, kind: EntryKind, payload: bytes, *, writer: int | None = None, blob: str | None = None
    ) -> Entry:
        """Make an own entry with the next number of its writer."""
        author = self.document.writer if writer is None else writer
        key = (stream.value, author)
        self._seqs[key] = self._seqs.get(key, 0) + 1
        return Entry(f"{TASK}:{stream.value}", author, self._seqs[key], kind, payload, self.name, 5, blob)

    def update(self, payload: bytes, *, writer: int | None = None) -> bytes:
        """Keep an update that the document returned."""
        if payload:
            self.keep(self.entry(STATE, EntryKind.UPDATE, payload, writer=writer))
        return payload

    def record(self, record: Record, *, blob: str | None = None) -> Entry:
        """Keep a record that the document made, and give it its entry."""
        stream, kind = _KINDS[type(record).__name__]
        entry = self.entry(stream, kind, encode_record(record), blob=blob)
        self.document.record(entry)
        self.keep(entry)
        return entry

    def keep(self, entry: Entry) -> None:
        """Put an own entry into the outbox."""
        self.outbox.append(entry)
        self.own.append(entry)

    # --- the short forms that tests use -------------------------------------------------------------------------------

    def declare(self, slot: str, **fields: object) -> bytes:
        definition = msgspec.structs.replace(SlotDefinition(f"Which {slot}?"), **fields)
        return self.update(self.document.declare_slot(slot, definition, 1))

    def confirm(self, slot: str, text: str, token: frozenset[str] | None = None, *, at_ms: int = 1) -> bytes:
        return self._write(slot, text, CONFIRMED, token, at_ms)

    def propose(self, slot: str, text: str, token: frozenset[str] | None = None, *, at_ms: int = 1) -> bytes:
        return self._write(slot, text, PROPOSED, token, at_ms)

    def _write(self, slot: str, text: str, status: CandidateStatus, token: frozenset[str] | None, at_ms: int) -> bytes:
        read = self.document.slot(slot).token if token is None else token
        return self.update(self.document.write_slot(slot, text, status, read, None, at_ms))

    def append(self, *messages: str, answers: str | None = None) -> list[str]:
        """Append messages and return their item ids."""
        items = self.document.append_history(messages, answers)
        for item in items:
            self.record(item)
        return [item.item for item in items]

    # --- the log ------------------------------------------------------------------------------------------------------

    def push(self) -> None:
        """Store what waits."""
        waiting, self.outbox = self.outbox, []
        for entry in waiting:
            self.log.store(entry)

    def pull(self, upto: int | None = None) -> list[Touched]:
        """Merge the log from the cursor."""
        touched = []
        for entry in self.log.entries[self.cursor : upto]:
            self.cursor += 1
            if any(own.writer == entry.writer and own.stream == entry.stream for own in self.own):
                self.document.numbered(entry)
                placed = self.document.place(entry)
                touched += [] if placed is None else [placed]
            else:
                touched.append(self.document.merge(entry))
        return touched

    def reopen(self) -> None:
        """Crash and open again from the entries that this device holds: a fresh writer id."""
        self.document = self.fresh_document()
        numbered = self.log.entries[: self.cursor]
        places = {(entry.stream, entry.writer, entry.writer_seq) for entry in numbered}
        rest = [entry for entry in self.own if (entry.stream, entry.writer, entry.writer_seq) not in places]
        self.document.load(b"", [*numbered, *rest])

    def digest(self, stream: StreamName = STATE) -> bytes:
        return self.document.digest(stream, self.log.rows[stream])


def devices(*names: str, seed: int = 1) -> tuple[Log, list[Device]]:
    """Return a log and devices on it."""
    log = Log()
    rng = random.Random(seed)
    return log, [Device(name, rng, log) for name in names]


def sync(*these: Device) -> None:
    """Everybody pushes, then everybody pulls."""
    for device in these:
        device.push()
    for device in these:
        device.pull()


def assert_converged(*these: Device) -> None:
    """Same view and same digests."""
    first = these[0]
    for other in these[1:]:
        assert other.document.view() == first.document.view()
        for stream in (STATE, HISTORY, HANDOVER):
            assert other.digest(stream) == first.digest(stream)


STRANGER = 2**40 + 7


def stranger(payload: bytes, seq: int = 1) -> Entry:
    """Return an update of a device that nobody knows, numbered."""
    return Entry(f"{TASK}:state", STRANGER, seq, EntryKind.UPDATE, payload, "stranger", relay_seq=100 + seq)


def busy(seed: int = 1) -> tuple[Device, Device]:
    """Two devices that wrote of everything and agree."""
    _, (a, b) = devices("a", "b", seed=seed)
    a.declare("cost_center", schema='{"type":"string"}', required=True)
    a.confirm("cost_center", '"CC-1"')
    b.confirm("cost_center", '"CC-2"')
    b.propose("amount", "12")
    a.update(a.document.write_note("worklog", "größe 🙂\nline\n", None))
    a.append('"hello"', '"call"')
    intent = b.document.begin_call(1, "ocr", "read", Effect.READ, "1" * 64, None, frozenset())
    assert isinstance(intent, CallIntent)
    b.record(intent)
    b.record(b.document.end_call(1, "ocr", intent.attempt, True, "1", None, None))
    sync(a, b)
    a.confirm("amount", "13")
    b.update(b.document.edit_note("worklog", "line", "other line"))
    sync(a, b)
    return a, b
