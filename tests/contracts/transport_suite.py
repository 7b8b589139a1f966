"""What every transport must do; run by each implementation and by the fake."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from sync_core.endpoint.transport import Connection, LinkLost, Transport
from sync_core.limits import FRAME_BYTES_MAX


class FarEnd(Protocol):
    """The other side of a connection, as the test plays it."""

    async def send(self, message: bytes) -> None: ...
    async def receive(self) -> bytes | str: ...
    async def close(self) -> None: ...


class Wire(Protocol):
    """A transport under test with somebody to talk to."""

    transport: Transport
    url: str
    nowhere: str
    accept: Callable[[], Awaitable[FarEnd]]


class TransportSuite:
    """Subclass it and give a fixture `wire`."""

    async def _pair(self, wire: Wire) -> tuple[Connection, FarEnd]:
        near = await wire.transport.connect(wire.url)
        return near, await wire.accept()

    async def test_messages_arrive_whole_and_in_order_both_ways(self, wire: Wire) -> None:
        near, far = await self._pair(wire)
        for number in range(5):
            await near.send(b"to %d" % number)
            await far.send(b"from %d" % number)
        assert [await far.receive() for _ in range(5)] == [b"to %d" % number for number in range(5)]
        assert [await near.receive() for _ in range(5)] == [b"from %d" % number for number in range(5)]

    async def test_a_message_of_the_largest_frame_passes(self, wire: Wire) -> None:
        near, far = await self._pair(wire)
        message = bytes(FRAME_BYTES_MAX)
        sending = asyncio.ensure_future(far.send(message))
        assert await near.receive() == message
        await sending

    async def test_what_was_sent_before_the_far_end_closed_is_still_received(self, wire: Wire) -> None:
        near, far = await self._pair(wire)
        await far.send(b"last words")
        await far.close()
        assert await near.receive() == b"last words"
        with pytest.raises(LinkLost):
            await near.receive()

    async def test_a_receiver_that_waits_is_told_when_the_far_end_closes(self, wire: Wire) -> None:
        near, far = await self._pair(wire)
        waiting = asyncio.ensure_future(near.receive())
        await asyncio.sleep(0)
        await far.close()
        with pytest.raises(LinkLost):
            await waiting

    async def test_sending_on_a_closed_connection_is_a_lost_link(self, wire: Wire) -> None:
        near, _far = await self._pair(wire)
        await near.close()
        with pytest.raises(LinkLost):
            await near.send(b"too late")

    async def test_closing_twice_is_closing_once(self, wire: Wire) -> None:
        near, _far = await self._pair(wire)
        await near.close()
        await near.close()

    async def test_an_address_where_nobody_is_is_a_lost_link_that_says_so(self, wire: Wire) -> None:
        with pytest.raises(LinkLost, match=r"\w"):
            await wire.transport.connect(wire.nowhere)

    async def test_an_address_of_another_kind_is_a_lost_link(self, wire: Wire) -> None:
        with pytest.raises(LinkLost):
            await wire.transport.connect("http://127.0.0.1:1")
