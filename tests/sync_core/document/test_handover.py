"""The hand-over: once for each business version, the first in the relay's order stands, the others are shown."""

import hashlib

import pytest

from sync_core.document.records import Touched
from sync_core.errors import HandedOver, TooLarge, ValueRefused, VersionMismatch
from sync_core.limits import NOTE_BYTES_MAX
from tests.sync_core.document.log import HANDOVER, Device, assert_converged, devices, sync

TEXT = "Trip 118: paid; ask Ann for the größe 🙂.\n"


def hand_over(device: Device, text: str = TEXT, version: int = 1) -> None:
    device.record(device.document.hand_over(version, text))


def test_it_is_told_with_its_hash_its_author_and_whether_the_relay_has_it() -> None:
    _, (a, b) = devices("a", "b")
    hand_over(a)
    given = a.document.view().handovers[1]
    assert (given.version, given.text, given.author, given.stored, given.conflicts) == (1, TEXT, "a", False, ())
    assert given.content_sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    sync(a, b)
    assert a.document.view().handovers[1].stored
    assert_converged(a, b)


def test_it_is_given_once_for_each_version_sent_or_not_by_whoever_knows_it() -> None:
    _, (a, b) = devices("a", "b")
    hand_over(a)
    with pytest.raises(HandedOver, match="Version 1 of this task was handed over by a"):
        a.document.hand_over(1, "Another text.")
    sync(a, b)
    with pytest.raises(HandedOver):
        b.document.hand_over(1, TEXT)
    b.record(b.document.decide_version(2, "b"))
    with pytest.raises(VersionMismatch):
        b.document.hand_over(1, TEXT)
    hand_over(b, "The second round.", 2)
    sync(b, a)
    assert {version: text.author for version, text in a.document.view().handovers.items()} == {1: "a", 2: "b"}
    assert_converged(a, b)


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_two_that_were_given_apart_the_first_in_the_log_stands_and_the_other_is_shown(first: str) -> None:
    _, (a, b) = devices("a", "b")
    hand_over(a, "From a.")
    hand_over(b, "From b.")
    for device in (a, b) if first == "a" else (b, a):
        device.push()
    touched = [*a.pull(), *b.pull()]
    assert Touched(handovers=frozenset({1})) in touched
    stands = a.document.view().handovers[1]
    assert stands.author == first
    other = "b" if first == "a" else "a"
    assert [(later.author, later.text) for later in stands.conflicts] == [(other, f"From {other}.")]
    assert_converged(a, b)
    for device in (a, b):
        device.reopen()
    assert_converged(a, b)


def test_an_own_one_that_waits_gives_way_to_one_that_the_relay_has() -> None:
    _, (a, b) = devices("a", "b")
    hand_over(a, "From a.")
    a.push()
    hand_over(b, "From b.")
    assert b.document.view().handovers[1].author == "b"
    b.pull()
    stands = b.document.view().handovers[1]
    assert (stands.author, stands.stored) == ("a", True)
    assert [(other.author, other.stored) for other in stands.conflicts] == [("b", False)]


def test_which_one_stands_is_part_of_the_digest() -> None:
    digests = []
    for order in ("ab", "ba"):
        _, (a, b) = devices("a", "b")
        hand_over(a, "From a.")
        hand_over(b, "From b.")
        for name in order:
            (a if name == "a" else b).push()
        a.pull()
        digests.append(a.digest(HANDOVER))
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    ("text", "error"), [("", ValueRefused), (" \n", ValueRefused), ("x" * (NOTE_BYTES_MAX + 1), TooLarge)]
)
def test_a_text_that_says_nothing_or_too_much_is_refused(text: str, error: type[Exception]) -> None:
    _, (a,) = devices("a")
    with pytest.raises(error):
        a.document.hand_over(1, text)
    hand_over(a, "x" * NOTE_BYTES_MAX)
