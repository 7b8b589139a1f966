"""Verdicts that the bytes of an entry cannot show: set once, text on text, no character cut in two."""

import pytest
from pycrdt import Doc, Map

from sync_core.errors import EntryRefused, StoreDamaged
from tests.sync_core.document.log import STRANGER, Device, devices, stranger, sync
from tests.sync_core.updates import entry, note, section, slot, update


def live_key(device: Device) -> str:
    return f"x/{next(iter(device.document.slot('x').token))}"


def test_an_entry_that_overwrites_a_key_is_refused_before_any_change() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    sync(a, b)
    key, before = live_key(a), b.document.state_bytes()
    other = slot(key="y/0123456789abcdef")
    clock = (a.document.writer, 0, 1)
    for payload in (
        update(section(STRANGER, 0, slot(key=key))),
        update(section(STRANGER, 0, other, slot(key=key))),
        update(section(STRANGER, 0, slot(key=key)), deletes=[clock]),
        update(section(STRANGER, 0, other, other)),
    ):
        with pytest.raises(EntryRefused):
            b.document.merge(stranger(payload))
        assert b.document.state_bytes() == before
    assert b.document.slot("x").value == 1


def test_text_that_hangs_on_a_slot_is_refused_also_on_a_deleted_one() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    sync(a, b)
    place = (a.document.writer, 0)
    for _ in range(2):
        for payload in (
            update(section(STRANGER, 0, note("t", left=place))),
            update(section(STRANGER, 0, note("t", right=place))),
            update(section(STRANGER, 0, slot(), note("t", left=(STRANGER, 0)))),
        ):
            with pytest.raises(EntryRefused):
                b.document.merge(stranger(payload))
        a.update(a.document.clear_slot("x", a.document.slot("x").token))
        sync(a, b)


def test_cutting_a_character_of_an_earlier_entry_in_two_is_refused() -> None:
    _, (a, b) = devices("a", "b")
    a.update(a.document.write_note("n", "a🙂b", None))
    sync(a, b)
    writer = a.document.writer
    for payload in (
        update(section(STRANGER, 0, note("t", left=(writer, 1)))),
        update(section(STRANGER, 0, note("t", right=(writer, 2)))),
        update(deletes=[(writer, 1, 1)]),
    ):
        with pytest.raises(EntryRefused):
            b.document.merge(stranger(payload))
    b.document.merge(stranger(update(deletes=[(writer, 1, 2)])))
    assert b.document.note("n").text == "ab"


@pytest.mark.parametrize("compacted", [False, True])
def test_a_character_that_was_deleted_is_no_ground_for_a_verdict(compacted: bool) -> None:
    """A merged document does not know any more what was deleted."""
    _, (a,) = devices("a")
    a.update(a.document.write_note("n", "a 🙂 b 🙂", None))
    a.update(a.document.write_note("n", "a b 🙂", a.document.note("n").content_sha256))
    sync(a)
    if compacted:
        state = a.document.state_bytes()
        a.document = a.fresh_document()
        a.document.load(state, ())
    writer = a.log.entries[0].writer
    a.document.merge(stranger(update(section(STRANGER, 0, note("t", left=(writer, 2))))))
    with pytest.raises(EntryRefused):
        a.document.merge(stranger(update(section(STRANGER, 1, note("t", left=(writer, 7)))), 2))


def test_own_unsent_work_does_not_change_the_verdict() -> None:
    """A device deleted the key locally, unsent: the entry is refused there as everywhere."""
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    sync(a, b)
    key = live_key(a)
    b.update(b.document.clear_slot("x", b.document.slot("x").token))
    b.confirm("x", "2")
    for device in (a, b):
        with pytest.raises(EntryRefused):
            device.document.merge(stranger(update(section(STRANGER, 0, slot(key=key)))))
    unsent = f"x/{next(iter(b.document.slot('x').token))}"
    for device in (a, b):
        device.document.merge(stranger(update(section(STRANGER, 0, slot(key=unsent)))))
    with pytest.raises(EntryRefused):
        b.document.numbered(b.outbox[-1])


def test_own_unsent_work_does_not_change_the_verdict_after_loading_either() -> None:
    _, (a, b) = devices("a", "b")
    b.confirm("x", "2")
    b.reopen()
    key = f"x/{next(iter(b.document.slot('x').token))}"
    for device in (a, b):
        device.document.merge(stranger(update(section(STRANGER, 0, slot(key=key)))))


@pytest.mark.parametrize("compacted", [False, True])
def test_a_key_that_was_ever_set_is_never_set_again_whoever_deleted_it(compacted: bool) -> None:
    # Of two items under one key pycrdt deletes one by itself, which no update shows: liveness is no ground.
    _, (a,) = devices("a")
    other, key = STRANGER + 1, "x/0123456789abcdef"
    first = entry(other, 1, update(section(other, 0, slot(key=key))), "x", relay_seq=1)
    gone = entry(other, 2, update(deletes=[(other, 0, 1)]), "x", relay_seq=2)
    if compacted:
        a.document.merge(first)
        a.document.merge(gone)
        fresh = a.fresh_document()
        fresh.load(a.document.state_bytes(), ())
    else:
        fresh = a.fresh_document()
        fresh.load(b"", (first, gone))
    with pytest.raises(EntryRefused):
        fresh.merge(stranger(update(section(STRANGER, 0, slot(key=key)))))


@pytest.mark.parametrize("compacted", [False, True])
def test_the_verdict_is_the_same_after_loading(compacted: bool) -> None:
    _, (a,) = devices("a")
    a.confirm("x", "1")
    a.confirm("x", "2")
    a.update(a.document.write_note("n", "🙂", None))
    sync(a)
    fresh = a.fresh_document()
    if compacted:
        fresh.load(a.document.state_bytes(), ())
    else:
        fresh.load(b"", a.log.entries)
    for payload in (
        update(section(STRANGER, 0, slot(key=live_key(a)))),
        update(section(STRANGER, 0, note("t", left=(a.document.writer, 0)))),
        update(section(STRANGER, 0, note("t", left=(a.document.writer, 2)))),
    ):
        with pytest.raises(EntryRefused):
            fresh.merge(stranger(payload))


def test_a_snapshot_is_not_refused_for_a_key_that_somebody_took_first() -> None:
    _, (a,) = devices("a")
    a.confirm("x", "1")
    sync(a)
    a.document.merge_document(update(section(STRANGER, 0, slot(key=live_key(a)))), ())
    with pytest.raises(EntryRefused):
        a.document.merge_document(b"no document", ())


def test_no_verdict_stands_on_a_merged_document_that_the_log_does_not_hold() -> None:
    _, (a,) = devices("a")
    a.confirm("x", "1")
    sync(a)
    forged = stranger(update(section(STRANGER, 0, slot(key=live_key(a)))))
    held, foreign = a.fresh_document(), a.fresh_document()
    held.load(a.document.state_bytes(), ())
    foreign.load(a.document.state_bytes(), (), in_log=False)
    with pytest.raises(EntryRefused):
        held.merge(forged)
    foreign.merge(forged)


def test_a_stored_document_that_does_not_pass_the_scan_is_damage_and_not_the_entrys_fault() -> None:
    foreign: Doc[Map[str]] = Doc(client_id=STRANGER)
    foreign["other"] = Map({"a": "1"})
    _, (a,) = devices("a")
    a.document.load(foreign.get_update(), ())
    with pytest.raises(StoreDamaged):
        a.document.merge(stranger(update(section(STRANGER + 1, 0, slot()))))
