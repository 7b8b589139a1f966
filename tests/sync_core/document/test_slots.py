"""Slots: the register with read tokens, alone and between devices."""

import itertools

import pytest

from sync_core.document.slots import (
    Candidate,
    CandidateStatus,
    SlotDefinition,
    SlotState,
    StoredDefinition,
    decode_write,
    derive_slot,
    encode_write,
)
from sync_core.errors import TooLarge, ValueRefused
from sync_core.limits import SLOT_VALUE_BYTES_MAX
from sync_core.values import canonical
from tests.sync_core.document.log import CONFIRMED, PROPOSED, assert_converged, devices, sync


def write(write_id: str, text: str, status: CandidateStatus = CONFIRMED, n: int = 1, **more: object) -> Candidate:
    return Candidate(write_id, text, status, n, "phone", None, 1, **more)  # type: ignore[arg-type]


def state_of(*writes: Candidate) -> SlotState:
    return derive_slot("x", writes, {}, False).state


# --- derivation -------------------------------------------------------------------------------------------------------


def test_a_slot_without_writes_is_missing() -> None:
    assert state_of() is SlotState.MISSING


def test_one_value_is_proposed_or_confirmed() -> None:
    assert state_of(write("a", "1", PROPOSED)) is SlotState.PROPOSED
    assert state_of(write("a", "1")) is SlotState.CONFIRMED


def test_several_values_of_one_rank_conflict() -> None:
    assert state_of(write("a", "1", PROPOSED), write("b", "2", PROPOSED)) is SlotState.CONFLICTED
    assert state_of(write("a", "1"), write("b", "2")) is SlotState.CONFLICTED


def test_equal_values_agree() -> None:
    slot = derive_slot("x", [write("a", "1", n=2), write("b", "1", n=1)], {}, False)
    assert slot.state is SlotState.CONFIRMED
    assert [candidate.write_id for candidate in slot.candidates] == ["a"]
    assert slot.token == {"a", "b"}


def test_one_point_zero_true_and_one_are_three_values() -> None:
    slot = derive_slot("x", [write("a", "1"), write("b", "1.0"), write("c", "true")], {}, False)
    assert slot.state is SlotState.CONFLICTED
    assert len(slot.candidates) == 3


def test_confirmed_outranks_proposed_and_proposals_are_listed_apart() -> None:
    slot = derive_slot("x", [write("a", "1"), write("b", "2", PROPOSED, n=9), write("c", "3", PROPOSED)], {}, False)
    assert slot.state is SlotState.CONFIRMED
    assert slot.value == 1
    assert [candidate.value for candidate in slot.proposals] == [2, 3]


def test_a_proposal_of_the_confirmed_value_is_no_proposal_beside_it() -> None:
    slot = derive_slot("x", [write("a", "1"), write("b", "1", PROPOSED, n=9)], {}, False)
    assert [candidate.write_id for candidate in slot.candidates] == ["a"]
    assert slot.proposals == ()


def test_candidates_come_highest_number_first_and_never_by_clock() -> None:
    old = Candidate("a", "1", CONFIRMED, 7, "phone", None, 10)
    new = Candidate("b", "2", CONFIRMED, 3, "pc", None, 99_999)
    assert derive_slot("x", [new, old], {}, False).candidates == (old, new)


def test_an_unreadable_candidate_is_shown_and_makes_a_conflict() -> None:
    unreadable = write("u", "?", readable=False)
    for others in ([], [write("a", "1")], [write("a", "1", PROPOSED)]):
        slot = derive_slot("x", [unreadable, *others], {}, False)
        assert slot.state is SlotState.CONFLICTED
        assert unreadable in slot.candidates
        assert slot.value is None


def test_an_unreadable_candidate_is_never_grouped_with_another() -> None:
    slot = derive_slot(
        "x", [write("u", "1", readable=False), write("v", "1", readable=False), write("a", "1")], {}, False
    )
    assert {candidate.write_id for candidate in slot.candidates} == {"u", "v", "a"}


def test_a_conflicted_slot_has_no_value() -> None:
    assert derive_slot("x", [write("a", "1"), write("b", "2")], {}, False).value is None


