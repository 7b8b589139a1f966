"""The guard: judges an entry by its bytes and the stream before it, before anything is stored or merged.

Relay and endpoint run the same guard, and its verdict is a pure function of the entry and the writer table, so both
come to the same one without a word. What it holds up:

- an id belongs to the device whose entry first used it;
- an entry writes only under its own id, from that id's next clock, in one run without a hole or a skip (rule D);
- a deletion and an origin name only clocks that are there, so nothing silences a writer's future clocks, and pycrdt
  never waits for anything (rules A and D);
- the bytes are of the closed grammar of `scan` (rule C), a record is of its kind and its numbers are bounded.

It cannot see what a clock holds: that text hangs on a map item, or that a key is set a second time, is judged by the
endpoints, which hold the document.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from sync_core.entry import (
    CHAIN_BYTES,
    CallIntent,
    CallOutcome,
    Completion,
    Entry,
    EntryKind,
    HandOver,
    HistoryItem,
    HistoryPop,
    Plan,
    Record,
    Snapshot,
    VersionDecision,
    WriterRow,
    decode_record,
)
from sync_core.errors import EntryRefused, ValueRefused
from sync_core.ids import (
    AUTHORITY_DEVICE,
    GENESIS_WRITER,
    WRITER_BITS,
    StreamName,
    check_name,
    check_step,
    split_stream,
)
from sync_core.limits import NOTE_BYTES_MAX, PAYLOAD_BYTES_MAX, RECORD_NUMBER_MAX, SCAN_CLOCK_MAX, SNAPSHOT_IDS_MAX
from sync_core.parts import KINDS_OF_STREAM
from sync_core.rulings import Approval, ApprovalRequest, Approved, Contradicted, Doubted, Granted, Held, Settled
from sync_core.scan import GENESIS_CLOCKS, Scan, scan_document, scan_update

__all__ = [
    "GENESIS_CLOCKS",
    "Scan",
    "Standing",
    "check_entry",
    "check_snapshot",
    "scan_document",
    "scan_update",
    "standing",
]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST_BYTES = 32


class Standing(StrEnum):
    """Where an entry stands by its number: the writer's next, already there, behind a hole, or its writer is closed."""

    NEXT = "next"
    KNOWN = "known"
    GAP = "gap"
    CLOSED = "closed"


def standing(entry: Entry, row: WriterRow | None) -> Standing:
    """Return where an entry stands; `row` is its writer's in the stream, None before its first entry."""
    next_seq = 1 if row is None else row.next_seq
    if 0 < entry.writer_seq < next_seq:
        return Standing.KNOWN
    if row is not None and row.closed:
        return Standing.CLOSED
    return Standing.NEXT if entry.writer_seq == next_seq else Standing.GAP


def check_entry(entry: Entry, writers: Mapping[int, WriterRow]) -> tuple[WriterRow, Scan | None]:
    """Judge an entry whose standing is NEXT.

    `writers` is the stream's writer table before the entry, by id. Returns the writer's row after the entry, and the
    scan of an update. Raises `EntryRefused`; the verdict depends on nothing but the arguments.
    """
    _check_content(entry)
    row = writers.get(entry.writer)
    if row is None:
        row = WriterRow(entry.writer, entry.device)
    elif row.device != entry.device:
        raise EntryRefused("The writer id belongs to another device.")
    next_clock = row.next_clock
    scan = None
    if entry.kind is EntryKind.UPDATE:
        scan = scan_update(entry.payload)
        next_clock = _check_run(scan, row)
        if scan.deletes or scan.origins:
            _check_known(scan, writers, {row.writer: next_clock})
    return WriterRow(row.writer, row.device, next_clock, entry.writer_seq + 1, row.closed), scan


def check_snapshot(snapshot: Snapshot, writers: Mapping[int, WriterRow]) -> tuple[WriterRow, ...]:
    """Judge a snapshot against the stream's writer table (rules F and J).

    Each id's structs must start at or below its next clock and have no hole, and end where the snapshot's own table
    says, so an empty document cannot pass for a written one; each record is one that the table counts, of its writer's
    device. Returns the rows that the snapshot raises, as they stand after it; what was there already is no row. Raises
    `EntryRefused`.
    """
    _check_form(snapshot)
    table = {row.writer: row for row in snapshot.writers}
    scan = scan_document(snapshot.document) if snapshot.document else Scan((), (), (), (), ())
    ends = {}
    for writer, first, end in scan.structs:
        known = writers.get(writer)
        if first > (known.next_clock if known else 0):
            raise EntryRefused("The snapshot leaves a hole in a writer's clocks.")
        ends[writer] = end
    if ends != {row.writer: row.next_clock for row in snapshot.writers if row.next_clock}:
        raise EntryRefused("The snapshot's document and its writer table do not agree.")
    _check_known(scan, writers, ends)
    raised = []
    for writer, row in table.items():
        known = writers.get(writer)
        after = row if known is None else _raised(known, row)
        if after != known:
            raised.append(after)
    return tuple(raised)


def _raised(known: WriterRow, row: WriterRow) -> WriterRow:
    if known.device != row.device:
        raise EntryRefused("A writer id of the snapshot belongs to another device.")
    return WriterRow(
        known.writer,
        known.device,
        max(known.next_clock, row.next_clock),
        max(known.next_seq, row.next_seq),
        known.closed or row.closed,
    )


def _check_run(scan: Scan, row: WriterRow) -> int:
    """Return the writer's next clock after an update; its structs are one run of its own, from its next clock."""
    if not scan.structs:
        return row.next_clock
    writer, first, end = scan.structs[0]
    if len(scan.structs) > 1 or writer != row.writer:
        raise EntryRefused("The update writes under an id that is not its writer's.")
    if first != row.next_clock:
        raise EntryRefused("The update does not start at its writer's next clock.")
    return end


