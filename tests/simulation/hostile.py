"""Hostile clients: they speak the wire by hand and push what no honest Replica would write.

Each has a login of its own, or (the thief) that of a victim. What it does must cost nobody else anything: the checkers
demand of the honest ones' work what they always demand.
"""

import hashlib
from random import Random
from typing import TYPE_CHECKING

from sync_core.entry import (
    CHAIN_START,
    CallOutcome,
    Entry,
    EntryKind,
    Record,
    Snapshot,
    decode_record,
    encode_record,
)
from sync_core.frames import (
    WIRE_VERSION,
    BlobPiece,
    DigestAt,
    Entries,
    Heads,
    Hello,
    Login,
    Push,
    SnapshotConfirmed,
    SnapshotOffer,
    StreamPosition,
)
from sync_core.guard import scan_update
from sync_core.ids import AUTHORITY_DEVICE, StreamName, new_writer, stream_id
from sync_core.rulings import Approval, ApprovalRequest, Approved, Granted, Settled, SettledBy
from sync_core.wire import ClientFrame, RelayFrame, decode_relay, encode
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Hostile", "delete_ahead", "gc_block", "map_item", "text_item", "varint"]


def varint(number: int) -> bytes:
    """Return a number as Yjs writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


def delete_ahead(victim: int, clock: int, length: int) -> bytes:
    """Return an update without structs that deletes clocks of a victim, from `clock` on."""
    return b"\x00\x01" + varint(victim) + b"\x01" + varint(clock) + varint(length)


def gc_block(writer: int, clock: int, length: int) -> bytes:
    """Return an update that claims a writer's clocks with one garbage-collected block."""
    return b"\x01\x01" + varint(writer) + varint(clock) + b"\x00" + varint(length) + b"\x00"


def map_item(writer: int, clock: int, root: str, key: str, value: str) -> bytes:
    """Return an update that sets a key of a root map, whatever is there."""
    item = b"\x28\x01" + _text(root) + _text(key) + b"\x01\x77" + _text(value)
    return b"\x01\x01" + varint(writer) + varint(clock) + item + b"\x00"


def text_item(writer: int, clock: int, left: tuple[int, int], text: str) -> bytes:
    """Return an update that hangs text on any item."""
    item = b"\x84" + varint(left[0]) + varint(left[1]) + _text(text)
    return b"\x01\x01" + varint(writer) + varint(clock) + item + b"\x00"


