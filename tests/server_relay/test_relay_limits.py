"""What one device may send in a minute (RS-33), at unit scale."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from server_relay.config import RelaySettings
from server_relay.effects import Received
from server_relay.sessions import CLOSE_TRY_LATER
from sync_core.frames import Hello, Push, Refused, Unfollow
from sync_core.wire import ClientFrame
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import history_entry

TASK, PHONE = "expense/TRIP-118", 700_001
SETTINGS = RelaySettings(
    db=Path("unused"),
    frames_per_minute_max=20,
    entries_per_minute_max=20,
    streams_per_minute_max=20,
    bytes_per_minute_max=20,
)
WIDE = 10**9


def harness(**bounds: int) -> Harness:
    """A relay with these bounds and no others."""
    wide = dict.fromkeys(("frames", "entries", "streams", "bytes"), WIDE) | bounds
    return Harness(settings=replace(SETTINGS, **{f"{name}_per_minute_max": bound for name, bound in wide.items()}))


def refused(client: Client) -> list[tuple[str, str, bool]]:
    return [(frame.code, frame.sentence, frame.final) for frame in client.take(Refused)]


def push(seq: int, task: str = TASK) -> Push:
    return Push(task, (history_entry(task, PHONE, seq, "phone"),))


FLOODS: dict[str, list[ClientFrame]] = {
    "frames": [Unfollow(TASK)] * 21,
    "entries": [Push(TASK, tuple(history_entry(TASK, PHONE, seq, "phone") for seq in range(1, 22)))],
    "streams": [push(1, f"t/{number}") for number in range(22)],
}


@pytest.mark.parametrize("what", list(FLOODS))
def test_who_sends_too_much_is_to_come_again_later(what: str) -> None:
    relay = harness(**{what: 20})
    phone, other = relay.login("phone"), relay.login("other")
    for frame in FLOODS[what]:
        phone.send(frame)
    assert refused(phone) == [("limit", f"This device has sent too many {what} in a minute.", False)]
    assert phone.closed is not None
    assert phone.closed.code == CLOSE_TRY_LATER
    assert other.closed is None
    assert relay.relay.counts["refused_limit"] == 1


def test_bytes_are_those_of_the_messages() -> None:
    relay = harness(bytes=20_000)
    phone = relay.login("phone")
    relay.turn(Received(phone.conn, Hello(TASK), 15_000), Received(phone.conn, Unfollow(TASK), 0))
    assert phone.closed is None
    relay.turn(Received(phone.conn, Hello(TASK), 5_001))
    assert refused(phone) == [("limit", "This device has sent too many bytes in a minute.", False)]


def test_what_was_sent_within_the_bound_is_stored_and_receipted_before_the_end() -> None:
    relay = harness(frames=20)
    phone = relay.login("phone")
    phone.hello(TASK)
    phone.send(*(push(seq) for seq in range(1, 31)))
    receipts = phone.receipts()
    assert receipts == [(PHONE, seq, seq) for seq in range(1, 20)]
    assert isinstance(phone.frames[-1], Refused)
    assert relay.login("desk").hello(TASK).streams[0].head == 19


def test_coming_again_gives_nothing_anew_and_the_next_minute_does() -> None:
    relay = harness(frames=20)
    for _ in range(3):
        phone = relay.login("phone")
        phone.send(*[Unfollow(TASK)] * 20)
        assert phone.closed is not None
    desk, umbrella = relay.login("desk"), relay.login("phone", subject="umbrella")
    relay.tick(60_000)
    phone = relay.login("phone")
    phone.send(*[Unfollow(TASK)] * 18)
    assert (phone.closed, desk.closed, umbrella.closed) == (None, None, None)


def test_connections_of_one_device_share_one_allowance_however_old_they_are() -> None:
    relay = harness(frames=20)
    old = []
    for _ in range(3):
        old.append(relay.login("phone"))
        relay.tick(61_000)
    for client in old:
        client.send(*[Unfollow(TASK)] * 10)
    assert [client.closed is None for client in old] == [True, True, False]


def test_devices_that_are_gone_are_forgotten() -> None:
    relay = harness()
    for number in range(50):
        relay.login(f"d{number}").leave()
    phone = relay.login("phone")
    relay.tick(60_000)
    assert len(relay.relay._allowances) == 1
    phone.leave()
    relay.tick(60_000)
    assert len(relay.relay._allowances) == 0
