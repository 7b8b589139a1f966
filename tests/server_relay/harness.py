"""Drives a Relay as its driver does, on the simulator's mailbox and with a clock of its own."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

from server_relay.admission import Admit, admit_anyone
from server_relay.config import RelaySettings
from server_relay.effects import (
    Close,
    CommitFailed,
    Connected,
    Disconnected,
    Drained,
    Received,
    RelayAnswer,
    RelayEffect,
    RelayEvent,
    RelayRead,
    Send,
    Tick,
    Written,
)
from server_relay.records import MailboxWrite
from server_relay.relay import Relay
from sync_core.entry import CHAIN_START, Entry, chain_next, entry_hash
from sync_core.errors import SegueError
from sync_core.frames import WIRE_VERSION, Entries, Heads, Hello, Login, Push, Receipt, StreamPosition
from sync_core.ids import StreamName
from sync_core.wire import ClientFrame, RelayFrame, decode_relay, join
from tests.simulation.mailbox_model import MailboxModel

__all__ = ["Client", "Harness", "chain_of", "position"]

F = TypeVar("F")


class Client:
    """One connection. `frames` holds what it was sent and did not take yet."""

    def __init__(self, harness: "Harness", conn: int) -> None:
        self.conn = conn
        self.frames: list[RelayFrame] = []
        self.sent_bytes = 0
        self.reads = True
        self.closed: Close | None = None
        self._harness = harness

    def send(self, *frames: ClientFrame) -> list[RelayEffect]:
        """Send frames in one turn; return the turn's effects."""
        return self._harness.turn(*self.received(*frames))

    def received(self, *frames: ClientFrame) -> list[RelayEvent]:
        """Return the events of these frames, for a turn with others."""
        return [Received(self.conn, frame) for frame in frames]

    def hello(self, task: str, *positions: StreamPosition) -> Heads:
        """Say Hello and return the heads; what follows them stays in `frames`."""
        self.send(Hello(task, positions))
        return self.take(Heads)[-1]

    def push(self, task: str, *entries: Entry, recovered: bool = False) -> list[RelayEffect]:
        """Push entries; return the turn's effects."""
        return self.send(Push(task, entries, recovered))

    def take(self, kind: type[F]) -> list[F]:
        """Take all frames of a kind out of `frames`."""
        found: list[F] = [frame for frame in self.frames if isinstance(frame, kind)]
        self.frames = [frame for frame in self.frames if not isinstance(frame, kind)]
        return found

    def entries(self) -> list[Entry]:
        """Take all entries that came in full."""
        return [entry for frame in self.take(Entries) for entry in frame.entries]

    def receipts(self) -> list[tuple[int, int, int]]:
        """Take all receipts, as (writer, writer_seq, relay_seq) of each entry."""
        return [
            (receipt.writer, seq, receipt.first_relay_seq + (0 if receipt.covered else seq - receipt.first_seq))
            for receipt in self.take(Receipt)
            for seq in range(receipt.first_seq, receipt.last_seq + 1)
        ]

    def leave(self) -> None:
        """Close the connection."""
        self._harness.turn(Disconnected(self.conn))


class Harness:
    """A relay with a disk and a clock. `effects` are those of the last turn, `writes` all that was ever committed,
    `batches` all effects that were carried out together, in order."""

    def __init__(self, admit: Admit = admit_anyone, seed: int = 1, settings: RelaySettings | None = None) -> None:
        self.settings = settings or RelaySettings(db=Path("unused"))
        self.admit = admit
        self.entropy = Random(seed)
        self.model = MailboxModel()
        self.now_ms = 1_000_000
        self.clients: dict[int, Client] = {}
        self.effects: list[RelayEffect] = []
        self.writes: list[MailboxWrite] = []
        self.batches: list[list[RelayEffect]] = []
        self.before_commit: Callable[[], None] = lambda: None
        self.restart()

    def restart(self, *, durable: bool = True) -> None:
        """Lose everything but the disk."""
        self.relay = Relay(self.admit, self.entropy.randbytes, self.settings, durable=durable)
        self._conns = max(self.clients, default=0)
        self.clients.clear()

    def connect(self, address: str = "10.0.0.1") -> Client:
        """Open a connection without a login."""
        self._conns += 1
        client = self.clients[self._conns] = Client(self, self._conns)
        self.turn(Connected(client.conn, address))
        return client

    def login(self, device: str, subject: str = "acme", token: str = "") -> Client:
        """Open a connection and log in; the answer stays in `frames`."""
        client = self.connect()
        client.send(Login(WIRE_VERSION, subject, device, token))
        return client

    def tick(self, after_ms: int = 0, *, suspended: bool = False) -> None:
        """Let time pass."""
        self.now_ms += after_ms
        self.turn(Tick(suspended))

    def drain(self) -> None:
        """Let every connection that reads read everything, until nothing more is sent."""
        while any(client.reads and client.sent_bytes for client in self.clients.values()):
            self.turn()

    def turn(self, *events: RelayEvent) -> list[RelayEffect]:
        """Hand over events, and carry out what they come to as a driver does; return the first effects."""
        self.effects = effects = self.relay.turn([*self._drained(), *events], self.now_ms)
        while effects:
            effects = self._carry_out(effects)
        return self.effects

    def _drained(self) -> list[RelayEvent]:
        moved = [client for client in self.clients.values() if client.reads and client.sent_bytes]
        for client in moved:
            client.sent_bytes = 0
        return [Drained(client.conn, 0) for client in moved]

    def _carry_out(self, effects: list[RelayEffect]) -> list[RelayEffect]:
        writes = [effect.write for effect in effects if isinstance(effect, Written)]
        self.batches.append(effects)
        self.before_commit()
        try:
            if writes:
                self.model.commit(writes)
        except SegueError as error:
            return self.relay.handle(CommitFailed(tuple(effects), error), self.now_ms)
        self.writes += writes
        reads: list[RelayRead] = []
        for effect in effects:
            match effect:
                case Send(conn, frames):
                    self._deliver(conn, frames)
                case Close(conn):
                    if conn in self.clients:
                        self.clients[conn].closed = effect
                case Written():
                    pass
                case _:
                    reads.append(effect)
        answers: list[RelayAnswer] = [self.model.read(read) for read in reads]
        return self.relay.turn(answers, self.now_ms) if answers else []

    def _deliver(self, conn: int, frames: tuple[bytes, ...]) -> None:
        client = self.clients.get(conn)
        if client is not None:
            client.frames += decode_relay(join([*frames])) if sum(map(len, frames)) < 200_000 else _each(frames)
            client.sent_bytes += sum(map(len, frames))


def _each(frames: tuple[bytes, ...]) -> list[RelayFrame]:
    return [frame for encoded in frames for frame in decode_relay(join([encoded]))]


def chain_of(*entries: Entry) -> bytes:
    """Return the chain after these entries."""
    chain = CHAIN_START
    for entry in entries:
        chain = chain_next(chain, entry_hash(entry))
    return chain


def position(
    name: StreamName, epoch: bytes, read: tuple[Entry, ...] = (), own: tuple[tuple[int, int], ...] = ()
) -> StreamPosition:
    """Return the position of a device that has read these entries of a stream."""
    return StreamPosition(name, epoch, len(read), chain_of(*read), own)
