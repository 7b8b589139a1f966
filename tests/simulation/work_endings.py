"""Work that ends a task: the hand-over, its completion, and now and then a purge."""

from typing import TYPE_CHECKING

from sync_core.document.view import TaskView
from sync_core.errors import HandedOver, SegueError
from sync_core.replica.commands import CompleteTask, HandOverTask, PurgeTask
from tests.simulation.journal import CompletionOp, HandOverOp

if TYPE_CHECKING:
    from tests.simulation.workload import User

__all__ = ["EndingWork"]


class EndingWork:
    """What a user does when a task comes to its end."""

    def __init__(self, user: "User") -> None:
        self._user = user

    def step(self, task: str) -> None:
        """Hand over, complete, or delete everywhere."""
        choice = self._user.rng.random()
        if choice < self._user.mix.purges:
            self._purge(task)
        elif choice < 0.6:
            self._hand_over(task)
        else:
            self._complete(task)

    def _hand_over(self, task: str) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("h")
        version = user.open[task]
        op = HandOverOp(number=number, device=user.device.label, task=task, tag=tag, version=version)
        command = HandOverTask(user.device.next_ref(), task, version, f"All done, says {tag}.")
        user.world.journal.add(op)
        user.device.tag(command.ref, op)

        def handed(_: object) -> None:
            op.promised = True
            user.next()

        def refused(error: SegueError) -> None:
            op.refused = True
            if not isinstance(error, HandedOver):
                user.world.tolerate(error)
            user.next()

        user.ask(command, handed, refused)

    def _complete(self, task: str) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("e")
        version = user.open[task]
        op = CompletionOp(number=number, device=user.device.label, task=task, tag=tag, version=version)
        user.write(op, CompleteTask(user.device.next_ref(), task, version))

    def _purge(self, task: str) -> None:
        user = self._user
        view: TaskView | None = user.seen.get(task)
        if view is None:
            user.next()
            return
        user.world.endings.purge_asked(task)
        user.ask(PurgeTask(user.device.next_ref(), task), lambda _: user.next())
