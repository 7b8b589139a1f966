"""The verdict on a push: entry by entry, in order, each is stored, known, or refused with a reason.

What is known is answered with its place if the content is the same, never otherwise (rule D). What is next passes the
guard before it is stored. After a refusal the writer's later entries in the same push are passed over: they would only
be refused for the hole. Numbers are given here, in memory; the caller writes what was stored before anyone hears of it.
"""

from msgspec.structs import replace

from server_relay.admission import Grant
from server_relay.effects import FoundEntry, LookUp, ReadBlob, RelayRead
from server_relay.evidence import evidence_wanted, note_version, refusal_of, take_evidence
from server_relay.keeper import Keeper
from server_relay.key_records import EPOCH_BYTES
from server_relay.quarantine import Quarantine
from server_relay.records import Cover, PutTombstone, StoredEntry, Tombstone
from server_relay.sessions import Session, Turn
from server_relay.streams import Job, StreamLog, TaskLog
from sync_core.entry import (
    Entry,
    EntryKind,
    Snapshot,
    VersionDecision,
    WriterRow,
    decode_record,
    decode_snapshot,
    entry_hash,
)
from sync_core.errors import EntryRefused
from sync_core.frames import Push, Receipt, Refusal, RefusalCode
from sync_core.guard import Standing, check_entry, check_snapshot, standing
from sync_core.ids import Entropy, StreamName
from sync_core.limits import PAYLOAD_BYTES_MAX, SNAPSHOT_BYTES_MAX, TASK_CHARS_MAX
from sync_core.parts import roles_of

__all__ = ["Intake"]

_STREAM_CHARS_MAX = TASK_CHARS_MAX + 16
"""More of a stream's id is not repeated in a refusal, which must fit a frame."""


