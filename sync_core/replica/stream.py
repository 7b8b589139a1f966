"""One stream as a device sees it: its place in the log, the writer table, and what arrived early.

Rules (A, D):
1. Places are consumed one by one, without a hole: only the contiguous prefix ever reaches the document.
2. A receipt fills places like any entry; it never moves the cursor past a gap.
3. What arrives early is held back, bounded; what is at or below the cursor was consumed and is dropped.
4. The writer table and the chain are those of exactly the entries up to the cursor.
"""

from collections.abc import Mapping

import msgspec

from sync_core.entry import CHAIN_START, Entry, WriterRow
from sync_core.frames import SnapshotRef
from sync_core.ids import StreamName, stream_id

__all__ = ["DigestClaim", "OwnPlace", "StreamReplica", "is_covered"]

_HELD_MAX = 4_096
_NO_INTS: frozenset[int] = frozenset()
"""One for all: an empty set of its own costs 216 bytes, and thousands of streams may be followed."""


class OwnPlace(msgspec.Struct, frozen=True):
    """A place of the log that holds an entry whose payload is on this device.

    It is one of a run that ends with `last_seq`; `chain` is the chain there, empty if the content was compared.
    """

    writer: int
    writer_seq: int
    last_seq: int
    chain: bytes = b""


class DigestClaim(msgspec.Struct, frozen=True):
    """What another device says that it holds at a place."""

    relay_seq: int
    digest: bytes
    device: str


class StreamReplica:
    """A stream's position, table and held-back places. `head` is the highest place that the relay spoke of."""

    __slots__ = (
        "bad_snapshot",
        "chain",
        "claim",
        "compacted",
        "covers_seq",
        "cursor",
        "digest_due_at_ms",
        "distrusted",
        "early",
        "epoch",
        "head",
        "held",
        "hello_cursor",
        "id",
        "name",
        "next_seq",
        "offer",
        "offer_checked",
        "proven_to",
        "snapshot",
        "snapshot_writers",
        "writers",
    )

    def __init__(self, task: str, name: StreamName) -> None:
        self.id = stream_id(task, name)
        self.name = name
        self.epoch = b""
        self.cursor = 0
        self.chain = CHAIN_START
        self.head = 0
        self.writers: dict[int, WriterRow] = {}
        self.next_seq: dict[int, int] = {}
        self.held: dict[int, Entry | OwnPlace] = {}
        self.early: frozenset[int] = _NO_INTS
        self.proven_to = 0
        self.hello_cursor = 0
        self.distrusted: frozenset[int] = _NO_INTS
        self.compacted = False
        self.covers_seq = 0
        self.snapshot_writers: tuple[WriterRow, ...] = ()
        self.snapshot: SnapshotRef | None = None
        self.offer: SnapshotRef | None = None
        self.digest_due_at_ms: int | None = None
        self.claim: DigestClaim | None = None
        self.offer_checked = ""
        self.bad_snapshot = ""

    def enter(self, epoch: bytes) -> None:
        """Be in this epoch from now on: places of another log mean nothing here."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.head = 0
            self.claim = None
            self.drop_held()

    def reset(self) -> None:
        """Nothing of the stream is on this device. What the relay said of it stays."""
        self.cursor = 0
        self.chain = CHAIN_START
        self.writers = {}
        self.next_seq = {}
        self.compacted = False
        self.covers_seq = 0
        self.snapshot_writers = ()

    @property
    def behind(self) -> bool:
        """Whether the relay spoke of a place that is not merged here."""
        return self.cursor < self.head

    @property
    def compacted_is_in_log(self) -> bool:
        """Whether the log that this device is in holds all that was merged into one row here."""
        return not self.compacted or bool(self.covers_seq) or is_covered(self.snapshot_writers, self.writers)

    @property
    def has_gap(self) -> bool:
        """Whether something arrived early and waits for what is missing before it."""
        return bool(self.held) and self.cursor + 1 not in self.held

    def place(self, relay_seq: int, item: Entry | OwnPlace) -> bool:
        """Hold an arrived place until the prefix reaches it; return whether it is new here.

        What was consumed, or is far ahead, is dropped.
        """
        self.head = max(self.head, relay_seq)
        if relay_seq in self.held or not self.cursor < relay_seq <= self.cursor + _HELD_MAX:
            return False
        self.held[relay_seq] = item
        return True

    def drop_held(self) -> None:
        """Forget what arrived and was not consumed."""
        self.held.clear()
        self.early = _NO_INTS
        self.proven_to = 0

    def take_next(self) -> tuple[int, Entry | OwnPlace] | None:
        """Return the next place of the contiguous prefix, or None if it has not arrived."""
        item = self.held.pop(self.cursor + 1, None)
        return None if item is None else (self.cursor + 1, item)

    def number_local(self, writer: int) -> int:
        """Return the next writer_seq of an own writer, counting what is not at the relay yet."""
        seq = self.next_seq.get(writer, 1)
        self.next_seq[writer] = seq + 1
        return seq


def is_covered(rows: tuple[WriterRow, ...], table: Mapping[int, WriterRow]) -> bool:
    """Whether a writer table has reached all of these rows."""
    return all(row.writer in table and table[row.writer].next_seq >= row.next_seq for row in rows)