def test_the_order_of_writes_does_not_matter() -> None:
    writes = [write("a", "1"), write("b", "2", PROPOSED), write("c", "1", n=4), write("d", "?", readable=False)]
    slots = [derive_slot("x", order, {}, False) for order in itertools.permutations(writes)]
    assert all(slot == slots[0] for slot in slots)


def test_the_definition_with_the_highest_number_then_key_is_shown() -> None:
    first, second = SlotDefinition("a?"), SlotDefinition("b?")
    stored = {"k1": StoredDefinition(2, first), "k2": StoredDefinition(1, second)}
    slot = derive_slot("x", [], stored, False)
    assert slot.definition == first
    assert slot.redefined
    stored["k2"] = StoredDefinition(2, second)
    assert derive_slot("x", [], stored, False).definition == second


def test_equal_definitions_of_two_devices_are_no_redefinition() -> None:
    stored = {"k1": StoredDefinition(1, SlotDefinition("a?")), "k2": StoredDefinition(1, SlotDefinition("a?"))}
    assert not derive_slot("x", [], stored, False).redefined


# --- what is stored ---------------------------------------------------------------------------------------------------

VALUES = [None, True, False, 0, -1, 2**63 - 1, 2**63, 10**400, 1.0, 1e300, 0.1, "", "größe 🙂", [], {}, {"a": [1, {}]}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_stored_value_comes_back_exactly(value: object) -> None:
    text = canonical(value)
    candidate = decode_write("w", encode_write(text, PROPOSED, 7, "phone", 'src "1"', 1_700_000_000_000))
    assert candidate == Candidate("w", text, PROPOSED, 7, "phone", 'src "1"', 1_700_000_000_000)
    assert type(candidate.value) is type(value)
    assert candidate.value == value


def test_what_is_stored_is_canonical_json() -> None:
    stored = encode_write('{"b":1}', CONFIRMED, 2, "phone", "scan", 3)
    assert stored == '{"a":"phone","n":2,"s":"scan","st":"c","t":3,"v":{"b":1}}'


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"a":"x","n":0,"st":"c","t":1,"v":1}',
        '{"a":"x","n":9007199254740993,"st":"c","t":1,"v":1}',
        '{"a":"x","n":1,"st":"?","t":1,"v":1}',
        '{"a":"x","n":1,"st":"c","t":-1,"v":1}',
        '{"a":"x","n":1,"st":"c","t":9007199254740992,"v":1}',
        '{"a":"\\u001b[2J","n":1,"st":"c","t":1,"v":1}',
        '{"a":"x","n":1,"st":"c","t":1,"v":NaN}',
        '{"a":"x","n":1,"st":"c","t":1,"v":1E99999999999999999999}',
        '{"a":"x","n":1,"st":"c","t":1,"v":"\\ud800"}',
        '{"a":"x","n":1,"st":"c","t":1,"v":' + "9" * 5_000 + "}",
        '{"a":"x","n":1,"st":"c","t":1,"v":"' + "x" * 5_000 + '"}',
        '{"a":"x","n":1,"st":"c","t":1,"v":' + "[" * 34 + "]" * 34 + "}",
        '{"a":"x","n":1,"st":"c","t":1,"v":' + "[" * 3_000 + "]" * 3_000 + "}",
    ],
)
def test_anything_else_is_unreadable_and_kept_as_it_is(stored: str) -> None:
    candidate = decode_write("w", stored)
    assert not candidate.readable
    assert candidate.text == stored
    assert candidate.value is None


def test_a_value_that_is_not_canonical_is_grouped_by_its_canonical_text() -> None:
    candidate = decode_write("w", '{"a":"x","n":1,"st":"c","t":1,"v":{ "b" : 1, "a":"\\u0041" } }')
    assert candidate.text == '{"a":"A","b":1}'


@pytest.mark.parametrize(("at_ms", "kept"), [(-5, 0), (10**18, 253_402_300_799_999)])
def test_a_time_that_cannot_be_shown_is_moved_to_one_that_can(at_ms: int, kept: int) -> None:
    assert decode_write("w", encode_write("1", CONFIRMED, 1, "phone", None, at_ms)).at_ms == kept


