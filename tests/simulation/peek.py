"""Looks into the modelled disks: the only place that reads their inside, for checkers that must be quick."""

from collections.abc import Iterator

import msgspec

from server_relay.key_records import SubjectRow, TaskGuard
from server_relay.records import StoredEntry, StreamImage
from sync_core.entry import Entry, EntryKind
from sync_core.ids import StreamName, split_stream
from tests.simulation.disk import DiskModel
from tests.simulation.disk_stream import DiskStream
from tests.simulation.mailbox_model import MailboxModel

__all__ = [
    "aside_of",
    "cursor_of",
    "entries_of",
    "head_of",
    "is_recovered",
    "mailbox_entries",
    "mailbox_log",
    "mailbox_payloads",
    "mailbox_place",
    "mailbox_stream",
    "payload_of",
    "payloads_of",
    "row_of",
    "streams_of",
    "subject_row",
    "task_guard",
    "waiting_of",
]

_decoder = msgspec.msgpack.Decoder(Entry)


def streams_of(disk: DiskModel, task: str) -> dict[str, DiskStream]:
    """Return a task's streams by id."""
    return disk._current._streams.get(task, {})


def row_of(disk: DiskModel, stream: str, writer: int, writer_seq: int) -> tuple[Entry, bool, int, int | None] | None:
    """Return (entry, own, local order, rank) of a row that counts, or None."""
    kept = streams_of(disk, split_stream(stream)[0]).get(stream)
    row = None if kept is None else kept.rows.get((writer, writer_seq))
    return None if row is None or row.code is not None else (row.entry, row.own, row.local, row.rank)


def payload_of(disk: DiskModel, stream: str, writer: int, writer_seq: int) -> bytes | None:
    """Return the payload of a row, also of a quarantined one, or None."""
    kept = streams_of(disk, split_stream(stream)[0]).get(stream)
    row = None if kept is None else kept.rows.get((writer, writer_seq))
    return None if row is None else row.entry.payload


def entries_of(disk: DiskModel, task: str) -> Iterator[Entry]:
    """Return every entry of a task that counts, in no order that means anything."""
    for stream in streams_of(disk, task).values():
        for row in stream.rows.values():
            if row.code is None:
                yield row.entry


def waiting_of(disk: DiskModel, task: str) -> list[tuple[str, int, int]]:
    """Return the names of entries without a place, in order."""
    found = [
        (row.local, name, row.entry.writer, row.entry.writer_seq)
        for name, stream in streams_of(disk, task).items()
        for row in stream.rows.values()
        if row.entry.relay_seq is None and row.code is None
    ]
    return [(name, writer, seq) for _, name, writer, seq in sorted(found)]


def cursor_of(disk: DiskModel, stream: str) -> tuple[bytes, int]:
    """Return (epoch, cursor) of a stream."""
    kept = streams_of(disk, split_stream(stream)[0]).get(stream)
    position = None if kept is None else kept.position
    return (b"", 0) if position is None else (position.epoch, position.cursor)


def payloads_of(disk: DiskModel, task: str) -> tuple[list[bytes], list[Entry]]:
    """Return all bytes that hold content of a task, and the entries that are no updates."""
    content: list[bytes] = []
    records: list[Entry] = []
    for stream in streams_of(disk, task).values():
        if stream.document is not None:
            content.append(stream.document.document)
        for row in stream.rows.values():
            content.append(row.entry.payload)
            if row.entry.kind is not EntryKind.UPDATE:
                records.append(row.entry)
        for aside in stream.aside:
            content.append(aside.entry.payload)
            records.append(aside.entry)
    content.extend(blob.data for key, blob in disk._current._blobs.items() if key[0] == task)
    return content, records


def aside_of(disk: DiskModel, task: str) -> list[Entry]:
    """Return the entries of a task that were set aside."""
    return [aside.entry for stream in streams_of(disk, task).values() for aside in stream.aside]


# --- the relay --------------------------------------------------------------------------------------------------------


def mailbox_log(mailbox: MailboxModel, subject: str, task: str) -> list[StoredEntry]:
    """Return a task's log in stored order."""
    kept = mailbox._current._tasks.get((subject, task))
    return [] if kept is None else kept.log


def head_of(mailbox: MailboxModel, subject: str, task: str) -> dict[StreamName, tuple[bytes, int]]:
    """Return (epoch, head) of each stream of a task that has an entry."""
    kept = mailbox._current._tasks.get((subject, task))
    if kept is None:
        return {}
    return {name: (stream.image.epoch, stream.image.head) for name, stream in kept.streams.items() if stream.places}


def mailbox_place(mailbox: MailboxModel, subject: str, stream: str, writer: int, writer_seq: int) -> int | None:
    """Return an entry's place in the log; the snapshot's place for one that a recovered snapshot covers."""
    task, name = split_stream(stream)
    kept = mailbox._current._tasks.get((subject, task))
    held = None if kept is None else kept.streams.get(name)
    if held is None:
        return None
    place = held.numbers.get((writer, writer_seq))
    if place is None:
        for cover in held.covers:
            if cover.writer == writer and cover.first_seq <= writer_seq <= cover.last_seq:
                return cover.relay_seq
    return place


def mailbox_stream(mailbox: MailboxModel, subject: str, stream: str) -> StreamImage | None:
    """Return what the relay keeps of a stream besides its entries."""
    task, name = split_stream(stream)
    kept = mailbox._current._tasks.get((subject, task))
    held = None if kept is None else kept.streams.get(name)
    return None if held is None else held.image


def mailbox_entries(mailbox: MailboxModel, subject: str, task: str) -> list[Entry]:
    """Return a task's entries in stored order."""
    return [_decoder.decode(stored.wire) for stored in mailbox_log(mailbox, subject, task)]


def subject_row(mailbox: MailboxModel, subject: str) -> SubjectRow:
    """Return what the relay keeps of a subject's keys as a whole."""
    return mailbox._current._keys._subjects.get(subject, SubjectRow())


def task_guard(mailbox: MailboxModel, subject: str, task: str) -> TaskGuard:
    """Return what guards a task at the relay."""
    kept = mailbox._current._tasks.get((subject, task))
    return TaskGuard() if kept is None else kept.guard


def is_recovered(stored: StoredEntry) -> bool:
    """Return whether some device brought the entry back from an earlier log."""
    return _decoder.decode(stored.wire).vouched_by is not None


def mailbox_payloads(mailbox: MailboxModel, subject: str, task: str) -> tuple[list[bytes], list[Entry]]:
    """Return all bytes that hold content of a task at the relay, and the entries that are no updates."""
    kept = mailbox._current._tasks.get((subject, task))
    if kept is None:
        return [], []
    entries = mailbox_entries(mailbox, subject, task)
    content = [entry.payload for entry in entries] + list(kept.bytes_of.values())
    return content, [entry for entry in entries if entry.kind is not EntryKind.UPDATE]
