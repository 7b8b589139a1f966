"""`segue relay purge`: by the relay that runs and in the store of one that does not, never unasked, never halfway."""

import asyncio
import json
from pathlib import Path

import pytest

from server_relay.__main__ import main
from server_relay.command.control import control_path
from server_relay.command.purging import Purge, purge
from server_relay.command.service import Service
from server_relay.config import RelaySettings
from server_relay.effects import LoadTask, PurgeOrdered, TaskLoaded
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.mailbox.verifying import verify_file
from server_relay.records import AppendStored, PurgeTask, Tombstone
from server_relay.server import serve
from sync_core.endpoint.endpoint import Endpoint
from sync_core.errors import Closed, Purged, StoreFull, StoreUnusable, ValueRefused
from sync_core.frames import Heads, Push, Receipt
from tests.server_relay.ending_tasks import PHONE, TASK, completed, decided, image, said
from tests.server_relay.harness import Harness
from tests.server_relay.test_server import TroubledMailbox
from tests.server_relay.wire_client import WireClient, history_entry


async def run(db: Path, *arguments: str) -> int:
    return await asyncio.to_thread(main, ["purge", "--db", str(db), *arguments])


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    return RelaySettings(db=tmp_path / "relay.db", port=0)


async def fill(port: int, subject: str, *tasks: str) -> None:
    async with await WireClient.open(port, "phone", subject=subject) as phone:
        for number, task in enumerate(tasks):
            await phone.push(task, history_entry(task, PHONE + number, 1, "phone"))
        await phone.receipts(len(tasks))


async def tombstone(db: Path, task: str, subject: str = "acme") -> tuple[int, Tombstone | None]:
    """What stands of a task in a store that nobody has open: how much, and its tombstone."""
    mailbox = await SqliteMailbox.open(db)
    (loaded,) = await mailbox.read([LoadTask(subject, task)])
    await mailbox.close()
    assert isinstance(loaded, TaskLoaded)
    return loaded.image.stored_no, loaded.image.tombstone


# --- in the relay -----------------------------------------------------------------------------------------------------


def test_an_ordered_purge_comes_after_what_waits_in_line_and_tells_every_follower() -> None:
    harness = Harness()
    phone = completed(harness)
    before = len(harness.writes)
    harness.turn(PurgeOrdered("acme", TASK))
    (heads,) = phone.take(Heads)
    assert (heads.known, heads.purged_version, heads.purged_for) == (False, 1, "purged")
    assert isinstance(harness.writes[before], PurgeTask)
    left = image(harness)
    assert (left.stored_no, left.streams, left.blobs) == (0, (), ())
    # Only a higher version begins it anew.
    phone.push(TASK, said(1, PHONE + 5))
    phone.push(TASK, decided(1, 2, PHONE + 6))
    assert phone.receipts() == [(PHONE + 6, 1, 1)]


def test_a_push_of_the_same_turn_is_receipted_and_then_gone() -> None:
    harness = Harness()
    phone = harness.login("phone")
    phone.hello(TASK)
    phone.frames.clear()
    harness.turn(*phone.received(Push(TASK, (decided(1),))), PurgeOrdered("acme", TASK))
    assert [type(frame) for frame in phone.frames if isinstance(frame, (Receipt, Heads))] == [Receipt, Heads]
    kinds = [type(write) for write in harness.writes]
    assert kinds.index(AppendStored) < kinds.index(PurgeTask)
    assert image(harness).tombstone is not None


@pytest.mark.parametrize("key", [("acme", "unknown"), ("other", TASK)])
def test_what_is_not_there_leaves_no_trace(key: tuple[str, str]) -> None:
    harness = Harness()
    completed(harness)
    before = len(harness.writes)
    harness.turn(PurgeOrdered(*key))
    assert len(harness.writes) == before


# --- by the operator --------------------------------------------------------------------------------------------------


