"""The Replica: what a device does, as a plain object. Commands, frames and ticks in; effects out.

It never awaits, never reads a clock and never touches a disk or a socket. The order of the returned effects is the
contract (see `effects`). One Replica is one opening of an endpoint: its writer id is fresh (rule D).
"""

from collections.abc import Callable

from sync_core.document.calls import CallBegun
from sync_core.document.view import TaskView
from sync_core.errors import SegueError, StoreDamaged, Unforeseen
from sync_core.frames import ListTasks, Login
from sync_core.ids import Entropy, StreamName
from sync_core.petitions import Petition
from sync_core.replica import commands as c
from sync_core.replica import digests, recovery
from sync_core.replica import effects as e
from sync_core.replica.adoption import check_offers, confirm_offers
from sync_core.replica.changes import Status
from sync_core.replica.core import Core, ReplicaSettings
from sync_core.replica.desk import Desk
from sync_core.replica.endings import take_back
from sync_core.replica.link import Link
from sync_core.replica.loading import install, snapshots_missing
from sync_core.replica.log import advance, ask_snapshot
from sync_core.replica.opening import settle_openings
from sync_core.replica.table import TaskTable
from sync_core.replica.tally import Tally
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import DropTask, FollowedTask, PutTombstone, TaskImage, Tombstone, task_of

__all__ = ["Replica"]


