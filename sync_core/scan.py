"""A bounded scan of a Yjs v1 update's bytes: what it writes, deletes and hangs on, before pycrdt may see it (rule C).

An update is a list of sections, one per id, and a delete set:

    update    = count, section …, count, deletes …           every number is a variable-length integer
    section   = count of structs, id, first clock, struct …
    struct    = info byte, [left origin], [right origin], or a root and, for a map item, its key; then the content
    deletes   = id, count of ranges, (clock, length) …

Yjs knows many more structs than a flat document ever holds. The grammar here is the closed list of what honest
documents of Segue produce (measured with pycrdt over random schedules): text and deleted text under `note:` roots, one
string per key under `slots` and `slotdefs`, and the genesis. Everything else is refused by not being in the list:
nested types and values, garbage-collected and skip blocks, formats, embeds, subdocuments, map items with an origin. So
nothing nests, the scan is one loop, and its work and memory are bounded by the bytes that are really there, never by
what they claim.
"""

import re
from heapq import heappop, heappush
from typing import NoReturn

import msgspec

from sync_core.entry import BytesRefused
from sync_core.errors import ValueRefused
from sync_core.ids import GENESIS_WRITER, WRITER_BITS, check_note
from sync_core.limits import (
    DEFINITION_WRITE_BYTES_MAX,
    NAME_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    SCAN_CLOCK_MAX,
    SCAN_IDS_MAX,
    SCAN_STRUCTS_MAX,
    SLOT_WRITE_BYTES_MAX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_IDS_MAX,
    SNAPSHOT_STRUCTS_MAX,
)

__all__ = ["GENESIS_CLOCKS", "GENESIS_ROOT", "Scan", "scan_document", "scan_update"]

GENESIS_CLOCKS = 2
"""How many clocks the genesis update takes: the keys `document` and `schema` of the root `meta`, each set once."""
GENESIS_ROOT = "meta"

_ID_END = 1 << WRITER_BITS
_MAP_ROOTS = {"slots": SLOT_WRITE_BYTES_MAX, "slotdefs": DEFINITION_WRITE_BYTES_MAX}
_GENESIS_KEYS = {"document", "schema"}
_NOTE_PREFIX = "note:"
_KEY = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{NAME_CHARS_MAX - 1}}}/[0-9a-f]{{16}}")

# The info bytes of the format: two flags for the origins, one for a map key, and the kind of content.
_LEFT = 0x80
_RIGHT = 0x40
_ORIGINS = _LEFT | _RIGHT
_DELETED = 1
_STRING = 4
_MAP_STRING = 0x28
_MAP_DELETED = 0x21
_MAP_ITEMS = (_MAP_STRING, _MAP_DELETED)
_ROOT_PARENT = 1
_ANY_STRING = 119
_LAST_OF_ONE_UNIT = "\uffff"


class Scan(msgspec.Struct, frozen=True):
    """What an update does, in ids and clocks.

    `structs` holds (id, first clock, next clock) per section; `deletes` (id, clock, length); `origins` every origin
    (id, clock) that lies outside the update's own new clocks; `sets` (root, key, id, clock) per map item, a deleted one
    too; `inserts` every origin of a text item, own new clocks included: where text hangs on.

    `cuts` holds each (id, clock) before which the update cuts a run, by an origin or at an end of a deletion; `halves`
    the second half of each character that takes two clocks. A cut between two halves makes pycrdt miscount the clocks
    of whoever wrote the character. Inside one update this is refused here; between updates, only who knows the halves
    that are there can see it.
    """

    structs: tuple[tuple[int, int, int], ...]
    deletes: tuple[tuple[int, int, int], ...]
    origins: tuple[tuple[int, int], ...]
    sets: tuple[tuple[str, str, int, int], ...]
    inserts: tuple[tuple[int, int], ...]
    cuts: tuple[tuple[int, int], ...] = ()
    halves: tuple[tuple[int, int], ...] = ()


class _Found:
    """What the scan has found so far.

    `runs` holds (first clock, next clock) per id, in the order of the sections. `at` holds, for each of `inserts`, the
    clock of the item that hangs there; `marks` how many inserts were found before each section.
    """

    __slots__ = ("at", "cuts", "deletes", "halves", "inserts", "marks", "runs", "sets")

    def __init__(self) -> None:
        self.runs: dict[int, tuple[int, int]] = {}
        self.deletes: list[tuple[int, int, int]] = []
        self.sets: list[tuple[str, str, int, int]] = []
        self.inserts: list[tuple[int, int]] = []
        self.cuts: list[tuple[int, int]] = []
        self.halves: list[tuple[int, int]] = []
        self.at: list[int] = []
        self.marks: list[int] = []


def scan_update(data: bytes) -> Scan:
    """Return what an entry's update does; raises `BytesRefused` for what exceeds rule C or is not in the grammar."""
    if len(data) > PAYLOAD_BYTES_MAX:
        _refuse(f"is larger than {PAYLOAD_BYTES_MAX} bytes")
    found = _Found()
    _read(data, found, SCAN_STRUCTS_MAX, SCAN_IDS_MAX, document=False)
    return _result(found)


