"""Following tasks over the link: who says Hello, who may push, whose document may go.

Tasks share the link round-robin by frame. A task pushes only after the relay told its heads in this session, and what
was recovered from an earlier log only once the device has merged all that the new log already holds (rule J).
"""

from collections.abc import Iterable
from itertools import islice

from sync_core.frames import Hello, Push, StreamPosition
from sync_core.limits import HELLO_OWN_WRITERS_MAX
from sync_core.replica.core import Core
from sync_core.replica.session import SessionEvent
from sync_core.replica.stream import StreamReplica
from sync_core.replica.task import TaskReplica

__all__ = ["Following"]

_HELLOS_PENDING_MAX = 256


class Following:
    """The followed tasks' dealings with the relay in one session.

    A task is wanted until its Hello is said, pending until its heads are told, and catching up until they are reached.
    No event costs more than the tasks that it touched: thousands may be followed.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wanted: dict[str, TaskReplica] = {}
        self._pending: dict[str, TaskReplica] = {}
        self._catching_up: dict[str, TaskReplica] = {}
        self._idle: dict[str, TaskReplica] = {}

    def want(self, task: TaskReplica) -> None:
        """Ask the relay for the task's heads, and what lies above the cursors."""
        if self._core.session.logged_in:
            self._wanted[task.key] = task

    def on_heads(self, task: TaskReplica) -> None:
        """The relay answered."""
        self._pending.pop(task.key, None)

    def is_fresh(self, task: TaskReplica) -> bool:
        """Whether no further Hello is due for the task."""
        return task.key not in self._wanted and task.key not in self._pending

    def forget(self, task: TaskReplica) -> None:
        """The task is no longer followed."""
        for table in (self._wanted, self._pending, self._catching_up, self._idle):
            table.pop(task.key, None)

    def stop(self) -> None:
        """The session is over."""
        self._wanted.clear()
        self._pending.clear()
        self._catching_up.clear()

    def tick(self) -> None:
        """Ask again where no heads came, or not what lies below them."""
        now_ms, settings = self._core.now_ms, self._core.settings
        self._drop_caught_up(list(self._catching_up.values()))
        for task in list(self._catching_up.values()):
            if (task.key in self._pending or task.behind) and task.follow.is_stuck(now_ms, settings):
                self._pending.pop(task.key, None)
                task.follow.patience.lose()
                self.want(task)
        for task in list(self._idle.values()):
            self._unload(task)

    def pump(self, touched: dict[str, TaskReplica]) -> None:
        """Say Hello where wanted, then let the touched tasks push, one frame each in turn."""
        for task in touched.values():
            if task.follow.hello_again and self._core.session.logged_in and not task.loading:
                task.follow.hello_again = False
                self.want(task)
        self._say_hellos()
        ready = [task for task in touched.values() if self._may_push(task)]
        while ready:
            ready = [task for task in ready if self._push_one(task)]

    def judge(self, touched: Iterable[TaskReplica]) -> None:
        """Move the session between syncing and live."""
        session = self._core.session
        if not session.logged_in:
            return
        self._drop_caught_up(touched)
        caught_up = not self._wanted and not self._catching_up
        if session.is_live != caught_up:
            session.on(SessionEvent.CAUGHT_UP if caught_up else SessionEvent.BEHIND)

    def _drop_caught_up(self, tasks: Iterable[TaskReplica]) -> None:
        for task in tasks:
            if self.is_fresh(task) and task.follow.known is not None and not task.behind and not task.loading:
                self._catching_up.pop(task.key, None)

    def rest(self, touched: dict[str, TaskReplica]) -> None:
        """Give documents back that nobody needs: all but a few at once, those few at the next tick."""
        for task in touched.values():
            if task.document is not None and not task.needed:
                self._idle[task.key] = task
            else:
                self._idle.pop(task.key, None)
        for task in list(self._idle.values())[: -self._core.settings.loaded_idle_tasks_max]:
            self._unload(task)

    def _unload(self, task: TaskReplica) -> None:
        busy = task.has_held or not task.transfers.idle or (len(task.outbox) and self._core.session.logged_in)
        if not busy and not task.needed:
            task.unload()
        if task.document is None or task.needed:
            self._idle.pop(task.key, None)

    def _say_hellos(self) -> None:
        room = max(0, _HELLOS_PENDING_MAX - len(self._pending))
        for task in list(islice(self._wanted.values(), room)):
            if task.loading:
                continue
            if task.document is None and task.waiting:
                # What waits in the file names own writers: it is read first.
                task.reload()
                continue
            del self._wanted[task.key]
            self._pending[task.key] = self._catching_up[task.key] = task
            task.follow.hello_at_ms = self._core.now_ms
            task.follow.hello_number += 1
            for stream in task.streams.values():
                stream.hello_cursor = stream.cursor
            for page in _hello_pages(task):
                self._core.send(page)

    def _may_push(self, task: TaskReplica) -> bool:
        if not self._core.session.logged_in or task.follow.known is None or task.document is None or task.loading:
            return False
        if task.key in self._wanted or task.key in self._pending:
            return task.follow.pushed
        if (task.must_bring_back or task.outbox.recovered) and not self._core.session.may_write:
            # The role says nothing about work that is brought back: it waits until this device may write again.
            return False
        if task.must_bring_back:
            task.agenda.bring_back = not task.behind
            if task.agenda.bring_back:
                task.reload()
            return False
        return not (task.outbox.recovered and task.behind)

    def _push_one(self, task: TaskReplica) -> bool:
        task.follow.pushed = True
        blob = task.outbox.next_blob() or next(iter(sorted(task.transfers.uploads)), None)
        if blob is not None:
            task.transfers.push(blob)
        recovered, entries = task.outbox.next_push(frozenset(task.transfers.uploads), self._core.now_ms)
        if entries:
            self._core.send(Push(task.key, entries, recovered))
        return bool(entries)


def _hello_pages(task: TaskReplica) -> list[Hello]:
    """Return the Hello of a task, in pages of at most 512 own writers."""
    # A task whose document is not in memory has nothing that waits.
    streams = task.streams.values() if task.document is not None else ()
    own = [(stream, writer) for stream in streams for writer in _own_writers(task, stream)]
    pages = []
    for start in range(0, max(1, len(own)), HELLO_OWN_WRITERS_MAX):
        page = own[start : start + HELLO_OWN_WRITERS_MAX]
        positions = tuple(
            StreamPosition(
                stream.name,
                stream.epoch,
                stream.cursor,
                stream.chain,
                tuple(writer for other, writer in page if other is stream),
            )
            for stream in task.streams.values()
        )
        more = start + HELLO_OWN_WRITERS_MAX < len(own)
        pages.append(Hello(task.key, positions, more, task.follow.hello_number))
    return pages


def _own_writers(task: TaskReplica, stream: StreamReplica) -> Iterable[tuple[int, int]]:
    """Yield (own writer, highest writer_seq) whose payloads above the cursor are all in this file, without a hole."""
    seqs: dict[int, set[int]] = {}
    for stream_id, writer, seq in (*task.outbox.recovered, *task.outbox.unsent):
        if stream_id == stream.id and writer in task.loaded.own_writers and writer not in stream.distrusted:
            seqs.setdefault(writer, set()).add(seq)
    for writer, held in sorted(seqs.items()):
        row = stream.writers.get(writer)
        first = row.next_seq if row is not None else 1
        highest = first
        while highest in held:
            highest += 1
        if highest > first:
            yield writer, highest - 1
