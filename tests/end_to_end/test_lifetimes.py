"""Tasks end over real sockets and files: completed, cleaned up, expired, purged; nothing comes back, nothing unsent is
lost (AC-28, RS-12)."""

import asyncio
import time
from pathlib import Path

import pytest

from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.records import PassTime
from sync_core.document.view import CompletionState
from sync_core.errors import Purged, TaskNotFound
from sync_core.replica.changes import TaskPurged
from sync_core.testing import assert_converged
from tests.end_to_end.lifetime_devices import KEY, device, is_empty, rows, running, scan, until, work

YEARS_MS = 10 * 365 * 24 * 3_600_000
ALL_ROWS = ("entries", "writers", "covers", "streams", "steps", "completions", "blobs", "pieces")


async def test_a_completed_task_loses_its_conversation_everywhere_and_nothing_else(tmp_path: Path) -> None:
    async with (
        running(tmp_path, clean_up_grace_s=1) as relay,
        device(tmp_path, "phone", relay) as phone,
        device(tmp_path, "desktop", relay) as desktop,
    ):
        task = await phone.task(KEY, create=True)
        await work(task)
        await phone.synced(timeout_s=30)
        there = await desktop.task(KEY)
        assert (await task.complete()).state is CompletionState.COMPLETING
        await phone.synced(timeout_s=30)
        await until(lambda: there.completed)
        assert there.completion.author == "phone"
        await until(lambda: not there.view.history and not task.view.history)
        await phone.synced(timeout_s=30)
        await desktop.synced(timeout_s=30)
        assert await there.calls["scan/1"].result() == "page 1 " * 2_000
        assert (await there.notes.read("worklog")).text.count("step") == 3
        assert there.slots["amount"].value == 249
        await assert_converged(phone, desktop, KEY)
        report = await task.replay()
        assert report.equal
        assert report.gaps == ()
        blobs = (await relay.metrics()).mailbox.blobs
        assert blobs == rows(tmp_path, "blobs", "phone") == 3
        assert [info.state async for info in desktop.tasks()] == ["completed"]


async def test_the_hand_over_outlives_the_conversation_also_for_a_device_that_comes_later(tmp_path: Path) -> None:
    async with running(tmp_path, clean_up_grace_s=1) as relay, device(tmp_path, "phone", relay) as phone:
        task = await phone.task(KEY, create=True)
        await work(task, steps=1)
        await task.hand_over("Paid; nothing is left to do.")
        await task.complete()
        await phone.synced(timeout_s=30)
        given = task.handover
        await until(lambda: not task.view.history)
        assert task.handover == given
        async with device(tmp_path, "tablet", relay) as tablet:
            there = await tablet.task(KEY, access="read")
            assert there.view.history == ()
            assert there.handover == given
            assert "Paid; nothing is left to do." in there.brief().text


async def test_a_desktop_that_was_away_for_a_clean_up_brings_nothing_back(tmp_path: Path) -> None:
    async with running(tmp_path, clean_up_grace_s=1) as relay, device(tmp_path, "phone", relay) as phone:
        task = await phone.task(KEY, create=True)
        await work(task)
        async with device(tmp_path, "desktop", relay) as desktop:
            await (await desktop.task(KEY)).slots.confirm("place", "Bonn")
            await desktop.synced(timeout_s=30)
        async with device(tmp_path, "desktop", None) as desktop:
            away = await desktop.task(KEY)
            await away.history.append({"role": "user", "content": "never sent"})
            await away.slots.confirm("place", "Köln")
        await phone.synced(timeout_s=30)
        await task.complete()
        await until(lambda: not task.view.history)
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.synced(timeout_s=30)
            there = await desktop.task(KEY)
            assert there.view.history == ()
            assert desktop.status.set_aside == 1
            await phone.synced(timeout_s=30)
            assert task.completion.state is CompletionState.COMPLETED_WHILE_EDITED
            assert task.view.history == ()
            assert len(task.slots["place"].candidates) == 2
            await assert_converged(phone, desktop, KEY)


async def test_a_week_old_desktop_brings_nothing_of_a_purged_task_back(tmp_path: Path) -> None:
    async with running(tmp_path) as relay:
        async with device(tmp_path, "desktop", relay) as desktop:
            await work(await desktop.task(KEY, create=True))
            await desktop.synced(timeout_s=30)
        async with device(tmp_path, "desktop", None) as desktop:
            await (await desktop.task(KEY)).slots.confirm("amount", 300)
        async with device(tmp_path, "phone", relay) as phone:
            task = await phone.task(KEY)
            changes = task.changes()
            await phone.purge(KEY)
            await phone.purge(KEY)
            await phone.synced(timeout_s=30)
            assert task.slots["amount"].value == 249
            assert await anext(changes) == TaskPurged(KEY, 1, "purged", 0)
            with pytest.raises(Purged):
                await anext(changes)
            with pytest.raises(Purged):
                await task.slots.confirm("amount", 1)
            with pytest.raises(Purged):
                await task.call("scan/9", scan, path="x")
            with pytest.raises(Purged):
                await phone.task(KEY, create=True)
            await task.aclose()
        assert await is_empty(relay)
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.synced(timeout_s=30)
            assert desktop.status.set_aside == 1
            assert [info.key async for info in desktop.tasks()] == []
            with pytest.raises(Purged, match="unsent"):
                await desktop.task(KEY)
            again = await desktop.task(KEY, create=True, version=2)
            assert dict(again.slots.items()) == {}
            await again.slots.confirm("amount", 1)
            await desktop.synced(timeout_s=30)
        async with device(tmp_path, "phone", relay) as phone:
            assert (await phone.task(KEY)).slots["amount"].value == 1
    assert rows(tmp_path, "tombstones") == 1


