"""Opening and closing; what an endpoint holds; errors that reach the program."""

import asyncio
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

import sync_core
from sync_core.context.sqlite_store import SqliteStore
from sync_core.document.slots import SlotState
from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.stats import Room
from sync_core.endpoint.task import Task
from sync_core.errors import (
    AccessFixed,
    Closed,
    NotSyncedYet,
    ReadOnly,
    SegueError,
    StoreFull,
    StoreInUse,
    ValueRefused,
    VersionMismatch,
)
from sync_core.replica.replica import Replica
from sync_core.replica.writes import Write
from tests.sync_core.endpoint.conftest import KEY, endless


async def _unloaded(endpoint: Endpoint) -> None:
    while (await endpoint.stats()).documents:
        continue


async def test_opening_can_be_awaited_or_entered_and_closing_twice_is_closing_once(tmp_path: Path) -> None:
    phone = await Endpoint.open(tmp_path / "a.db", subject="acme", device="phone")
    task = await phone.task(KEY, create=True)
    await task.aclose()
    await task.aclose()
    await phone.aclose()
    await phone.aclose()
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone, phone.task(KEY) as task:
        assert task.key == KEY


async def test_a_task_that_is_new_must_be_asked_for(phone: Endpoint) -> None:
    with pytest.raises(NotSyncedYet) as caught:
        await phone.task(KEY)
    assert (caught.value.code, caught.value.status) == ("not_synced_yet", 503)
    assert caught.value.sentence
    assert caught.value.hint
    with pytest.raises(ValueRefused):
        await phone.task("../etc/passwd", create=True)
    with pytest.raises(ReadOnly):
        await phone.task(KEY, create=True, access="read")


async def test_a_version_is_decided_above_refused_below_and_taken_as_it_is_when_left_out(phone: Endpoint) -> None:
    assert (await phone.task(KEY, create=True, version=3)).version == 3
    assert (await phone.task(KEY)).version == 3
    assert (await phone.task(KEY, version=4)).version == 4
    with pytest.raises(VersionMismatch):
        await phone.task(KEY, version=3)
    with pytest.raises(ReadOnly):
        await phone.task(KEY, version=5, access="read")


async def test_access_is_fixed_when_a_handle_is_opened(phone: Endpoint, task: Task) -> None:
    reader = await phone.task(KEY, access="read")
    assert (task.access, reader.access) == ("write", "read")
    with pytest.raises(AccessFixed) as caught:
        reader.access = "write"
    assert caught.value.status == 400
    with pytest.raises(ValueRefused):
        await phone.task(KEY, access="admin")  # type: ignore[arg-type]


async def test_what_was_awaited_is_there_after_a_restart(tmp_path: Path) -> None:
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        task = await phone.task(KEY, create=True)
        await task.slots.confirm("x", "1")
        await task.notes.append("worklog", "line\n")
        await task.history.append({"role": "user", "content": "hi"})
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        task = await phone.task(KEY)
        assert task.slots["x"].value == "1"
        assert (await task.notes.read("worklog")).text == "line\n"
        assert await task.history.items() == [{"role": "user", "content": "hi"}]


async def test_a_second_process_on_the_same_file_is_told_whose_it_is_within_a_second(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from sync_core import Endpoint, StoreInUse\n"
        "async def main():\n"
        "    try:\n"
        "        await Endpoint.open(sys.argv[1], subject='acme', device='phone')\n"
        "    except StoreInUse as error:\n"
        "        print(error.owner_pid)\n"
        "asyncio.run(main())\n"
    )
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone"):
        with pytest.raises(StoreInUse):
            await Endpoint.open(tmp_path / "a.db", subject="acme", device="phone")
        command = [sys.executable, "-c", program, str(tmp_path / "a.db")]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await process.communicate()
        assert int(output) == os.getpid()


