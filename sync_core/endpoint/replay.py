"""Replay: a task built anew from what this device's file holds of it, for audit; nothing and nobody is asked.

Pure: what was read of the store comes in, a report goes out. No tool, socket or clock can be reached from here, and
what is missing is told as a gap and never fetched. Places are those of the `state` stream, which holds slots, notes,
calls and versions; other streams have places of their own, and nothing says how the two orders lie to each other.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from sync_core.document.calls import CallState
from sync_core.document.document import DocumentBroken, TaskDocument
from sync_core.document.view import TaskView
from sync_core.entry import CallOutcome, Entry, EntryKind, decode_record, decode_snapshot
from sync_core.errors import EntryRefused, HistoryTrimmed, StoreDamaged, ValueRefused
from sync_core.ids import StreamName, split_stream, stream_id
from sync_core.replica.snapshots import fill
from sync_core.replica.writes import StreamImage, TaskImage
from sync_core.rulings import SettledBy

__all__ = [
    "READER",
    "Gap",
    "GapKind",
    "Kept",
    "ReplayReport",
    "StreamReplay",
    "check_place",
    "document_at",
    "merged_in_log",
    "numbered_upto",
    "rebuild",
    "replay",
    "updates_in_order",
]

READER = 2**16
"""The writer id of a document that is only read: it never writes, so its id never leaves it."""


class Kept(msgspec.Struct, frozen=True):
    """All that a file holds of a task. `blob_bytes` has the size of each named blob that is here and intact, by its
    hash; `snapshots` the bytes of recovered snapshots."""

    image: TaskImage
    blob_bytes: Mapping[str, int]
    snapshots: Mapping[str, bytes]


class GapKind(StrEnum):
    """What is missing from the record of a task, or stands beside it."""

    MISSING_RESULT = "missing_result"
    MISSING_CONTENT = "missing_content"
    MISSING_PLACE = "missing_place"
    NO_OUTCOME = "no_outcome"
    SET_ASIDE = "set_aside"
    QUARANTINED = "quarantined"
    DAMAGED = "damaged"


class Gap(msgspec.Struct, frozen=True):
    """One gap: its kind, the stream and place (None for what has none), and in words what it is, never a content."""

    kind: GapKind
    stream: StreamName
    place: int | None
    what: str


class StreamReplay(msgspec.Struct, frozen=True):
    """One stream: how many entries the file holds, the earliest place that can be shown (what lies before is merged),
    the last place, and its digest (hex) as rebuilt and as the live task shows it (None if it is not in memory)."""

    stream: StreamName
    entries: int
    earliest: int
    cursor: int
    rebuilt: str
    live: str | None

    @property
    def equal(self) -> bool:
        """Whether the log leads to what the live task shows."""
        return self.rebuilt == self.live


class ReplayReport(msgspec.Struct, frozen=True):
    """What a replay found. `view` is the task as the log leads to it: whole, or, with `at`, as of that place of the
    `state` stream, without history."""

    task: str
    at: int | None
    entries: int
    streams: tuple[StreamReplay, ...]
    gaps: tuple[Gap, ...]
    view: TaskView

    @property
    def equal(self) -> bool:
        """Whether every stream leads to what the live task shows."""
        return all(stream.equal for stream in self.streams)


def replay(
    subject: str, device: str, kept: Kept, live: Mapping[StreamName, bytes], at: int | None = None
) -> ReplayReport:
    """Build a task anew and compare it with the digests of the `live` one.

    `at` is a place of the `state` stream, 0 for the empty task. Raises `HistoryTrimmed` where this file holds that
    place in merged form only, `ValueRefused` for a place that is not here yet, `StoreDamaged` if nothing can be built.
    """
    if at is not None:
        check_place(kept, at)
    document = rebuild(subject, device, kept, _available(kept))
    images = {split_stream(image.stream)[1]: image for image in kept.image.streams}
    streams = tuple(
        _stream_replay(document, name, images.get(name), live.get(name))
        for name in StreamName
        if name in images or name in live
    )
    gaps = tuple(gap for image in kept.image.streams for gap in _gaps_of(kept, image))
    view = document.view()
    shown = view if at is None else document_at(subject, device, kept, at).view()
    entries = sum(stream.entries for stream in streams)
    return ReplayReport(kept.image.task, at, entries, streams, (*gaps, *_without_outcome(view)), shown)


# --- building ---------------------------------------------------------------------------------------------------------


def rebuild(subject: str, device: str, kept: Kept, entries: Iterable[Entry]) -> TaskDocument:
    """Return a document of the merged row and these entries, which come in the image's order. Raises `StoreDamaged`."""
    return _filled(subject, device, kept, _merged_row(kept), entries)