async def test_a_relay_that_runs_purges_one_task_and_tells_its_devices(
    settings: RelaySettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = await Service.start(settings)
    url = f"ws://127.0.0.1:{service.port}"
    async with Endpoint.open(tmp_path / "phone.db", subject="acme", device="phone", relay=url) as phone:
        gone = await phone.task(TASK, create=True)
        kept = await phone.task("kept", create=True)
        for task in (gone, kept):
            await task.slots.confirm("amount", 1)
        await phone.synced(timeout_s=30)
        assert await run(settings.db, "--subject", "acme", "--task", TASK) == 1
        assert f"This deletes acme's {TASK}" in capsys.readouterr().err
        await gone.slots.confirm("amount", 2)
        await phone.synced(timeout_s=30)
        assert await run(settings.db, "--subject", "acme", "--task", TASK, "--yes", "--json") == 0
        assert told(capsys) == {
            "event": "purged", "subject": "acme", "task": TASK, "tasks": 1, "by_the_relay": True,
        }  # fmt: skip
        async with asyncio.timeout(30):
            with pytest.raises(Purged):
                while True:
                    await gone.slots.confirm("amount", 3)
                    await phone.stats()
        await kept.slots.confirm("amount", 4)
        await phone.synced(timeout_s=30)
        assert await run(settings.db, "--subject", "acme", "--task", TASK, "--yes") == 1
        assert "has nothing of that" in capsys.readouterr().err
    await service.close()
    assert verify_file(settings.db).problems == ()
    stored_no, stone = await tombstone(settings.db, TASK)
    assert stored_no == 0
    assert stone is not None
    assert (stone.version, stone.reason) == (1, "purged")


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
async def test_all_tasks_of_a_subject_go_page_by_page_and_no_other_subject_is_touched(
    settings: RelaySettings, runs: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    service = await Service.start(settings)
    tasks = [f"t/{number}" for number in range(150)]
    await fill(service.port, "acme", *tasks)
    await fill(service.port, "acme2", "t/1")
    if not runs:
        await service.close()
    arguments = ("--subject", "acme", "--all-tasks")
    assert await run(settings.db, *arguments, "--json") == 1
    assert "150 tasks of acme" in str(told(capsys)["sentence"])
    assert await run(settings.db, *arguments, "--yes", "--json") == 0
    document = told(capsys)
    assert (document["tasks"], document["task"], document["by_the_relay"]) == (150, None, runs)
    if runs:
        async with await WireClient.open(service.port, "desk") as desk:
            await desk.follow("t/7")
            assert (await desk.next(Heads)).purged_version == 1
        await service.close()
    assert verify_file(settings.db).problems == ()
    for task in tasks:
        assert (await tombstone(settings.db, task))[0] == 0
    assert await tombstone(settings.db, "t/1", "acme2") == (1, None)


async def test_a_key_that_others_begin_with_is_that_key_alone(settings: RelaySettings) -> None:
    service = await Service.start(settings)
    await fill(service.port, "acme", "expense", "expense/TRIP-118", "expenses")
    assert await run(settings.db, "--subject", "acme", "--task", "expense", "--yes") == 0
    assert await run(settings.db, "--subject", "acme", "--task", "expens", "--yes") == 1
    await service.close()
    assert [(await tombstone(settings.db, task))[0] for task in ("expense", "expense/TRIP-118", "expenses")] == [
        0,
        1,
        1,
    ]


async def test_a_purge_in_a_stopped_relays_store_is_heard_of_by_who_comes_later(settings: RelaySettings) -> None:
    relay = await serve(settings)
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, decided(1, 3), said(1))
        await phone.receipts(2)
    await relay.close()
    assert await run(settings.db, "--subject", "acme", "--task", TASK, "--yes") == 0
    relay = await serve(settings)
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.follow(TASK)
        heads = await phone.next(Heads)
        assert (heads.known, heads.purged_version, heads.purged_for) == (False, 3, "purged")
    await relay.close()


async def test_names_are_checked_and_a_store_that_another_has_open_is_left_alone(
    settings: RelaySettings, capsys: pytest.CaptureFixture[str]
) -> None:
    for subject, task in (("../acme", TASK), ("acme", "a//b"), ("acme", "")):
        assert await run(settings.db, "--subject", subject, "--task", task, "--yes") == 1
    assert not settings.db.exists()
    service = await Service.start(settings)
    await fill(service.port, "acme", TASK)
    capsys.readouterr()
    control_path(settings.db).unlink()
    assert await run(settings.db, "--subject", "acme", "--task", TASK, "--yes", "--json") == 1
    assert told(capsys)["code"] == "store_in_use"
    await service.close()
    assert (await tombstone(settings.db, TASK))[0] == 1
    for nonsense in ("", "{}", "[]", '{"subject": "acme", "task": 5, "confirmed": true}'):
        with pytest.raises(ValueRefused):
            Purge.parsed(nonsense)


async def test_a_store_that_fails_is_told_and_the_purge_can_be_made_again(settings: RelaySettings) -> None:
    mailbox = await SqliteMailbox.open(settings.db)
    troubled = TroubledMailbox(mailbox)
    relay = await serve(settings, troubled)
    await fill(relay.port, "acme", TASK)
    troubled.failures = [StoreFull("The disk is full.")]
    wanted = Purge("acme", TASK, True)
    with pytest.raises(StoreUnusable, match="failed meanwhile"):
        await purge(mailbox, wanted, relay.purge)
    assert (await purge(mailbox, wanted, relay.purge)).tasks == 1
    await relay.close()
    with pytest.raises(Closed):
        await relay.purge([("acme", TASK)])
    assert (await tombstone(settings.db, TASK))[0] == 0
