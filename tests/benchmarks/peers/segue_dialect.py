"""What a Segue relay speaks: login, Hello, pushes of slot writes that its guard lets pass, snapshots and entries."""

from typing import TYPE_CHECKING

from server_relay.command.load import slot_update
from sync_core.entry import Entry, EntryKind, decode_snapshot
from sync_core.frames import (
    WIRE_VERSION,
    BlobPiece,
    BlobWanted,
    Entries,
    Heads,
    Hello,
    Login,
    Push,
    Receipt,
    Refusal,
    Refused,
    StreamPosition,
    Welcome,
)
from sync_core.ids import StreamName, stream_id
from sync_core.limits import BLOB_PIECE_BYTES
from sync_core.wire import decode_relay, encode

if TYPE_CHECKING:
    from tests.benchmarks.peers.load import Client

__all__ = ["SegueDialect"]


class _Writer:
    """One writer id of the stream `state`: each write is an entry, and each key is set once (design, section 4)."""

    def __init__(self, room: str, number: int) -> None:
        self._stream = stream_id(room, StreamName.STATE)
        self._device = f"d{number}"
        self._id = 0x1000_0000 + number
        self._seq = self._clock = 0

    def entry(self, items: list[tuple[str, str]]) -> Entry:
        self._seq += 1
        update = slot_update(self._id, self._clock, items)
        self._clock += len(items)
        return Entry(self._stream, self._id, self._seq, EntryKind.UPDATE, update, self._device, 1_790_000_000_000)


class SegueDialect:
    """A device that reads and writes one task. It counts as synced once it has all that the heads named."""

    has_sync = True
    echoes = False

    def on_open(self, client: "Client") -> None:
        client.cursors = {}
        client.send(encode([Login(WIRE_VERSION, "bench", f"d{client.number}"), Hello(client.room)]))

    def _writer(self, client: "Client") -> _Writer:
        if not isinstance(client.writer, _Writer):
            client.writer = _Writer(client.room, client.number)
        return client.writer

    def write(self, client: "Client", key: str, value: str) -> bytes:
        return self.seed(client, [(key, value)])

    def write_all(self, client: "Client", key: str, values: list[str]) -> bytes:
        """Return the message of many single writes, each an entry of its own: frames of one loop turn are joined."""
        writer = self._writer(client)
        return encode([Push(client.room, tuple(writer.entry([(key, value)]) for value in values))])

    def seed(self, client: "Client", items: list[tuple[str, str]]) -> bytes:
        return encode([Push(client.room, (self._writer(client).entry(items),))])

    def barrier(self, client: "Client") -> None:
        client.send(encode([Hello(client.room)]))

    def on_message(self, client: "Client", data: bytes) -> None:
        for frame in decode_relay(data):
            match frame:
                case Heads():
                    self._on_heads(client, frame)
                case Entries():
                    client.got(b"".join(entry.payload for entry in frame.entries))
                    self._reached(client, frame.stream, frame.entries[-1].relay_seq or 0)
                case Receipt():
                    client.receipts += frame.last_seq - frame.first_seq + 1
                    self._reached(client, frame.stream, frame.first_relay_seq + frame.last_seq - frame.first_seq)
                case BlobPiece():
                    self._on_piece(client, frame)
                case Refused() | Refusal():
                    client.fail(frame.sentence)
                case Welcome():
                    pass

    def _on_heads(self, client: "Client", heads: Heads) -> None:
        client.answered += 1
        streams = [(stream_id(heads.task, told.name), told) for told in heads.streams]
        client.wanted = {name: told.head for name, told in streams if told.head > client.cursors.get(name, 0)}
        for _, told in streams:
            ref = told.snapshot
            if not client.cursors and ref is not None and ref.usable and told.tail_from > 1:
                client.snapshot.clear()
                client.tail = told.head - ref.covers_seq
                client.send(encode([BlobWanted(heads.task, ref.sha256)]))
                return
        self._settle(client)

    def _on_piece(self, client: "Client", piece: BlobPiece) -> None:
        client.snapshot += piece.data
        if piece.offset == 0:
            # The first piece tells the size: all others are asked for in one message.
            offsets = range(BLOB_PIECE_BYTES, piece.size_bytes, BLOB_PIECE_BYTES)
            if offsets:
                client.send(encode([BlobWanted(piece.task, piece.sha256, offset) for offset in offsets]))
        if len(client.snapshot) < piece.size_bytes:
            return
        snapshot = decode_snapshot(bytes(client.snapshot))
        client.got(snapshot.document)
        client.cursors = {snapshot.stream: snapshot.covers_seq}
        place = StreamPosition(StreamName.STATE, snapshot.epoch, snapshot.covers_seq, snapshot.chain)
        client.send(encode([Hello(client.room, (place,))]))

    def _reached(self, client: "Client", stream: str, place: int) -> None:
        client.cursors[stream] = place
        if place >= client.wanted.get(stream, place + 1):
            del client.wanted[stream]
            self._settle(client)

    def _settle(self, client: "Client") -> None:
        if not client.wanted:
            client.synced = True
