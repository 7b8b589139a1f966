"""The endpoint: a program's place among the devices of one subject. `Endpoint.open(…)` is where everything starts."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import get_args

import msgspec

from sync_core.checked import check_choice, check_flag, check_names, check_seconds, check_text, check_whole
from sync_core.context.sqlite_store import SqliteStore
from sync_core.context.store import Store
from sync_core.document.view import TaskView
from sync_core.endpoint.audit import Audit
from sync_core.endpoint.calls import CallPath
from sync_core.endpoint.given import check_link, checked_path, tools_by_name
from sync_core.endpoint.handle import Handle, OpenedTask, refusal_of
from sync_core.endpoint.link import Backoff, Link, TokenSource
from sync_core.endpoint.listing import TaskInfo, TaskState, tasks_of
from sync_core.endpoint.opening import Opening
from sync_core.endpoint.runner import Runner
from sync_core.endpoint.stats import EndpointStats, Meter, Room
from sync_core.endpoint.stored import StoredTask, read_stored
from sync_core.endpoint.task import Access, Task
from sync_core.endpoint.tools import Tool
from sync_core.endpoint.transport import Transport, WebsocketTransport
from sync_core.errors import Purged, SegueError, SyncTimeout
from sync_core.ids import check_name, check_task
from sync_core.limits import RECORD_NUMBER_MAX
from sync_core.replica.changes import Change, LinkState, Status
from sync_core.replica.commands import AwaitSynced, CloseTask, CompactTask, EvictTask, LiftBarrier, OpenTask, PurgeTask
from sync_core.replica.core import ReplicaSettings
from sync_core.replica.replica import Replica
from sync_core.values import JsonValue

__all__ = ["Endpoint"]


class Endpoint:
    """One opening of a device's store for one subject, with or without a link to a relay."""

    def __init__(
        self,
        subject: str,
        device: str,
        store: Store,
        replica: Replica,
        tools: dict[str, Tool[..., object]],
        capabilities: frozenset[str],
        has_relay: bool,
        room: Room,
    ) -> None:
        self._subject = subject
        self._device = device
        self._store = store
        self._replica = replica
        self._tools = tools
        self._status = replica.status
        self._has_relay = has_relay
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opened: dict[str, OpenedTask] = {}
        self._handles: dict[Handle, Task] = {}
        self._calls = CallPath(capabilities, self._crash)
        self._runner = Runner(replica, store, self)
        self._meter = Meter(self._runner, room)
        self._audit = Audit(subject, device, self._runner, replica)
        self._link: Link | None = None
        self._closed = False

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        subject: str,
        device: str,
        relay: str | None = None,
        token: TokenSource = "",
        tools: Iterable[Tool[..., object]] = (),
        capabilities: Iterable[str] = (),
        store_bytes_max: int | None = None,
        open_timeout_s: float = 5.0,
        backoff: Backoff | None = None,
        transport: Transport | None = None,
        chance: Callable[[], float] = random.random,
    ) -> "Opening[Endpoint]":
        """Open the store at `path` and, with a `relay` address (ws://… or wss://…), keep a link to it.

        `subject` and `device` are names; `token` is the relay's credential, or a function (also `async`) asked anew at
        each attempt, and some time before what it gave ends: the link then goes on with a fresh one. `tools` can be
        called by name, `capabilities` are what this device has. `store_bytes_max` bounds the file, bytes;
        `open_timeout_s` is how long opening a task waits for a link. `backoff`, `transport` and `chance` replace the
        pauses between attempts, the network and the random source that spreads the pauses.

        Awaitable, and an async context manager. Raises `ValueRefused`, `StoreInUse`, `StoreDamaged`, `StoreUnusable`.
        """

        async def open_it() -> Endpoint:
            own_subject, own_device = check_name(subject, "subject"), check_name(device, "device")
            owned = check_names(capabilities, "capabilities", "capability")
            named = tools_by_name(tools)
            url = check_link(relay, token, backoff, transport, chance)
            if store_bytes_max is not None:
                check_whole(store_bytes_max, "store_bytes_max", least=1, most=RECORD_NUMBER_MAX)
            open_timeout_ms = int(check_seconds(open_timeout_s, "open_timeout_s") * 1000)
            room = Room(checked_path(path), store_bytes_max)
            store = await SqliteStore.open(room.path, subject=own_subject, store_bytes_max=store_bytes_max)
            try:
                settings = ReplicaSettings(url is not None, open_timeout_ms, durable=store.durable)
                replica = Replica(
                    own_subject,
                    own_device,
                    os.urandom,
                    await store.followed_tasks(),
                    settings,
                    await store.tombstones(),
                )
            except BaseException:
                await store.close()
                raise
            endpoint = Endpoint(own_subject, own_device, store, replica, named, owned, url is not None, room)
            if url is not None:
                network = transport or WebsocketTransport()
                endpoint._link = Link(endpoint._runner, network, url, token, backoff or Backoff(), chance)
            return endpoint

        return Opening(open_it)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        """The business subject."""
        return self._subject

    @property
    def device(self) -> str:
        """This device's name."""
        return self._device

    @property
    def status(self) -> Status:
        """Where the link stands and why, and how many entries wait, were set aside or quarantined."""
        return self._status

    def tools(self) -> list[dict[str, JsonValue]]:
        """Return the descriptions (OpenAI function format) of the tools whose needs this endpoint has."""
        return [tool.schema for tool in self._tools.values() if self._calls.can_run(tool.requires)]

    async def stats(self, key: str | None = None, *, task_ttl_s: float | None = None) -> EndpointStats:
        """Return sizes, growth and times, of one task or of all; `task_ttl_s` is the relay's time to live, if known.

        Each gauge has a level that warns before its bound is reached. Raises `ValueRefused`.
        """
        task = None if key is None else check_task(key)
        ttl_s = None if task_ttl_s is None else check_seconds(task_ttl_s, "task_ttl_s")
        opened = self._opened.values()
        return await self._meter.read(
            task,
            task_ttl_s=ttl_s,
            writes={each.key: each.view.writes for each in opened if each.view is not None},
            open_tasks=len(opened),
            handles=sum(each.handles for each in opened),
            documents=self._replica.loaded,
        )

    # --- tasks --------------------------------------------------------------------------------------------------------

    def task(
        self, key: str, *, create: bool = False, version: int | None = None, access: Access = "write"
    ) -> Opening[Task]:
        """Open a task by its business key; awaitable, and an async context manager that closes the handle.

        Waits until all that the relay holds of it is merged here; without a link it opens what this device has, or,
        with `create`, starts it. `version` above the known one decides that version. `access` is `read` or `write`.
        Raises `TaskNotFound`, `NotSyncedYet`, `VersionMismatch`, `ReadOnly`, `ValueRefused`.
        """

        async def open_it() -> Task:
            check_choice(access, "access", get_args(Access))
            asked = None if version is None else check_whole(version, "version", least=1, most=RECORD_NUMBER_MAX)
            create_it, write = check_flag(create, "create"), access == "write"
            view, opened = await self._open_view(check_task(key), create=create_it, version=asked, write=write)
            handle = Handle(self._runner, opened, view.version if asked is None else asked, write, lambda: self._status)
            task = Task(handle, self._device, self._calls, self._tools, self._release, self._audit)
            self._handles[handle] = task
            return task

        return Opening(open_it)

    async def _open_view(
        self, key: str, *, create: bool, version: int | None, write: bool
    ) -> tuple[TaskView, OpenedTask]:
        opened = self._opened.get(key)
        if opened is None:
            opened = self._opened[key] = OpenedTask(key, refusal_of(self._status))
        opened.handles += 1
        try:
            command = OpenTask(self._runner.ref(), key, create, version, write)
            return await self._runner.ask(command, TaskView), opened
        except BaseException:
            self._forget(opened)
            raise

    async def tasks(
        self, *, state: TaskState | None = None, prefix: str = "", waiting_for: str | None = None
    ) -> AsyncIterator[TaskInfo]:
        """Iterate over the subject's tasks by key, also those that this device never opened.

        `state` keeps `open` or `completed` ones, `waiting_for` those with a planned step that needs this capability.
        Without a link only the tasks of this device are told.
        """

        begins = check_text(prefix, "prefix")
        if state is not None:
            check_choice(state, "state", get_args(TaskState))
        if waiting_for is not None:
            check_name(waiting_for, "capability")

        async def look(key: str) -> TaskView:
            view, opened = await self._open_view(key, create=False, version=None, write=False)
            await self._give_back(opened)
            return view

        async for info in tasks_of(self._runner, begins, look):
            if state in (None, info.state) and (waiting_for is None or info.waits_for(waiting_for)):
                yield info

    async def evict(self, key: str) -> None:
        """Forget a task on this device alone; its open handles are closed.

        Raises `UnsentWork` while the relay has not stored all of it.
        """
        task = check_task(key)
        opened = [(handle, of) for handle, of in self._handles.items() if handle.key == task]
        await self._runner.tell(EvictTask(self._runner.ref(), task))
        for handle, of in opened:
            # There is nothing to give back: the task went with its handles.
            if self._handles.pop(handle, None) is not None:
                self._forget(handle.opened)
            await of.aclose()

    async def purge(self, key: str) -> None:
        """Delete a task everywhere: here at once, at the relay and on every device as soon as they hear of it.

        Open handles still show what they showed last, and every further command on them raises `Purged`. Entries that
        were never sent are kept aside here. The key opens again only with a higher version. A task that was purged
        stays so. Raises `ReadOnly`, and `TaskNotFound` or `NotSyncedYet` for a task that cannot be read here.
        """
        with suppress(Purged):
            view, opened = await self._open_view(check_task(key), create=False, version=None, write=False)
            try:
                await self._runner.tell(PurgeTask(self._runner.ref(), view.task))
            finally:
                await self._give_back(opened)

    async def compact(self, key: str) -> None:
        """Merge what is stored of a task into one row, after checking that the content is equal."""
        await self._runner.tell(CompactTask(self._runner.ref(), check_task(key)))

    async def lift_barrier(self) -> None:
        """Say, as an admin, that the relay misses nothing any more of what was lost: keys that were opened before the
        loss are granted again, for the whole subject. Raises `NeedsAuthority`, `ReadOnly` for another role."""
        await self._runner.tell(LiftBarrier(self._runner.ref()))

    async def stored(self, key: str) -> StoredTask:
        """Return a task as this device's file holds it, read anew, with its digest: for audit and tests."""
        task = check_task(key)
        return await self._runner.read(lambda store: read_stored(store, self._subject, task, self._device), StoredTask)

    def export(self, key: str) -> AsyncIterator[dict[str, JsonValue]]:
        """Iterate over the entries that this device's file holds of a task, as JSON-able objects, for audit.

        Each has author, order and sizes; the value of a secret slot is never in it. Raises `ValueRefused`.
        """
        return self._audit.export(check_task(key))

    async def synced(self, *, timeout_s: float | None = None) -> None:
        """Wait until all that was written here before the call is stored at the relay, and all it held is merged here.

        Raises `SyncTimeout` after `timeout_s` seconds (None waits for ever), and at once if no relay is configured;
        `Refused` if the relay refused this endpoint for good.
        """
        if timeout_s is not None:
            check_seconds(timeout_s, "timeout_s")
        if not self._has_relay:
            raise SyncTimeout("This endpoint has no relay, so nothing can be synced.", hint="Open it with relay=….")
        syncing = asyncio.ensure_future(self._runner.tell(AwaitSynced(self._runner.ref())))
        try:
            await asyncio.wait({syncing, self._refused}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if syncing.done():
                return syncing.result()
            refusal = refusal_of(self._status)
            if refusal is not None:
                raise refusal
            status = self._status
            why = f"; the link is {status.link.value}" + (f" ({status.reason})" if status.reason else "")
            raise SyncTimeout(f"Not everything was synced within {timeout_s} s{why}.")
        finally:
            syncing.cancel()

    # --- what the runner tells ----------------------------------------------------------------------------------------

    def announced(self, view: TaskView, changes: tuple[Change, ...]) -> None:
        """Take a task's new durable view and tell its watchers."""
        opened = self._opened.get(view.task)
        if opened is not None:
            opened.announced(view, changes)
            if opened.purged is not None:
                # Who opens it again, with a higher version, opens another task.
                del self._opened[view.task]

    def status_is(self, status: Status) -> None:
        """Take the new status; a final refusal ends every watch."""
        self._status = status
        refusal = refusal_of(status)
        if refusal is not None:
            if not self._refused.done():
                self._refused.set_result(None)
            for opened in self._opened.values():
                opened.fail(refusal)

    def ended(self, error: SegueError) -> None:
        """The runner stopped for a failure: the link goes, and whoever watches is told."""
        if self._link is not None:
            self._link.stop()
        self._go_offline(error.sentence)
        for opened in self._opened.values():
            opened.fail(error)

    def _go_offline(self, reason: str) -> None:
        offline = LinkState.OFFLINE
        self._status = msgspec.structs.replace(self._status, link=offline, reason=reason, authority=None)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _release(self, handle: Handle) -> None:
        if self._handles.pop(handle, None) is not None:
            await self._give_back(handle.opened)

    async def _give_back(self, opened: OpenedTask) -> None:
        self._forget(opened)
        if not self._closed and opened.purged is None:
            await self._runner.tell(CloseTask(self._runner.ref(), opened.key))

    def _forget(self, opened: OpenedTask) -> None:
        opened.handles -= 1
        if opened.handles == 0 and self._opened.get(opened.key) is opened:
            del self._opened[opened.key]

    async def aclose(self) -> None:
        """Close every handle, the link and the store; idempotent. Running calls are cancelled and recorded so."""
        if self._closed:
            return
        await self._cancel_calls()
        self._closed = True
        for task in list(self._handles.values()):
            await task.aclose()
        try:
            await self._runner.close()
        finally:
            await self._close_parts()

    async def _close_parts(self) -> None:
        self._go_offline("the endpoint is closed")
        try:
            if self._link is not None:
                await self._link.close()
        finally:
            await self._store.close()

    async def _crash(self) -> None:
        """Drop everything as a crash would: what is not durable is gone, nobody is told, the store's lock is free."""
        self._closed = True
        await self._runner.abort()
        await self._close_parts()
        await self._cancel_calls()
        for task in list(self._handles.values()):
            await task.aclose()

    async def _cancel_calls(self) -> None:
        running = [execution for opened in self._opened.values() for execution in opened.executions.values()]
        others = [execution for execution in running if execution.task is not asyncio.current_task()]
        for execution in others:
            execution.end()
        await asyncio.gather(*(execution.task for execution in others), return_exceptions=True)

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Endpoint({self._subject!r}, device={self._device!r}, link={self._status.link.value})"
