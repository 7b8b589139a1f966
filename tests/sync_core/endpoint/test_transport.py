"""Addresses, and the queue in front of a connection."""

import asyncio

import pytest

from sync_core.endpoint.transport import LinkLost, Outbox, WebsocketTransport, check_address
from sync_core.errors import ValueRefused
from sync_core.frames import ListTasks, Unfollow
from sync_core.limits import FRAME_BYTES_MAX
from sync_core.wire import decode_client, encode_frame


@pytest.mark.parametrize(
    "relay",
    [
        "",
        "foo",
        "http://relay.example",
        "ws://",
        "ws:///x",
        "ws://127.0.0.1:99999",
        "ws://127.0.0.1:port",
        "ws://[::1",
        "ws://x..y",
        "ws://ä..ö",
        "ws://" + "x" * 64 + ".example",
        "ws://\x00",
        "ws://a b",
        "ws://relay /x",
        "ws://\ud800.example",
        "ws://127.0.0.1:8700/#part",
    ],
)
async def test_no_endpoint_waits_for_an_address_at_which_nobody_can_be(relay: str) -> None:
    with pytest.raises(ValueRefused, match="relay"):
        check_address(relay)


@pytest.mark.parametrize(
    "relay",
    ["ws://127.0.0.1:8700", "wss://relay.example/path?key=1", "WS://[::1]:8700", "ws://größe.example", "ws://relay."],
)
def test_an_address_is_taken_as_it_is(relay: str) -> None:
    assert check_address(relay) == relay


@pytest.mark.parametrize("url", ["ws://x..y", "ws://127.0.0.1:99999", "ws://\x00", "ws://127.0.0.1:1"])
async def test_whatever_connecting_raises_is_a_lost_link(url: str) -> None:
    with pytest.raises(LinkLost, match="no connection to the relay"):
        await WebsocketTransport().connect(url)


def _never(*reason: object) -> None:
    raise AssertionError(f"hung up: {reason}")


async def test_frames_of_one_turn_leave_as_one_message_in_order() -> None:
    outbox = Outbox(_never, _never)
    frames = [ListTasks(1, "a"), Unfollow("t"), ListTasks(2, "b")]
    for frame in frames:
        outbox.put(encode_frame(frame))
    assert decode_client(await outbox.message()) == frames


async def test_a_message_never_exceeds_the_largest_frame() -> None:
    outbox = Outbox(_never, _never)
    frame = encode_frame(ListTasks(1, "x" * 100_000))
    for _ in range(5):
        outbox.put(frame)
    sizes = [len(await outbox.message()) for _ in range(3)]
    assert max(sizes) <= FRAME_BYTES_MAX
    assert [size // len(frame) for size in sizes] == [2, 2, 1]


async def test_taking_a_message_waits_for_a_frame() -> None:
    outbox = Outbox(_never, _never)
    taking = asyncio.ensure_future(outbox.message())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put(encode_frame(Unfollow("t")))
    assert decode_client(await taking) == [Unfollow("t")]


async def test_past_its_bound_it_hangs_up_once_and_takes_nothing_more() -> None:
    told: list[tuple[str, bool]] = []
    outbox = Outbox(lambda reason, final: told.append((reason, final)), _never, bytes_max=10)
    for frame in (b"12345678", b"123", b"1"):
        outbox.put(frame)
    assert told == [("the relay does not read", False)]
    assert (await outbox.message())[1:] == b"12345678"
