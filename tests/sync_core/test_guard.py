"""The guard: every honest update passes, nothing else writes, deletes or hangs on clocks that are not its to take."""

import os
import random

import msgspec
import pytest
from pycrdt import Doc

from sync_core.entry import (
    CallIntent,
    CallOutcome,
    Completion,
    Effect,
    Entry,
    EntryKind,
    HandOver,
    HistoryItem,
    HistoryPop,
    Plan,
    Record,
    VersionDecision,
    WriterRow,
    encode_record,
)
from sync_core.errors import EntryRefused
from sync_core.guard import Standing, check_entry, check_snapshot, scan_document, scan_update, standing
from sync_core.limits import NOTE_BYTES_MAX, PAYLOAD_BYTES_MAX
from tests.sync_core.shapes import GOOD, ME, RULE_D, SHAPES, STRANGER, VICTIM
from tests.sync_core.updates import STREAM, World, clocks, entry, genesis, note, section, slot, snapshot, table, update

WRITERS = table(WriterRow(ME, "phone", 10, 3), WriterRow(VICTIM, "desktop", 20, 5))


def judge(payload: bytes, **more: object) -> WriterRow:
    return check_entry(entry(ME, 3, payload, **more), WRITERS)[0]  # type: ignore[arg-type]


# --- honest devices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_every_honest_update_passes_and_pycrdt_agrees_on_the_clocks(seed: int) -> None:
    world = World(seed)  # it raises if the guard refuses anything
    ends = {writer: row.next_clock for writer, row in world.tables[-1].items() if row.next_clock}
    assert len(world.log) > 20
    assert all(clocks(device.doc) == ends for device in world.devices)
    assert len({str(device.note) for device in world.devices}) == 1


@pytest.mark.parametrize("seed", range(8))
def test_every_honest_document_passes_with_the_clocks_of_the_writer_table(seed: int) -> None:
    world = World(seed)
    document = world.devices[0].doc.get_update()
    scan = scan_document(document)
    assert {writer: end for writer, _, end in scan.structs} == clocks(world.devices[0].doc)
    assert scan.origins == ()
    writers = world.tables[-1]
    assert table(*check_snapshot(snapshot(document, writers), {})) == writers
    assert check_snapshot(snapshot(document, writers), writers) == ()
    older = world.tables[len(world.log) // 2]
    raised = table(*check_snapshot(snapshot(document, writers), older))
    assert {**older, **raised} == writers


def test_an_honest_overwrite_that_deletes_another_writers_key_passes() -> None:
    assert judge(update(section(ME, 10, slot()), deletes=[(VICTIM, 19, 1)])) == WriterRow(ME, "phone", 11, 4)


def test_an_update_without_structs_keeps_the_clock() -> None:
    assert judge(update(deletes=[(VICTIM, 0, 20), (ME, 0, 10)])) == WriterRow(ME, "phone", 10, 4)


# --- RS-29: clocks, holes, forged authors -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", RULE_D, ids=str)
def test_nobody_writes_deletes_or_hangs_on_clocks_that_are_not_theirs_to_take(shape: str) -> None:
    with pytest.raises(EntryRefused):
        judge(RULE_D[shape])
    victim = entry(VICTIM, 5, update(section(VICTIM, 20, note("still here"))), "desktop")
    assert check_entry(victim, WRITERS)[0] == WriterRow(VICTIM, "desktop", 30, 6)


def test_the_hostile_shapes_of_the_scan_are_refused_and_the_next_write_passes() -> None:
    for payload in SHAPES.values():
        with pytest.raises(EntryRefused):
            judge(payload)
    assert judge(GOOD).next_clock == 11


def test_an_id_belongs_to_the_device_that_first_used_it() -> None:
    with pytest.raises(EntryRefused, match="another device"):
        judge(GOOD, device="desktop")


def test_a_first_entry_starts_at_clock_zero() -> None:
    first = update(section(STRANGER, 0, slot()))
    assert check_entry(entry(STRANGER, 1, first, "tablet"), WRITERS)[0] == WriterRow(STRANGER, "tablet", 1, 2)
    with pytest.raises(EntryRefused):
        check_entry(entry(STRANGER, 1, update(section(STRANGER, 1, slot())), "tablet"), WRITERS)


# --- entries ----------------------------------------------------------------------------------------------------------


def test_standing_is_next_known_gap_or_closed() -> None:
    row = WriterRow(ME, "phone", 10, 3)
    closed = WriterRow(ME, "phone", 10, 3, True)
    expected = {0: Standing.GAP, 1: Standing.KNOWN, 2: Standing.KNOWN, 3: Standing.NEXT, 4: Standing.GAP}
    assert {seq: standing(entry(ME, seq, GOOD), row) for seq in expected} == expected
    assert [standing(entry(ME, seq, GOOD), closed) for seq in (2, 3, 4)] == [
        Standing.KNOWN,
        Standing.CLOSED,
        Standing.CLOSED,
    ]
    assert [standing(entry(ME, seq, GOOD), None) for seq in (0, 1, 2)] == [Standing.GAP, Standing.NEXT, Standing.GAP]


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": "state"},
        {"stream": "expense/../x:state"},
        {"stream": "expense/TRIP-118:else"},
        {"stream": "expense/TRIP-118:history"},
        {"stream": "expense/TRIP-118:handover"},
        {"stream": "expense/TRIP-118:authority"},
        {"device": "con"},
        {"device": "a b"},
        {"device": ""},
        {"writer": 1},
        {"writer": 0},
        {"writer": -5},
        {"writer": 2**53},
        {"blob": "0" * 63},
        {"blob": "Z" * 64},
        {"blob": "../../etc/passwd"},
        {"at_ms": 2**63},
        {"at_ms": -(2**63)},
        {"kind": EntryKind.HISTORY},
        {"kind": EntryKind.HANDOVER},
        {"kind": EntryKind.SNAPSHOT},
        {"kind": EntryKind.CALL},
        {"payload": bytes(PAYLOAD_BYTES_MAX + 1)},
    ],
    ids=str,
)
def test_an_entry_that_shows_anything_wrong_is_refused(wrong: dict[str, object]) -> None:
    good = entry(STRANGER, 1, update(section(STRANGER, 0, slot())))
    assert check_entry(good, WRITERS)[0].next_seq == 2
    with pytest.raises(EntryRefused):
        check_entry(msgspec.structs.replace(good, **wrong), WRITERS)


