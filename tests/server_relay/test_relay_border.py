"""A grant's tasks: what lies outside them looks as if it were not there; and grants that are withdrawn."""

from pathlib import Path
from random import Random

import pytest

from server_relay.admission import Grant, Role
from server_relay.config import RelaySettings
from server_relay.effects import AccessChanged, Send, Tick
from server_relay.records import AppendStored
from server_relay.sessions import CLOSE_POLICY
from server_relay.tokens import TokenGate, make_token
from sync_core.frames import (
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
    Purge,
    Push,
    Receipt,
    Refusal,
    RefusalCode,
    Refused,
    SnapshotConfirmed,
    SnapshotOffer,
    Unfollow,
    Welcome,
)
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict, HoldSlot, LiftBarrier, Ruled, SettleDoubt
from sync_core.wire import ClientFrame
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import history_entry

MINE, FOREIGN, ABSENT = "mine/a", "foreign/a", "foreign/none"
SHA, PHONE, BOSS = "a" * 64, 700_001, 800_002
DIGEST = b"d" * 32


def by_name(login: Login, now_ms: int) -> Grant:
    """The boss may see everything; any other device has the role of its token, for `mine` only."""
    if login.device == "boss":
        return Grant("boss", "boss", login.subject, Role.ADMIN)
    return Grant("anna", login.device, login.subject, Role(login.token or "admin"), tasks=("mine",))


@pytest.fixture
def harness() -> Harness:
    """A relay that holds one task within the grant and one outside it."""
    harness = Harness(by_name)
    boss = harness.login("boss")
    for task in (MINE, FOREIGN):
        boss.push(task, history_entry(task, BOSS, 1, "boss"))
    return harness


def frames(task: str) -> list[ClientFrame]:
    """Every frame of the wire that names a task."""
    stream = f"{task}:history"
    return [
        Hello(task, number=7),
        Push(task, (history_entry(task, PHONE, 1, "phone"), history_entry(task, PHONE, 2, "phone"))),
        Push(task, (history_entry(task, BOSS, 1, "boss"),), recovered=True),
        BlobWanted(task, SHA),
        BlobPiece(task, SHA, 0, 5, b"12345"),
        BlobAbsent(task, SHA),
        DigestAt(stream, b"e" * 8, 1, DIGEST),
        SnapshotOffer(stream, b"e" * 8, 1, DIGEST, SHA),
        SnapshotConfirmed(stream, b"e" * 8, SHA, DIGEST),
        Purge(task, 1),
        Claim(task, 3, 1, "pay", "pay", "digest", "attempt"),
        SettleDoubt(task, 4, 1, "pay", "pay", True),
        HoldSlot(task, 5, "amount", "1"),
        LiftBarrier(task, 6),
        Unfollow(task),
    ]


def heard(harness: Harness, client: Client, frame: ClientFrame) -> str:
    """What a frame is answered with, without the task's name."""
    client.send(frame)
    harness.drain()
    heard, client.frames = repr(client.frames), []
    return heard.replace(FOREIGN, "TASK").replace(ABSENT, "TASK")


@pytest.mark.parametrize("role", list(Role))
def test_a_foreign_task_answers_like_one_that_is_not_there(harness: Harness, role: Role) -> None:
    phone = harness.login("phone", token=role.value)
    phone.take(Welcome)
    before = len(harness.writes)
    for foreign, absent in zip(frames(FOREIGN), frames(ABSENT), strict=True):
        assert heard(harness, phone, foreign) == heard(harness, phone, absent)
    assert len(harness.writes) == before
    assert phone.closed is None


def test_nothing_is_looked_up_for_either_so_neither_takes_longer(harness: Harness) -> None:
    """RS-21: «absent» and «forbidden» are of one class in time, too."""
    phone = harness.login("phone")
    for task in (FOREIGN, ABSENT, "never/heard/of"):
        for frame in frames(task):
            assert {type(effect) for effect in phone.send(frame)} <= {Send}
    assert not phone.closed


def test_what_is_heard_of_a_foreign_task(harness: Harness) -> None:
    phone = harness.login("phone")
    phone.take(Welcome)
    phone.send(*frames(FOREIGN))
    assert (
        phone.take(Heads)
        == [Heads(FOREIGN, False, (), harness.now_ms, 7)] + [Heads(FOREIGN, False, (), harness.now_ms)] * 2
    )
    assert [(frame.writer_seq, frame.code) for frame in phone.take(Refusal)] == [
        (1, RefusalCode.ROLE),
        (2, RefusalCode.ROLE),
        (1, RefusalCode.ROLE),
    ]
    assert phone.take(BlobMissing) == [BlobMissing(FOREIGN, SHA)] * 2
    assert [(frame.request, frame.verdict) for frame in phone.take(ClaimAnswer)] == [(3, ClaimVerdict.REFUSED)]
    assert [(frame.request, frame.code) for frame in phone.take(Ruled)] == [(4, "role"), (5, "role"), (6, "role")]
    assert phone.frames == []
    assert harness.relay.counts["refused_tasks"] == len(frames(FOREIGN))


