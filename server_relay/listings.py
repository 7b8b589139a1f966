"""The answer to `ListTasks`: a page of a subject's tasks, cut where it would outgrow a frame."""

import msgspec

from server_relay.effects import ListingRead
from sync_core.frames import Listing, TaskListing
from sync_core.limits import FRAME_BYTES_MAX

__all__ = ["LISTED_STEPS_BYTES_MAX", "listing_frame"]

LISTED_STEPS_BYTES_MAX = 64 * 1024
"""Planned steps of one task that a listing shows, encoded bytes; further ones are seen by opening the task."""

_LISTING_BYTES_MAX = FRAME_BYTES_MAX // 2

_encode = msgspec.msgpack.Encoder().encode


def listing_frame(answer: ListingRead) -> Listing:
    """Return the page, cut where it would outgrow a frame."""
    tasks: list[TaskListing] = []
    size = 0
    for task in answer.tasks:
        listed = _bounded(task)
        size += len(_encode(listed))
        if tasks and size > _LISTING_BYTES_MAX:
            return Listing(answer.request, tuple(tasks), True)
        tasks.append(listed)
    return Listing(answer.request, tuple(tasks), answer.more)


def _bounded(task: TaskListing) -> TaskListing:
    """Return the task with as many of its planned steps as `LISTED_STEPS_BYTES_MAX` holds."""
    size = 0
    for count, step in enumerate(task.planned):
        size += len(_encode(step))
        if size > LISTED_STEPS_BYTES_MAX:
            return msgspec.structs.replace(task, planned=task.planned[:count])
    return task
