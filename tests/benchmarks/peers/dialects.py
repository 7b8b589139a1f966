"""What the peers speak: how a client opens, sends an update and reads an answer; one dialect per wire format."""

from typing import TYPE_CHECKING, Protocol

from tests.benchmarks.peers.yjs import MapWriter, read_varuint, varbytes

if TYPE_CHECKING:
    from tests.benchmarks.peers.load import Client

__all__ = ["Dialect", "HocuspocusDialect", "RawDialect", "YDialect"]

_EMPTY_UPDATE = b"\x00\x00"
_EMPTY_STATE = b"\x00"


class Dialect(Protocol):
    """How a load client speaks. `has_sync`: a fresh client gets what was written before; `echoes`: so does a sender."""

    has_sync: bool
    echoes: bool

    def on_open(self, client: "Client") -> None:
        """The connection stands: ask for the document."""

    def write(self, client: "Client", key: str, value: str) -> bytes:
        """Return the message that sets a key of the client's document."""

    def seed(self, client: "Client", items: list[tuple[str, str]]) -> bytes:
        """Return the message that sets many keys at once."""

    def on_message(self, client: "Client", data: bytes) -> None:
        """Take a message while the client is not only counting."""

    def barrier(self, client: "Client") -> None:
        """Ask for something that is answered after all that this client sent before."""


def _writer(client: "Client") -> MapWriter:
    if not isinstance(client.writer, MapWriter):
        client.writer = MapWriter(0x0800_0000 + client.number)
    return client.writer


class RawDialect:
    """Floors: whatever is sent goes to the others in the room; nothing is kept."""

    has_sync = False
    echoes = False

    def on_open(self, client: "Client") -> None:
        client.synced = True

    def write(self, client: "Client", key: str, value: str) -> bytes:
        return _writer(client).set(key, value)

    def seed(self, client: "Client", items: list[tuple[str, str]]) -> bytes:
        return _writer(client).set_many(items)

    def on_message(self, client: "Client", data: bytes) -> None:
        pass

    def barrier(self, client: "Client") -> None:
        client.answered += 1


class YDialect:
    """Plain y-protocols: one document per connection, named by the path."""

    has_sync = True
    echoes = True

    def prefix(self, client: "Client") -> bytes:
        """Return what stands before each message."""
        return b""

    def on_open(self, client: "Client") -> None:
        self._ask(client, _EMPTY_STATE)

    def _ask(self, client: "Client", state: bytes) -> None:
        client.send(self.prefix(client) + b"\x00\x00" + varbytes(state))

    def write(self, client: "Client", key: str, value: str) -> bytes:
        return self.prefix(client) + b"\x00\x02" + varbytes(_writer(client).set(key, value))

    def seed(self, client: "Client", items: list[tuple[str, str]]) -> bytes:
        return self.prefix(client) + b"\x00\x02" + varbytes(_writer(client).set_many(items))

    def barrier(self, client: "Client") -> None:
        self._ask(client, _writer(client).state_vector())

    def on_message(self, client: "Client", data: bytes) -> None:
        kind, at = read_varuint(data, self._skipped(data))
        if kind not in (0, 4):
            self._other(client, kind, data, at)
            return
        step, at = read_varuint(data, at)
        size, at = read_varuint(data, at)
        body = data[at : at + size]
        if step == 0:
            mine = client.state if client.state is not None and body == _EMPTY_STATE else _EMPTY_UPDATE
            client.send(self.prefix(client) + b"\x00\x01" + varbytes(mine))
            return
        client.got(body)
        if step == 1:
            client.synced = True
            client.answered += 1

    def _skipped(self, data: bytes) -> int:
        return 0

    def _other(self, client: "Client", kind: int, data: bytes, at: int) -> None:
        pass


class HocuspocusDialect(YDialect):
    """y-protocols with the document's name before each message, and a login before the first."""

    def prefix(self, client: "Client") -> bytes:
        return varbytes(client.room.encode())

    def on_open(self, client: "Client") -> None:
        client.send(self.prefix(client) + b"\x02\x00" + varbytes(b"bench") + varbytes(b"4.7.0"))

    def _skipped(self, data: bytes) -> int:
        size, at = read_varuint(data, 0)
        return at + size

    def _other(self, client: "Client", kind: int, data: bytes, at: int) -> None:
        if kind == 2 and read_varuint(data, at)[0] == 2:
            self._ask(client, _EMPTY_STATE)
        elif kind == 2:
            client.fail("permission denied")
        elif kind == 8:
            client.receipts += 1