def test_a_device_without_limits_hears_the_same_of_an_absent_task(harness: Harness) -> None:
    """What the border says is what the relay says where there is nothing."""
    phone, boss = harness.login("phone"), harness.login("boss")
    for client in (phone, boss):
        client.take(Welcome)
    offer = SnapshotOffer(f"{ABSENT}:state", b"", 1, DIGEST, SHA)
    for frame in (Hello(ABSENT, number=3), BlobWanted(ABSENT, SHA), offer, Unfollow(ABSENT)):
        assert heard(harness, phone, frame) == heard(harness, boss, frame)


def test_nothing_of_a_foreign_task_is_looked_up(harness: Harness) -> None:
    phone = harness.login("phone")
    harness.tick(60_000)
    for frame in frames(FOREIGN):
        phone.send(frame)
        assert harness.relay.tasks_held == 0


def test_a_listing_holds_the_grants_tasks_only(harness: Harness) -> None:
    phone, boss = harness.login("phone"), harness.login("boss")
    for client, listed in ((phone, [MINE]), (boss, [FOREIGN, MINE])):
        client.send(ListTasks(1))
        harness.drain()
        (listing,) = client.take(Listing)
        assert ([task.task for task in listing.tasks], listing.more) == (listed, False)


def test_entries_of_a_foreign_task_never_come_even_if_it_is_followed_first(harness: Harness) -> None:
    phone, boss = harness.login("phone"), harness.login("boss")
    phone.send(Hello(ABSENT), Hello(MINE))
    boss.push(ABSENT, history_entry(ABSENT, BOSS, 1, "boss"))
    boss.push(MINE, history_entry(MINE, BOSS, 2, "boss"))
    harness.drain()
    assert {entry.stream for entry in phone.entries()} == {f"{MINE}:history"}


def test_a_malformed_key_ends_the_session_whatever_the_grant(harness: Harness) -> None:
    for device in ("phone", "boss"):
        client = harness.login(device)
        client.send(Hello("../x"))
        assert [frame.code for frame in client.take(Refused)] == ["value_refused"]
        assert client.closed is not None


def test_a_session_is_not_renewed_for_other_tasks(harness: Harness) -> None:
    tasks: list[tuple[str, ...] | None] = [("mine",), ("mine",), ("other",)]
    harness.admit = lambda login, now_ms: Grant("anna", "phone", "acme", Role.WRITE, tasks=tasks.pop(0))
    harness.restart()
    phone = harness.login("phone")
    phone.send(Login(1, "acme", "phone"))
    assert len(phone.take(Welcome)) == 2
    phone.send(Login(1, "acme", "phone"))
    assert phone.closed is not None


def test_no_byte_of_a_foreign_task_in_thousands_of_frames(harness: Harness) -> None:
    """RS-21, of tasks: look-alikes of the grant's own key, in any kind of frame, with any role."""
    rng = Random(21)
    secret = '"the foreign text"'
    boss = harness.login("boss")
    names = ["foreign", "minee", "Mine", "min", "mine-", "mine_a", "xmine", "foreign/mine", "mi/ne"]
    for number, name in enumerate(names):
        boss.push(name, history_entry(name, BOSS + number, 1, "boss", secret))
    clients = [harness.login(f"phone{number}", token=role.value) for number, role in enumerate(Role)]
    for _ in range(2_000):
        client, name = rng.choice(clients), rng.choice(names)
        client.send(rng.choice(frames(name)), ListTasks(1, prefix=rng.choice(["", "m", "mine", name])))
        harness.drain()
        assert client.closed is None
        text = repr(client.frames)
        client.frames.clear()
        assert "the foreign text" not in text
        assert f"task='{name}'" not in text.replace(f"Heads(task='{name}', known=False", "").replace(
            f"BlobMissing(task='{name}'", ""
        ).replace(f"ClaimAnswer(task='{name}'", "").replace(f"Ruled(task='{name}'", "")


