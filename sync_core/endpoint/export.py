"""Export: a task's event log as JSON-able objects, one per entry, with author, order and sizes; for audit.

The value of a secret slot never leaves: neither as a write of the slot, nor inside an argument, result or message that
holds it, which is withheld whole.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from sync_core.document.definitions import decode_definition
from sync_core.document.genesis import genesis_update
from sync_core.document.rewrite import Done, Learner
from sync_core.document.slots import decode_write
from sync_core.endpoint.replay import READER, Kept, updates_in_order
from sync_core.endpoint.secrets import WITHHELD, SecretValues
from sync_core.entry import Entry, EntryKind, decode_record
from sync_core.errors import EntryRefused
from sync_core.ids import split_stream
from sync_core.replica.writes import StreamImage
from sync_core.rulings import Held
from sync_core.values import JsonValue, parse

__all__ = ["export_entries"]

_Line = dict[str, JsonValue]
_Key = tuple[str, int, int]


def export_entries(subject: str, kept: Kept) -> Iterator[_Line]:
    """Yield one object per entry: streams by name, each in relay order, then what has no place; then what is set aside.

    An entry has stream, place (None without one), writer, writer_seq, device, vouched_by, at_ms (the device's clock,
    for display only), kind, standing, size_bytes, blob, and `update` or `record`. What is held in merged form only is
    one object of kind `merged`, where its places were.
    """
    done = _learn(subject, kept)
    secrets = _Secrets(done.values(), _held(kept))
    for image in kept.image.streams:
        if image.covers_seq or image.document:
            yield _merged(image)
        for entry in image.entries:
            body = _body(entry, done.get(_key(entry)), secrets)
            yield {**_head(kept, entry, "counted"), **body}
        for standing, asides in (("set_aside", image.set_aside), ("quarantined", image.quarantined)):
            for aside in asides:
                yield {**_head(kept, aside.entry, standing), "code": aside.code}


def _key(entry: Entry) -> _Key:
    return entry.stream, entry.writer, entry.writer_seq


def _merged(image: StreamImage) -> _Line:
    return {
        "stream": split_stream(image.stream)[1].value,
        "kind": "merged",
        "covers_place": image.covers_seq,
        "size_bytes": len(image.document),
    }


def _head(kept: Kept, entry: Entry, standing: str) -> _Line:
    blob: JsonValue = None
    if entry.blob is not None:
        blob = {"sha256": entry.blob, "size_bytes": kept.blob_bytes.get(entry.blob)}
    return {
        "stream": split_stream(entry.stream)[1].value,
        "place": entry.relay_seq,
        "writer": entry.writer,
        "writer_seq": entry.writer_seq,
        "device": entry.device,
        "vouched_by": entry.vouched_by,
        "at_ms": entry.at_ms,
        "kind": entry.kind.value,
        "standing": standing,
        "size_bytes": len(entry.payload),
        "blob": blob,
    }


def _body(entry: Entry, done: Done | None, secrets: "_Secrets") -> _Line:
    if entry.kind is EntryKind.UPDATE:
        return {"update": None if done is None else _update(done, secrets)}
    if entry.kind is EntryKind.SNAPSHOT:
        return {}
    try:
        found = decode_record(entry.kind, entry.payload)
    except EntryRefused:
        return {"record": None}
    record: dict[str, JsonValue] = msgspec.to_builtins(found)
    if isinstance(found, Held) and found.slot in secrets.names and found.value is not None:
        record["value"] = WITHHELD
    return {"record": {name: secrets.checked(value) for name, value in record.items()}}


def _update(done: Done, secrets: "_Secrets") -> _Line:
    slots, definitions = done.changes.slots, done.changes.slotdefs
    return {
        "set": [_write(key, text, secrets) for key, text in sorted(slots.items()) if text is not None],
        "deleted": [_named(key) for key, text in sorted(slots.items()) if text is None],
        "declared": [_named(key) for key, text in sorted(definitions.items()) if text is not None],
        "undeclared": [_named(key) for key, text in sorted(definitions.items()) if text is None],
        "notes": [
            {"note": name, "bytes_before": len(before.encode()), "bytes_after": len(after.encode())}
            for name, (before, after) in sorted(done.notes.items())
        ],
    }


def _named(key: str) -> _Line:
    name, _, write_id = key.partition("/")
    return {"slot": name, "write_id": write_id}


def _write(key: str, stored: str, secrets: "_Secrets") -> _Line:
    """A write with its value as canonical JSON text, so that no number is rounded; without it where it is secret."""
    named = _named(key)
    name, _, write_id = key.partition("/")
    candidate = decode_write(write_id, stored)
    if not candidate.readable:
        return {**named, "readable": False}
    told: _Line = {
        **named,
        "status": candidate.status.value,
        "n": candidate.n,
        "author": candidate.author,
        "source": secrets.checked(candidate.source),
    }
    return {**told, "secret": True} if name in secrets.names else {**told, "value_json": candidate.text}


def _held(kept: Kept) -> Iterator[Held]:
    """Yield the rulings that gave a held slot its value."""
    for image in kept.image.streams:
        for entry in image.entries:
            if entry.kind is EntryKind.RULING and isinstance(record := decode_record(entry.kind, entry.payload), Held):
                yield record


def _learn(subject: str, kept: Kept) -> Mapping[_Key, Done]:
    """Return what each update did, told by a scratch document."""
    learner = Learner(READER, genesis_update(subject, kept.image.task), ())
    found: dict[_Key, Done] = {}
    for entry, update in updates_in_order(kept):
        done = learner.learn(update)
        if done is not None:
            found[("", 0, 0) if entry is None else _key(entry)] = done
    return found


class _Secrets(SecretValues):
    """The slots that any definition ever called secret, and the values that they ever had."""

    def __init__(self, done: Iterable[Done], held: Iterable[Held]) -> None:
        super().__init__()
        everything = list(done)
        self.names = frozenset(
            key.partition("/")[0]
            for each in everything
            for key, text in each.changes.slotdefs.items()
            if text is not None and _is_secret(text)
        )
        for each in everything:
            for key, text in each.changes.slots.items():
                if text is not None and key.partition("/")[0] in self.names:
                    self.add(decode_write("", text).value)
        for ruling in held:
            if ruling.slot in self.names and ruling.value is not None:
                self.add(parse(ruling.value))


def _is_secret(stored: str) -> bool:
    definition = decode_definition(stored).definition
    return definition is not None and definition.secret
