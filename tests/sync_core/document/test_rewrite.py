"""Own updates written again under another writer id: the same operations, nothing of others lost."""

import random

import pytest

from sync_core.document.rewrite import rewrite_updates
from sync_core.document.slots import SlotState
from sync_core.entry import Entry, EntryKind
from sync_core.ids import new_writer
from tests.sync_core.document.log import CONFIRMED, SUBJECT, TASK, Device, assert_converged, devices, sync
from tests.sync_core.updates import note, number, section, update


def rewrite(device: Device, unsent: list[Entry], *, skip: frozenset[int] = frozenset()) -> list[bytes]:
    """Give what waits to a fresh writer: the device's document is built anew from the log and the new updates."""
    base = device.log.entries[: device.cursor]
    device.document = device.fresh_document()
    updates = rewrite_updates(SUBJECT, TASK, device.document.writer, b"", base, unsent, skip)
    device.outbox = []
    for payload in updates:
        device.update(payload)
    device.document.load(b"", [*base, *device.outbox])
    return list(updates)


def test_every_operation_is_there_again_under_the_new_id_with_the_same_write_ids() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    sync(a, b)
    a.declare("x", secret=True)
    a.confirm("x", "2")
    a.propose("y", '"größe"')
    a.update(a.document.write_note("n", "one\ntwo 🙂\n", None))
    a.update(a.document.append_note("n", "three\n"))
    before = a.document.view()
    old, waiting = a.document.writer, a.outbox
    rewrite(a, waiting)
    assert a.document.writer != old
    assert a.document.view() == before
    sync(a, b)
    assert_converged(a, b)
    assert b.document.view() == before


def test_the_new_updates_pass_the_guard_where_the_old_ones_are_unknown() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        _, (a, b) = devices("a", "b", seed=seed)
        work(a, rng, 5)
        sync(a, b)
        work(a, rng, 8)
        work(b, rng, 5)
        b.push()
        a.pull()
        view = a.document.view()
        rewrite(a, a.outbox)
        sync(a, b)
        assert_converged(a, b)
        assert a.document.view().slots == view.slots


def work(device: Device, rng: random.Random, steps: int) -> None:
    for step in range(steps):
        slot, choice = rng.choice("xyz"), rng.random()
        if choice < 0.3:
            device.confirm(slot, str(rng.randint(0, 3)))
        elif choice < 0.5:
            device.propose(slot, str(rng.randint(0, 3)), frozenset())
        elif choice < 0.6:
            device.update(device.document.clear_slot(slot, device.document.slot(slot).token))
        elif choice < 0.7:
            device.declare(slot, ask=f"{device.name}{step}?")
        else:
            note = device.document.note("n")
            lines = note.text.splitlines(keepends=True)
            lines.insert(rng.randint(0, len(lines)), f"{device.name} {step} {rng.choice('é🙂x')}\n")
            device.update(device.document.write_note("n", "".join(lines), note.content_sha256))


def test_an_update_that_was_refused_is_left_out_and_those_that_stand_on_it_follow() -> None:
    _, (a, b) = devices("a", "b")
    a.update(a.document.write_note("n", "one\n", None))
    a.update(a.document.append_note("n", "two\n"))
    a.confirm("x", "1")
    a.confirm("x", "2")
    waiting = a.outbox
    updates = rewrite(a, waiting, skip=frozenset({0, 2}))
    assert [bool(payload) for payload in updates] == [False, True, False, True]
    sync(a, b)
    assert_converged(a, b)
    assert b.document.note("n").text == "two\n"
    assert b.document.slot("x").value == 2


def test_a_deletion_of_what_is_gone_already_comes_back_empty() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    sync(a, b)
    a.update(a.document.clear_slot("x", a.document.slot("x").token))
    waiting = a.outbox
    b.update(b.document.clear_slot("x", b.document.slot("x").token))
    b.push()
    a.pull()
    assert rewrite(a, waiting) == [b""]


def test_a_write_that_has_arrived_already_is_not_made_twice() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    waiting = a.outbox
    sync(a, b)
    assert rewrite(a, waiting) == [b""]
    assert a.document.slot("x").state is SlotState.CONFIRMED
    b.update(b.document.clear_slot("x", b.document.slot("x").token))
    b.push()
    a.pull()
    assert rewrite(a, waiting) == [b""]
    assert a.document.slot("x").state is SlotState.MISSING


