"""Watching a task."""

import asyncio

import pytest

from sync_core.endpoint.changes import CHANGES_WAITING_MAX, Changes
from sync_core.errors import Refused
from sync_core.replica.changes import HistoryChanged, Resync, VersionChanged

TASK = "expense/TRIP-118"


def _change(number: int) -> VersionChanged:
    return VersionChanged(TASK, number, local=True)


async def test_each_change_comes_once_in_order() -> None:
    changes = Changes(TASK)
    changes.put((_change(1), _change(2)))
    changes.put((_change(3),))
    changes.end()
    assert [change async for change in changes] == [_change(1), _change(2), _change(3)]


async def test_a_watcher_waits_for_the_next_change() -> None:
    changes = Changes(TASK)
    waiting = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    assert not waiting.done()
    changes.put((HistoryChanged(TASK, local=False),))
    assert await waiting == HistoryChanged(TASK, local=False)


async def test_of_two_who_wait_at_one_iterator_each_change_goes_to_one_and_the_other_waits_on() -> None:
    changes = Changes(TASK)
    waiting = [asyncio.ensure_future(anext(changes)) for _ in range(2)]
    await asyncio.sleep(0)
    changes.put((_change(1),))
    for _ in range(3):
        await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [True, False]
    changes.put((_change(2),))
    assert [await one for one in waiting] == [_change(1), _change(2)]
    changes.end()
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def test_a_watcher_that_is_too_slow_gets_one_resync_and_then_what_follows() -> None:
    changes = Changes(TASK)
    for number in range(CHANGES_WAITING_MAX + 1):
        changes.put((_change(number),))
    changes.put((_change(7),))
    changes.end()
    assert [change async for change in changes] == [Resync(TASK), _change(7)]


async def test_what_ended_it_is_raised_after_what_waited_and_again() -> None:
    changes = Changes(TASK)
    changes.put((_change(1),))
    changes.end(Refused("The relay refused this device."))
    changes.put((_change(2),))
    changes.end()
    assert await anext(changes) == _change(1)
    for _ in range(2):
        with pytest.raises(Refused):
            await anext(changes)
