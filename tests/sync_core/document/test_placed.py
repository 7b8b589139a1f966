"""Of several records the first in the log's order stands, whatever the order in which they and their places came."""

import itertools

from sync_core.document.placed import Placed
from sync_core.entry import Entry, EntryKind


def entry(writer: int, place: int | None) -> Entry:
    return Entry("t:state", writer, 1, EntryKind.COMPLETION, b"", "phone", relay_seq=place)


def test_the_first_in_the_logs_order_stands_in_any_order_of_arrival() -> None:
    entries = [entry(10, 3), entry(11, 1), entry(12, 2)]
    for order in itertools.permutations(entries):
        placed = Placed[int]()
        for one in order:
            placed.add(one, one.writer)
        assert placed.in_order() == ((11, 1), (12, 2), (10, 3))


def test_what_has_no_place_comes_last_until_it_gets_one() -> None:
    placed = Placed[str]()
    placed.add(entry(10, None), "mine")
    placed.add(entry(11, 7), "theirs")
    assert [record for record, _ in placed.in_order()] == ["theirs", "mine"]
    assert placed.place(entry(10, 6))
    assert [record for record, _ in placed.in_order()] == ["mine", "theirs"]
    assert not placed.place(entry(10, 6))
    assert not placed.place(entry(99, 8))