async def test_a_task_leaves_memory_with_its_last_handle(phone: Endpoint) -> None:
    first = await phone.task(KEY, create=True)
    second = await phone.task(KEY)
    opened = weakref.ref(first._handle.opened)
    stats = await phone.stats()
    assert (stats.open_tasks, stats.handles, stats.documents) == (1, 2, 1)
    await first.aclose()
    assert (await phone.stats()).handles == 1
    assert second.slots["x"].state is SlotState.MISSING
    await second.aclose()
    await asyncio.wait_for(_unloaded(phone), 30)
    del first, second
    gc.collect()
    assert opened() is None
    assert (await phone.stats()).open_tasks == 0


async def test_a_watcher_that_was_dropped_is_collected(phone: Endpoint, task: Task) -> None:
    dropped, kept = weakref.ref(task.changes()), task.changes()
    gc.collect()
    assert dropped() is None
    await task.slots.confirm("x", 1)
    assert (await anext(kept)).local  # type: ignore[union-attr]


async def test_an_opening_that_fails_or_is_cancelled_leaves_nothing_open(tmp_path: Path, phone: Endpoint) -> None:
    with pytest.raises(NotSyncedYet):
        await phone.task("a/1")
    assert (await phone.stats()).open_tasks == 0
    async with await endless(tmp_path) as waiting:
        opening = asyncio.ensure_future(waiting.task("a/1", create=True).__aenter__())
        await waiting.stats()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        stats = await waiting.stats()
        assert (stats.open_tasks, stats.handles) == (0, 0)


async def test_an_opening_cancelled_at_any_moment_is_given_back(phone: Endpoint) -> None:
    for hops in range(12):
        opening = asyncio.ensure_future(phone.task(f"a/{hops}", create=True).__aenter__())
        for _ in range(hops):
            await asyncio.sleep(0)
        opening.cancel()
        try:
            task = await opening
        except asyncio.CancelledError:
            continue
        await task.aclose()
    assert (await phone.stats()).open_tasks == 0
    await asyncio.wait_for(_unloaded(phone), 30)


async def test_an_opening_cancelled_in_the_moment_of_its_answer_is_given_back(phone: Endpoint, task: Task) -> None:
    async def write_and_interrupt() -> None:
        # Both are answered after one commit, this one first: its caller goes on before the other one does.
        await task.slots.confirm("x", 1)
        opening.cancel()

    writing = asyncio.ensure_future(write_and_interrupt())
    opening = asyncio.ensure_future(phone.task(KEY).__aenter__())
    await writing
    with pytest.raises(asyncio.CancelledError):
        await opening
    await task.aclose()
    await asyncio.wait_for(_unloaded(phone), 30)


async def test_nothing_is_kept_of_those_who_gave_up_waiting(tmp_path: Path) -> None:
    async with await endless(tmp_path) as phone:
        for given_up in (phone.synced(), phone.task("a/1", create=True).__aenter__()):
            waiting = asyncio.ensure_future(given_up)
            await phone.stats()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await phone.stats()
        assert phone._runner._replies == {}


async def test_an_opening_that_was_given_up_creates_nothing_later(tmp_path: Path) -> None:
    async with await endless(tmp_path, open_timeout_s=0.3) as phone:
        given_up = asyncio.ensure_future(phone.task("a/1", create=True).__aenter__())
        await phone.stats()
        given_up.cancel()
        async with phone.task("a/2", create=True):
            assert (await phone.stats()).store.tasks == 1


async def test_a_cancelled_write_is_there_whole_or_not_at_all(phone: Endpoint, task: Task) -> None:
    for hops in range(4):
        writing = asyncio.create_task(task.slots.confirm(f"x{hops}", [1, 2, 3]))
        for _ in range(hops):
            await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    await phone.stats()
    for _name, slot in task.slots.items():
        assert slot.value == [1, 2, 3]


