"""The tasks that a Replica knows, and the events that wait for one of their documents."""

from sync_core.frames import Unfollow
from sync_core.ids import new_writer
from sync_core.replica.core import Core
from sync_core.replica.following import Following
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import FollowedTask

__all__ = ["TaskTable"]


class TaskTable:
    """All tasks by key; `following` deals with the relay.

    `touched` are those that the event in hand changed, `gone` those that it had forgotten. `active` are all that were
    touched since the last tick, and those that are at work: thousands may be followed that are not.
    """

    def __init__(self, core: Core, followed: tuple[FollowedTask, ...]) -> None:
        self._core = core
        self.tasks: dict[str, TaskReplica] = {}
        self.touched: dict[str, TaskReplica] = {}
        self.active: dict[str, TaskReplica] = {}
        self.gone: set[str] = set()
        self.following = Following(core)
        self._parked: dict[str, list[object]] = {}
        self._retired: dict[str, int] = {}
        for known in followed:
            task = self.tasks[known.task] = TaskReplica(core, known.task)
            task.take_places(known)

    def get(self, key: str) -> TaskReplica | None:
        """Return a known task."""
        return self.tasks.get(key)

    def get_or_add(self, key: str) -> TaskReplica:
        """Return a task, known from now on. One that was evicted before gets a fresh writer id (design, section 7)."""
        task = self.tasks.get(key)
        if task is None:
            task = self.tasks[key] = TaskReplica(self._core, key)
            if key in self._retired:
                task.writer = new_writer(self._core.entropy)
        return task

    def touch(self, task: TaskReplica) -> None:
        """The event in hand changed this task: look at it again when the event is done."""
        self.touched[task.key] = self.active[task.key] = task

    def prune(self) -> list[TaskReplica]:
        """Return the tasks at work; the others are active no longer, and keep nothing in memory but their places."""
        for task in list(self.active.values()):
            if not task.at_work:
                task.unload()
                del self.active[task.key]
        return list(self.active.values())

    def ready(self, task: TaskReplica, event: object) -> bool:
        """Whether the document is here; if not, it is read and the event waits for it."""
        self.touch(task)
        if task.document is not None and not task.loading:
            return True
        self._parked.setdefault(task.key, []).append(event)
        task.reload()
        return False

    def unpark(self, key: str) -> list[object]:
        """Return the events that waited for a task's document."""
        return self._parked.pop(key, [])

    def forget(self, task: TaskReplica, *, evicted: bool = False) -> None:
        """Know the task no longer, and have the relay send nothing more of it."""
        if self._core.session.logged_in:
            self._core.send(Unfollow(task.key))
        self.tasks.pop(task.key, None)
        self.touched.pop(task.key, None)
        self.active.pop(task.key, None)
        self.gone.add(task.key)
        self.following.forget(task)
        if evicted:
            self._retired[task.key] = task.handles

    def take_back(self, key: str) -> TaskReplica:
        """Return a task whose eviction did not become durable, with the handles that it had."""
        task = self.get_or_add(key)
        task.handles += self._retired.get(key, 0)
        self.touch(task)
        return task