CALL = CallIntent("pay", 1, "bank", Effect.READ, "d", "a", 1)
RECORDS: list[tuple[EntryKind, Record, dict[str, object]]] = [
    (EntryKind.CALL, CALL, {"step": "a b"}),
    (EntryKind.CALL, CALL, {"n": 2**53 + 1}),
    (EntryKind.CALL, CALL, {"version": -1}),
    (EntryKind.CALL, CallOutcome("pay", 1, "a", True), {"step": "../x"}),
    (EntryKind.PLAN, Plan("scan", 1, "reader", "{}", 1), {"n": 2**63}),
    (EntryKind.VERSION, VersionDecision(2, "anna"), {"version": 2**60}),
    (EntryKind.COMPLETION, Completion(2, "anna"), {"version": -2}),
    (EntryKind.HISTORY, HistoryItem("i", "r", 1, 0, "{}"), {"index": -1}),
    (EntryKind.HISTORY, HistoryItem("i", "r", 1, 0, "{}"), {"n": 2**64 - 1}),
]


@pytest.mark.parametrize(("kind", "record", "wrong"), RECORDS, ids=str)
def test_a_record_passes_and_one_with_a_bad_name_or_number_does_not(
    kind: EntryKind, record: Record, wrong: dict[str, object]
) -> None:
    stream = STREAM.replace("state", "history") if kind is EntryKind.HISTORY else STREAM
    good = Entry(stream, ME, 3, kind, encode_record(record), "phone")
    assert check_entry(good, WRITERS) == (WriterRow(ME, "phone", 10, 4), None)
    with pytest.raises(EntryRefused):
        bad = encode_record(msgspec.structs.replace(record, **wrong))
        check_entry(msgspec.structs.replace(good, payload=bad), WRITERS)


def test_a_record_of_another_kind_or_of_garbage_is_refused() -> None:
    pop = encode_record(HistoryPop("i"))
    for kind, payload in ((EntryKind.CALL, pop), (EntryKind.PLAN, b""), (EntryKind.VERSION, b"\xc1" * 40)):
        with pytest.raises(EntryRefused):
            check_entry(Entry(STREAM, ME, 3, kind, payload, "phone"), WRITERS)


def test_a_hand_over_is_text() -> None:
    stream = STREAM.replace("state", "handover")
    good = Entry(stream, STRANGER, 1, EntryKind.HANDOVER, encode_record(HandOver(1, "schöne Grüße")), "phone")
    assert check_entry(good, {})[0].next_seq == 2
    for longest, refused in (("x" * NOTE_BYTES_MAX, False), ("x" * NOTE_BYTES_MAX + "y", True)):
        entry = msgspec.structs.replace(good, payload=encode_record(HandOver(1, longest)))
        if refused:
            with pytest.raises(EntryRefused):
                check_entry(entry, {})
        else:
            assert check_entry(entry, {})[0].next_seq == 2
    with pytest.raises(EntryRefused):
        check_entry(msgspec.structs.replace(good, payload=b"\xff"), {})


