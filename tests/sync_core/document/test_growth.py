"""Growth: what an overwrite costs, that every device counts the same, and where it ends."""

import itertools
import random
import time

import pytest
from pycrdt import Doc

from sync_core.document.document import TaskDocument
from sync_core.document.genesis import genesis_update
from sync_core.entry import EntryKind
from sync_core.errors import TooLarge
from sync_core.guard import scan_document
from sync_core.ids import GENESIS_WRITER
from sync_core.limits import TASK_WRITES_MAX
from tests.sync_core.document.log import CONFIRMED, SUBJECT, TASK, Device, busy, devices, sync
from tests.sync_core.updates import item, section, slot, update


def test_se_14_an_overwrite_costs_little_and_the_same_at_the_end_as_in_the_beginning() -> None:
    rng = random.Random(14)
    device = Device("phone", rng)
    state = device.document.state_bytes()
    sizes = []
    for _ in range(40):
        device.document = device.fresh_document()
        device.document.load(state, ())
        for i in range(50):
            device.confirm(f"slot{i % 10}", f'"value {i}"')
        state = device.document.state_bytes()
        sizes.append(len(state))
    growth = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(growth) <= 50 * 45 + 12
    assert max(growth) - min(growth) <= 100
    assert device.document.view().writes == 40 * 50


def overwrites(count: int, sessions: int) -> bytes:
    """The merged document of so many overwrites over 10 slots, in sessions with a writer each."""
    rng = random.Random(count)
    each = count // sessions
    sections, deletes = [], []
    for session in range(sessions):
        writer = rng.getrandbits(53) | 1 << 52
        keys = [f"slot{i % 10}/{rng.getrandbits(64):016x}" for i in range(each)]
        live = 10 if session == sessions - 1 else 0
        structs = [item(b"\x01", 1, root="slots", key=key) for key in keys[: each - live]]
        structs += [slot('{"a":"phone","n":1,"st":"c","t":1,"v":1}', key) for key in keys[each - live :]]
        sections.append((writer, section(writer, 0, *structs)))
        deletes.append((writer, 0, each - live))
    sections.append((GENESIS_WRITER, genesis_update(SUBJECT, TASK)[1:-1]))
    sections.sort(reverse=True)
    return update(*(data for _, data in sections), deletes=sorted(deletes, reverse=True))


@pytest.mark.slow
def test_se_14_a_document_of_100_000_overwrites_loads_in_time_and_takes_no_more() -> None:
    data = overwrites(100_000, 1_000)
    assert len(data) <= 100_000 * 45 + 1_000 * 12
    times, floors = [], []
    for _ in range(3):
        _, (a,) = devices("a")
        start = time.process_time()
        a.document.load(data, ())
        loaded = time.process_time()
        Doc().apply_update(data)
        times.append(loaded - start)
        floors.append(time.process_time() - loaded)
    assert len(a.document.state_bytes()) == len(data), "not what pycrdt itself would hold"
    # A slow machine needs longer, and so does pycrdt alone there.
    assert min(times) <= max(0.25, 2.5 * min(floors))
    assert a.document.view().writes == TASK_WRITES_MAX
    for action in (
        lambda: a.confirm("slot0", "1"),
        lambda: a.declare("slot0"),
        lambda: a.document.append_note("n", "x"),
    ):
        with pytest.raises(TooLarge):
            action()
    assert a.document.clear_slot("slot0", a.document.slot("slot0").token)
    assert len(scan_document(a.document.state_bytes()).sets) == 100_000


def test_writes_are_counted_the_same_however_the_document_came() -> None:
    a, b = busy()
    for _ in range(20):
        a.update(a.document.append_note("worklog", "a line of 🙂 text\n"))
        a.confirm("cost_center", '"x"')
    a.update(a.document.delete_note("worklog", a.document.note("worklog").content_sha256))
    sync(a, b)
    compacted = a.fresh_document()
    compacted.load(a.document.state_bytes(), ())
    late = a.fresh_document()
    late.merge_document(a.document.state_bytes(), ())
    late.load(b"", [one for one in a.log.entries if one.kind is not EntryKind.UPDATE])
    reloaded = a.fresh_document()
    reloaded.load(b"", a.log.entries)
    counts = {each.view().writes for each in (a.document, b.document, compacted, late, reloaded)}
    assert len(counts) == 1
    assert counts.pop() > 25


def test_a_document_over_the_bound_of_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (a,) = devices("a")
    monkeypatch.setattr("sync_core.document.growth.DOCUMENT_BYTES_MAX", 2_000)
    a.update(a.document.write_note("n", "x" * 1_500, None))
    a.update(a.document.delete_note("n", a.document.note("n").content_sha256))
    a.update(a.document.write_note("n", "y" * 1_500, None))
    a.update(a.document.write_note("m", "z" * 1_500, None))
    with pytest.raises(TooLarge):
        a.confirm("x", "1")
    a.update(a.document.delete_note("m", a.document.note("m").content_sha256))
    a.confirm("x", "1")


def test_one_slot_write_costs_the_same_in_a_large_document() -> None:
    def cost(document: TaskDocument) -> float:
        best = 1.0
        for _ in range(5):
            start = time.process_time()
            for _ in range(50):
                document.write_slot("x", "1", CONFIRMED, document.slot("x").token, None, 1)
            best = min(best, time.process_time() - start)
        return best

    _, (small, large) = devices("small", "large")
    large.document.load(overwrites(20_000, 200), ())
    assert cost(large.document) < 4 * cost(small.document)
