"""The rows of keys in use: read once, never older than what was decided, forgotten when nobody uses them."""

from server_relay.effects import KeysRead, ReadKeys
from server_relay.key_records import GrantRow, KeyRow, KeyState, SubjectRow
from server_relay.keyring import Keyring

WANTED = ReadKeys("acme", "t", ("p1",), (), ("a1",))
ROW = KeyRow("p1", "pay", state=KeyState.RUNNING, token=5, task="t")
GRANT = GrantRow("a1", "p1", "k", 5, "phone")


def ring(now_ms: int = 0) -> Keyring:
    keyring = Keyring(30_000)
    keyring.started(now_ms)
    return keyring


def test_what_was_read_is_not_asked_for_again() -> None:
    keyring = ring()
    assert keyring.missing(WANTED) == WANTED
    keyring.take(KeysRead(WANTED, SubjectRow(), (), (), ()), 0)
    assert keyring.missing(WANTED) is None
    assert keyring.row("acme", "p1", 0) is keyring.grant("acme", "t", "a1") is None
    more = ReadKeys("acme", "t", ("p1", "p2"), (), ("a1", "a2"))
    assert keyring.missing(more) == ReadKeys("acme", "t", ("p2",), (), ("a2",))
    assert keyring.missing(ReadKeys("umbrella", "t", ("p1",))) == ReadKeys("umbrella", "t", ("p1",))


def test_a_read_that_comes_late_takes_nothing_back() -> None:
    keyring = ring()
    keyring.take(KeysRead(WANTED, SubjectRow(), (), (), ()), 0)
    keyring.put_row("acme", ROW, 0)
    keyring.put_grant("acme", "t", GRANT)
    keyring.put_subject("acme", SubjectRow(2))
    for late in ((), (KeyRow("p1", "old"),)):
        keyring.take(KeysRead(WANTED, SubjectRow(), late, (), ()), 0)
        assert keyring.row("acme", "p1", 0) == ROW
        assert keyring.grant("acme", "t", "a1") == GRANT
        assert keyring.subject("acme") == SubjectRow(2)


def test_what_nobody_uses_is_forgotten_and_what_is_used_is_not() -> None:
    keyring = ring()
    keyring.take(KeysRead(WANTED, SubjectRow(), (ROW,), (GRANT,), ()), 0)
    other = ReadKeys("acme", "t", ("p2",), (), ("a2", "a3"))
    of_other = GrantRow("a2", "p2", "k", 5, "phone")
    keyring.take(KeysRead(other, SubjectRow(), (KeyRow("p2", "pay"),), (of_other,), ()), 0)
    keyring.row("acme", "p1", 9_000)
    keyring.forget_idle(10_000)
    assert keyring.missing(WANTED) is None
    assert keyring.missing(other) == other
    keyring.forget_idle(19_000)
    assert keyring.missing(WANTED) == WANTED


def test_after_a_commit_that_failed_all_is_read_again_and_the_leases_go_on() -> None:
    keyring = ring()
    keyring.take(KeysRead(WANTED, SubjectRow(), (ROW,), (GRANT,), ()), 0)
    assert keyring.over(30_000) == [("acme", "t", "p1")]
    assert keyring.over(30_001) == []
    keyring.forget()
    assert keyring.missing(WANTED) == WANTED
    assert keyring.over(30_002) == [("acme", "t", "p1")]


def test_a_lease_is_of_its_connection_and_ends_with_its_row() -> None:
    keyring = ring()
    keyring.put_row("acme", ROW, 0)
    keyring.give_lease("acme", ROW, 7)
    keyring.give_lease("acme", ROW, 8)
    keyring.left(7, 0)
    assert keyring.over(10**9) == []
    keyring.left(8, 1_000)
    keyring.left(8, 9_000)
    assert keyring.over(30_999) == []
    assert keyring.over(31_000) == [("acme", "t", "p1")]
    keyring.put_row("acme", KeyRow("p1", "pay"), 0)
    keyring.forget()
    assert keyring.over(10**9) == []
