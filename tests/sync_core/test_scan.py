"""The scan: honest bytes are read rightly, hostile ones (RS-27) refused, at a cost bounded by what is there (RS-28)."""

import random
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from sync_core.errors import EntryRefused
from sync_core.limits import (
    DEFINITION_WRITE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SCAN_IDS_MAX,
    SCAN_STRUCTS_MAX,
    SLOT_WRITE_BYTES_MAX,
    SNAPSHOT_BYTES_MAX,
)
from sync_core.scan import GENESIS_CLOCKS, scan_document, scan_update
from tests.sync_core.shapes import ME, SHAPES, STRANGER, VICTIM
from tests.sync_core.updates import genesis, item, note, number, section, slot, text, update


def test_a_scan_names_what_an_update_does() -> None:
    structs = [slot(), note("é😀", left=(VICTIM, 3), right=(VICTIM, 4)), note("x", left=(ME, 13)), item(b"\x02", 1)]
    scan = scan_update(update(section(ME, 10, *structs), deletes=[(VICTIM, 0, 2)]))
    assert scan.structs == ((ME, 10, 17),)
    assert scan.deletes == ((VICTIM, 0, 2),)
    assert scan.origins == ((VICTIM, 3), (VICTIM, 4))
    assert scan.sets == (("slots", "cost_center/0123456789abcdef", ME, 10),)
    assert scan.inserts == ((VICTIM, 3), (VICTIM, 4), (ME, 13))
    assert scan.cuts == ((VICTIM, 4), (VICTIM, 4), (ME, 14), (VICTIM, 0), (VICTIM, 2))
    assert scan.halves == ((ME, 13),)


def test_a_key_that_is_set_and_deleted_in_one_update_is_shown_as_set() -> None:
    gone = item(b"\x01", 1, root="slots", key="a/0123456789abcdef")
    assert scan_update(update(section(ME, 0, gone))).sets == (("slots", "a/0123456789abcdef", ME, 0),)


def test_the_largest_numbers_that_are_allowed_pass() -> None:
    big = 2**53 - 1
    assert scan_update(update(section(big, 2**31 - 1, note("x")))).structs == ((big, 2**31 - 1, 2**31),)
    assert scan_update(update(deletes=[(big, 2**31 - 1, 1)])).deletes == ((big, 2**31 - 1, 1),)


FRAME = len(update(section(ME, 0, note("x" * 70_000)))) - 70_000
BOUNDS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "bytes": (PAYLOAD_BYTES_MAX, lambda most: update(section(ME, 0, note("x" * (most - FRAME))))),
    "structs": (SCAN_STRUCTS_MAX, lambda most: update(section(ME, 0, *[note("x", left=(VICTIM, 1))] * most))),
    "ids": (SCAN_IDS_MAX, lambda most: update(*(section(ME + n, 0, note("x")) for n in range(most)))),
    "ids deleted of": (SCAN_IDS_MAX, lambda most: update(deletes=[(ME + n, 0, 1) for n in range(most)])),
    "ranges deleted": (SCAN_STRUCTS_MAX, lambda most: b"\x00\x01" + number(ME) + number(most) + b"\x05\x01" * most),
    "bytes of a slot": (SLOT_WRITE_BYTES_MAX, lambda most: update(section(ME, 0, slot("x" * most)))),
    "bytes of a definition": (
        DEFINITION_WRITE_BYTES_MAX,
        lambda most: update(section(ME, 0, slot("x" * most, root="slotdefs"))),
    ),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_may_be_reached_and_not_passed(bound: str) -> None:
    most, build = BOUNDS[bound]
    scan_update(build(most))
    with pytest.raises(EntryRefused):
        scan_update(build(most + 1))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_hostile_shape_is_refused(shape: str) -> None:
    with pytest.raises(EntryRefused) as refused:
        scan_update(SHAPES[shape])
    assert len(refused.value.sentence) < 100


def test_random_bytes_are_refused_and_never_raise_anything_else() -> None:
    rng = random.Random(27)
    for _ in range(2_000):
        data = b"\x01" + rng.randbytes(rng.randint(0, 60))
        for scan in (scan_update, scan_document):
            with pytest.raises(EntryRefused):
                scan(data)


# --- RS-28: big numbers cost nothing ----------------------------------------------------------------------------------