def scan_document(data: bytes) -> Scan:
    """Return what a merged document holds; raises `BytesRefused` as `scan_update` does, with the bounds of rule F.

    Many ids may write. The genesis may be there, exactly as it is made, and is left out of the result. The ids' structs
    may not wait for each other in a circle, for pycrdt would keep them waiting for ever.
    """
    if len(data) > SNAPSHOT_BYTES_MAX:
        _refuse(f"is larger than {SNAPSHOT_BYTES_MAX} bytes")
    found = _Found()
    _read(data, found, SNAPSHOT_STRUCTS_MAX, SNAPSHOT_IDS_MAX, document=True)
    _check_order(found)
    return _result(found)


def _result(found: _Found) -> Scan:
    runs = found.runs
    structs = tuple([(writer, first, end) for writer, (first, end) in runs.items() if writer != GENESIS_WRITER])
    if not found.deletes and not found.inserts:
        # Only an origin or a deletion cuts anything; most updates of slots have neither.
        return Scan(structs, (), (), tuple(found.sets), (), (), tuple(found.halves))
    for writer, clock, length in found.deletes:
        found.cuts.append((writer, clock))
        found.cuts.append((writer, clock + length))
    if found.halves and not set(found.halves).isdisjoint(found.cuts):
        _refuse("cuts a character in two")
    outside = [
        origin
        for origin in found.inserts
        if (run := runs.get(origin[0])) is None or origin[1] < run[0] or origin[1] >= run[1]
    ]
    return Scan(
        structs,
        tuple(found.deletes),
        tuple(outside),
        tuple(found.sets),
        tuple(found.inserts),
        tuple(found.cuts),
        tuple(found.halves),
    )


def _read(data: bytes, found: _Found, structs_max: int, ids_max: int, *, document: bool) -> None:
    try:
        i = _read_sections(data, found, structs_max, ids_max, document)
        i = _read_deletes(data, i, found, structs_max, ids_max)
    except IndexError:
        _refuse("ends too early")
    if i != len(data):
        _refuse("goes on after its end")


def _read_sections(data: bytes, found: _Found, structs_max: int, ids_max: int, document: bool) -> int:
    sections, i = _number(data, 0)
    if sections > ids_max:
        _refuse(f"holds structs of more than {ids_max} ids")
    total = 0
    for _ in range(sections):
        structs, i = _number(data, i)
        writer, i = _number(data, i)
        first, i = _number(data, i)
        total += structs
        if total > structs_max:
            _refuse(f"holds more than {structs_max} structs")
        if not structs or writer >= _ID_END or writer in found.runs:
            _refuse("has a malformed section")
        found.marks.append(len(found.inserts))
        if writer == GENESIS_WRITER:
            if not document:
                _refuse("writes under the reserved id of the genesis")
            i, end = _read_genesis(data, i, structs, first)
        else:
            i, end = _read_items(data, i, structs, writer, first, found)
        if end > SCAN_CLOCK_MAX:
            _refuse("runs past the last clock")
        found.runs[writer] = (first, end)
    return i


def _read_items(data: bytes, i: int, structs: int, writer: int, clock: int, found: _Found) -> tuple[int, int]:
    """Read one section's structs; return the place after them and the clock after them."""
    for _ in range(structs):
        info = data[i]
        i += 1
        if info in _MAP_ITEMS:
            i = _read_map_item(data, i, info, writer, clock, found)
            clock += 1
            continue
        if info & _ORIGINS:
            if info & _LEFT:
                i = _read_origin(data, i, writer, clock, 1, found)
            if info & _RIGHT:
                i = _read_origin(data, i, writer, clock, 0, found)
        else:
            root, i = _root(data, i)
            _check_note_root(root)
        content = info & ~_ORIGINS
        if content == _STRING:
            text, i = _text(data, i)
            length = len(text) if text.isascii() else _wide_length(text, writer, clock, found)
        elif content == _DELETED:
            length, i = _number(data, i)
        else:
            _refuse("holds a kind of struct that no document has")
        if not length:
            _refuse("holds an empty struct")
        clock += length
    return i, clock


def _read_origin(data: bytes, i: int, writer: int, clock: int, behind: int, found: _Found) -> int:
    """Read an origin; the item cuts the run there, `behind` a left origin (1) or before a right one (0)."""
    origin, i = _number(data, i)
    at, i = _number(data, i)
    if origin == GENESIS_WRITER or origin >= _ID_END or (origin == writer and at >= clock):
        _refuse("hangs on what cannot be there")
    found.inserts.append((origin, at))
    found.at.append(clock)
    found.cuts.append((origin, at + behind))
    return i


def _wide_length(text: str, writer: int, clock: int, found: _Found) -> int:
    """Return how many clocks a text takes: its UTF-16 units; note the second half of each character of two."""
    if max(text) > _LAST_OF_ONE_UNIT:
        at = clock
        for char in text:
            at += 1
            if char > _LAST_OF_ONE_UNIT:
                found.halves.append((writer, at))
                at += 1
        return at - clock
    return len(text)