class _Refuse(Exception):
    """Refuse the entry at hand; never leaves this module."""

    def __init__(self, code: RefusalCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence


class _Unknown(Exception):
    """Something must be read before the entry at hand can be judged; never leaves this module.

    `reads` is that, unless it follows from the entry and the stream alone.
    """

    def __init__(self, *reads: RelayRead) -> None:
        super().__init__()
        self.reads = reads


class Intake:
    """Takes one push of one connection into a task.

    Afterwards `answers` holds refusals and receipts of what was known, in order; `stored` counts what was stored,
    `streams_begun` the streams that began with it; `rest` holds the entries that wait for something to be read, see
    `wanted`.
    """

    def __init__(
        self,
        turn: Turn,
        log: TaskLog,
        session: Session,
        grant: Grant,
        job: Job,
        keeper: Keeper,
        quarantine: Quarantine,
        entropy: Entropy,
    ) -> None:
        self.answers: list[Receipt | Refusal] = []
        self.rest: tuple[Entry, ...] = ()
        self.stored: list[StoredEntry] = []
        self.streams_begun = 0
        self._turn = turn
        self._log = log
        self._keeper = keeper
        self._quarantine = quarantine
        self._reads: tuple[RelayRead, ...] = ()
        self._session = session
        self._grant = grant
        self._job = job
        self._entropy = entropy
        self._may_write = grant.role.may_write
        self._recovered = False
        self._stopped: set[tuple[str, int]] = set()

    def take(self, push: Push) -> None:
        """Judge the entries of a push, in order."""
        self._recovered = push.recovered
        for index, entry in enumerate(push.entries):
            if self._stopped and (entry.stream, entry.writer) in self._stopped:
                continue
            try:
                self._judge(entry, push)
            except _Refuse as refusal:
                self._refuse(entry, refusal)
            except EntryRefused as error:
                self._refuse(entry, _Refuse(RefusalCode.GUARD, error.sentence))
                by = (self._grant.subject, self._grant.device)
                self._quarantine.refused(entry, error, self._session.allowance, *by, self._turn.now_ms)
            except _Unknown as unknown:
                self._reads = unknown.reads
                self.rest = tuple(
                    later for later in push.entries[index:] if (later.stream, later.writer) not in self._stopped
                )
                return

    def wanted(self) -> tuple[RelayRead, ...]:
        """Return the reads that the rest of the push waits for: places of all known entries, and what the first one
        needs to be judged: a snapshot's content, or rows of keys."""
        keys: dict[tuple[StreamName, int, int], None] = {}
        reads: list[RelayRead] = list(self._reads)
        for entry in self.rest:
            name = self._log.names.get(entry.stream)
            if name is None:
                continue
            row = self._log.stream(name).writers.get(entry.writer)
            if standing(entry, row) is Standing.KNOWN:
                keys[name, entry.writer, entry.writer_seq] = None
        missing = tuple(key for key in keys if key not in self._job.known.entries)
        if missing:
            reads.append(LookUp(*self._log.key, missing, ()))
        return tuple(reads)

    # --- one entry ---------------------------------------------------------------------------------------------------

    def _judge(self, entry: Entry, push: Push) -> None:
        if not self._may_write:
            raise _Refuse(RefusalCode.ROLE, "This device may read only.")
        name = self._log.names.get(entry.stream)
        if name is None:
            raise _Refuse(RefusalCode.GUARD, "The entry's stream is not of the task that is pushed to.")
        if entry.device != self._grant.device and not push.recovered:
            raise _Refuse(RefusalCode.GUARD, "The entry names another device than the one that signed in.")
        purged = self._log.purged
        if purged is not None:
            self._check_tombstone(entry, purged, push.recovered)
        stream = self._log.stream(name)
        match standing(entry, stream.writers.get(entry.writer)):
            case Standing.NEXT:
                self._next(entry, stream, push.recovered)
            case Standing.KNOWN:
                self._known_already(entry, name, stream)
            case Standing.GAP:
                raise _Refuse(RefusalCode.GAP, "An earlier entry of this writer is missing.")
            case Standing.CLOSED:
                raise _Refuse(RefusalCode.WRITER_CLOSED, "The writer is closed in this stream.")

    def _check_tombstone(self, entry: Entry, purged: Tombstone, recovered: bool) -> None:
        """A purged task takes nothing but a live decision for a higher version, which begins it anew."""
        if entry.kind is EntryKind.VERSION and not recovered:
            decision = decode_record(entry.kind, entry.payload)
            if isinstance(decision, VersionDecision) and decision.version > purged.version:
                return
        raise _Refuse(RefusalCode.TOMBSTONE, "The task was purged; a higher business version begins it anew.")

    def _known_already(self, entry: Entry, name: StreamName, stream: StreamLog) -> None:
        key = (name, entry.writer, entry.writer_seq)
        known = self._job.known
        if key not in known.entries:
            raise _Unknown
        found = known.entries[key]
        if found is None:
            raise _Refuse(RefusalCode.STORE, "The entry's place cannot be found.")
        if found.content_hash and found.content_hash != entry_hash(entry):
            raise _Refuse(RefusalCode.WRITER_REUSED, "The writer's number was used for another entry before.")
        self._receipt(stream, found)

    def _next(self, entry: Entry, stream: StreamLog, recovered: bool) -> None:
        grant = self._grant
        if self._session.reused and (entry.stream, entry.writer) in self._session.reused:
            raise _Refuse(RefusalCode.WRITER_REUSED, "The entry follows one whose number was used for another before.")
        if len(entry.payload) > PAYLOAD_BYTES_MAX:
            raise _Refuse(RefusalCode.TOO_LARGE, f"The payload exceeds {PAYLOAD_BYTES_MAX} bytes.")
        if not recovered and stream.principals.get(entry.writer, grant.principal) != grant.principal:
            raise _Refuse(RefusalCode.GUARD, "The writer id belongs to another principal.")
        if self._session.allowance.suspect:
            why = self._quarantine.why_refused(entry, self._session.allowance, self._turn.now_ms)
            if why:
                raise _Refuse(RefusalCode.GUARD, why)
        row, scan = check_entry(entry, stream.writers)
        if not recovered and grant.role not in roles_of(entry.kind):
            raise _Refuse(RefusalCode.ROLE, f"The role {grant.role.value} may not write {entry.kind.value} entries.")
        refusal = refusal_of(self._log, entry, scan, grant, self._keeper, recovered)
        if refusal is not None:
            raise _Refuse(*refusal)
        if entry.kind is EntryKind.UPDATE and entry.blob is None:
            self._store(entry, stream, row, recovered)
        else:
            self._next_record(entry, stream, row, recovered)

    def _next_record(self, entry: Entry, stream: StreamLog, row: WriterRow, recovered: bool) -> None:
        """Store an entry that says more to a relay than that it is there."""
        raised: tuple[WriterRow, ...] = ()
        snapshot = None
        if entry.kind is EntryKind.SNAPSHOT:
            snapshot = self._snapshot(entry, recovered)
            raised = check_snapshot(snapshot, {**stream.writers, entry.writer: row})
        elif entry.blob is not None and not recovered:
            self._check_blob(entry.blob)
        records = snapshot.records if snapshot is not None else (entry,)
        reads = evidence_wanted(self._log, records, recovered, self._keeper, self._job.known)
        if reads:
            # A snapshot's bytes are not kept meanwhile.
            again = (ReadBlob(*self._log.key, entry.blob or ""),) if snapshot is not None else ()
            raise _Unknown(*reads, *again)
        for record in records:
            if record.kind is EntryKind.VERSION:
                self._note_version(record, recovered)
        self._store(entry, stream, row, recovered)
        if snapshot is not None:
            self._adopt(entry, stream, snapshot, raised)
        take_evidence(self._turn, self._log, entry, records, self._grant, recovered, self._keeper)

    def _note_version(self, entry: Entry, recovered: bool) -> None:
        decision = decode_record(entry.kind, entry.payload)
        assert isinstance(decision, VersionDecision)
        note_version(self._log, decision, recovered)

    def _check_blob(self, sha256: str) -> None:
        blob = self._log.blobs.get(sha256)
        if blob is None or not (blob.complete or blob.absent):
            raise _Refuse(RefusalCode.BLOB_MISSING, "The blob that the entry names is not stored yet.")

    # --- storing -----------------------------------------------------------------------------------------------------

    def _store(self, entry: Entry, stream: StreamLog, row: WriterRow, recovered: bool) -> None:
        log = self._log
        if not stream.epoch:
            self.streams_begun += 1
            self._turn.writes.append(log.start(stream, self._entropy(EPOCH_BYTES)))
        if log.purged is not None:
            log.tombstone = replace(log.purged, begun_anew=True)
            self._turn.writes.append(PutTombstone(*log.key, log.tombstone))
        log.raise_writer(stream, row, "" if recovered else self._grant.principal)
        device = self._grant.device
        self.stored.append(log.append(entry, stream, self._session, device, device if recovered else None))

    def _snapshot(self, entry: Entry, recovered: bool) -> Snapshot:
        """Return the recovered snapshot that an entry names (rule J)."""
        if not recovered:
            raise _Refuse(RefusalCode.GUARD, "A snapshot is an entry only after a lost log.")
        sha256 = entry.blob or ""
        blob = self._log.blobs.get(sha256)
        if blob is None or not blob.complete:
            raise _Refuse(RefusalCode.BLOB_MISSING, "The snapshot that the entry names is not stored yet.")
        if blob.size_bytes > SNAPSHOT_BYTES_MAX:
            raise _Refuse(RefusalCode.TOO_LARGE, f"The snapshot exceeds {SNAPSHOT_BYTES_MAX} bytes.")
        if sha256 not in self._job.known.blobs:
            raise _Unknown(ReadBlob(*self._log.key, sha256))
        data = self._job.known.blobs.pop(sha256)
        if data is None:
            raise _Refuse(RefusalCode.BLOB_MISSING, "The snapshot that the entry names is not there any more.")
        # An entry of a few bytes has all of these judged: they count as if they were sent with it.
        self._session.allowance.size_bytes += len(data)
        snapshot = decode_snapshot(data)
        if snapshot.stream != entry.stream:
            raise _Refuse(RefusalCode.GUARD, "The snapshot is of another stream.")
        return snapshot

    def _adopt(self, entry: Entry, stream: StreamLog, snapshot: Snapshot, raised: tuple[WriterRow, ...]) -> None:
        """Raise the writer table to a recovered snapshot's; what it newly covers has the snapshot's place."""
        before = {row.writer: stream.writers[row.writer].next_seq for row in raised if row.writer in stream.writers}
        for row in raised:
            first = before.get(row.writer, 1)
            if row.next_seq > first:
                self._log.covers.append(Cover(stream.name, row.writer, first, row.next_seq - 1, stream.head))
            self._log.raise_writer(stream, row, "")
        new = {row.writer: before.get(row.writer, 1) for row in raised}
        for record in snapshot.records:
            if record.writer_seq >= new.get(record.writer, record.writer_seq + 1):
                self._log.steps.apply(record)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _refuse(self, entry: Entry, refusal: _Refuse) -> None:
        row = None
        if refusal.code is RefusalCode.WRITER_REUSED and not self._recovered:
            self._session.reused.add((entry.stream, entry.writer))
        if self._may_write:
            self._stopped.add((entry.stream, entry.writer))
            name = self._log.names.get(entry.stream)
            row = self._log.stream(name).writers.get(entry.writer) if name is not None else None
        expected = row.next_seq if row else 1
        stream_id = entry.stream[:_STREAM_CHARS_MAX]
        self.answers.append(
            Refusal(stream_id, entry.writer, entry.writer_seq, refusal.code, refusal.sentence, expected)
        )

    def _receipt(self, stream: StreamLog, found: FoundEntry) -> None:
        """Answer with a place; a writer's consecutive numbers at consecutive places, or all covered by one snapshot,
        are one receipt."""
        covered = not found.content_hash
        number, place = found.writer_seq, found.relay_seq
        last = self.answers[-1] if self.answers else None
        if isinstance(last, Receipt) and (last.stream, last.writer, last.covered) == (stream.id, found.writer, covered):
            offset = 0 if covered else number - last.first_seq
            if number == last.last_seq + 1 and place == last.first_relay_seq + offset:
                self.answers[-1] = replace(last, last_seq=number)
                return
        self.answers.append(Receipt(stream.id, stream.epoch, found.writer, number, number, place, covered))