def test_a_write_that_was_written_again_before_is_not_made_a_third_time() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    waiting = a.outbox
    assert rewrite(a, waiting) != [b""]
    sync(a, b)
    assert rewrite(a, waiting) == [b""]


def test_note_edits_move_with_what_others_wrote_meanwhile() -> None:
    _, (a, b) = devices("a", "b")
    a.update(a.document.write_note("n", "one\ntwo\nthree\n", None))
    sync(a, b)
    waiting_from = len(a.own)
    a.update(a.document.write_note("n", "one\nTWO\nthree\nfour\n", a.document.note("n").content_sha256))
    b.update(b.document.write_note("n", "zero\none\n1.5\ntwo\nthree\n", b.document.note("n").content_sha256))
    b.push()
    a.pull()
    rewrite(a, a.own[waiting_from:])
    sync(a, b)
    assert_converged(a, b)
    assert b.document.note("n").text == "zero\none\n1.5\nTWO\nthree\nfour\n"


def test_a_scratch_merge_is_written_again_as_an_ordinary_edit() -> None:
    _, (a, b) = devices("a", "b")
    a.update(a.document.write_note("n", "start\n", None))
    sync(a, b)
    sha, state = a.document.note("n").content_sha256, a.document.base_state()
    a.update(a.document.append_note("n", "newer\n"))
    made = a.document.merge_note("n", "start\nolder\n", sha, state, new_writer(a.rng.randbytes))
    a.update(made.update, writer=made.writer)
    text = a.document.note("n").text
    rewrite(a, a.outbox)
    sync(a, b)
    assert_converged(a, b)
    assert b.document.note("n").text == text


def test_the_log_may_hold_other_content_under_the_same_numbers() -> None:
    """Two live copies of one device: ours is written again beside the other's."""
    log, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    sync(a, b)
    base = list(log.entries)
    twin = Device("a", random.Random(99), log)
    twin.document = type(a.document)(SUBJECT, TASK, "a", a.document.writer, twin.rng.randbytes)
    twin.document.load(b"", base)
    theirs = twin.document.write_slot("y", '"twin"', CONFIRMED, frozenset(), None, 1)
    a.confirm("y", '"ours"')
    waiting = a.outbox
    log.store(Entry(f"{TASK}:state", a.document.writer, 2, EntryKind.UPDATE, theirs, "a"))
    updates = rewrite_updates(SUBJECT, TASK, 2**40, b"", base, waiting)
    reader = Device("reader", random.Random(1), log)
    reader.pull()
    log.store(Entry(f"{TASK}:state", 2**40, 1, EntryKind.UPDATE, updates[0], "a"))
    reader.pull()
    assert sorted(candidate.text for candidate in reader.document.slot("y").candidates) == ['"ours"', '"twin"']


def test_a_compacted_base_serves_as_well() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    a.update(a.document.write_note("n", "one\n", None))
    sync(a, b)
    compacted = a.document.state_bytes()
    a.confirm("x", "2")
    a.update(a.document.append_note("n", "two\n"))
    view, waiting = a.document.view(), a.outbox
    updates = rewrite_updates(SUBJECT, TASK, 2**40, compacted, (), waiting)
    fresh = b.fresh_document()
    fresh.load(compacted, ())
    for seq, payload in enumerate(updates, 1):
        fresh.merge(Entry(f"{TASK}:state", 2**40, seq, EntryKind.UPDATE, payload, "a", relay_seq=90 + seq))
    assert fresh.view() == view


HALF_DONE = update(section(2**41, 0, note("poison", root="note:n"), b"\x04\x00" + number(2**41) + b"\x00\x01x"))


@pytest.mark.parametrize("poison", [b"\x01", HALF_DONE])
def test_an_update_that_pycrdt_refuses_is_left_out_and_the_others_follow(poison: bytes) -> None:
    _, (a, b) = devices("a", "b")
    a.update(a.document.append_note("n", "mine\n"))
    a.confirm("x", "1")
    a.outbox.insert(0, Entry(f"{TASK}:state", 2**41, 1, EntryKind.UPDATE, poison, "a"))
    updates = rewrite(a, a.outbox)
    assert [bool(payload) for payload in updates] == [False, True, True]
    sync(a, b)
    assert b.document.slot("x").value == 1
    assert b.document.note("n").text == "mine\n"
