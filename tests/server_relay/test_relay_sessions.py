"""Logins, roles, names, expiry, caps: what a connection may do, and when it ends."""

import pytest
from msgspec.structs import replace

from server_relay.admission import Grant, LoginRefused, Role
from server_relay.effects import Malformed
from server_relay.relay import HELLO_POSITIONS_MAX
from server_relay.sessions import CLOSE_POLICY, CLOSE_TRY_LATER
from sync_core.frames import (
    WIRE_VERSION,
    BlobAbsent,
    BlobMissing,
    BlobPiece,
    BlobWanted,
    DigestAt,
    Heads,
    Hello,
    Listing,
    ListTasks,
    Login,
    Push,
    Refusal,
    RefusalCode,
    Refused,
    SnapshotConfirmed,
    SnapshotOffer,
    StreamPosition,
    Unfollow,
    Welcome,
)
from sync_core.ids import StreamName
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import history_entry

TASK = "expense/TRIP-118"
PHONE, DESKTOP = 700_001, 800_002


def by_token(login: Login, now_ms: int) -> Grant:
    """A token is `<principal>/<role>/<expires_ms>`; anything else is refused."""
    parts = login.token.split("/")
    if len(parts) != 3:
        raise LoginRefused("No.", hint="Try again.", final=True)
    if int(parts[2]) <= now_ms:
        raise LoginRefused("Expired.", hint="Ask anew.", final=False)
    return Grant(parts[0], login.device, login.subject, Role(parts[1]), int(parts[2]))


NEVER = 10**15


@pytest.fixture
def harness() -> Harness:
    return Harness(by_token)


def refused(client: Client) -> list[tuple[str, bool]]:
    return [(frame.code, frame.final) for frame in client.take(Refused)]


# --- login ------------------------------------------------------------------------------------------------------------


def test_a_login_is_welcomed_with_role_principal_and_relay_time(harness: Harness) -> None:
    phone = harness.login("phone", token=f"anna/write/{harness.now_ms + 60_000}")
    assert phone.take(Welcome) == [Welcome(WIRE_VERSION, harness.now_ms, "write", "anna", True, 60_000)]
    never = harness.login("never", token=f"anna/write/{2**70}")
    assert [welcome.lives_ms for welcome in never.take(Welcome)] == [2**53]


@pytest.mark.parametrize(
    "frame",
    [Hello(TASK), Push(TASK, ()), ListTasks(1), BlobWanted(TASK, "a" * 64), Unfollow(TASK), DigestAt("x", b"", 1, b"")],
)
def test_nothing_comes_before_the_login(harness: Harness, frame: Hello) -> None:
    stranger = harness.connect()
    effects = stranger.send(frame)
    assert refused(stranger) == [("protocol_error", False)]
    assert stranger.closed is not None
    assert len(effects) == 2


def test_no_login_within_five_seconds_ends_the_connection(harness: Harness) -> None:
    stranger, phone = harness.connect(), harness.login("phone", token=f"anna/write/{NEVER}")
    harness.tick(4_900)
    assert stranger.closed is None
    harness.tick(200)
    assert stranger.closed is not None
    assert phone.closed is None


def test_a_refused_login_says_whether_trying_again_is_useless(harness: Harness) -> None:
    forged, expired = harness.login("phone", token="forged"), harness.login("phone", token="anna/write/5")
    assert (refused(forged), refused(expired)) == ([("credentials", True)], [("credentials", False)])
    assert forged.closed is not None
    assert forged.closed.code == CLOSE_POLICY


def test_nothing_is_taken_from_a_refused_connection(harness: Harness) -> None:
    forged = harness.login("phone", token="forged")
    forged.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
    assert harness.writes == []


def test_malformed_messages_end_the_connection(harness: Harness) -> None:
    phone = harness.login("phone", token=f"anna/write/{NEVER}")
    harness.turn(Malformed(phone.conn, "A message is malformed."))
    assert refused(phone) == [("protocol_error", False)]
    assert phone.closed is not None


