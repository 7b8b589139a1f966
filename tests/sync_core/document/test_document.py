"""TaskDocument: genesis, loading, set-once verdicts, failures of pycrdt, views, digests, secrets, growth."""

import gc
import random
import weakref

import msgspec
import pytest
from pycrdt import Doc, Map

from sync_core.document.document import DocumentBroken, Touched
from sync_core.document.shared import MapEdit
from sync_core.document.slots import SlotDefinition
from sync_core.entry import Completion, Entry, EntryKind, encode_record
from sync_core.errors import EntryRefused, TooLarge, ValueRefused
from sync_core.scan import Scan
from tests.sync_core.document.log import (
    HISTORY,
    STATE,
    STRANGER,
    TASK,
    Device,
    assert_converged,
    busy,
    devices,
    stranger,
)
from tests.sync_core.updates import note, number, section, slot, update

NOTHING = Scan((), (), (), (), ())


# --- converging -------------------------------------------------------------------------------------------------------


def test_two_devices_that_wrote_of_everything_agree() -> None:
    for seed in range(10):
        assert_converged(*busy(seed))


def test_a_document_loaded_from_entries_equals_one_that_merged_them() -> None:
    a, b = busy()
    before = a.document.view()
    a.reopen()
    assert a.document.view() == before
    assert a.document.state_bytes() == b.document.state_bytes()
    assert_converged(a, b)


def test_a_document_loaded_from_its_merged_bytes_equals_the_one_before() -> None:
    a, b = busy()
    compacted = a.fresh_document()
    records = [one for one in a.log.entries if one.kind is not EntryKind.UPDATE]
    compacted.load(a.document.state_bytes(), records)
    assert compacted.view() == b.document.view()
    assert compacted.digest(STATE, a.log.rows[STATE]) == b.digest()
    assert compacted.state_bytes() == b.document.state_bytes()


def test_a_snapshot_merged_into_an_empty_or_a_full_document_gives_the_same() -> None:
    a, b = busy()
    records = [one for one in a.log.entries if one.kind is not EntryKind.UPDATE]
    fresh = Device("late", random.Random(9), a.log)
    touched = fresh.document.merge_document(a.document.state_bytes(), records)
    assert touched.slots == {"cost_center", "amount"}
    assert touched.notes == {"worklog"}
    assert touched.calls == {(1, "ocr")}
    assert touched.history
    assert not touched.completed
    assert_converged(fresh, b)
    again = b.document.merge_document(a.document.state_bytes(), records)
    assert again == Touched()
    assert_converged(fresh, b)


def test_merging_tells_what_was_touched() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("x", "1")
    a.update(a.document.write_note("n", "1", None))
    a.append('"1"')
    a.record(a.document.decide_version(2, "boss"))
    a.record(Completion(2, "a"))
    a.push()
    assert b.pull() == [
        Touched(slots=frozenset({"x"})),
        Touched(notes=frozenset({"n"})),
        Touched(history=True),
        Touched(version=True),
        Touched(completed=True),
    ]


def test_deleting_history_leaves_slots_notes_and_calls() -> None:
    a, _ = busy()
    fresh = a.fresh_document()
    fresh.load(b"", [one for one in a.log.entries if one.kind is not EntryKind.HISTORY])
    view = a.document.view()
    assert fresh.view() == msgspec.structs.replace(view, history=())


# --- digests ----------------------------------------------------------------------------------------------------------


def test_the_digest_covers_content_and_writer_table() -> None:
    a, b = busy()
    row = next(iter(a.log.rows[STATE].values()))
    assert a.digest() == b.digest()
    digests = {a.digest(), a.document.digest(STATE, {}), a.digest(HISTORY)}
    digests.add(a.document.digest(STATE, {row.writer: msgspec.structs.replace(row, closed=True)}))
    a.confirm("cost_center", '"CC-1"')
    digests.add(a.digest())
    a.update(a.document.append_note("worklog", "x"))
    digests.add(a.digest())
    a.record(Completion(1, "a"))
    digests.add(a.digest())
    assert len(digests) == 7


def test_the_digest_does_not_depend_on_places_in_the_log() -> None:
    a, _ = busy()
    renumbered = [msgspec.structs.replace(one, relay_seq=1_000 + i) for i, one in enumerate(a.log.entries)]
    other = a.fresh_document()
    other.load(b"", renumbered)
    assert other.digest(STATE, a.log.rows[STATE]) == a.digest()