def _read_map_item(data: bytes, i: int, info: int, writer: int, clock: int, found: _Found) -> int:
    root, i = _root(data, i)
    key, i = _text(data, i)
    bytes_max = _MAP_ROOTS.get(root)
    if bytes_max is None or not _KEY.fullmatch(key):
        _refuse("sets a key that no document has")
    if data[i] != 1:
        _refuse("sets a key to more than one value")
    i += 1
    if info == _MAP_STRING:
        if data[i] != _ANY_STRING:
            _refuse("sets a key to something else than text")
        i += 1
        if _number(data, i)[0] > bytes_max:
            _refuse(f"sets a key to more than {bytes_max} bytes")
        _, i = _text(data, i)
    found.sets.append((root, key, writer, clock))
    return i


def _read_genesis(data: bytes, i: int, structs: int, first: int) -> tuple[int, int]:
    """Read the reserved id's section: two keys of `meta`, each one plain value; nothing else, ever."""
    if first or structs != GENESIS_CLOCKS:
        _refuse("holds another genesis")
    keys = set()
    for _ in range(structs):
        info = data[i]
        root, i = _root(data, i + 1)
        key, i = _text(data, i)
        if info != _MAP_STRING or root != GENESIS_ROOT or data[i] != 1 or data[i + 1] != _ANY_STRING:
            _refuse("holds another genesis")
        _, i = _text(data, i + 2)
        keys.add(key)
    if keys != _GENESIS_KEYS:
        _refuse("holds another genesis")
    return i, GENESIS_CLOCKS


def _read_deletes(data: bytes, i: int, found: _Found, ranges_max: int, ids_max: int) -> int:
    ids, i = _number(data, i)
    if ids > ids_max:
        _refuse(f"deletes of more than {ids_max} ids")
    seen = set()
    total = 0
    for _ in range(ids):
        writer, i = _number(data, i)
        ranges, i = _number(data, i)
        total += ranges
        if total > ranges_max:
            _refuse(f"deletes more than {ranges_max} ranges")
        if not ranges or writer == GENESIS_WRITER or writer >= _ID_END or writer in seen:
            _refuse("has a malformed delete set")
        seen.add(writer)
        for _ in range(ranges):
            clock, i = _number(data, i)
            length, i = _number(data, i)
            if not length or clock + length > SCAN_CLOCK_MAX:
                _refuse("has a malformed delete set")
            found.deletes.append((writer, clock, length))
    return i


def _check_order(found: _Found) -> None:
    """Refuse sections that wait for each other in a circle: walk each as far as what it hangs on has been walked.

    A section that must wait is parked at the id that it waits for, under the clock that it needs, so each insert is
    looked at once or twice.
    """
    ids = list(found.runs)
    ends = [*found.marks[1:], len(found.inserts)]
    place = list(found.marks)
    reached = {writer: first for writer, (first, _) in found.runs.items()}
    parked: dict[int, list[tuple[int, int]]] = {}
    ready = list(range(len(ids)))
    while ready:
        section = ready.pop()
        writer, i, end = ids[section], place[section], ends[section]
        while i < end:
            origin, at = found.inserts[i]
            if origin != writer and reached.get(origin, at + 1) <= at < found.runs[origin][1]:
                heappush(parked.setdefault(origin, []), (at, section))
                break
            i += 1
        place[section] = i
        reached[writer] = found.at[i] if i < end else found.runs[writer][1]
        waiting = parked.get(writer)
        while waiting and waiting[0][0] < reached[writer]:
            ready.append(heappop(waiting)[1])
    if any(parked.values()):
        _refuse("holds structs that wait for each other")


def _check_note_root(root: str) -> None:
    if not root.startswith(_NOTE_PREFIX):
        _refuse("writes text outside the notes")
    try:
        check_note(root[len(_NOTE_PREFIX) :])
    except ValueRefused:
        _refuse("writes a note whose name is not valid")


def _root(data: bytes, i: int) -> tuple[str, int]:
    if data[i] != _ROOT_PARENT:
        _refuse("holds a nested type")
    return _text(data, i + 1)


def _text(data: bytes, i: int) -> tuple[str, int]:
    """Read a string. pycrdt does not check its UTF-8, so this must."""
    length, i = _number(data, i)
    end = i + length
    if end > len(data):
        _refuse("ends too early")
    try:
        return data[i:end].decode(), end
    except UnicodeDecodeError:
        _refuse("holds text that is not UTF-8")


def _number(data: bytes, i: int) -> tuple[int, int]:
    """Read a variable-length integer of at most 56 bits."""
    byte = data[i]
    i += 1
    if byte < 128:
        return byte, i
    value = byte & 127
    shift = 7
    while byte > 127:
        if shift > 49:
            _refuse("holds a number of too many bytes")
        byte = data[i]
        i += 1
        value |= (byte & 127) << shift
        shift += 7
    return value, i


def _refuse(why: str) -> NoReturn:
    raise BytesRefused(f"The update {why}.")
