"""Rulings: the guard knows whose they are."""

import msgspec
import pytest

from sync_core.entry import Entry, EntryKind, encode_record
from sync_core.errors import EntryRefused
from sync_core.guard import check_entry
from sync_core.ids import AUTHORITY_DEVICE
from sync_core.rulings import Approval, Held

WRITER = 9_000_009


def test_a_ruling_is_of_the_authoritys_device_and_nothing_else_is() -> None:
    stream = "a:authority"
    ruling = encode_record(Held("budget", "anna", "phone"))
    approval = encode_record(Approval("pay", 1, "pay", "d", True))
    good = Entry(stream, WRITER, 1, EntryKind.RULING, ruling, AUTHORITY_DEVICE)
    assert check_entry(good, {})[0].device == AUTHORITY_DEVICE
    assert check_entry(Entry(stream, WRITER, 1, EntryKind.APPROVAL, approval, "phone"), {})[0].next_seq == 2
    for bad in (
        msgspec.structs.replace(good, device="phone"),
        Entry(stream, WRITER, 1, EntryKind.APPROVAL, approval, AUTHORITY_DEVICE),
        Entry("a:state", WRITER, 1, EntryKind.RULING, ruling, AUTHORITY_DEVICE),
    ):
        with pytest.raises(EntryRefused):
            check_entry(bad, {})
