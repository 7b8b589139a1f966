"""The desk: commands come in, are carried out at once or wait, and each is answered exactly once."""

from collections.abc import Iterable

from sync_core.entry import EntryKind
from sync_core.errors import Closed, ResultUnavailable, SegueError, UnsentWork
from sync_core.frames import Listing, ListTasks, Purge
from sync_core.ids import check_task
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica import endings, frames, local
from sync_core.replica.core import Core
from sync_core.replica.opening import Barrier
from sync_core.replica.petitions import Petitions
from sync_core.replica.table import TaskTable
from sync_core.replica.task import Opening, TaskReplica
from sync_core.replica.writes import DropTask, Tombstone

__all__ = ["Desk"]


class Desk:
    """Takes the commands of a Replica's program and holds those that wait for the relay."""

    def __init__(self, core: Core, table: TaskTable) -> None:
        self._core = core
        self._table = table
        self.petitions = Petitions(core, table)
        self._barriers: list[Barrier] = []
        self._queries: set[int] = set()
        self._merges: dict[tuple[str, str, str], list[c.MergeNote]] = {}
        self._fetches: dict[tuple[str, str], list[int]] = {}

    # --- tasks --------------------------------------------------------------------------------------------------------

    def on_open(self, command: c.OpenTask) -> None:
        """Read the task, follow it, and answer once it may be opened."""
        try:
            check_task(command.task)
        except SegueError as error:
            self._fail(command.ref, error)
            return
        task = self._table.get_or_add(command.task)
        deadline_ms = self._core.now_ms + self._core.settings.open_timeout_ms
        opening = Opening(command.ref, command.create, command.version, command.write, deadline_ms)
        task.openings = (*task.openings, opening)
        self._table.touch(task)
        if task.document is None:
            task.reload()
        if task.follow.known is None or not task.handles:
            self._table.following.want(task)

    def on_close(self, command: c.CloseTask) -> None:
        """Take one handle back."""
        task = self._table.get(command.task)
        if task is not None and task.handles:
            task.handles -= 1
            self._table.touch(task)
        self._reply(command.ref, None)

    def on_evict(self, command: c.EvictTask) -> None:
        """Forget a task of which nothing is unsent."""
        task = self._table.get(command.task)
        if task is None:
            self._reply(command.ref, None)
        elif self._table.ready(task, command):
            if count := len(task.outbox):
                self._fail(command.ref, UnsentWork(f"{count} entries of {task.key} are not stored at the relay yet."))
                return
            self.give_up(task, (), _not_open())
            self._core.write(DropTask(task.key))
            self._table.forget(task, evicted=True)
            self._reply(command.ref, None)

    def on_purge(self, command: c.PurgeTask) -> None:
        """Delete a task: here at once, at the relay now or with the next login."""
        task = self._open_task(command)
        if task is None or not self._table.ready(task, command):
            return
        assert task.document is not None
        try:
            self._core.session.check_may_write(EntryKind.VERSION)
        except SegueError as error:
            self._fail(command.ref, error)
            return
        tombstone = self.bury(task, task.document.view().version, "purged", told=False)
        if self._core.session.logged_in:
            self._core.send(Purge(tombstone.task, tombstone.version, tombstone.epochs, tombstone.reason))
        self._reply(command.ref, None)

    def bury(self, task: TaskReplica, version: int, reason: str, *, told: bool) -> Tombstone:
        """Drop a task that was purged; who waits to open it is judged anew, by what is here then."""
        openings, task.openings = task.openings, ()
        parked = self._table.unpark(task.key)
        tombstone = endings.bury(task, version, reason, told=told)
        self.give_up(task, parked, endings.purged(tombstone))
        self._table.forget(task, evicted=True)
        if openings:
            again = self._table.get_or_add(task.key)
            again.openings = openings
            self._table.touch(again)
            again.reload()
            self._table.following.want(again)
        return tombstone

    def on_compact(self, command: c.CompactTask) -> None:
        """Compact at the next reading of the task, which is asked for now."""
        task = self._table.get(command.task)
        if task is None:
            self._fail(command.ref, _not_open())
            return
        task.agenda.compactions.append(command.ref)
        self._table.touch(task)
        task.reload()

    def on_task_command(self, command: c.TaskCommand) -> None:
        """Carry out a command on an open task; how a call ended is recorded also after its last handle was closed."""
        ended = self._table.get(command.task) if isinstance(command, c.EndCall) else None
        task = ended or self._open_task(command)
        if task is None or not self._table.ready(task, command):
            return
        granted = command.granted if isinstance(command, c.BeginCall) else ""
        try:
            local.carry_out(task, command)
        except SegueError as error:
            if isinstance(command, c.BeginCall) and granted:
                local.say_not_started(task, command.version, command.step, granted, command.token)
            self._fail(command.ref, error)
        if granted:
            self.petitions.begun(granted)

    # --- what the store must be asked for first -----------------------------------------------------------------------

    def on_merge_note(self, command: c.MergeNote) -> None:
        """Ask the store for the base that the text was made from."""
        task = self._open_task(command)
        if task is not None and self._table.ready(task, command):
            self._merges.setdefault((command.task, command.name, command.base_sha256), []).append(command)
            self._core.emit(e.LoadBase(command.task, command.name, command.base_sha256))

    def on_base(self, event: e.BaseLoaded) -> None:
        """Merge with the base that the store returned."""
        for command in self._merges.pop((event.task, event.note, event.sha256), []):
            task = self._open_task(command)
            if task is None:
                continue
            self._table.touch(task)
            try:
                local.merge_note(task, command, event.state)
            except SegueError as error:
                self._fail(command.ref, error)

    def on_fetch(self, command: c.FetchBlob) -> None:
        """Ask the store for a blob."""
        task = self._open_task(command)
        if task is not None:
            self._fetches.setdefault((command.task, command.sha256), []).append(command.ref)
            self._core.emit(e.LoadBlob(command.task, command.sha256))

    def on_blob(self, event: e.BlobLoaded) -> None:
        """Deliver a blob to whoever waits for it: an upload, a command, a snapshot; else ask the relay."""
        task = self._table.get(event.task)
        refs = self._fetches.pop((event.task, event.sha256), [])
        if task is None:
            for ref in refs:
                self._fail(ref, self._not_open(event.task))
            return
        self._table.touch(task)
        task.transfers.on_loaded(event.sha256, event.data)
        if event.data is not None:
            for ref in refs:
                self._reply(ref, event.data)
        elif refs and self._core.session.logged_in:
            task.transfers.fetch(event.sha256).refs.extend(refs)
        else:
            for ref in refs:
                self._fail(ref, ResultUnavailable("The result is not on this device."))
        frames.on_snapshot_bytes(task, event.sha256, event.data)

    # --- what only the authority can answer ---------------------------------------------------------------------------

    def on_petition(self, command: c.ClaimCall | c.SettleCall | c.HoldSlot) -> None:
        """Ask the authority about an open task."""
        task = self._open_task(command)
        if task is None or not self._table.ready(task, command):
            return
        try:
            if isinstance(command, c.ClaimCall):
                self.petitions.claim(task, command)
            elif isinstance(command, c.SettleCall):
                self.petitions.settle(task, command)
            else:
                self.petitions.hold(task, command)
        except SegueError as error:
            self._fail(command.ref, error)

    def on_lift(self, command: c.LiftBarrier) -> None:
        """Ask the authority to grant again what was opened before a loss."""
        try:
            self.petitions.lift(command)
        except SegueError as error:
            self._fail(command.ref, error)

    # --- what only the relay can answer -------------------------------------------------------------------------------

    def on_query(self, command: c.QueryTasks) -> None:
        """Ask the relay for a page of tasks; without a link there is no answer."""
        if not self._core.session.logged_in:
            self._reply(command.ref, None)
            return
        self._queries.add(command.ref)
        self._core.send(ListTasks(command.ref, command.prefix, command.after))

    def on_listing(self, frame: Listing) -> None:
        """Pass the relay's page on."""
        if frame.request in self._queries:
            self._queries.discard(frame.request)
            self._reply(frame.request, frame)

    def on_await_synced(self, command: c.AwaitSynced) -> None:
        """Wait until every followed task is stored and merged."""
        tasks = [task for task in self._table.tasks.values() if task.followed]
        self._barriers.append(Barrier(command.ref, tasks))
        for task in tasks:
            self._table.following.want(task)
            self._table.touch(task)

    def on_cancel(self, command: c.Cancel) -> None:
        """Forget a command whose caller gave up."""
        for task in list(self._table.active.values()):
            task.openings = tuple(opening for opening in task.openings if opening.ref != command.ref)
            self._table.touch(task)
            for download in task.transfers.downloads.values():
                if command.ref in download.refs:
                    download.refs.remove(command.ref)
        self._barriers = [barrier for barrier in self._barriers if barrier.ref != command.ref]
        self._queries.discard(command.ref)
        self.petitions.cancel(command.ref)

    # --- what happens to those that wait ------------------------------------------------------------------------------

    def on_heads(self, task: TaskReplica) -> None:
        """The relay told heads younger than every command that waits."""
        for barrier in self._barriers:
            barrier.on_heads(task)

    def on_installed(self, task: TaskReplica) -> None:
        """The task was read anew: what waits in its outbox may have other names now."""
        for barrier in self._barriers:
            barrier.renew(task)

    def on_link_lost(self) -> None:
        """Nothing will be answered in this session."""
        for barrier in self._barriers:
            barrier.on_link_down()
        for ref in sorted(self._queries):
            self._reply(ref, None)
        self._queries.clear()
        self.petitions.on_link_lost()

    def give_up(self, task: TaskReplica, parked: Iterable[object], error: SegueError) -> None:
        """The task cannot be read, or is forgotten: whoever waits for it is told."""
        refs = [opening.ref for opening in task.openings] + task.agenda.compactions
        refs += [ref for event in parked if (ref := getattr(event, "ref", None)) is not None]
        for download in task.transfers.downloads.values():
            refs += download.refs
            download.refs = []
        task.openings, task.agenda.compactions = (), []
        for ref in refs:
            self._fail(ref, error)
        self.petitions.fail(task, error)

    def settle(self, touched: Iterable[TaskReplica]) -> None:
        """Answer those that wait for nothing any more, and ask the authority what may be asked now."""
        touched = tuple(touched)
        self.petitions.pump(touched)
        for barrier in list(self._barriers):
            for task in touched:
                barrier.check(task)
            barrier.forget(self._table.gone)
            if not barrier.open and all(tombstone.told for tombstone in self._core.tombstones.values()):
                self._barriers.remove(barrier)
                self._reply(barrier.ref, None)
        self._table.gone.clear()

    def _open_task(self, command: c.TaskCommand) -> TaskReplica | None:
        task = self._table.get(command.task)
        if task is None or not task.handles:
            self._fail(command.ref, self._not_open(command.task))
            return None
        return task

    def _not_open(self, task: str) -> SegueError:
        tombstone = self._core.tombstones.get(task)
        return _not_open() if tombstone is None else endings.purged(tombstone)

    def _reply(self, ref: int, value: object) -> None:
        self._core.emit(e.Reply(ref, value))

    def _fail(self, ref: int, error: SegueError) -> None:
        self._core.emit(e.Fail(ref, error))


def _not_open() -> Closed:
    return Closed("The task is not open here.")