SUBJECTS = [
    "acme",
    "umbrella",
    "Acme",
    "acme ",
    "acm",
    "acme2",
    "acmе",
    "ａcme",
    "acme/..",
    "",
    "acme\u200b",
    "ACME",
    "acme_",
]


def test_no_byte_of_another_subject_in_ten_thousand_tries() -> None:
    """RS-21: random subject of the login, subject of the token, role, task and frame."""
    rng = Random(22)
    expires_s = 4_102_444_800
    secret = "s" * 32
    harness = Harness(TokenGate((secret,)), settings=RelaySettings(Path("unused"), secret=secret))
    contents = {subject: f'"only of {subject}"' for subject in ("acme", "umbrella")}

    def token(subject: str, role: Role) -> str:
        tasks = rng.choice([None, ("mine",), ("t",)])
        return make_token(
            secret,
            principal="anna",
            device="phone",
            subject=subject,
            role=role,
            expires_s=expires_s,
            tasks=tasks,
        )

    for subject, content in contents.items():
        honest = harness.connect()
        honest.send(Login(1, subject, "phone", token(subject, Role.ADMIN)))
        honest.push("t", history_entry("t", PHONE, 1, "phone", content))
        honest.push("mine", history_entry("mine", PHONE, 1, "phone", content))
    tokens = {subject: [token(subject, role) for role in Role for _ in range(3)] for subject in contents}
    seen = 0
    for number in range(10_000):
        of_token, of_login = rng.choice(list(tokens)), rng.choice(SUBJECTS)
        client = harness.connect(f"10.0.{number % 250}.{number // 250}")
        client.send(Login(1, of_login, "phone", rng.choice(tokens[of_token])))
        for frame in rng.sample(frames(rng.choice(["t", "mine", "T", "t/x", "none"])), 2):
            if not isinstance(frame, (Push, Purge)):
                client.send(frame)
        client.send(Hello("t"), ListTasks(1))
        harness.drain()
        heard = repr(client.frames)
        if of_token != of_login:
            assert [type(frame) for frame in client.frames] == [Refused]
        assert not [other for other in contents if other != of_token and f"only of {other}" in heard]
        seen += f"only of {of_token}" in heard
        client.leave()
        del harness.clients[client.conn]
    assert seen > 200


# --- withdrawn --------------------------------------------------------------------------------------------------------


def test_a_withdrawn_device_is_told_for_good_and_nothing_of_it_is_stored(harness: Harness) -> None:
    """SE-22: its updates wait in the relay's queue when the list changes."""
    phone, other = harness.login("phone"), harness.login("other")
    changed = AccessChanged(harness.admit, lambda grant: grant.device != "phone")
    before = len(harness.writes)
    pushes = [Push(MINE, (history_entry(MINE, PHONE, seq, "phone"),)) for seq in (1, 2, 3)]
    harness.turn(changed, *phone.received(*pushes))
    assert [(frame.code, frame.final) for frame in phone.take(Refused)] == [("revoked", True)]
    assert phone.closed is not None
    assert phone.closed.code == CLOSE_POLICY
    assert other.closed is None
    assert len(harness.writes) == before
    assert harness.relay.counts["refused_revoked"] == 1


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_what_was_stored_before_the_end_is_receipted_before_it_and_the_rest_is_not_stored(end: str) -> None:
    """RS-24."""
    harness = Harness(lambda login, now_ms: Grant("anna", login.device, "acme", Role.WRITE, 1_060_000))
    phone = harness.login("phone")
    phone.take(Welcome)
    first, second = (Push(MINE, (history_entry(MINE, PHONE, seq, "phone"),)) for seq in (1, 2))
    ending = Tick() if end == "expired" else AccessChanged(harness.admit, lambda grant: False)
    phone.send(Hello(MINE))
    harness.now_ms = 1_060_000 if end == "expired" else harness.now_ms
    harness.turn(*phone.received(first), ending, *phone.received(second))
    assert [type(frame) for frame in phone.frames if not isinstance(frame, Heads)] == [Receipt, Refused]
    assert phone.closed is not None
    assert sum(len(write.entries) for write in harness.writes if isinstance(write, AppendStored)) == 1


def test_later_logins_are_judged_by_what_changed(harness: Harness) -> None:
    harness.turn(AccessChanged(lambda login, now_ms: Grant("new", login.device, "acme", Role.READ), lambda grant: True))
    assert harness.login("phone").take(Welcome)[0].principal == "new"


def test_the_frames_above_are_all_frames_of_a_task() -> None:
    tagged = {type(frame) for frame in frames(MINE)} | {Login, ListTasks}
    assert tagged == set(ClientFrame.__args__)
