"""History: runs that never interleave, outputs behind their calls, pops that take exactly one."""

import itertools
import random
import time

import pytest

from sync_core.entry import Entry, HistoryItem, HistoryPop
from sync_core.errors import ValueRefused
from tests.sync_core.document.log import HISTORY, Device, assert_converged, devices, sync


def shown(device: Device) -> list[str | None]:
    return [entry.message for entry in device.document.view().history]


def pop(device: Device) -> HistoryPop | None:
    made = device.document.pop_history()
    if made is not None:
        device.record(made)
    return made


def test_messages_come_back_in_order() -> None:
    _, (a, b) = devices("a", "b")
    a.append('"1"', '"2"')
    a.append('"3"')
    sync(a, b)
    assert shown(b) == ['"1"', '"2"', '"3"']
    assert [(e.n, e.index) for e in b.document.view().history] == [(1, 0), (1, 1), (1, 2)]
    assert len({e.run for e in b.document.view().history}) == 1
    assert_converged(a, b)


def test_a_new_run_starts_behind_the_items_of_another() -> None:
    _, (a, b) = devices("a", "b")
    a.append('"a1"')
    sync(a, b)
    b.append('"b1"')
    sync(a, b)
    a.append('"a2"')
    sync(a, b)
    assert shown(a) == shown(b) == ['"a1"', '"b1"', '"a2"']
    assert [entry.n for entry in a.document.view().history] == [1, 2, 3]


def test_runs_of_two_devices_apart_do_not_interleave() -> None:
    for seed in range(20):
        _, (a, b) = devices("a", "b", seed=seed)
        for i in range(3):
            a.append(f'"a{i}"')
            b.append(f'"b{i}"')
        sync(a, b)
        assert_converged(a, b)
        assert "".join(message[1] for message in shown(a) if message) in ("aaabbb", "bbbaaa")


def test_a_reopened_device_starts_a_run_of_its_own() -> None:
    _, (a,) = devices("a")
    a.append('"1"')
    sync(a)
    a.reopen()
    a.append('"2"')
    runs = [entry.run for entry in a.document.view().history]
    assert len(set(runs)) == 2
    assert shown(a) == ['"1"', '"2"']


def test_ac_26_every_output_follows_its_call_and_runs_stay_together() -> None:
    for seed in range(20):
        _, (a, b) = devices("a", "b", seed=seed)
        a.append('"user"')
        (assistant,) = a.append('"call"')
        sync(a, b)
        b.append('"b1"', '"b2"')
        a.append('"output"', answers=f"{assistant}/0")
        sync(a, b)
        assert_converged(a, b)
        assert shown(a) == ['"user"', '"call"', '"output"', '"b1"', '"b2"']


def test_an_output_written_on_another_device_goes_to_its_calls_run() -> None:
    _, (a, b) = devices("a", "b")
    (assistant,) = a.append('"calls"')
    sync(a, b)
    b.append('"out 1"', answers=f"{assistant}/1")
    a.append('"out 0"', answers=f"{assistant}/0")
    sync(a, b)
    assert_converged(a, b)
    assert shown(a) == ['"calls"', '"out 0"', '"out 1"']
    assert len({entry.run for entry in a.document.view().history}) == 1
    a.append('"next"')
    assert shown(a)[-1] == '"next"'


def test_outputs_come_in_the_order_of_the_calls_also_beyond_ten() -> None:
    _, (a,) = devices("a")
    (assistant,) = a.append('"calls"')
    for index in (10, 2, 0):
        a.append(f'"{index}"', answers=f"{assistant}/{index}")
    assert shown(a) == ['"calls"', '"0"', '"2"', '"10"']


def test_two_outputs_of_one_step_show_once_the_same_everywhere() -> None:
    for seed in range(10):
        _, (a, b) = devices("a", "b", seed=seed)
        (assistant,) = a.append('"call"')
        sync(a, b)
        a.append('"from a"', answers=f"{assistant}/0")
        b.append('"from b"', answers=f"{assistant}/0")
        sync(a, b)
        assert_converged(a, b)
        assert len(shown(a)) == 2


def test_an_output_whose_call_is_not_there_keeps_its_own_place() -> None:
    _, (a,) = devices("a")
    a.append('"1"')
    a.append('"output"', answers="elsewhere/0")
    a.append('"other"', answers="pay")
    a.append('"2"')
    assert shown(a) == ['"1"', '"output"', '"other"', '"2"']


def test_an_output_that_arrives_before_its_call_moves_behind_it() -> None:
    _, (a,) = devices("a")
    a.record(HistoryItem("out", "r", 1, 0, '"out"', "call/0"))
    a.record(HistoryItem("between", "r", 1, 1, '"between"'))
    assert shown(a) == ['"out"', '"between"']
    a.record(HistoryItem("call", "r", 1, 2, '"call"'))
    assert shown(a) == ['"between"', '"call"', '"out"']


def test_outputs_that_answer_each_other_do_not_vanish() -> None:
    _, (a,) = devices("a")
    a.record(HistoryItem("x", "r", 1, 0, '"x"', "y/0"))
    a.record(HistoryItem("y", "r", 1, 1, '"y"', "x/0"))
    assert shown(a) == ['"x"', '"y"']