# --- failures of pycrdt -----------------------------------------------------------------------------------------------


HALF_DONE = update(section(STRANGER, 0, note("poison", root="note:n"), b"\x04\x00" + number(STRANGER) + b"\x00\x01x"))
"""Its second struct names a text as its parent: pycrdt finds out when the first one is in."""


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\xff" * 20, HALF_DONE])
def test_whatever_pycrdt_raises_means_that_the_document_is_broken(payload: bytes) -> None:
    _, (a,) = devices("a")
    with pytest.raises(DocumentBroken):
        a.document.merge(stranger(payload), NOTHING)


def test_a_panic_is_no_exception_but_is_caught() -> None:
    _, (a,) = devices("a")
    assert not issubclass(_panic_type(), Exception)
    with pytest.raises(DocumentBroken):
        a.document._shared.write([MapEdit("slots", (), (("x/1", "\ud800"),))])


def _panic_type() -> type[BaseException]:
    doc: Doc[Map[str]] = Doc()
    shared = doc.get("m", type=Map)
    try:
        shared["a"] = "\ud800"
    except BaseException as error:
        return type(error)
    raise AssertionError("pycrdt takes lone surrogates now")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_request_to_stop_passes_through(stop: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    _, (a,) = devices("a")

    def interrupted(*_: object) -> None:
        raise stop

    monkeypatch.setattr(a.document._shared._doc, "apply_update", interrupted)
    with pytest.raises(stop):
        a.document.merge(stranger(update(section(STRANGER, 0, slot()))))


def test_a_document_that_is_dropped_is_really_gone() -> None:
    _, (a,) = devices("a")
    a.update(a.document.write_note("n", "x", None))
    gone = weakref.ref(a.document._shared._doc)
    a.document = a.fresh_document()
    gc.collect()
    assert gone() is None


# --- refusals change nothing ------------------------------------------------------------------------------------------


def test_a_refused_write_leaves_the_document_as_it_was() -> None:
    _, (a,) = devices("a")
    a.declare("x", schema='{"type":"string","maxLength":3}')
    before, view = a.document.state_bytes(), a.document.view()
    for name, text in (
        ("x", '"long text"'),
        ("x", "1"),
        ("bad name", "1"),
        ("y", "NaN"),
        ("y", '"' + "x" * 5_000 + '"'),
    ):
        with pytest.raises((ValueRefused, TooLarge)):
            a.confirm(name, text)
    for definition in (SlotDefinition("?", schema="{"), SlotDefinition("\ud800"), SlotDefinition("?", held_by="a b")):
        with pytest.raises(ValueRefused):
            a.document.declare_slot("x", definition, 1)
    assert a.document.state_bytes() == before
    assert a.document.view() == view


# --- views ------------------------------------------------------------------------------------------------------------


def test_a_view_is_kept_until_something_changes_and_never_changes_itself() -> None:
    _, (a,) = devices("a")
    a.confirm("x", "1")
    a.confirm("y", "1")
    a.append('"1"')
    first = a.document.view()
    assert a.document.view() is first
    slots = dict(first.slots)
    a.confirm("x", "2")
    second = a.document.view()
    assert first.slots == slots
    assert second.slots["x"] != first.slots["x"]
    assert second.slots["y"] is first.slots["y"]
    assert second.notes is first.notes
    assert second.calls is first.calls
    assert second.history is first.history


def test_an_entry_of_kind_snapshot_changes_no_view() -> None:
    _, (a,) = devices("a")
    before = a.document.view()
    snapshot = Entry(f"{TASK}:state", 2**30, 1, EntryKind.SNAPSHOT, b"", "x", blob="a" * 64, relay_seq=1)
    a.document.load(b"", [snapshot])
    assert a.document.merge(snapshot) == Touched()
    assert a.document.view() == before


def test_an_entry_whose_record_is_malformed_is_refused() -> None:
    _, (a,) = devices("a")
    bad = Entry(f"{TASK}:state", 2**30, 1, EntryKind.CALL, encode_record(Completion(1, "x")), "x", relay_seq=1)
    with pytest.raises(EntryRefused):
        a.document.merge(bad)
