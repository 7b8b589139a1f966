"""When a waiting command may be answered: opening a task, and waiting until everything is synced."""

from collections.abc import Iterable

from sync_core.entry import EntryKind, VersionDecision, encode_record
from sync_core.errors import NotSyncedYet, ReadOnly, Refused, SegueError, TaskNotFound, VersionMismatch
from sync_core.ids import StreamName
from sync_core.replica.changes import LinkState
from sync_core.replica.effects import Fail, Reply
from sync_core.replica.endings import check_not_purged
from sync_core.replica.outbox import Key
from sync_core.replica.task import Opening, TaskReplica
from sync_core.replica.writes import FollowTask

__all__ = ["Barrier", "settle_openings"]


def settle_openings(task: TaskReplica) -> None:
    """Answer the commands that wait to open this task, as far as they can be answered now."""
    if not task.openings or task.document is None:
        return
    waiting: list[Opening] = []
    for opening in task.openings:
        if not _may_open(task, opening):
            waiting.append(opening)
            continue
        try:
            view = _open(task, opening)
        except SegueError as error:
            task.core.emit(Fail(opening.ref, error))
        else:
            task.handles += 1
            task.core.emit(Reply(opening.ref, view))
    task.openings = tuple(waiting)


def _may_open(task: TaskReplica, opening: Opening) -> bool:
    session = task.core.session
    if session.logged_in:
        return task.follow.known is not None and not task.behind
    if session.state in (LinkState.OFFLINE, LinkState.REFUSED):
        return True
    return task.core.now_ms >= opening.deadline_ms


def _open(task: TaskReplica, opening: Opening) -> object:
    """Open here and now; see the design's section 7."""
    assert task.document is not None
    if not task.has_content:
        if not opening.create:
            check_not_purged(task.core, task.key, 0)
        _refuse_unknown(task, opening)
    elif not task.followed and not task.core.session.logged_in:
        # What a device follows it has once held whole; of this one a first reading was cut off.
        raise NotSyncedYet(
            f"Only a part of {task.key} has been read here so far.", hint="Connect once more to read on."
        )
    known = task.document.view().version
    wanted = known if opening.version is None else opening.version
    if wanted < known:
        raise VersionMismatch(f"Version {wanted} was asked for, but {known} stands.")
    if not task.has_content:
        check_not_purged(task.core, task.key, wanted)
    if not task.has_content or wanted > known:
        if not opening.write:
            raise ReadOnly(f"Version {wanted} of the task does not exist yet, and this handle may only read.")
        task.core.session.check_may_write(EntryKind.VERSION)
        _decide_version(task, wanted)
    if not task.followed:
        task.followed = True
        task.core.write(FollowTask(task.key))
    # The first announcement gives the handle its view, also when nothing changed.
    task.announce([], local=True)
    return task.view


def _refuse_unknown(task: TaskReplica, opening: Opening) -> None:
    if opening.create:
        return
    session = task.core.session
    if session.logged_in:
        raise TaskNotFound(f"Nobody has a task {task.key}.")
    if session.state is LinkState.REFUSED:
        raise Refused(f"The relay refused this device: {session.reason.rstrip('.')}.")
    raise NotSyncedYet(f"This device has not read {task.key} yet and has no link to the relay.")


def _decide_version(task: TaskReplica, version: int) -> None:
    assert task.document is not None
    epoch = task.stream(StreamName.STATE).epoch
    if version > task.document.view().version:
        decision = task.document.decide_version(version, task.core.device, epoch)
    else:
        # The first entry of a new task: it makes the task known to others.
        decision = VersionDecision(version, task.core.device, epoch)
    entry = task.append(StreamName.STATE, EntryKind.VERSION, encode_record(decision))
    task.document.record(entry)


class Barrier:
    """`synced()`: what each followed task must still show before it may be answered."""

    def __init__(self, ref: int, tasks: list[TaskReplica]) -> None:
        self.ref = ref
        self._fresh_after: set[str] = set()
        self._last: dict[str, list[Key]] = {}
        self.open: dict[str, TaskReplica] = {}
        for task in tasks:
            self.open[task.key] = task
            self._fresh_after.add(task.key)
            self.renew(task)

    def renew(self, task: TaskReplica) -> None:
        """Take the task's present outbox as what must be stored: it was read, or written again under other names."""
        if task.document is not None:
            waiting = (*task.outbox.recovered, *task.outbox.unsent)
            last = {(stream, writer): (stream, writer, seq) for stream, writer, seq in waiting}
            self._last[task.key] = list(last.values())

    def on_heads(self, task: TaskReplica) -> None:
        """The relay told heads that are younger than the command."""
        self._fresh_after.discard(task.key)

    def on_link_down(self) -> None:
        """Heads must be told again."""
        self._fresh_after = set(self.open)

    def forget(self, keys: Iterable[str]) -> None:
        """Wait no longer for what was evicted meanwhile."""
        for key in keys:
            self.open.pop(key, None)

    def check(self, task: TaskReplica) -> bool:
        """Whether this task, if it is still open here, is done; it is then taken out."""
        if task.key not in self.open:
            return False
        stored = all(
            task.outbox.find(key) is None or key in task.outbox.receipted for key in self._last.get(task.key, ())
        )
        # Without heads of this session nobody knows how far behind the task is, nor is what waits in the file read yet.
        at_heads = task.follow.known is not None and not task.behind and task.key not in self._fresh_after
        if not at_heads or not stored or task.loading:
            return False
        del self.open[task.key]
        return True