def document_at(subject: str, device: str, kept: Kept, at: int) -> TaskDocument:
    """Return a document of the log up to a place of `state`, history left out. Raises `StoreDamaged`."""
    return _filled(subject, device, kept, merged_in_log(kept), numbered_upto(kept, at))


def _filled(subject: str, device: str, kept: Kept, merged: bytes, entries: Iterable[Entry]) -> TaskDocument:
    document = TaskDocument(subject, kept.image.task, device, READER, bytes)
    try:
        fill(document, merged, entries, kept.snapshots)
    except (DocumentBroken, EntryRefused):
        raise StoreDamaged(f"What is stored of {kept.image.task} cannot be read.") from None
    return document


def _merged_row(kept: Kept) -> bytes:
    return b"".join(image.document for image in kept.image.streams)


def merged_in_log(kept: Kept) -> bytes:
    """Return what stands for the first places of the log in merged form; b"" if it was merged in an earlier log.

    After a log was lost, the new one holds everything at places of its own, and what was merged before has none.
    """
    state = _state_of(kept)
    return state.document if state is not None and state.covers_seq else b""


def updates_in_order(kept: Kept) -> Iterator[tuple[Entry | None, bytes]]:
    """Yield the document's updates in the order in which they count: (entry, bytes), None for the merged row.

    What was merged in an earlier log comes after the places of this one, and before what has no place yet.
    """
    merged, is_in_log = _merged_row(kept), bool(merged_in_log(kept))
    entries = _available(kept)
    if is_in_log:
        yield None, merged
    yield from _updates(kept, [entry for entry in entries if entry.relay_seq is not None])
    if merged and not is_in_log:
        yield None, merged
    yield from _updates(kept, [entry for entry in entries if entry.relay_seq is None])