def test_a_recovered_snapshot_names_its_blob_and_holds_nothing_else() -> None:
    good = Entry(STREAM, ME, 3, EntryKind.SNAPSHOT, b"", "phone", blob="0" * 64)
    assert check_entry(good, WRITERS) == (WriterRow(ME, "phone", 10, 4), None)
    for wrong in ({"payload": b"x"}, {"blob": None}):
        with pytest.raises(EntryRefused):
            check_entry(msgspec.structs.replace(good, **wrong), WRITERS)


# --- snapshots --------------------------------------------------------------------------------------------------------

DOCUMENT = update(section(VICTIM, 0, note("a" * 20)), section(ME, 0, note("b" * 10, left=(VICTIM, 3))))


def test_a_snapshot_raises_rows_and_leaves_what_was_there() -> None:
    assert check_snapshot(snapshot(DOCUMENT, WRITERS), WRITERS) == ()
    assert table(*check_snapshot(snapshot(DOCUMENT, WRITERS), {})) == WRITERS
    ahead = {**WRITERS, ME: WriterRow(ME, "phone", 30, 9)}
    older = {**WRITERS, ME: WriterRow(ME, "phone", 4, 2)}
    assert check_snapshot(snapshot(DOCUMENT, WRITERS), ahead) == ()
    assert check_snapshot(snapshot(DOCUMENT, WRITERS), older) == (WRITERS[ME],)
    closed = {**WRITERS, ME: WriterRow(ME, "phone", 10, 3, True)}
    assert check_snapshot(snapshot(DOCUMENT, closed), WRITERS) == (closed[ME],)


def test_a_snapshot_without_its_document_is_refused() -> None:
    with pytest.raises(EntryRefused, match="do not agree"):
        check_snapshot(snapshot(b"", WRITERS), WRITERS)


VICTIM_PART = section(VICTIM, 0, note("a" * 20))


@pytest.mark.parametrize(
    "document",
    [
        update(VICTIM_PART, section(ME, 11, note("b"))),
        update(VICTIM_PART, section(ME, 0, note("b" * 9))),
        update(VICTIM_PART, section(ME, 0, note("b" * 10)), section(STRANGER, 0, note("c"))),
        update(VICTIM_PART, section(ME, 0, note("b" * 10, left=(VICTIM, 20)))),
        update(VICTIM_PART, section(ME, 0, note("b" * 10, left=(STRANGER, 0)))),
        update(VICTIM_PART, section(ME, 0, note("b" * 10)), deletes=[(VICTIM, 19, 2)]),
        update(VICTIM_PART, section(ME, 0, note("b" * 10)), deletes=[(STRANGER, 0, 1)]),
        update(VICTIM_PART, section(ME, 0, b"\x00\x0a")),
    ],
    ids=["a hole", "too short", "an id more", "ahead", "of nobody", "delete-ahead", "deletes of nobody", "collected"],
)
def test_a_snapshot_whose_document_breaks_rule_d_is_refused(document: bytes) -> None:
    assert check_snapshot(snapshot(DOCUMENT, WRITERS), WRITERS) == ()
    with pytest.raises(EntryRefused):
        check_snapshot(snapshot(document, WRITERS), WRITERS)


def test_a_snapshot_may_start_where_a_writer_is_but_not_behind_a_hole() -> None:
    tail = update(VICTIM_PART, section(ME, 5, note("b" * 5)))
    assert check_snapshot(snapshot(tail, WRITERS), {ME: WriterRow(ME, "phone", 5, 2)}) == tuple(
        WRITERS[writer] for writer in sorted(WRITERS)
    )
    for known in ({}, {ME: WriterRow(ME, "phone", 4, 2)}):
        with pytest.raises(EntryRefused, match="hole"):
            check_snapshot(snapshot(tail, WRITERS), known)


