"""One stream on the simulator's disk, and what each `Write` does to it: the store's meaning in plain dictionaries."""

import math

import msgspec
from msgspec.structs import replace

from sync_core.entry import CHAIN_START, Entry, EntryKind, WriterRow
from sync_core.replica import writes as w

__all__ = ["DiskStream", "Position"]

_COMPACTED_KINDS = frozenset({EntryKind.UPDATE, EntryKind.SNAPSHOT})


class _Row(msgspec.Struct, frozen=True):
    entry: Entry
    own: bool
    local: int
    rank: int | None = None
    code: str | None = None
    damaged: bool = False

    @property
    def order(self) -> tuple[bool, int, bool, int, int]:
        """The order of an image: numbered by place, then rank, then local order; ranked by rank; the rest."""
        place = self.entry.relay_seq
        return (place is None, place or 0, self.rank is None, self.rank or 0, self.local)


class _Document(msgspec.Struct, frozen=True):
    covers_seq: int
    document: bytes
    writers: tuple[WriterRow, ...]
    chain: bytes
    damaged: bool = False


class Position(msgspec.Struct, frozen=True):
    epoch: bytes = b""
    cursor: int = 0
    chain: bytes = CHAIN_START


class DiskStream:
    """One stream's rows; `own_writers` are of own rows that were deleted."""

    def __init__(self) -> None:
        self.position: Position | None = None
        self.rows: dict[tuple[int, int], _Row] = {}
        self.writers: dict[int, WriterRow] = {}
        self.document: _Document | None = None
        self.aside: list[w.AsideEntry] = []
        self.own_writers: set[int] = set()

    def copy(self) -> "DiskStream":
        other = DiskStream()
        other.position = self.position
        other.rows = dict(self.rows)
        other.writers = dict(self.writers)
        other.document = self.document
        other.aside = list(self.aside)
        other.own_writers = set(self.own_writers)
        return other

    @property
    def waiting(self) -> int:
        return sum(row.entry.relay_seq is None and row.code is None for row in self.rows.values())

    @property
    def empty(self) -> bool:
        return not (self.position or self.rows or self.writers or self.document or self.aside)

    @property
    def sized(self) -> bool:
        return bool(self.rows or self.document)

    def size(self, name: str) -> w.StreamSize:
        rows = self.rows.values()
        return w.StreamSize(
            name,
            entries=sum(row.code is None for row in rows),
            entry_bytes=sum(len(row.entry.payload) for row in rows),
            document_bytes=0 if self.document is None else len(self.document.document),
            oldest_at_ms=min((row.entry.at_ms for row in rows if row.entry.at_ms), default=0),
        )

    def put(self, entry: Entry, own: bool, code: str | None, local: int) -> None:
        key = (entry.writer, entry.writer_seq)
        old = self.rows.get(key)
        if old is None:
            self.rows[key] = _Row(entry, own, local, None, code)
        else:
            self.rows[key] = _Row(entry, old.own or own, old.local, old.rank, code)

    def delete(self, key: tuple[int, int]) -> None:
        row = self.rows.pop(key)
        if row.own:
            self.own_writers.add(row.entry.writer)

    def number(self, write: w.NumberEntries) -> None:
        for seq in range(write.first_seq, write.last_seq + 1):
            row = self.rows.get((write.writer, seq))
            if row is not None:
                step = 0 if write.same_place else seq - write.first_seq
                place = write.first_relay_seq + step
                self.rows[write.writer, seq] = replace(row, entry=replace(row.entry, relay_seq=place))

    def set_aside(self, write: w.SetAside) -> None:
        key = (write.writer, write.writer_seq)
        row = self.rows.get(key)
        if row is not None:
            if not row.damaged:
                self.aside.append(w.AsideEntry(row.entry, write.code))
            self.delete(key)

    def discard(self, write: w.DiscardEntries) -> None:
        for seq in write.writer_seqs:
            row = self.rows.get((write.writer, seq))
            if row is not None and row.own and row.entry.relay_seq is None:
                self.delete((write.writer, seq))

    def start_epoch(self, write: w.StartEpoch) -> None:
        self.position = Position(epoch=write.epoch)
        self.writers.clear()
        placed = [row for row in self.rows.values() if row.entry.relay_seq is not None or row.rank is not None]
        placed.sort(key=lambda row: row.order)
        for rank, row in enumerate(placed, 1):
            key = (row.entry.writer, row.entry.writer_seq)
            self.rows[key] = replace(row, entry=replace(row.entry, relay_seq=None), rank=rank)
        if self.document is not None:
            self.document = replace(self.document, covers_seq=0)

    def truncate(self, write: w.TruncateStream) -> None:
        above = [
            (key, row)
            for key, row in self.rows.items()
            if row.entry.relay_seq is not None and row.entry.relay_seq > write.after_seq
        ]
        for key, row in above:
            if row.own and row.code is None and not row.damaged:
                self.rows[key] = replace(row, entry=replace(row.entry, relay_seq=None), rank=None)
            else:
                self.delete(key)
        self.position = replace(self.position or Position(), cursor=write.after_seq, chain=write.chain)
        self.writers = {row.writer: row for row in write.writers}
        if self.document is not None and (self.document.damaged or self.document.covers_seq > write.after_seq):
            self.document = None

    def compact(self, write: w.CompactStream) -> None:
        covered = [
            key
            for key, row in self.rows.items()
            if row.code is None
            and row.entry.kind in _COMPACTED_KINDS
            and row.entry.relay_seq is not None
            and row.entry.relay_seq <= write.covers_seq
        ]
        for key in covered:
            self.delete(key)
        self.document = _Document(write.covers_seq, write.document, write.writers, write.chain)

    def empty_log(self, write: w.EmptyStream) -> None:
        for key, row in list(self.rows.items()):
            if row.entry.relay_seq is not None or row.rank is not None or row.code is not None:
                self.delete(key)
        self.own_writers |= {row.entry.writer for row in self.rows.values() if row.own}
        self.writers.clear()
        self.document = None
        self.position = Position(epoch=write.epoch)

    def image(self, name: str) -> w.StreamImage:
        rows = sorted(self.rows.values(), key=lambda row: row.order)
        intact = [row for row in rows if not row.damaged]
        position = self.position or Position()
        document = self.document
        spoiled = document is not None and document.damaged
        if document is None or spoiled:
            document = _Document(0, b"", (), CHAIN_START)
        return w.StreamImage(
            stream=name,
            epoch=position.epoch,
            cursor=position.cursor,
            chain=position.chain,
            document=document.document,
            covers_seq=document.covers_seq,
            snapshot_writers=document.writers,
            snapshot_chain=document.chain,
            entries=tuple(row.entry for row in intact if row.code is None),
            ranks={
                (row.entry.writer, row.entry.writer_seq): row.rank
                for row in intact
                if row.rank is not None and row.entry.relay_seq is None
            },
            writers=tuple(self.writers[writer] for writer in sorted(self.writers)),
            set_aside=tuple(self.aside),
            quarantined=tuple(w.AsideEntry(row.entry, row.code) for row in intact if row.code is not None),
            damaged=tuple((r.entry.writer, r.entry.writer_seq, r.entry.relay_seq) for r in rows if r.damaged),
            document_damaged=spoiled,
        )

    def outstanding(self) -> tuple[tuple[int, int], ...]:
        """Own writers of which all that is above the cursor, up to some number, is held: (writer, that number)."""
        above = self.position.cursor if self.position else math.inf
        highest: dict[int, int] = {}
        for row in sorted(self.rows.values(), key=lambda row: row.entry.writer_seq):
            entry = row.entry
            if row.own and not (row.code or row.damaged) and (entry.relay_seq is None or entry.relay_seq > above):
                known = self.writers.get(entry.writer)
                last = highest.get(entry.writer, 0 if known is None else known.next_seq - 1)
                if entry.writer_seq == last + 1:
                    highest[entry.writer] = entry.writer_seq
        return tuple(sorted(highest.items()))