class Replica:
    """A device's replica of all the tasks that it follows, for one subject.

    `followed` and `tombstones` are what the store says at opening. `entropy` is the operating system's, or a seeded
    source.
    """

    def __init__(
        self,
        subject: str,
        device: str,
        entropy: Entropy,
        followed: tuple[FollowedTask, ...] = (),
        settings: ReplicaSettings | None = None,
        tombstones: tuple[Tombstone, ...] = (),
    ) -> None:
        self._core = Core(subject, device, entropy, settings or ReplicaSettings())
        self._core.tombstones = {tombstone.task: tombstone for tombstone in tombstones}
        self._table = TaskTable(self._core, followed)
        self._desk = Desk(self._core, self._table)
        self._link = Link(self._core, self._table, self._desk)
        self._tally = Tally(self._core.session, self._table.tasks.values(), tombstones)

    @property
    def status(self) -> Status:
        """The status that was announced last."""
        return self._tally.status

    @property
    def loaded(self) -> int:
        """How many documents are in memory."""
        return sum(task.document is not None for task in self._table.tasks.values())

    def live_digests(self, task: str) -> dict[StreamName, bytes]:
        """Return the digest of each stream of a task as it is in memory, what waits to be sent included; for audit."""
        found = self._table.get(task)
        document = found.document if found is not None else None
        if found is None or document is None:
            return {}
        return {name: document.digest(name, stream.writers) for name, stream in found.streams.items()}

    def handle(self, event: c.Command | e.Event, now_ms: int, wall_ms: int) -> list[e.Effect]:
        """Take one event and return what must be done, in order.

        `now_ms` is a clock that never steps back and only measures waits; `wall_ms` is shown to people, never compared.
        """
        self._core.now_ms = now_ms
        self._core.wall_ms = wall_ms
        try:
            self._dispatch(event)
        except Exception as error:
            # A fault of ours in one command must not end everybody else's work: nothing of it happened.
            self._fail_alone(event, error)
        self._finish()
        return self._core.take()

    def _dispatch(self, event: object) -> None:
        if (command := _COMMANDS.get(type(event))) is not None:
            command(self._desk, event)
        elif (link := _LINK_EVENTS.get(type(event))) is not None:
            link(self._link, event)
        else:
            _EVENTS[type(event)](self, event)

    def _fail_alone(self, event: object, error: Exception) -> None:
        """Undo a command that failed in an unforeseen way; raises again what was no command of a task."""
        if not isinstance(event, c.TaskCommand):
            raise error
        self._core.take()
        failure = Unforeseen(f"The command failed inside Segue ({type(error).__name__}); nothing of it was kept.")
        failure.__cause__ = error
        self._core.emit(e.Fail(event.ref, failure))
        task = self._table.get(event.task)
        if task is not None:
            self._start_over(task)

    def _start_over(self, task: TaskReplica) -> None:
        """What is in memory of a task may not be what is in the store: read it again."""
        task.forget_unwritten()
        self._table.following.want(task)
        self._table.touch(task)
        task.reload()

    # --- the store ----------------------------------------------------------------------------------------------------

    def _on_loaded(self, event: e.TaskLoaded) -> None:
        task = self._table.get(event.image.task)
        if task is None or not task.loading:
            # It was asked for twice, around a failed commit; the first answer was installed.
            return
        self._table.touch(task)
        task.loaded.image = event.image
        for sha256 in snapshots_missing(task, event.image):
            ask_snapshot(task, sha256)
        self._try_install(task)

    def _on_blob(self, event: e.BlobLoaded) -> None:
        self._desk.on_blob(event)
        task = self._table.get(event.task)
        if task is None:
            return
        if event.data is None and task.loaded.image is not None and not self._core.session.logged_in:
            self._give_up(task, StoreDamaged("The bytes of a recovered snapshot are gone from the store."))
        self._try_install(task)

    def _on_frame(self, event: e.FrameReceived) -> None:
        self._link.on_frame(event)
        for task in list(self._table.touched.values()):
            self._try_install(task)

    def _try_install(self, task: TaskReplica) -> None:
        """Install a task's image once the recovered snapshots in it are at hand, then do what waited for it."""
        image = task.loaded.image if task.loading else None
        if image is None or snapshots_missing(task, image):
            return
        task.loaded.image = None
        try:
            self._install(task, image)
        except SegueError as error:
            self._give_up(task, error)
        if task.document is not None:
            for parked in self._table.unpark(task.key):
                self._dispatch(parked)

    def _give_up(self, task: TaskReplica, error: SegueError) -> None:
        task.loading = False
        task.loaded.image = None
        # It is read again when somebody asks for it, or in the next session: not by itself, over and over.
        self._table.following.forget(task)
        self._desk.give_up(task, self._table.unpark(task.key), error)

    def _install(self, task: TaskReplica, image: TaskImage) -> None:
        """Repair and rewrite what must be before anything is merged, then take the image."""
        task.loading = False
        task.loaded.own_writers = set(image.own_writers)
        if recovery.repair(task, image):
            task.follow.hello_again = True
            task.reload()
            return
        if not task.agenda.rewrites:
            recovery.find_stranded(task, image)
        if recovery.redo_rewrites(task, image) or recovery.bring_back_when_due(task, image):
            task.reload()
            return
        before = task.view
        install(task, image)
        if task.document is None:
            return
        self._desk.on_installed(task)
        self._look_after(task, image)
        if before is not None:
            task.announce_difference(before)
        elif task.handles:
            task.announce([], local=False)
        if task.follow.known is not None:
            task.outbox.restart()
        advance(task)

    def _look_after(self, task: TaskReplica, image: TaskImage) -> None:
        """Do what needs the whole image at hand: compaction, snapshots, a digest that differed."""
        compactions, task.agenda.compactions = task.agenda.compactions, []
        to_compact, task.agenda.to_compact = task.agenda.to_compact, False
        error: SegueError | None = None
        if compactions or to_compact or recovery.compaction_due(self._core, image):
            try:
                if recovery.compact(task, image):
                    task.loaded.snapshots.clear()
            except SegueError as failure:
                error = failure
        for ref in compactions:
            self._core.emit(e.Reply(ref, None) if error is None else e.Fail(ref, error))
        confirm_offers(task, image)
        wanted, task.agenda.snapshot_wanted = task.agenda.snapshot_wanted, None
        if wanted is not None:
            recovery.offer_snapshot(task, image, wanted)
        digests.settle_claim(task)

    def _on_commit_failed(self, event: e.CommitFailed) -> None:
        """Nothing of these effects happened: what was in memory is dropped and read again, order is kept."""
        dropped: set[str] = set()
        for effect in event.effects:
            if _stands_alone(effect):
                self._core.emit(effect)
            if isinstance(effect, (e.Reply, e.Fail)):
                error = effect.error if isinstance(effect, e.Fail) else event.error
                self._core.emit(e.Fail(effect.ref, error))
            if isinstance(effect, e.Reply) and isinstance(effect.value, CallBegun):
                self._desk.petitions.not_begun(effect.value.attempt)
            if isinstance(effect, e.Reply) and isinstance(effect.value, TaskView):
                opened = self._table.get(effect.value.task)
                if opened is not None and opened.handles:
                    opened.handles -= 1
            if isinstance(effect, e.Written) and isinstance(effect.write, DropTask):
                self._table.take_back(effect.write.task).loading = True
                dropped.add(effect.write.task)
        for effect in event.effects:
            write = effect.write if isinstance(effect, e.Written) else None
            if isinstance(write, PutTombstone) and write.tombstone.task in dropped:
                take_back(self._core, write.tombstone.task)
        at_work = {task.key: task for task in self._table.active.values() if task.document is not None or task.loading}
        for task in {**at_work, **self._written(event)}.values():
            self._start_over(task)

    def _written(self, event: e.CommitFailed) -> dict[str, TaskReplica]:
        """Return the tasks that were written to. One that was given back in the same event keeps places that the store
        never got."""
        keys = [task_of(effect.write) for effect in event.effects if isinstance(effect, e.Written)]
        return {key: task for key in keys if (task := self._table.get(key)) is not None}

    # --- time and the end of each event -------------------------------------------------------------------------------

    def _on_tick(self, _event: e.Tick) -> None:
        self._link.tick()
        self._table.following.tick()
        self._desk.petitions.tick()
        for task in self._table.prune():
            task.tick()
            if task.loaded.arrived:
                advance(task)
            check_offers(task)
            if task.handles and self._core.session.logged_in and task.follow.known is not None:
                digests.send_due(task)
            self._table.touch(task)

    def _finish(self) -> None:
        touched = self._table.touched
        for task in list(touched.values()):
            settle_openings(task)
            task.recount()
            self._tally.note(task)
            if not (task.followed or task.needed):
                self._table.forget(task)
        for key in self._table.gone:
            self._tally.forget(key, self._core.tombstones.get(key))
        self._table.following.pump(touched)
        self._desk.settle(touched.values())
        self._table.following.rest(touched)
        self._table.following.judge(touched.values())
        self._table.touched = {}
        if self._tally.renew(self._core.session):
            self._core.emit(e.StatusIs(self._tally.status))