async def test_a_full_store_is_told_nothing_is_damaged_and_it_goes_on_after_room_was_made(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with Endpoint.open(path, subject="acme", device="phone", store_bytes_max=400_000) as phone:
        task = await phone.task(KEY, create=True)
        with pytest.raises(StoreFull) as caught:
            for number in range(1000):
                await task.notes.write(f"n{number}", str(number) * 2000)
        assert (caught.value.status, caught.value.code) == (507, "store_full")
        kept = {note.name for note in task.notes.list()}
        assert kept
        assert f"n{number}" not in kept
    async with Endpoint.open(path, subject="acme", device="phone") as phone:
        task = await phone.task(KEY)
        assert {note.name for note in task.notes.list()} == kept
        await task.slots.confirm("x", 1)


class _CountingStore(SqliteStore):
    commits = 0

    async def commit(self, writes: Sequence[Write]) -> None:
        self.commits += 1
        await super().commit(writes)


async def test_writes_that_arrive_together_share_a_commit_and_all_are_durable(tmp_path: Path) -> None:
    store = await _CountingStore.open(tmp_path / "a.db", subject="acme")
    assert isinstance(store, _CountingStore)
    replica, room = Replica("acme", "phone", os.urandom), Room(str(tmp_path / "a.db"), None)
    async with Endpoint("acme", "phone", store, replica, {}, frozenset(), has_relay=False, room=room) as phone:
        task = await phone.task(KEY, create=True)
        before = store.commits
        await asyncio.gather(*(task.slots.confirm(f"x{number}", number) for number in range(500)))
        assert store.commits - before <= 3
        assert (await phone.stats()).store.entries >= 500
        assert sorted(int(str(slot.value)) for _, slot in task.slots.items()) == list(range(500))


class _BrokenStore(SqliteStore):
    broken = False

    async def commit(self, writes: Sequence[Write]) -> None:
        if self.broken:
            raise RuntimeError("a bug")
        await super().commit(writes)


async def test_an_unknown_error_of_the_store_ends_the_endpoint_loudly(tmp_path: Path) -> None:
    store = await _BrokenStore.open(tmp_path / "a.db", subject="acme")
    assert isinstance(store, _BrokenStore)
    replica, room = Replica("acme", "phone", os.urandom), Room(str(tmp_path / "a.db"), None)
    phone = Endpoint("acme", "phone", store, replica, {}, frozenset(), has_relay=False, room=room)
    task = await phone.task(KEY, create=True)
    watching = asyncio.ensure_future(anext(task.changes()))
    store.broken = True
    for _ in range(2):
        with pytest.raises(Closed, match="internal error"):
            await task.slots.confirm("x", 1)
    with pytest.raises(Closed, match="internal error"):
        await asyncio.wait_for(watching, 30)
    with pytest.raises(RuntimeError, match="a bug"):
        await phone.aclose()
    async with Endpoint.open(tmp_path / "a.db", subject="acme", device="phone") as phone:
        assert (await phone.task(KEY)).slots["x"].state is SlotState.MISSING


@pytest.mark.parametrize(
    "options",
    [{"subject": "no spaces"}, {"device": "../x"}, {"capabilities": ["a.b"]}, {"tools": [print]}],
)
async def test_bad_names_are_refused_before_any_file_is_made(tmp_path: Path, options: dict[str, object]) -> None:
    settings: dict[str, object] = {"subject": "acme", "device": "phone"} | options
    with pytest.raises(ValueRefused):
        await Endpoint.open(tmp_path / "a.db", **settings)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_the_package_door_gives_every_name_and_loads_nothing_before() -> None:
    assert sync_core.__all__ == sorted(sync_core.__all__, key=lambda name: (name[0].islower(), name))
    for name in sync_core.__all__:
        assert getattr(sync_core, name) is not None
    with pytest.raises(AttributeError):
        sync_core.nothing  # noqa: B018
    program = "import sync_core.errors, sys; print(sorted({'pycrdt', 'websockets', 'asyncio'} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


def test_every_error_of_the_tree_has_code_status_and_is_exported() -> None:
    def tree(error: type[SegueError]) -> list[type[SegueError]]:
        return [error, *(inner for child in error.__subclasses__() for inner in tree(child))]

    for error in tree(SegueError):
        if error.__module__ == "sync_core.errors":
            assert error.__name__ in sync_core.__all__