# --- expiry and renewal -----------------------------------------------------------------------------------------------


def test_a_live_connection_ends_with_its_grant(harness: Harness) -> None:
    phone = harness.login("phone", token=f"anna/write/{harness.now_ms + 60_000}")
    harness.tick(59_000)
    assert phone.closed is None
    harness.tick(1_000)
    assert refused(phone) == [("credentials", False)]
    assert phone.closed is not None


def test_a_second_login_renews_the_grant(harness: Harness) -> None:
    phone = harness.login("phone", token=f"anna/write/{harness.now_ms + 60_000}")
    harness.tick(50_000)
    phone.send(Login(WIRE_VERSION, "acme", "phone", f"anna/read/{harness.now_ms + 60_000}"))
    assert [(welcome.role, welcome.lives_ms) for welcome in phone.take(Welcome)] == [
        ("write", 60_000),
        ("read", 60_000),
    ]
    harness.tick(50_000)
    assert phone.closed is None


@pytest.mark.parametrize(
    ("subject", "device", "principal"), [("other", "phone", "anna"), ("acme", "x", "anna"), ("acme", "phone", "eve")]
)
def test_a_second_login_cannot_change_who_it_is(harness: Harness, subject: str, device: str, principal: str) -> None:
    phone = harness.login("phone", token=f"anna/write/{NEVER}")
    phone.send(Login(WIRE_VERSION, subject, device, f"{principal}/write/{NEVER}"))
    assert refused(phone) == [("protocol_error", False)]
    assert phone.closed is not None


# --- readers (RS-23) --------------------------------------------------------------------------------------------------


def test_a_reader_changes_nothing_with_any_kind_of_frame(harness: Harness) -> None:
    phone = harness.login("phone", token=f"anna/write/{NEVER}")
    phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
    heads = phone.hello(TASK)
    epoch, stream = heads.streams[0].epoch, f"{TASK}:history"
    before = list(harness.writes)
    reader = harness.login("reader", token=f"ron/read/{NEVER}")
    entries = tuple(history_entry(TASK, DESKTOP, seq, "reader") for seq in (1, 2))
    reader.send(
        Hello(TASK),
        Push(TASK, entries),
        Push(TASK, (history_entry(TASK, PHONE, 2, "phone"),), recovered=True),
        Push("new", (history_entry("new", DESKTOP, 1, "reader"),)),
        BlobPiece(TASK, "a" * 64, 0, 1, b"x"),
        BlobAbsent(TASK, "a" * 64),
        SnapshotOffer(stream, epoch, 1, b"d" * 32, "a" * 64),
        SnapshotConfirmed(stream, epoch, "a" * 64, b"d" * 32),
        DigestAt(stream, epoch, 1, b"d" * 32),
        BlobWanted(TASK, "a" * 64),
        ListTasks(1),
        Unfollow(TASK),
    )
    assert harness.writes == before
    assert phone.take(DigestAt) == []
    codes = [(refusal.code, refusal.writer_seq) for refusal in reader.take(Refusal)]
    assert codes == [(RefusalCode.ROLE, seq) for seq in (1, 2, 2, 1)]
    assert reader.take(BlobMissing) == [BlobMissing(TASK, "a" * 64)] * 2
    assert len(reader.take(Listing)) == 1
    assert reader.closed is None
    assert phone.hello(TASK).streams == heads.streams


# --- isolation (RS-21) ------------------------------------------------------------------------------------------------


def test_another_subject_cannot_be_reached_whatever_a_frame_says(harness: Harness) -> None:
    phone = harness.login("phone", token=f"anna/write/{NEVER}")
    phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
    for subject in ("other", "Acme", "acm", "acme2"):
        eve = harness.login("phone", subject=subject, token=f"anna/write/{NEVER}")
        assert eve.hello(TASK) == Heads(TASK, False, (), harness.now_ms)
        eve.send(ListTasks(1))
        assert [listing.tasks for listing in eve.take(Listing)] == [()]
        eve.push(TASK, history_entry(TASK, PHONE, 1, "phone", '"other"'))
        assert eve.receipts() == [(PHONE, 1, 1)]
    desktop = harness.login("desktop", token=f"anna/write/{NEVER}")
    desktop.hello(TASK)
    assert len(desktop.entries()) == 1