def _stands_alone(effect: e.Effect) -> bool:
    """Whether an effect speaks of nothing that was to be durable with it, and so is owed also after a failed commit."""
    frame = effect.frame if isinstance(effect, e.SendFrame) else None
    return isinstance(effect, (e.StatusIs, e.HangUp, e.RenewToken)) or isinstance(frame, (Login, ListTasks, Petition))


_COMMANDS: dict[type, Callable[..., None]] = {
    c.OpenTask: Desk.on_open,
    c.CloseTask: Desk.on_close,
    c.EvictTask: Desk.on_evict,
    c.PurgeTask: Desk.on_purge,
    c.CompactTask: Desk.on_compact,
    c.MergeNote: Desk.on_merge_note,
    c.FetchBlob: Desk.on_fetch,
    c.QueryTasks: Desk.on_query,
    c.AwaitSynced: Desk.on_await_synced,
    c.Cancel: Desk.on_cancel,
    c.DeclareSlot: Desk.on_task_command,
    c.WriteSlot: Desk.on_task_command,
    c.ClearSlot: Desk.on_task_command,
    c.ReadNote: Desk.on_task_command,
    c.WriteNote: Desk.on_task_command,
    c.EditNote: Desk.on_task_command,
    c.AppendNote: Desk.on_task_command,
    c.DeleteNote: Desk.on_task_command,
    c.BeginCall: Desk.on_task_command,
    c.EndCall: Desk.on_task_command,
    c.PlanCall: Desk.on_task_command,
    c.RequestApproval: Desk.on_task_command,
    c.GiveApproval: Desk.on_task_command,
    c.ClaimCall: Desk.on_petition,
    c.SettleCall: Desk.on_petition,
    c.HoldSlot: Desk.on_petition,
    c.LiftBarrier: Desk.on_lift,
    c.CompleteTask: Desk.on_task_command,
    c.AppendHistory: Desk.on_task_command,
    c.PopHistory: Desk.on_task_command,
    c.HandOverTask: Desk.on_task_command,
    e.BaseLoaded: Desk.on_base,
}

_LINK_EVENTS: dict[type, Callable[..., None]] = {
    e.LinkUp: Link.on_link_up,
    e.LinkDown: Link.on_link_down,
    e.LinkFailed: Link.on_link_failed,
    e.TokenRenewed: Link.on_token_renewed,
    e.RenewalFailed: Link.on_renewal_failed,
}

_EVENTS: dict[type, Callable[..., None]] = {
    e.FrameReceived: Replica._on_frame,
    e.Tick: Replica._on_tick,
    e.TaskLoaded: Replica._on_loaded,
    e.BlobLoaded: Replica._on_blob,
    e.CommitFailed: Replica._on_commit_failed,
}