def _check_known(scan: Scan, writers: Mapping[int, WriterRow], new: Mapping[int, int]) -> None:
    """Deletions and origins name only clocks that are there: in the stream, or below `new`, the next clocks after."""
    for writer, clock, length in scan.deletes:
        if clock + length > _next_clock(writer, writers, new):
            raise EntryRefused("The update deletes what is not there yet.")
    for writer, clock in scan.origins:
        if clock >= _next_clock(writer, writers, new):
            raise EntryRefused("The update hangs on what is not there yet.")


def _next_clock(writer: int, writers: Mapping[int, WriterRow], new: Mapping[int, int]) -> int:
    row = writers.get(writer)
    return max(new.get(writer, 0), row.next_clock if row else 0)


def _check_content(entry: Entry) -> None:
    """What the entry shows without the writer table: names, bounds, kind, blob, record."""
    try:
        _, stream = split_stream(entry.stream)
        check_name(entry.device, "device")
    except ValueRefused as error:
        raise EntryRefused(error.sentence, hint=error.hint) from None
    if entry.kind not in KINDS_OF_STREAM[stream]:
        raise EntryRefused(f"An entry of kind {entry.kind.value} does not belong to the stream {stream.value}.")
    if (entry.kind is EntryKind.RULING) != (entry.device == AUTHORITY_DEVICE):
        raise EntryRefused("A ruling is the authority's own, and it writes nothing else.")
    _check_writer(entry.writer)
    if len(entry.payload) > PAYLOAD_BYTES_MAX:
        raise EntryRefused(f"The payload is larger than {PAYLOAD_BYTES_MAX} bytes.")
    if entry.blob is not None and not _SHA256.fullmatch(entry.blob):
        raise EntryRefused("The name of the blob is no SHA-256 in hex.")
    _check_numbers(abs(entry.at_ms), entry.writer_seq)
    if entry.kind is EntryKind.SNAPSHOT:
        if entry.payload or entry.blob is None:
            raise EntryRefused("An entry of kind snapshot names its blob and holds nothing else.")
    elif entry.kind is not EntryKind.UPDATE:
        _check_record(decode_record(entry.kind, entry.payload))


def _check_record(record: Record) -> None:
    """The names and numbers of a record: a number near the end of its range would leave the next writer none."""
    try:
        match record:
            case CallIntent() | Plan() | ApprovalRequest():
                check_step(record.step)
                _check_numbers(record.version, record.n)
            case CallOutcome() | Granted() | Doubted() | Settled() | Contradicted():
                check_step(record.step)
                _check_numbers(record.version, record.token)
            case Approval() | Approved():
                check_step(record.step)
                _check_numbers(record.version)
            case Held():
                check_name(record.slot, "slot")
            case VersionDecision():
                _check_numbers(record.version)
            case Completion():
                _check_numbers(record.version, *(number for _, *numbers in record.read for number in numbers))
            case HandOver():
                _check_numbers(record.version)
                if len(record.text.encode()) > NOTE_BYTES_MAX:
                    raise EntryRefused(f"The hand-over exceeds {NOTE_BYTES_MAX} bytes.")
            case HistoryItem():
                _check_numbers(record.n, record.index)
            case HistoryPop():
                pass
    except ValueRefused as error:
        raise EntryRefused(error.sentence, hint=error.hint) from None


def _check_form(snapshot: Snapshot) -> None:
    """What a snapshot shows without the writer table."""
    try:
        _, stream = split_stream(snapshot.stream)
        for row in snapshot.writers:
            check_name(row.device, "device")
    except ValueRefused as error:
        raise EntryRefused(error.sentence, hint=error.hint) from None
    if len(snapshot.chain) != CHAIN_BYTES or len(snapshot.digest) != _DIGEST_BYTES:
        raise EntryRefused("The snapshot's chain or digest is malformed.")
    _check_numbers(snapshot.covers_seq)
    if len(snapshot.writers) > SNAPSHOT_IDS_MAX:
        raise EntryRefused(f"The snapshot's writer table has more than {SNAPSHOT_IDS_MAX} rows.")
    before = 0
    for row in snapshot.writers:
        _check_writer(row.writer)
        if row.writer <= before or not 0 <= row.next_clock <= SCAN_CLOCK_MAX or row.next_seq < 1:
            raise EntryRefused("The snapshot's writer table is malformed.")
        _check_numbers(row.next_seq)
        before = row.writer
    if snapshot.document and stream is not StreamName.STATE:
        raise EntryRefused("Only the stream state has a document.")
    place = 0
    rows = {row.writer: row for row in snapshot.writers}
    for entry in snapshot.records:
        if entry.stream != snapshot.stream or entry.kind in (EntryKind.UPDATE, EntryKind.SNAPSHOT):
            raise EntryRefused("The snapshot holds an entry that is no record of its stream.")
        if entry.relay_seq is None or not place < entry.relay_seq <= snapshot.covers_seq:
            raise EntryRefused("The snapshot's records are not in the order of their places.")
        _check_content(entry)
        writer = rows.get(entry.writer)
        if writer is None or writer.device != entry.device or entry.writer_seq >= writer.next_seq:
            raise EntryRefused("The snapshot holds a record that its writer table does not know.")
        place = entry.relay_seq


def _check_writer(writer: int) -> None:
    if not GENESIS_WRITER < writer < 1 << WRITER_BITS:
        raise EntryRefused("The writer id is reserved or out of range.")


def _check_numbers(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= RECORD_NUMBER_MAX:
            raise EntryRefused("A number of the entry is out of range.")