# --- names (RS-34) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "a\0b", "con", "a" * 10_000, "a.b", ">", "*", "", "a//b", "a:b", "ä", "/a"])
def test_a_bad_task_key_is_refused_by_grammar(harness: Harness, name: str) -> None:
    for frame in (
        Hello(name),
        Hello(name, (), True),
        Push(name, ()),
        BlobWanted(name, "a" * 64),
        Unfollow(name),
        DigestAt(name, b"", 1, b""),
    ):
        phone = harness.login("phone", token=f"anna/write/{NEVER}")
        phone.send(frame)
        assert [code for code, _ in refused(phone)] == ["value_refused"]
        assert phone.closed is not None
    assert harness.relay.tasks_held == 0


# --- caps -------------------------------------------------------------------------------------------------------------


def capped(**changes: int) -> Harness:
    harness = Harness(by_token)
    harness.settings = replace(harness.settings, **changes)
    harness.restart()
    return harness


def test_connections_are_capped_in_all_per_address_and_before_login() -> None:
    harness = capped(connections_max=3)
    assert [harness.connect(str(n)).closed is None for n in range(4)] == [True, True, True, False]
    harness = capped(connections_per_address_max=2)
    assert [harness.connect(address).closed is None for address in ("a", "a", "b", "a")] == [True, True, True, False]
    harness = capped(connections_before_login_max=2)
    for _ in range(5):
        assert harness.login("phone", token=f"anna/write/{NEVER}").closed is None
    assert [harness.connect().closed is None for _ in range(3)] == [True, True, False]


def test_strangers_that_left_do_not_count() -> None:
    harness = capped(connections_before_login_max=2, connections_per_address_max=2)
    for _ in range(5):
        stranger = harness.connect()
        assert stranger.closed is None
        stranger.leave()


def test_a_connection_refused_by_a_cap_may_try_again_and_counts_no_more() -> None:
    harness = capped(connections_max=1)
    first, second = harness.connect(), harness.connect()
    assert second.closed is not None
    assert second.closed.code == CLOSE_TRY_LATER
    assert harness.relay.connections == 1
    first.leave()
    assert harness.connect().closed is None


def test_a_connection_follows_a_bounded_number_of_tasks() -> None:
    harness = capped(follows_max=2)
    phone = harness.login("phone", token=f"anna/write/{NEVER}")
    for task in ("a", "b", "a"):
        phone.hello(task)
    assert phone.closed is None
    phone.send(Hello("c"))
    assert phone.closed is not None


def test_the_pages_of_a_hello_are_bounded_even_empty_ones(harness: Harness) -> None:
    page = tuple(StreamPosition(name, b"", 0, b"") for name in (StreamName.STATE, StreamName.HISTORY))
    for frames in (
        [Hello(TASK, page, True)] * (HELLO_POSITIONS_MAX // 2 + 1),
        [Hello(f"t{number}", (), True) for number in range(HELLO_POSITIONS_MAX + 1)],
    ):
        phone = harness.login("phone", token=f"anna/write/{NEVER}")
        phone.send(*frames[:-1])
        assert phone.closed is None
        phone.send(frames[-1])
        assert [code for code, _ in refused(phone)] == ["protocol_error"]


def test_what_a_relay_counts_names_no_names(harness: Harness) -> None:
    phone = harness.login("phone", token=f"anna/write/{NEVER}")
    phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"), history_entry(TASK, PHONE, 3, "phone"))
    harness.login("phone", token="forged")
    assert harness.relay.counts == {"connections": 2, "entries_stored": 1, "refused_gap": 1, "refused_logins": 1}