class Hostile:
    """One hostile client. It listens, learns ids, clocks and keys, and now and then strikes."""

    def __init__(self, world: "World", kind: str, tasks: tuple[str, ...], victim: str) -> None:
        self.world = world
        self.kind = kind
        self.tasks = tasks
        self.rng: Random = world.rng(f"hostile {kind}")
        self.device = victim if kind == "thief" else "mallory"
        self.strikes = 0
        self.link: Link | None = None
        self._clocks: dict[str, dict[int, int]] = {}
        self._seqs: dict[tuple[str, int], tuple[int, str]] = {}
        self._sets: dict[str, list[tuple[str, int, int]]] = {}
        self._heads: dict[str, tuple[bytes, int]] = {}
        self._wanted: list[tuple[str, int, str, str]] = []
        self._grants: list[Granted] = []

    # --- the link -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, listen, and strike from time to time until the world heals."""
        if self.world.healing:
            return
        if self.link is None and self.world.relay.up:
            self.link = self.world.link_to_relay(f"hostile {self.kind}", self._arrived, self._ended)
            self._send(Login(WIRE_VERSION, self.world.subject, self.device))
            for task in self.tasks:
                names = tuple(StreamName) if self.kind == "forger" else (StreamName.STATE, StreamName.HISTORY)
                positions = tuple(StreamPosition(name, b"", 0, CHAIN_START) for name in names)
                self._send(Hello(task, positions))
        self.world.scheduler.after(self.rng.randint(200, 1_500), self._act)

    def _act(self) -> None:
        if self.link is not None and not self.world.healing:
            self._strike(self.rng.choice(self.tasks))
        self.start()

    def _send(self, *frames: ClientFrame) -> None:
        if self.link is not None:
            self.link.up.send(encode(frames))

    def _ended(self, link: Link) -> None:
        if link is self.link:
            link.close_by_device()
            self.link = None

    def _arrived(self, link: Link, data: bytes) -> None:
        if link is self.link:
            for frame in decode_relay(data):
                self._learn(frame)

    def _learn(self, frame: RelayFrame) -> None:
        if isinstance(frame, Heads):
            for head in frame.streams:
                self._heads[stream_id(frame.task, head.name)] = (head.epoch, head.head)
        elif isinstance(frame, Entries):
            for entry in frame.entries:
                self._learn_entry(entry)
            self._heads[frame.stream] = (frame.epoch, frame.entries[-1].relay_seq or 0)

    def _learn_entry(self, entry: Entry) -> None:
        if entry.kind in (EntryKind.PLAN, EntryKind.RULING):
            record = decode_record(entry.kind, entry.payload)
            if isinstance(record, ApprovalRequest):
                self._wanted.append((record.step, record.version, record.tool, record.arguments_digest))
            elif isinstance(record, Granted):
                self._grants.append(record)
        self._seqs[entry.stream, entry.writer] = (entry.writer_seq + 1, entry.device)
        if entry.kind is EntryKind.UPDATE:
            scan = scan_update(entry.payload)
            clocks = self._clocks.setdefault(entry.stream, {})
            for writer, _, end in scan.structs:
                clocks[writer] = end
            sets = self._sets.setdefault(entry.stream, [])
            sets += [(key, writer, clock) for root, key, writer, clock in scan.sets if root == "slots"]

    # --- strikes ------------------------------------------------------------------------------------------------------

    def _strike(self, task: str) -> None:
        stream = stream_id(task, StreamName.STATE)
        writer = new_writer(self.rng.randbytes)
        clocks = self._clocks.get(stream, {})
        sets = self._sets.get(stream, [])
        match self.kind:
            case "delete_ahead" if clocks:
                victim = self.rng.choice(sorted(clocks))
                self._push(task, writer, delete_ahead(victim, clocks[victim], 50))
            case "gc_block" if clocks:
                victim = self.rng.choice(sorted(clocks))
                self._push(task, victim, gc_block(victim, clocks[victim], 20))
            case "overwrite" if sets:
                key, _, _ = self.rng.choice(sets)
                self._push(task, writer, map_item(writer, 0, "slots", key, '"stolen"'))
            case "text_on_map" if sets:
                _, owner, clock = self.rng.choice(sets)
                self._push(task, writer, text_item(writer, 0, (owner, clock), "hangs here"))
            case "thief":
                self._steal(task, stream)
            case "empty_snapshot":
                self._offer_nothing(task, stream)
            case "forger":
                self._forge(task)
            case "noise":
                self._noise(task, writer)
            case _:
                return
        self.strikes += 1

    def _push(self, task: str, writer: int, payload: bytes, kind: EntryKind = EntryKind.UPDATE, seq: int = 0) -> None:
        stream = stream_id(task, StreamName.STATE)
        known, device = self._seqs.get((stream, writer), (1, self.device))
        entry = Entry(stream, writer, seq or known, kind, payload, device)
        self._send(Push(task, (entry,), recovered=self.rng.random() < 0.2))

    def _steal(self, task: str, stream: str) -> None:
        """Write the next entry of the victim's newest writer, in its name and with its login."""
        own = [writer for (name, writer), (_, device) in self._seqs.items() if (name, device) == (stream, self.device)]
        if not own:
            return
        writer = own[-1]
        clock = self._clocks.get(stream, {}).get(writer, 0)
        if self.rng.random() < 0.5:
            key = f"budget/{self.rng.randbytes(8).hex()}"
            self._push(task, writer, map_item(writer, clock, "slots", key, '"stolen"'))
        else:
            record = CallOutcome("stolen", 1, "0" * 16, ok=True, result='"stolen"')
            self._push(task, writer, encode_record(record), EntryKind.CALL)

    def _forge(self, task: str) -> None:
        """Claim, in the authority's stream and in other people's names, that everything is approved and over."""
        call = self.rng.choice(self._wanted) if self._wanted else ("wire", 1, "wire", "0" * 64)
        grant = self.rng.choice(self._grants) if self._grants else None
        stream = stream_id(task, StreamName.AUTHORITY)
        forged: list[tuple[EntryKind, Record, str]] = [
            (EntryKind.APPROVAL, Approval(*call, approved=True), self.device),
            (EntryKind.RULING, Approved(*call, approved=True, principal="phone", device="phone"), self.device),
            (EntryKind.RULING, Approved(*call, approved=True, principal="phone", device="phone"), AUTHORITY_DEVICE),
        ]
        if grant is not None:
            key = (grant.key, grant.step, grant.version, grant.attempt, grant.token)
            undone = Settled(*key, happened=False, by=SettledBy.PERSON, principal="phone", device="phone")
            forged.append((EntryKind.RULING, undone, AUTHORITY_DEVICE))
        kind, record, device = self.rng.choice(forged)
        entry = Entry(stream, new_writer(self.rng.randbytes), 1, kind, encode_record(record), device)
        self._send(Push(task, (entry,), recovered=self.rng.random() < 0.4))

    def _offer_nothing(self, task: str, stream: str) -> None:
        """Offer a snapshot of nothing in place of everything, vouch for it, and claim a digest that nobody has."""
        epoch, head = self._heads.get(stream, (b"", 0))
        digest = self.rng.randbytes(32)
        snapshot = Snapshot(stream, epoch, head, CHAIN_START, b"", (), (), digest)
        data = encode_record(snapshot)
        sha256 = hashlib.sha256(data).hexdigest()
        self._send(BlobPiece(task, sha256, 0, len(data), data))
        self._send(SnapshotOffer(stream, epoch, head, digest, sha256))
        self._send(SnapshotConfirmed(stream, epoch, sha256, digest))
        if self.rng.random() < 0.3:
            writer = new_writer(self.rng.randbytes)
            entry = Entry(stream, writer, 1, EntryKind.SNAPSHOT, b"", self.device, blob=sha256)
            self._send(Push(task, (entry,), recovered=True))
        if self.rng.random() < 0.3:
            self._send(DigestAt(stream, epoch, head, digest))

    def _noise(self, task: str, writer: int) -> None:
        choice = self.rng.randrange(4)
        if choice == 0 and self.link is not None:
            self.link.up.send(self.rng.randbytes(self.rng.randint(1, 60)))
        elif choice == 1:
            self._push(task, writer, self.rng.randbytes(self.rng.randint(1, 60)))
        elif choice == 2:
            self._push(task, writer, b"\x00\x00", seq=self.rng.choice((2, 99, 2**40)))
        else:
            self._push(task, writer, self.rng.randbytes(20), EntryKind.CALL)
