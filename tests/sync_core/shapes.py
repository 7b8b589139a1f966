"""Hostile updates by name: what RS-27 and RS-28 send, and what rule D forbids (RS-29).

`ME` writes next at clock 10; the stream holds clocks 0..19 of `VICTIM` and none of `STRANGER`.
"""

from sync_core.limits import PAYLOAD_BYTES_MAX, SCAN_IDS_MAX, SCAN_STRUCTS_MAX, SLOT_WRITE_BYTES_MAX
from tests.sync_core.updates import genesis, item, note, number, section, slot, text, update

ME, VICTIM, STRANGER = 7_000_007, 8_000_008, 9_000_009
GOOD = update(section(ME, 10, slot()))
KEY = "a/0123456789abcdef"


def mine(*structs: bytes) -> bytes:
    return update(section(ME, 10, *structs))


def slot_of(content: bytes) -> bytes:
    return mine(item(content, 8, root="slots", key=KEY))


SHAPES: dict[str, bytes] = {
    "claims 2^32 ids": number(2**32) + b"\x00",
    "claims 2^32 structs": b"\x01" + number(2**32) + number(ME) + number(10),
    "claims 2^53 structs": b"\x01" + number(2**53) + number(ME) + number(10),
    "garbage-collected block of 2^31": mine(b"\x00" + number(2**31)),
    "garbage-collected block of 2^32-1": mine(b"\x00" + number(2**32 - 1)),
    "garbage-collected block of 1": mine(b"\x00\x01"),
    "skip block of 2^31": mine(b"\x0a" + number(2**31)),
    "skip block of 1": mine(b"\x0a\x01"),
    "clock near 2^32": update(section(ME, 2**32 - 2, note("x"))),
    "deleted text of 2^32": mine(item(number(2**32), 1)),
    "delete set claims 2^31 ranges": b"\x00\x01" + number(ME) + number(2**31),
    "delete set claims 2^40 ids": b"\x00" + number(2**40),
    "delete range of 2^32-1": update(deletes=[(ME, 0, 2**32 - 1)]),
    "string claims 2^31 bytes": mine(b"\x04\x01" + text("note:a") + number(2**31)),
    "values claim 2^31": slot_of(number(2**31)),
    "arrays nested 90,000 deep": slot_of(b"\x01" + b"\x75\x01" * 90_000 + b"\x7e"),
    "objects nested 60,000 deep": slot_of(b"\x01" + b"\x76\x01\x00" * 60_000 + b"\x7e"),
    "arrays nested a million deep": slot_of(b"\x01" + b"\x75\x01" * 1_000_000 + b"\x7e"),
    "one-character deletes": b"\x00\x01"
    + number(ME)
    + number(20_000)
    + b"".join(number(i) + b"\x01" for i in range(20_000)),
    "too many ids": update(*(section(ME + i, 0, note("x")) for i in range(SCAN_IDS_MAX + 1))),
    "too many structs": mine(*[note("x", left=(ME, 1))] * (SCAN_STRUCTS_MAX + 1)),
    "too large": mine(note("x" * PAYLOAD_BYTES_MAX)),
    "map item with an origin": mine(item(b"\x01\x77" + text("1"), 8 | 32, left=(VICTIM, 3))),
    "map item with an origin and no flag": mine(item(b"\x01\x77" + text("1"), 8, left=(VICTIM, 3))),
    "array item": mine(item(b"\x01\x77" + text("1"), 8, root="slots")),
    "text under a key": mine(item(text("x"), 4, root="slots", key=KEY)),
    "text under slots": mine(note("x", root="slots")),
    "text under an unknown root": mine(note("x", root="notes")),
    "text under meta": mine(note("x", root="meta")),
    "a note named handover": mine(note("x", root="note:handover")),
    "a note with a path for a name": mine(note("x", root="note:../x")),
    "a note without a name": mine(note("x", root="note:")),
    "a key under a note": mine(slot(root="note:a")),
    "a key under meta": mine(slot(root="meta", key="document")),
    "a key under an unknown root": mine(slot(root="slot")),
    "a key without a write id": mine(slot(key="cost_center")),
    "a key with a short write id": mine(slot(key="cost_center/0123")),
    "a key with a path": mine(slot(key="../x/0123456789abcdef")),
    "a key with a second line": mine(slot(key="a/0123456789abcdef\n")),
    "a number for a value": slot_of(b"\x01\x7d\x05"),
    "null for a value": slot_of(b"\x01\x7e"),
    "an object for a value": slot_of(b"\x01\x76\x00"),
    "bytes for a value": slot_of(b"\x01\x74\x01x"),
    "two values": slot_of(b"\x02\x77\x01x\x77\x01x"),
    "no value": slot_of(b"\x00"),
    "a value that is too large": slot_of(b"\x01\x77" + text("x" * (SLOT_WRITE_BYTES_MAX + 1))),
    "two clocks deleted under one key": mine(item(b"\x02", 1, root="slots", key=KEY)),
    "a nested map": mine(item(b"\x01", 7, root="slots", key=KEY)),
    "a nested text": mine(item(b"\x02", 7)),
    "an XML element": mine(item(b"\x03" + text("p"), 7)),
    "an item of a nested parent": mine(b"\x04\x00" + number(VICTIM) + b"\x03" + text("x")),
    "a nested parent that reads like a note": mine(b"\x04\x00" + text("note:a") + text("x")),
    "a format": mine(item(text("bold") + text("true"), 6)),
    "an embed": mine(item(text("{}"), 5)),
    "a subdocument": mine(item(text("guid") + b"\x76\x00", 9)),
    "binary": mine(item(text(b"\x00"), 3)),
    "JSON of the old format": mine(item(b"\x01" + text("1"), 2)),
    "a move": mine(item(b"\x00\x00", 11)),
    "an unknown kind": mine(item(b"\x01", 17)),
    "an empty text": mine(note("")),
    "an empty deletion of text": mine(item(b"\x00", 1)),
    "text that is not UTF-8": mine(item(text(b"\xff\xfe"), 4)),
    "a lone surrogate": mine(item(text(b"\xed\xa0\x80"), 4)),
    "a root that is not UTF-8": mine(b"\x04\x01" + text(b"note:\xff") + text("x")),
    "a section without structs": update(section(ME, 10)),
    "a second section of one id": update(section(ME, 10, note("x")), section(ME, 11, note("x"))),
    "a delete set without ranges": b"\x00\x01" + number(ME) + b"\x00",
    "a second delete set of one id": update(deletes=[(ME, 0, 1), (ME, 1, 1)]),
    "an empty delete range": update(deletes=[(ME, 0, 0)]),
    "an id beyond 53 bits": update(section(2**53, 0, note("x"))),
    "an origin beyond 53 bits": mine(note("x", left=(2**53, 0))),
    "a delete set beyond 53 bits": update(deletes=[(2**53, 0, 1)]),
    "a number of nine bytes": b"\xff" * 8 + b"\x01" + b"\x00",
    "a clock of nine bytes": b"\x01\x01" + number(ME) + b"\x8a" + b"\x80" * 7 + b"\x00" + note("x") + b"\x00",
    "a number without an end": b"\xff" * 1_000,
    "hangs on itself": mine(note("x", left=(ME, 10))),
    "hangs on its own future": mine(note("x", left=(ME, 11)), note("x", left=(ME, 1))),
    "cuts its own character in two": mine(note("a😀b"), note("x", left=(ME, 11))),
    "deletes half of its own character": update(section(ME, 10, note("😀")), deletes=[(ME, 10, 1)]),
    "names the genesis in an origin": mine(note("x", left=(1, 0))),
    "names the genesis in the delete set": update(deletes=[(1, 0, 1)]),
    "writes as the genesis": update(section(1, 2, slot())),
    "is the genesis": genesis(),
    "ends too early": GOOD[:-3],
    "goes on after its end": GOOD + b"\x00",
    "nothing": b"",
    "a text frame": b"hello, relay",
}


RULE_D = {
    "a block in a victim's id": update(section(VICTIM, 20, b"\x00\x05")),
    "text in a victim's id": update(section(VICTIM, 20, note("x"))),
    "text in its own and in a victim's id": update(section(ME, 10, note("x")), section(VICTIM, 20, note("x"))),
    "a hole": update(section(ME, 11, note("x"))),
    "far ahead": update(section(ME, 50, note("x"))),
    "an overlap": update(section(ME, 9, note("xy"))),
    "its own past": update(section(ME, 0, note("x"))),
    "delete-ahead of a victim": update(deletes=[(VICTIM, 20, 1)]),
    "delete-ahead that starts in the past": update(deletes=[(VICTIM, 19, 2)]),
    "delete-ahead of an id that nobody used": update(deletes=[(STRANGER, 0, 1)]),
    "delete-ahead of itself": update(section(ME, 10, note("x")), deletes=[(ME, 10, 2)]),
    "an origin in a victim's future": mine(note("x", left=(VICTIM, 20))),
    "a right origin in a victim's future": mine(note("x", left=(VICTIM, 3), right=(VICTIM, 21))),
    "an origin of an id that nobody used": mine(note("x", left=(STRANGER, 0))),
}
