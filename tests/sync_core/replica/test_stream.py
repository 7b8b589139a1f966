"""Places are consumed along the contiguous prefix; a receipt fills and never jumps."""

from sync_core.entry import Entry, EntryKind, WriterRow
from sync_core.ids import StreamName
from sync_core.replica.stream import DigestClaim, OwnPlace, StreamReplica, is_covered


def stream() -> StreamReplica:
    return StreamReplica("a", StreamName.STATE)


def entry(place: int) -> Entry:
    return Entry("a:state", 70_000, place, EntryKind.UPDATE, b"", "phone", relay_seq=place)


def test_early_places_are_held_until_the_prefix_reaches_them() -> None:
    log = stream()
    log.place(2, entry(2))
    log.place(3, OwnPlace(70_001, 1, 1))
    assert log.take_next() is None
    assert log.has_gap
    log.place(1, entry(1))
    taken = []
    while (item := log.take_next()) is not None:
        log.cursor = item[0]
        taken.append(item[0])
    assert taken == [1, 2, 3]


def test_what_was_consumed_is_dropped_and_a_place_is_held_once() -> None:
    log = stream()
    log.cursor = 5
    log.place(5, entry(5))
    assert not log.held
    log.place(6, entry(6))
    log.place(6, OwnPlace(70_001, 1, 1))
    assert log.take_next() == (6, entry(6))


def test_what_is_held_early_is_bounded_but_the_head_is_remembered() -> None:
    log = stream()
    log.place(1_000_000, entry(1_000_000))
    assert not log.held
    assert log.behind


def test_writer_numbers_count_per_writer() -> None:
    log = stream()
    assert [log.number_local(1), log.number_local(1), log.number_local(2)] == [1, 2, 1]


def test_a_table_covers_rows_that_it_has_reached() -> None:
    rows = (WriterRow(70_000, "phone", 9, 4),)
    assert not is_covered(rows, {})
    assert not is_covered(rows, {70_000: WriterRow(70_000, "phone", 5, 3)})
    assert is_covered(rows, {70_000: WriterRow(70_000, "phone", 9, 4)})


def test_what_was_said_of_a_log_is_forgotten_with_it_also_where_nothing_of_it_was_read() -> None:
    log = stream()
    log.enter(b"first")
    log.claim = DigestClaim(3, b"digest", "desktop")
    log.enter(b"first")
    assert log.claim is not None
    log.enter(b"second")
    assert log.claim is None
