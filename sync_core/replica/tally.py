"""What the endpoint's status says of its tasks, kept up to date task by task: thousands may have nothing to say."""

from collections.abc import Iterable
from typing import NamedTuple

from sync_core.limits import TASK_WRITES_WARNING
from sync_core.replica.changes import Status
from sync_core.replica.session import Session
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import Tombstone

__all__ = ["Tally"]


class _Trouble(NamedTuple):
    set_aside: int
    quarantined: int
    diverged: bool
    growing: bool


_NO_TROUBLE = _Trouble(0, 0, diverged=False, growing=False)


class Tally:
    """Adds up what tasks add to the status. `status` is what was told last."""

    def __init__(self, session: Session, tasks: Iterable[TaskReplica], tombstones: Iterable[Tombstone] = ()) -> None:
        self._waiting = {task.key: task.waiting for task in tasks if task.waiting}
        self._unsent = sum(self._waiting.values())
        self._troubles: dict[str, _Trouble] = {}
        self._changed = False
        for tombstone in tombstones:
            self.forget(tombstone.task, tombstone)
        aside = sum(trouble.set_aside for trouble in self._troubles.values())
        self.status = Status(session.state, session.reason, self._unsent, aside)

    def note(self, task: TaskReplica) -> None:
        """Take what the task adds now."""
        growing = task.view is not None and task.view.writes >= TASK_WRITES_WARNING
        self._put(task.key, task.waiting, _Trouble(task.set_aside, task.quarantined, bool(task.diverged_from), growing))

    def forget(self, key: str, tombstone: Tombstone | None = None) -> None:
        """The task is known no longer; under its tombstone may lie what was set aside."""
        aside = tombstone.set_aside if tombstone is not None else 0
        self._put(key, 0, _NO_TROUBLE._replace(set_aside=aside))

    def _put(self, key: str, waiting: int, trouble: _Trouble) -> None:
        self._unsent += waiting - self._waiting.pop(key, 0)
        if waiting:
            self._waiting[key] = waiting
        if trouble != self._troubles.pop(key, _NO_TROUBLE):
            self._changed = True
        if trouble != _NO_TROUBLE:
            self._troubles[key] = trouble

    def renew(self, session: Session) -> bool:
        """Bring `status` up to date; return whether it changed."""
        status = self.status
        told = (status.link, status.reason, status.unsent, status.role, status.authority)
        role = session.role.value if session.role is not None else ""
        authority = session.authority if session.logged_in else None
        if told == (session.state, session.reason, self._unsent, role, authority) and not self._changed:
            return False
        self._changed = False
        troubles = self._troubles.values()
        self.status = Status(
            session.state,
            session.reason,
            self._unsent,
            sum(trouble.set_aside for trouble in troubles),
            sum(trouble.quarantined for trouble in troubles),
            tuple(sorted(key for key, trouble in self._troubles.items() if trouble.diverged)),
            tuple(sorted(key for key, trouble in self._troubles.items() if trouble.growing)),
            role,
            authority,
        )
        return True