def cost(work: Callable[[], object]) -> tuple[int, int]:
    """How many Python calls and how many bytes of memory, at its peak, a refusal takes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    tracemalloc.start()
    sys.setprofile(count)
    try:
        with pytest.raises(EntryRefused):
            work()
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return calls, peak


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_refusal_costs_a_bounded_number_of_steps_and_at_most_a_megabyte(shape: str) -> None:
    data = SHAPES[shape]
    calls, peak = cost(lambda: scan_update(data))
    assert calls <= 7 * SCAN_STRUCTS_MAX
    assert peak <= 1_000_000


@pytest.mark.parametrize("shape", [name for name in SHAPES if "claim" in name or "2^" in name])
def test_what_only_claims_to_be_big_is_refused_at_the_claim(shape: str) -> None:
    assert cost(lambda: scan_update(SHAPES[shape]))[0] < 60


def test_three_hundred_thousand_claimed_ids_are_refused_in_a_document_too() -> None:
    data = number(300_000) + b"".join(section(i + 2, 0, note("x")) for i in range(1_000))
    calls, peak = cost(lambda: scan_document(data))
    assert calls < 60
    assert peak <= 1_000_000


# --- documents --------------------------------------------------------------------------------------------------------


def test_a_document_may_hold_the_genesis_and_it_is_left_out_of_the_scan() -> None:
    assert scan_document(genesis()).structs == ()
    assert GENESIS_CLOCKS == 2


def meta(key: str, value: bytes = b"\x77\x011", root: str = "meta") -> bytes:
    return item(b"\x01" + value, 8, root=root, key=key)


@pytest.mark.parametrize(
    "structs",
    [
        [meta("document")],
        [meta("document"), meta("document")],
        [meta("document"), meta("schema"), meta("more")],
        [meta("document"), meta("other")],
        [meta("document"), meta("schema", b"\x7e")],
        [meta("document"), meta("schema", root="slots")],
        [meta("document"), item(b"\x01", 1, root="meta", key="schema")],
    ],
)
def test_another_genesis_is_refused(structs: list[bytes]) -> None:
    assert scan_document(update(section(1, 0, meta("document"), meta("schema")))).sets == ()
    with pytest.raises(EntryRefused, match="another genesis"):
        scan_document(update(section(1, 0, *structs)))


def test_a_genesis_that_starts_later_or_is_hung_on_or_deleted_is_refused() -> None:
    whole = section(1, 0, meta("document"), meta("schema"))
    for data in (
        update(section(1, 1, meta("document"), meta("schema"))),
        update(whole, section(ME, 0, note("x", left=(1, 0)))),
        update(whole, deletes=[(1, 0, 1)]),
    ):
        with pytest.raises(EntryRefused):
            scan_document(data)


def test_sections_that_wait_for_each_other_in_a_circle_are_refused() -> None:
    mine = section(ME, 0, note("a"), note("b", left=(VICTIM, 0)))
    theirs = section(VICTIM, 0, note("c", left=(ME, 0)), note("d", left=(ME, 1)))
    assert len(scan_document(update(mine, theirs)).structs) == 2
    circle = section(VICTIM, 0, note("c", left=(ME, 1)))
    with pytest.raises(EntryRefused, match="wait for each other"):
        scan_document(update(mine, circle))
    three = update(
        section(ME, 0, note("a", left=(VICTIM, 0))),
        section(VICTIM, 0, note("b", left=(STRANGER, 0))),
        section(STRANGER, 0, note("c", right=(ME, 0))),
    )
    with pytest.raises(EntryRefused, match="wait for each other"):
        scan_document(three)


def test_an_origin_that_a_document_does_not_hold_is_shown_for_the_guard_to_judge() -> None:
    scan = scan_document(update(section(ME, 0, note("a", left=(VICTIM, 0)), note("b", left=(ME, 0)))))
    assert scan.origins == ((VICTIM, 0),)
    behind = scan_document(update(section(ME, 0, note("a", left=(VICTIM, 1))), section(VICTIM, 0, note("b"))))
    assert behind.origins == ((VICTIM, 1),)


def test_a_document_larger_than_a_snapshot_may_be_is_refused_unread() -> None:
    with pytest.raises(EntryRefused, match=str(SNAPSHOT_BYTES_MAX)):
        scan_document(bytes(SNAPSHOT_BYTES_MAX + 1))


def test_a_document_of_many_ids_that_wait_in_a_long_row_is_read_in_bounded_steps() -> None:
    ids = range(2, 2_002)
    row = update(*(section(one, 0, note("x", left=(one + 1, 0))) for one in ids), section(2_002, 0, note("x")))
    assert len(scan_document(row).structs) == 2_001
    circle = update(*(section(one, 0, note("x", left=(one + 1, 0))) for one in ids))
    assert scan_document(circle).origins == ((2_002, 0),)


def test_a_character_that_is_cut_in_two_is_refused_in_a_document() -> None:
    whole = section(ME, 0, note("a😀b"))
    assert scan_document(update(whole, section(VICTIM, 0, note("x", left=(ME, 2))))).halves == ((ME, 2),)
    for cut in (note("x", left=(ME, 1)), note("x", right=(ME, 2)), note("x", left=(ME, 1), right=(ME, 2))):
        with pytest.raises(EntryRefused, match="in two"):
            scan_document(update(whole, section(VICTIM, 0, cut)))
    for gone in ((ME, 0, 2), (ME, 2, 2)):
        with pytest.raises(EntryRefused, match="in two"):
            scan_document(update(whole, deletes=[gone]))


def test_text_is_measured_in_the_units_of_the_format() -> None:
    assert text("é😀") == b"\x06" + "é😀".encode()
    for value, units in (("abc", 3), ("é漢", 2), ("\uffff", 1), ("😀\uffff", 3), ("a\x00b", 3)):
        assert scan_update(update(section(ME, 0, note(value)))).structs == ((ME, 0, units),)