async def test_a_purge_reaches_a_program_that_has_the_task_open(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as relay,
        device(tmp_path, "phone", relay) as phone,
        device(tmp_path, "desktop", relay) as desktop,
    ):
        await work(await phone.task(KEY, create=True))
        await phone.synced(timeout_s=30)
        there = await desktop.task(KEY)
        changes = there.changes()
        await phone.purge(KEY)
        assert await asyncio.wait_for(anext(changes), 30) == TaskPurged(KEY, 1, "purged", 0)
        assert there.view.notes["worklog"].text
        again = await desktop.task(KEY, create=True, version=2)
        await there.aclose()
        await again.slots.confirm("amount", 5)
        await desktop.synced(timeout_s=30)
        with pytest.raises(TaskNotFound):
            await phone.purge("expense/none")


async def test_who_decided_a_higher_version_without_a_link_begins_it_anew_after_the_purge(tmp_path: Path) -> None:
    async with running(tmp_path) as relay, device(tmp_path, "phone", relay) as phone:
        await work(await phone.task(KEY, create=True))
        await phone.synced(timeout_s=30)
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.task(KEY)
        async with device(tmp_path, "desktop", None) as desktop:
            decided = await desktop.task(KEY, version=2)
            await decided.slots.confirm("amount", 2)
        await phone.purge(KEY)
        await phone.synced(timeout_s=30)
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.synced(timeout_s=30)
            assert desktop.status.set_aside == 2
            assert await is_empty(relay)
            with pytest.raises(Purged):
                await desktop.task(KEY)
            again = await desktop.task(KEY, create=True, version=2)
            assert dict(again.slots.items()) == {}
            await again.slots.confirm("amount", 3)
            await desktop.synced(timeout_s=30)
        assert (await phone.task(KEY)).slots["amount"].value == 3


async def test_a_purge_without_a_link_waits_in_the_file(tmp_path: Path) -> None:
    async with running(tmp_path) as relay:
        async with device(tmp_path, "phone", relay) as phone:
            await work(await phone.task(KEY, create=True))
            await phone.synced(timeout_s=30)
        async with device(tmp_path, "phone", None) as phone:
            await phone.purge(KEY)
        assert rows(tmp_path, "entries", "phone") == rows(tmp_path, "blobs", "phone") == 0
        assert not await is_empty(relay)
        async with device(tmp_path, "phone", relay) as phone:
            await phone.synced(timeout_s=30)
    assert [rows(tmp_path, table) for table in ALL_ROWS] == [0] * len(ALL_ROWS)


async def test_a_relay_restored_from_before_the_purge_learns_it_before_anything_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as relay, device(tmp_path, "desktop", relay) as desktop:
        await work(await desktop.task(KEY, create=True))
        await desktop.synced(timeout_s=30)
    backup = (tmp_path / "relay.db").read_bytes()
    async with running(tmp_path) as relay, device(tmp_path, "phone", relay) as phone:
        await phone.task(KEY)
        await phone.purge(KEY)
        await phone.synced(timeout_s=30)
    for log in tmp_path.glob("relay.db-*"):
        log.unlink()
    (tmp_path / "relay.db").write_bytes(backup)
    async with running(tmp_path) as relay:
        assert not await is_empty(relay)
        async with device(tmp_path, "phone", relay):
            await until(lambda: is_empty(relay))
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.synced(timeout_s=30)
            with pytest.raises(Purged):
                await desktop.task(KEY)
    assert [rows(tmp_path, table) for table in ALL_ROWS] == [0] * len(ALL_ROWS)


async def test_an_unfinished_task_expires_and_a_device_without_a_link_keeps_it(tmp_path: Path) -> None:
    async with running(tmp_path, task_ttl_s=2) as relay, device(tmp_path, "phone", relay) as phone:
        # Both are linked before there is a task, so that little has to happen before its time is over.
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.synced(timeout_s=30)
            task = await phone.task(KEY, create=True)
            await work(task)
            await phone.synced(timeout_s=30)
            await desktop.task(KEY)
        changes = task.changes()
        assert await asyncio.wait_for(anext(changes), 30) == TaskPurged(KEY, 1, "expired", 0)
        async with device(tmp_path, "desktop", None) as desktop:
            assert (await desktop.task(KEY)).slots["amount"].value == 249
        async with device(tmp_path, "desktop", relay) as desktop:
            await desktop.synced(timeout_s=30)
            with pytest.raises(Purged, match="expired"):
                await desktop.task(KEY)


async def test_a_clock_that_jumped_over_a_restart_expires_nothing_until_it_is_confirmed(tmp_path: Path) -> None:
    async with running(tmp_path, task_ttl_s=3_600) as relay, device(tmp_path, "phone", relay) as phone:
        await work(await phone.task(KEY, create=True))
        await phone.synced(timeout_s=30)
    mailbox = await SqliteMailbox.open(tmp_path / "relay.db")
    await mailbox.commit([PassTime(time.time_ns() // 1_000_000 + YEARS_MS, 0)])
    await mailbox.close()
    async with running(tmp_path, task_ttl_s=3_600) as relay:
        assert relay.clock_suspended
        assert (await relay.metrics()).clock_suspended
        await asyncio.sleep(2.5)
    assert rows(tmp_path, "entries") > 0
    async with running(tmp_path, task_ttl_s=3_600, clock_confirmed=True) as relay:
        assert not relay.clock_suspended
        await until(lambda: is_empty(relay))