def test_a_value_over_the_bound_is_refused_by_its_bytes() -> None:
    encode_write('"' + "x" * (SLOT_VALUE_BYTES_MAX - 2) + '"', CONFIRMED, 1, "phone", None, 1)
    with pytest.raises(TooLarge):
        encode_write('"' + "x" * (SLOT_VALUE_BYTES_MAX - 1) + '"', CONFIRMED, 1, "phone", None, 1)
    with pytest.raises(TooLarge, match="ASCII counts as 6 bytes"):
        encode_write(canonical("日" * 1_000), CONFIRMED, 1, "phone", None, 1)
    with pytest.raises(TooLarge):
        encode_write("1", CONFIRMED, 1, "phone", "x" * 9_000, 1)
    with pytest.raises(ValueRefused):
        encode_write("1", CONFIRMED, 1, "phone", "\ud800", 1)
    for source in (5, 1.5, ["a"], {"a": 1}, True):
        with pytest.raises(ValueRefused, match="source"):
            encode_write("1", CONFIRMED, 1, "phone", source, 1)  # type: ignore[arg-type]


def test_the_repr_of_a_candidate_does_not_show_its_value() -> None:
    assert "hunter2" not in repr(derive_slot("x", [write("a", '"hunter2"')], {}, True))


# --- read tokens ------------------------------------------------------------------------------------------------------


def test_a_write_deletes_only_what_its_caller_has_read() -> None:
    _, (phone, pc) = devices("phone", "pc")
    phone.confirm("budget", "1")
    sync(phone, pc)
    read = pc.document.slot("budget").token
    phone.confirm("budget", "2")
    sync(phone, pc)
    pc.confirm("budget", "3", read)
    assert pc.document.slot("budget").state is SlotState.CONFLICTED
    assert sorted(c.text for c in pc.document.slot("budget").candidates) == ["2", "3"]


def test_a_write_without_a_token_deletes_nothing() -> None:
    _, (phone,) = devices("phone")
    phone.confirm("budget", "1")
    phone.confirm("budget", "2", frozenset())
    assert phone.document.slot("budget").state is SlotState.CONFLICTED


def test_a_proposal_deletes_only_proposals_of_its_token() -> None:
    _, (phone,) = devices("phone")
    phone.confirm("budget", "1")
    phone.propose("budget", "2")
    phone.propose("budget", "3")
    slot = phone.document.slot("budget")
    assert (slot.state, slot.value) == (SlotState.CONFIRMED, 1)
    assert [candidate.text for candidate in slot.proposals] == ["3"]


def test_a_confirmation_deletes_proposals_and_confirmed_values_of_its_token() -> None:
    _, (phone,) = devices("phone")
    phone.confirm("budget", "1")
    phone.propose("budget", "2")
    phone.confirm("budget", "3")
    slot = phone.document.slot("budget")
    assert len(slot.token) == 1
    assert slot.value == 3


def test_a_concurrent_write_survives_a_clear() -> None:
    _, (phone, pc) = devices("phone", "pc")
    phone.confirm("budget", "1")
    sync(phone, pc)
    phone.update(phone.document.clear_slot("budget", phone.document.slot("budget").token))
    pc.confirm("budget", "2")
    sync(phone, pc)
    assert_converged(phone, pc)
    assert phone.document.slot("budget").value == 2


def test_clearing_what_is_not_there_writes_nothing() -> None:
    _, (phone,) = devices("phone")
    assert phone.document.clear_slot("budget", frozenset({"0" * 16})) == b""


def test_lamport_numbers_go_up_from_the_highest_seen_in_the_slot() -> None:
    _, (phone, pc) = devices("phone", "pc")
    phone.confirm("budget", "1")
    phone.confirm("budget", "2")
    phone.confirm("other", "1")
    sync(phone, pc)
    pc.confirm("budget", "3")
    assert pc.document.slot("budget").candidates[0].n == 3
    assert pc.document.slot("other").candidates[0].n == 1


def test_a_lower_number_that_arrives_later_does_not_lower_the_next_one() -> None:
    _, (phone, pc) = devices("phone", "pc")
    pc.confirm("budget", "0")
    for amount in "123":
        phone.confirm("budget", amount)
    sync(phone, pc)
    phone.confirm("budget", "4")
    assert phone.document.slot("budget").candidates[0].n == 4