RECORD = Entry(STREAM, ME, 2, EntryKind.CALL, encode_record(CALL), "phone", relay_seq=7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": "x"},
        {"stream": STREAM.replace("state", "history")},
        {"chain": b""},
        {"digest": bytes(31)},
        {"covers_seq": -1, "records": ()},
        {"covers_seq": 6},
        {"writers": tuple(reversed(WRITERS.values()))},
        {"writers": (*WRITERS.values(), WRITERS[VICTIM])},
        {"writers": (WriterRow(1, "phone", 0, 2), *WRITERS.values())},
        {"writers": (*WRITERS.values(), WriterRow(STRANGER, "con"))},
        {"writers": (*WRITERS.values(), WriterRow(STRANGER, "phone", 0, 0))},
        {"writers": (*WRITERS.values(), WriterRow(STRANGER, "phone", 0, 2**60))},
        {"writers": (WriterRow(ME, "tablet", 10, 3), WRITERS[VICTIM]), "records": ()},
        {"records": (msgspec.structs.replace(RECORD, relay_seq=None),)},
        {"records": (RECORD, RECORD)},
        {"records": (msgspec.structs.replace(RECORD, stream="other:state"),)},
        {"records": (entry(ME, 2, GOOD, relay_seq=7),)},
        {"records": (msgspec.structs.replace(RECORD, payload=b"x"),)},
        {"records": (msgspec.structs.replace(RECORD, writer=STRANGER),)},
        {"records": (msgspec.structs.replace(RECORD, device="tablet"),)},
        {"records": (msgspec.structs.replace(RECORD, writer_seq=WRITERS[ME].next_seq),)},
    ],
    ids=str,
)
def test_a_malformed_snapshot_is_refused(wrong: dict[str, object]) -> None:
    good = snapshot(DOCUMENT, WRITERS, records=(RECORD,))
    assert check_snapshot(good, WRITERS) == ()
    with pytest.raises(EntryRefused):
        check_snapshot(msgspec.structs.replace(good, **wrong), WRITERS)


# --- mutants: what passes does pycrdt no harm -------------------------------------------------------------------------


def mutant(rng: random.Random, data: bytes, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                out[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                out[place : place + 1] = bytes(
                    [(value + rng.choice((-2, -1, 1, 2))) % 256 for value in out[place : place + 1]]
                )
            case 2:
                del out[place : place + rng.randint(1, 4)]
            case 3:
                start = rng.randrange(len(other))
                out[place:place] = other[start : start + rng.randint(1, 20)]
            case 4:
                out[place : place + 1] = bytes([value ^ 1 << rng.randrange(8) for value in out[place : place + 1]])
            case _:
                out[place:place] = bytes([rng.randrange(256)])
    return bytes(out)


class Stage:
    """A place in an honest log: the document and the writer table there, what only endpoints know, the next entry."""

    def __init__(self, world: World, place: int) -> None:
        self.next = world.log[place]
        self.writers = world.tables[place]
        self.seen = [scan_update(one.payload) for one in world.log[:place]]
        doc: Doc = Doc(client_id=2)
        doc.apply_update(genesis())
        for one in world.log[:place]:
            doc.apply_update(one.payload)
        self.document = doc.get_update()
        self.map_items = {(writer, clock) for scan in self.seen for _, _, writer, clock in scan.sets}
        self.halves = {half for scan in self.seen for half in scan.halves}

    def judge(self, payload: bytes) -> dict[int, int] | None:
        """The next clocks after a payload that the guard and then an endpoint let through; None if one refuses it."""
        try:
            row, scan = check_entry(msgspec.structs.replace(self.next, payload=payload), self.writers)
        except EntryRefused:
            return None
        assert scan is not None
        own = {(writer, clock) for _, _, writer, clock in scan.sets}
        if not (self.map_items | own).isdisjoint(scan.inserts) or not self.halves.isdisjoint(scan.cuts):
            return None
        ends = {writer: known.next_clock for writer, known in {**self.writers, row.writer: row}.items()}
        return {writer: end for writer, end in ends.items() if end}


def try_mutants(seed: int, mutants: int) -> int:
    """Apply every mutant that passes; return how many did."""
    rng = random.Random(seed)
    stages = [
        Stage(world, place) for world in (World(seed + n, 30) for n in range(6)) for place in range(len(world.log))
    ]
    passed = 0
    for _ in range(mutants):
        stage = rng.choice(stages)
        payload = mutant(rng, stage.next.payload, rng.choice(stages).next.payload)
        ends = stage.judge(payload)
        if ends is None:
            continue
        passed += 1
        doc: Doc = Doc(client_id=2)
        doc.apply_update(stage.document)
        doc.apply_update(payload)
        assert clocks(doc) == ends, payload.hex()
        again: Doc = Doc(client_id=3)
        again.apply_update(doc.get_update())
        assert clocks(again) == ends, payload.hex()
        assert {writer: end for writer, _, end in scan_document(doc.get_update()).structs} == ends, payload.hex()
    return passed


def test_a_mutant_that_passes_is_merged_whole_and_leaves_nothing_pending() -> None:
    assert try_mutants(seed=1, mutants=20_000) > 200


@pytest.mark.campaign
def test_a_million_mutants_do_no_harm() -> None:
    seed = int(os.environ.get("SEGUE_SEED", "2"))
    assert try_mutants(seed, mutants=1_000_000) > 10_000