def test_a_step_has_one_output() -> None:
    _, (a,) = devices("a")
    with pytest.raises(ValueRefused):
        a.document.append_history(('"1"', '"2"'), "x/0")
    with pytest.raises(ValueRefused):
        a.document.append_history(('"1"',), "no step")


# --- pop --------------------------------------------------------------------------------------------------------------


def test_pop_removes_exactly_the_last_item_until_none_is_left() -> None:
    _, (a, b) = devices("a", "b")
    a.append('"1"', '"2"')
    assert pop(a) is not None
    assert shown(a) == ['"1"']
    assert pop(a) is not None
    assert pop(a) is None
    a.append('"3"')
    sync(a, b)
    assert shown(b) == ['"3"']
    assert_converged(a, b)


def test_two_pops_of_one_item_remove_one() -> None:
    _, (a, b) = devices("a", "b")
    a.append('"1"', '"2"')
    sync(a, b)
    pop(a)
    pop(b)
    sync(a, b)
    assert shown(a) == shown(b) == ['"1"']


def test_a_pop_that_arrives_before_its_item_removes_it() -> None:
    _, (a,) = devices("a")
    a.record(HistoryPop("late"))
    assert shown(a) == []
    a.record(HistoryItem("late", "r", 1, 0, '"late"'))
    assert shown(a) == []


def test_pop_takes_an_output_with_its_hidden_double_and_a_later_output_shows_again() -> None:
    _, (a, b) = devices("a", "b")
    (assistant,) = a.append('"call"')
    sync(a, b)
    a.append('"output"', answers=f"{assistant}/0")
    b.append('"output"', answers=f"{assistant}/0")
    sync(a, b)
    assert len(shown(a)) == 2
    pop(a)
    assert shown(a) == ['"call"']
    a.append('"again"', answers=f"{assistant}/0")
    sync(a, b)
    assert_converged(a, b)
    assert shown(b) == ['"call"', '"again"']


def test_an_output_stays_when_its_call_is_popped_on_another_device() -> None:
    _, (a, b) = devices("a", "b")
    (assistant,) = a.append('"call"')
    sync(a, b)
    a.append('"output"', answers=f"{assistant}/0")
    pop(b)
    sync(a, b)
    assert_converged(a, b)
    assert shown(a) == ['"output"']


# --- any order --------------------------------------------------------------------------------------------------------


def test_the_list_does_not_depend_on_the_order_in_which_entries_came() -> None:
    """Also where a peer reuses item ids."""
    log, (a, b, c) = devices("a", "b", "c")
    for device in (a, b, c):
        (assistant,) = device.append(f'"{device.name} calls"')
        device.append(f'"{device.name} output"', answers=f"{assistant}/0")
        device.record(HistoryItem("same", device.name, 1, 7, f'"{device.name}"'))
        device.push()
    first = next(entry for entry in c.document.view().history)
    c.record(HistoryPop(first.item))
    c.push()
    per_device: list[list[Entry]] = [[entry for entry in log.entries if entry.device == d.name] for d in (a, b, c)]
    lists, digests = [], set()
    for order in itertools.permutations(per_device):
        reader = Device("reader", random.Random(1), log)
        for entry in itertools.chain(*order):
            reader.document.merge(entry)
            reader.document.view()
        lists.append(reader.document.view().history)
        digests.add(reader.digest(HISTORY))
    assert all(each == lists[0] for each in lists)
    assert len(digests) == 1
    assert len(lists[0]) == 6


def test_the_list_after_each_step_is_that_of_a_document_built_anew() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        _, (a, b) = devices("a", "b", seed=seed)
        for step in range(25):
            device = rng.choice((a, b))
            shown_items = [entry.item for entry in device.document.view().history]
            choice = rng.random()
            if choice < 0.35:
                device.append(*(f'"{step}.{i}"' for i in range(rng.randint(1, 3))))
            elif choice < 0.7 and shown_items:
                calls = [entry.item for entry in device.document.view().history if entry.answers is None]
                target = rng.choice([*calls[-1:], *calls[-1:], *shown_items[:1], "none"])
                device.append(f'"{step}"', answers=f"{target}/{rng.choice([0, 1, 2, 10])}")
            elif choice < 0.8:
                pop(device)
            else:
                sync(a, b)
            fresh = device.fresh_document()
            entries = [
                entry for entry in (*device.own, *device.log.entries[: device.cursor]) if HISTORY in entry.stream
            ]
            rng.shuffle(entries)
            fresh.load(b"", entries)
            assert fresh.view().history == device.document.view().history
        sync(a, b)
        assert_converged(a, b)


def test_an_append_to_a_long_history_costs_no_new_ordering() -> None:
    def cost(items: int) -> float:
        _, (a,) = devices("a")
        a.append(*['"x"'] * items)
        best = 1.0
        for _ in range(20):
            start = time.process_time()
            (item,) = a.append('"call"')
            a.append('"output"', answers=f"{item}/0")
            a.document.view()
            best = min(best, time.process_time() - start)
        return best

    assert cost(4_000) < 6 * cost(40)


def test_a_message_in_a_blob_is_named_by_it() -> None:
    _, (a, b) = devices("a", "b")
    (item,) = a.document.append_history(('"large"',), None)
    a.record(HistoryItem(item.item, item.run, item.n, item.index, None, item.answers), blob="e" * 64)
    sync(a, b)
    assert [(entry.message, entry.blob) for entry in b.document.view().history] == [(None, "e" * 64)]
    assert_converged(a, b)
