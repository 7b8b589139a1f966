"""The table of a task's parts: whole, without contradiction, and found by path."""

import pytest

from sync_core.entry import EntryKind
from sync_core.errors import ValueRefused
from sync_core.ids import StreamName
from sync_core.parts import KINDS_OF_STREAM, PARTS, WRITERS, Role, part_of, role_named, roles_of


def test_every_kind_belongs_to_a_stream_and_rulings_belong_to_the_authoritys_alone() -> None:
    assert frozenset().union(*KINDS_OF_STREAM.values()) == set(EntryKind)
    assert set(KINDS_OF_STREAM) == set(StreamName)
    assert EntryKind.RULING in KINDS_OF_STREAM[StreamName.AUTHORITY]
    assert not any(EntryKind.RULING in kinds for name, kinds in KINDS_OF_STREAM.items() if name != "authority")


def test_every_part_has_its_own_name_and_parts_of_one_kind_have_the_same_roles() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)
    for part in PARTS:
        assert part.roles == roles_of(part.kind)
        assert part.owner.endswith(".")
        assert part.merge.endswith(".")


def test_readers_write_nothing_approvals_are_for_two_roles_and_rulings_for_none() -> None:
    assert not any(Role.READ in part.roles for part in PARTS)
    assert roles_of(EntryKind.APPROVAL) == {Role.APPROVE, Role.ADMIN}
    assert roles_of(EntryKind.RULING) == frozenset()
    others = set(EntryKind) - {EntryKind.APPROVAL, EntryKind.RULING}
    assert all(roles_of(kind) == WRITERS for kind in others)


@pytest.mark.parametrize(
    ("path", "name", "item"),
    [
        ("slots/amount", "slots", "amount"),
        ("notes/worklog", "notes", "worklog"),
        ("calls/0123456789abcdef/0", "calls", "0123456789abcdef/0"),
        ("plan/scan", "plan", "scan"),
        ("history", "history", ""),
        ("handover", "handover", ""),
        ("version", "version", ""),
        ("completion", "completion", ""),
        ("approvals", "approvals", ""),
    ],
)
def test_a_path_names_its_part(path: str, name: str, item: str) -> None:
    part, found = part_of(path)
    assert (part.name, found) == (name, item)


@pytest.mark.parametrize(
    "path", ["", "slots", "slots/", "slots/a.b", "history/1", "history/", "notes/handover", "x", "calls/", "Slots/a", 5]
)
def test_what_names_no_part_is_refused(path: str) -> None:
    with pytest.raises(ValueRefused):
        part_of(path)


def test_a_role_that_this_program_does_not_know_is_none() -> None:
    assert [role_named(role.value) for role in Role] == list(Role)
    assert role_named("emperor") is None
