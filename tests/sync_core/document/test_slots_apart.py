"""Slots between devices: the scenarios, a model, and every order."""

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sync_core.document.slots import CandidateStatus, SlotState
from sync_core.entry import Entry
from tests.sync_core.document.log import CONFIRMED, PROPOSED, Device, assert_converged, devices, sync


def test_ac_02_chat_text_is_not_state() -> None:
    _, (phone, pc) = devices("phone", "pc")
    phone.declare("cost_center", required=True)
    phone.append('{"content":"The cost centre is CC-1042.","role":"user"}')
    sync(phone, pc)
    assert pc.document.slot("cost_center").state is SlotState.MISSING
    phone.confirm("cost_center", '"CC-1042"')
    sync(phone, pc)
    assert pc.document.slot("cost_center").value == "CC-1042"


@pytest.mark.parametrize("first", [0, 1])
def test_ac_11_two_values_while_apart_conflict_on_both_ends(first: int) -> None:
    for seed in range(100):
        _, (phone, pc) = devices("phone", "pc", seed=seed)
        phone.confirm("cost_center", '"CC-1042"', at_ms=9)
        pc.confirm("cost_center", '"CC-2000"', at_ms=3)
        sync(*(phone, pc)[:: 1 if first else -1])
        assert_converged(phone, pc)
        slot = phone.document.slot("cost_center")
        assert slot.state is SlotState.CONFLICTED
        shown = {(candidate.value, candidate.author, candidate.at_ms) for candidate in slot.candidates}
        assert shown == {("CC-1042", "phone", 9), ("CC-2000", "pc", 3)}


def test_ac_13_different_slots_merge_silently() -> None:
    _, (phone, pc) = devices("phone", "pc")
    phone.confirm("cost_center", '"CC-1042"')
    pc.confirm("currency", '"EUR"')
    sync(phone, pc)
    assert_converged(phone, pc)
    assert {slot.state for slot in phone.document.view().slots.values()} == {SlotState.CONFIRMED}


def test_se_29_a_late_joiner_sees_the_same_conflict_and_its_resolution() -> None:
    for seed in range(200):
        _, (a, b, late) = devices("a", "b", "late", seed=seed)
        a.confirm("budget", "100")
        b.confirm("budget", "200")
        sync(a, b)
        late.pull()
        assert_converged(a, b, late)
        assert late.document.slot("budget").state is SlotState.CONFLICTED
        stale = frozenset(sorted(a.document.slot("budget").token)[:1])
        a.confirm("budget", "300", stale)
        sync(a, b, late)
        assert late.document.slot("budget").state is SlotState.CONFLICTED
        late.confirm("budget", "400")
        sync(a, b, late)
        assert_converged(a, b, late)
        assert a.document.slot("budget").value == 400


def test_two_resolutions_at_once_conflict_again() -> None:
    _, (a, b) = devices("a", "b")
    a.confirm("budget", "1")
    b.confirm("budget", "2")
    sync(a, b)
    a.confirm("budget", "3")
    b.confirm("budget", "4")
    sync(a, b)
    assert_converged(a, b)
    assert sorted(c.text for c in a.document.slot("budget").candidates) == ["3", "4"]


# --- against a model --------------------------------------------------------------------------------------------------

STEPS = ["read", "confirm", "propose", "clear", "push", "pull", "pull", "reopen"]
step = st.tuples(st.sampled_from(STEPS), st.integers(0, 4), st.sampled_from(["a", "b"]), st.integers(0, 6))


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(3, 5), st.lists(step, max_size=40), st.integers(0, 2**32))
def test_devices_with_stale_tokens_agree_with_a_model(
    count: int, script: list[tuple[str, int, str, int]], seed: int
) -> None:
    """The model: a write is gone if and only if some write or clear whose caller had read it says so."""
    log, these = devices(*(f"device{i}" for i in range(count)), seed=seed)
    read: list[dict[str, frozenset[str]]] = [{} for _ in these]
    made: dict[tuple[str, str], CandidateStatus] = {}
    gone: set[tuple[str, str]] = set()
    for action, index, slot, amount in script:
        device, tokens = these[index % count], read[index % count]
        token = tokens.get(slot, frozenset())
        if action == "read":
            tokens[slot] = device.document.slot(slot).token
        elif action in ("confirm", "propose"):
            before = device.document.slot(slot).token
            status = CONFIRMED if action == "confirm" else PROPOSED
            device.update(device.document.write_slot(slot, str(amount), status, token, None, 1))
            after = device.document.slot(slot).token
            made.update(((slot, fresh), status) for fresh in after - before)
            gone |= {(slot, w) for w in token if status is CONFIRMED or made[slot, w] is PROPOSED}
            tokens[slot] = after & (token | (after - before))
        elif action == "clear":
            device.update(device.document.clear_slot(slot, token))
            gone |= {(slot, w) for w in token}
        elif action == "push":
            device.push()
        elif action == "pull":
            device.pull(min(len(log.entries), device.cursor + amount))
        else:
            device.reopen()
    sync(*these)
    assert_converged(*these)
    for slot in ("a", "b"):
        want = {write_id for (name, write_id) in made if name == slot} - {w for (name, w) in gone if name == slot}
        assert these[0].document.slot(slot).token == want


def test_se_09_all_orders_of_independent_writes_give_one_view_digest_and_bytes() -> None:
    log, writers = devices("a", "b", "c", "d")
    for index, device in enumerate(writers):
        device.confirm("budget", str(index))
        device.update(device.document.write_note("worklog", f"line {index}\n", None))
        device.push()
    entries: list[list[Entry]] = [[], [], [], []]
    for entry in log.entries:
        entries[[d.document.writer for d in writers].index(entry.writer)].append(entry)
    outcomes = []
    for order in itertools.permutations(range(4)):
        reader = Device("reader", random.Random(5), log)
        for index in order:
            for entry in entries[index]:
                reader.document.merge(entry)
        outcomes.append((reader.document.view(), reader.digest(), reader.document.state_bytes()))
    assert len(outcomes[0][0].slots["budget"].candidates) == 4
    assert all(outcome == outcomes[0] for outcome in outcomes)
