"""A purge by the operator: which tasks that is, and the same end for them whether the relay runs or not.

A relay that runs ends them itself, so that whoever follows one is told; without one the store is written here. Either
way a tombstone stays, devices drop what they hold when they come, and a key of a call that runs or is in doubt stays.
"""

import json
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from server_relay.clock import RelayClock
from server_relay.command.control import Purged
from server_relay.effects import ListingRead, LoadTask, ReadListing, TaskLoaded
from server_relay.lifetimes import purge_as_ordered
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.sessions import Turn
from server_relay.streams import TaskLog
from sync_core.errors import TaskNotFound, ValueRefused
from sync_core.ids import check_name, check_task

__all__ = ["End", "Purge", "end_in_store", "purge"]

_TASKS_AT_ONCE = 64

End = Callable[[Sequence[tuple[str, str]]], Awaitable[None]]
"""Purges tasks by (subject, task), and returns once that is durable."""


class Purge(msgspec.Struct, frozen=True):
    """What to purge: one task of a subject, or all of them without. Nothing is done before it is `confirmed`."""

    subject: str
    task: str | None
    confirmed: bool

    @classmethod
    def parsed(cls, text: str) -> "Purge":
        """Return what `as_text` wrote; raises `ValueRefused` for anything else, and for names that are none."""
        try:
            wanted = msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            raise ValueRefused("The purge cannot be understood.") from None
        check_name(wanted.subject, "subject")
        if wanted.task is not None:
            check_task(wanted.task)
        return wanted

    def as_text(self) -> str:
        """Return it as one line."""
        return json.dumps(msgspec.to_builtins(self))


async def purge(mailbox: SqliteMailbox, wanted: Purge, end: End) -> Purged:
    """Purge what is wanted, some tasks at a time; return how many there were. Raises `TaskNotFound` if none is."""
    tasks = 0
    page = await _page(mailbox, wanted, "")
    while page:
        if wanted.confirmed:
            await end([(wanted.subject, task) for task in page])
        tasks += len(page)
        page = await _page(mailbox, wanted, page[-1]) if wanted.task is None else []
    if not tasks:
        raise TaskNotFound("The relay has nothing of that.", hint="Check the subject's name and the task's key.")
    return Purged(tasks)


async def _page(mailbox: SqliteMailbox, wanted: Purge, after: str) -> list[str]:
    """Return the next keys of which anything is stored. A key comes before all others that begin with it."""
    most = _TASKS_AT_ONCE if wanted.task is None else 1
    (read,) = await mailbox.read([ReadListing(0, wanted.subject, 0, wanted.task or "", after, most)])
    assert isinstance(read, ListingRead)
    return [listed.task for listed in read.tasks if wanted.task in (None, listed.task)]


def end_in_store(mailbox: SqliteMailbox) -> End:
    """Return what ends tasks in the store of a relay that is stopped."""

    at_ms = 0

    async def end(keys: Sequence[tuple[str, str]]) -> None:
        nonlocal at_ms
        # Asking for the time counts the store, so once is enough.
        at_ms = at_ms or await _relay_time_ms(mailbox)
        turn = Turn(at_ms)
        for loaded in await mailbox.read([LoadTask(*key) for key in keys]):
            assert isinstance(loaded, TaskLoaded)
            log = TaskLog(loaded.image.subject, loaded.image.task, turn.now_ms)
            log.load(loaded.image)
            purge_as_ordered(turn, log)
        await mailbox.commit(turn.writes)

    return end


async def _relay_time_ms(mailbox: SqliteMailbox) -> int:
    stored_at_ms = (await mailbox.stats()).stored_at_ms
    wall_ms, mono_ms = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000
    return RelayClock(wall_ms, mono_ms, stored_at_ms=stored_at_ms, jump_ms_max=0).now_ms(wall_ms, mono_ms)
