"""Updates for the guard's tests: the format spelled out by hand, and honest devices that write from a seed."""

import random
from collections.abc import Sequence

from pycrdt import Doc, Map, Text, TransactionEvent

from sync_core.entry import Entry, EntryKind, Snapshot, WriterRow
from sync_core.guard import check_entry
from sync_core.ids import GENESIS_WRITER

STREAM = "expense/TRIP-118:state"
ALPHABET = "abc é😀ñ\n漢🚂"


def number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return number(len(raw)) + raw


def item(content: bytes, kind: int = 4, *, root: str = "note:a", key: str | None = None, **origins: object) -> bytes:
    """One struct. `left` and `right` are origins as (id, clock); without one the item hangs under its root."""
    left, right = origins.get("left"), origins.get("right")
    info = kind | (128 if left else 0) | (64 if right else 0) | (32 if key is not None else 0)
    out = bytes([info])
    for origin in (left, right):
        if isinstance(origin, tuple):
            out += number(origin[0]) + number(origin[1])
    if not left and not right:
        out += b"\x01" + text(root)
        if key is not None:
            out += text(key)
    return out + content


def slot(value: str = '{"n":1}', key: str = "cost_center/0123456789abcdef", root: str = "slots") -> bytes:
    return item(b"\x01\x77" + text(value), 8, root=root, key=key)


def note(value: str, **place: object) -> bytes:
    return item(text(value), 4, **place)  # type: ignore[arg-type]


def section(writer: int, first: int, *structs: bytes) -> bytes:
    return number(len(structs)) + number(writer) + number(first) + b"".join(structs)


def update(*sections: bytes, deletes: Sequence[tuple[int, int, int]] = ()) -> bytes:
    gone = b"".join(number(writer) + b"\x01" + number(clock) + number(length) for writer, clock, length in deletes)
    return number(len(sections)) + b"".join(sections) + number(len(deletes)) + gone


def entry(writer: int, writer_seq: int, payload: bytes, device: str = "phone", **more: object) -> Entry:
    return Entry(STREAM, writer, writer_seq, EntryKind.UPDATE, payload, device, **more)  # type: ignore[arg-type]


def table(*rows: WriterRow) -> dict[int, WriterRow]:
    return {row.writer: row for row in rows}


def snapshot(document: bytes, writers: dict[int, WriterRow], records: tuple[Entry, ...] = ()) -> Snapshot:
    rows = tuple(writers[writer] for writer in sorted(writers))
    return Snapshot(STREAM, bytes(8), 1_000, bytes(16), document, records, rows, bytes(32))


def genesis() -> bytes:
    doc: Doc = Doc(client_id=GENESIS_WRITER)
    meta = doc.get("meta", type=Map)
    with doc.transaction():
        meta["document"] = "0123"
        meta["schema"] = "1"
    return doc.get_update()


def clocks(doc: Doc) -> dict[int, int]:
    """The document's state vector: id → next clock, the genesis left out."""
    data, place, out = doc.get_state(), 0, []
    while place < len(data):
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        out.append(value)
    return {writer: clock for writer, clock in zip(out[1::2], out[2::2], strict=True) if writer != GENESIS_WRITER}


class Device:
    """An honest device: it writes slots and notes, sends in order, and reads the log in order."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.outbox: list[tuple[int, bytes]] = []
        self.read = 0
        self.open()

    def open(self, state: bytes | None = None) -> None:
        self.writer = self.rng.getrandbits(53) | 1 << 20
        self.doc: Doc = Doc(client_id=self.writer)
        self.doc.apply_update(state or genesis())
        self.slots = self.doc.get("slots", type=Map)
        self.note = self.doc.get("note:a", type=Text)
        self.subscription = self.doc.observe(self._heard)
        self.writing = False

    def _heard(self, event: TransactionEvent) -> None:
        if self.writing:
            self.outbox.append((self.writer, event.update))

    def write(self) -> None:
        self.writing = True
        with self.doc.transaction():
            for _ in range(self.rng.randint(1, 4)):
                self._change(self.note)
        self.writing = False

    def merge(self) -> None:
        """A note merge from a base: in a scratch document with an id of its own."""
        scratch: Doc = Doc(client_id=self.rng.getrandbits(53) | 1 << 20)
        scratch.apply_update(self.doc.get_update())
        updates: list[bytes] = []
        subscription = scratch.observe(lambda event: updates.append(event.update))
        with scratch.transaction():
            for _ in range(3):
                self._edit(scratch.get("note:a", type=Text))
        scratch.unobserve(subscription)
        for data in updates:
            self.outbox.append((scratch.client_id, data))
            self.doc.apply_update(data)

    def reopen(self) -> None:
        self.open(self.doc.get_update())

    def merge_log(self, log: list[Entry]) -> None:
        for one in log[self.read :]:
            if one.device != self.name:
                self.doc.apply_update(one.payload)
        self.read = len(log)

    def _change(self, shared: Text) -> None:
        choice = self.rng.random()
        if choice < 0.3:
            key = f"slot_{self.rng.randrange(4)}/{self.rng.getrandbits(64):016x}"
            self.slots[key] = '{"n":1,"v":"é😀"}'
        elif choice < 0.5 and len(self.slots):
            del self.slots[self.rng.choice(sorted(self.slots.keys()))]
        else:
            self._edit(shared)

    def _edit(self, shared: Text) -> None:
        content = str(shared)
        first, last = sorted(self.rng.randint(0, len(content)) for _ in range(2))
        start, stop = (len(content[:place].encode()) for place in (first, last))
        if self.rng.random() < 0.4 and stop > start:
            del shared[start:stop]
        else:
            shared.insert(start, "".join(self.rng.choice(ALPHABET) for _ in range(self.rng.randint(1, 6))))


class World:
    """Three honest devices and a log that takes what the guard lets through; any refusal is an error."""

    def __init__(self, seed: int, steps: int = 60) -> None:
        self.rng = random.Random(seed)
        self.devices = [Device(name, self.rng) for name in ("phone", "desktop", "tablet")]
        self.log: list[Entry] = []
        self.tables: list[dict[int, WriterRow]] = [{}]
        for _ in range(steps):
            self._step(self.rng.choice(self.devices))
        for device in self.devices:
            self._send(device)
        for device in self.devices:
            device.merge_log(self.log)

    def _step(self, device: Device) -> None:
        choice = self.rng.random()
        if choice < 0.55:
            device.write()
        elif choice < 0.6:
            device.merge()
        elif choice < 0.64:
            device.reopen()
        elif choice < 0.8:
            self._send(device)
        else:
            device.merge_log(self.log)

    def _send(self, device: Device) -> None:
        for writer, data in device.outbox:
            writers = self.tables[-1]
            row = writers.get(writer)
            after, _ = check_entry(one := entry(writer, row.next_seq if row else 1, data, device.name), writers)
            self.log.append(one)
            self.tables.append({**writers, writer: after})
        device.outbox.clear()