def _updates(kept: Kept, entries: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
    for entry in entries:
        if entry.kind is EntryKind.UPDATE:
            yield entry, entry.payload
        elif entry.kind is EntryKind.SNAPSHOT and entry.blob is not None:
            document = decode_snapshot(kept.snapshots[entry.blob]).document
            if document:
                yield entry, document


def _state_of(kept: Kept) -> StreamImage | None:
    """Return what is kept of the `state` stream."""
    wanted = stream_id(kept.image.task, StreamName.STATE)
    return next((image for image in kept.image.streams if image.stream == wanted), None)


def check_place(kept: Kept, at: int) -> None:
    """Raise `HistoryTrimmed` or `ValueRefused` unless this file can show the task as of a place of `state`."""
    state = _state_of(kept)
    earliest, cursor = (state.covers_seq, state.cursor) if state is not None else (0, 0)
    if at > cursor:
        raise ValueRefused(f"{kept.image.task} has no place {at} on this device; the last one is {cursor}.")
    if at < earliest:
        raise HistoryTrimmed(
            f"This device holds {kept.image.task} in merged form up to place {earliest}; that is the earliest it can"
            " show.",
            earliest=earliest,
        )


def numbered_upto(kept: Kept, at: int) -> tuple[Entry, ...]:
    """Return the entries of `state` up to a place, in order."""
    state = _state_of(kept)
    entries = [] if state is None else _present(kept, state)
    return tuple(entry for entry in entries if entry.relay_seq is not None and entry.relay_seq <= at)


def _available(kept: Kept) -> list[Entry]:
    return [entry for image in kept.image.streams for entry in _present(kept, image)]


def _present(kept: Kept, image: StreamImage) -> list[Entry]:
    """The entries of a stream, without recovered snapshots whose bytes are gone: those are told as gaps."""
    return [entry for entry in image.entries if entry.kind is not EntryKind.SNAPSHOT or entry.blob in kept.snapshots]


def _stream_replay(
    document: TaskDocument, name: StreamName, image: StreamImage | None, live: bytes | None
) -> StreamReplay:
    writers = {row.writer: row for row in image.writers} if image is not None else {}
    return StreamReplay(
        name,
        len(image.entries) if image is not None else 0,
        image.covers_seq if image is not None else 0,
        image.cursor if image is not None else 0,
        document.digest(name, writers).hex(),
        None if live is None else live.hex(),
    )


# --- gaps -------------------------------------------------------------------------------------------------------------


def _gaps_of(kept: Kept, image: StreamImage) -> Iterator[Gap]:
    name = split_stream(image.stream)[1]
    if image.document_damaged:
        yield Gap(GapKind.DAMAGED, name, None, "The merged row fails its checksum.")
    for writer, writer_seq, place in image.damaged:
        yield Gap(GapKind.DAMAGED, name, place, f"Entry {writer_seq} of writer {writer} fails its checksum.")
    for kind, asides in ((GapKind.SET_ASIDE, image.set_aside), (GapKind.QUARANTINED, image.quarantined)):
        for aside in asides:
            entry = aside.entry
            what = f"An entry of kind {entry.kind.value} by {entry.device} does not count ({aside.code})."
            yield Gap(kind, name, entry.relay_seq, what)
    yield from _missing_places(name, image)
    for entry in image.entries:
        missing = _missing_of(kept, entry)
        if missing is not None:
            kind = GapKind.MISSING_RESULT if entry.kind is EntryKind.CALL else GapKind.MISSING_CONTENT
            yield Gap(kind, name, entry.relay_seq, missing)


def _missing_places(name: StreamName, image: StreamImage) -> Iterator[Gap]:
    asides = [aside.entry for aside in (*image.set_aside, *image.quarantined)]
    taken = {entry.relay_seq for entry in (*image.entries, *asides)} | {place for _, _, place in image.damaged}
    for place in range(image.covers_seq + 1, image.cursor + 1):
        if place not in taken:
            yield Gap(GapKind.MISSING_PLACE, name, place, "The file holds no entry of this place.")


def _missing_of(kept: Kept, entry: Entry) -> str | None:
    """What an entry names or should hold and is not here."""
    is_missing = entry.blob is not None and entry.blob not in kept.blob_bytes
    if entry.kind is not EntryKind.CALL:
        return f"The content of an entry of kind {entry.kind.value} is not on this device." if is_missing else None
    record = decode_record(entry.kind, entry.payload)
    if not isinstance(record, CallOutcome) or not (is_missing or record.lost):
        return None
    why = "was never recorded" if record.lost else "is not on this device"
    return f"The result of step {record.step}, version {record.version}, {why}."


def _without_outcome(view: TaskView) -> Iterator[Gap]:
    for (version, step), call in sorted(view.calls.items()):
        if call.state is CallState.IN_DOUBT:
            what = f"Step {step}, version {version}, was started and has no outcome."
            yield Gap(GapKind.NO_OUTCOME, StreamName.STATE, None, what)
        shown = call.shown
        if shown is not None and shown.lost and shown.settled_by not in (None, SettledBy.HOLDER):
            what = f"Step {step}, version {version}, happened by a verdict; its result is not known."
            yield Gap(GapKind.MISSING_RESULT, StreamName.AUTHORITY, None, what)
