"""Crash points: due once, for the code inside only."""

import asyncio

from sync_core.endpoint.points import CallPoint, armed, due


def test_a_point_is_due_once_and_only_the_one_that_was_armed() -> None:
    assert not due(CallPoint.AFTER_EFFECT)
    with armed(CallPoint.AFTER_EFFECT):
        assert not due(CallPoint.AFTER_INTENT)
        assert due(CallPoint.AFTER_EFFECT)
        assert not due(CallPoint.AFTER_EFFECT)
    assert not due(CallPoint.AFTER_EFFECT)


async def test_a_point_is_due_in_tasks_started_inside_and_not_in_others() -> None:
    async def ask() -> bool:
        return due(CallPoint.AFTER_RECORD)

    outside = asyncio.create_task(ask())
    with armed(CallPoint.AFTER_RECORD):
        inside = asyncio.create_task(ask())
    assert not await outside
    assert await inside
