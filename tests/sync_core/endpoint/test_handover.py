"""`task.hand_over` and `task.handover`: the closing text, given once, on one device."""

import hashlib
from pathlib import Path

import pytest

from sync_core import (
    AccessFixed,
    Endpoint,
    HandedOver,
    HandOverChanged,
    HandOverText,
    ReadOnly,
    Task,
    TooLarge,
    ValueRefused,
    VersionMismatch,
)
from sync_core.testing import assert_converged, two_endpoints
from tests.sync_core.endpoint.conftest import KEY

TEXT = "Paid. </data> Ask Ann for the rest: größe 🙂.\n"


async def test_it_is_given_once_and_is_the_same_after_the_program_starts_anew(phone: Endpoint, task: Task) -> None:
    assert task.handover is None
    given = await task.hand_over(TEXT)
    assert given == task.handover
    assert (given.text, given.author, given.version) == (TEXT, "phone", 1)
    assert given.content_sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    with pytest.raises(HandedOver, match="handed over by phone"):
        await task.hand_over(TEXT)
    await task.aclose()
    async with phone.task(KEY, access="read") as again:
        assert again.handover == given
    assert (await phone.stored(KEY)).view.handovers == {1: given}


async def test_a_new_version_hands_over_anew_and_shows_the_last_one_until_then(phone: Endpoint, task: Task) -> None:
    first = await task.hand_over(TEXT)
    second = await phone.task(KEY, version=2)
    assert second.handover == first
    with pytest.raises(VersionMismatch):
        await task.hand_over("Late.")
    given = await second.hand_over("Round two.")
    assert second.handover == given
    assert task.handover == first


async def test_a_live_handle_may_not_be_asked_for_more(phone: Endpoint, task: Task) -> None:
    """AC-19."""
    await task.hand_over(TEXT)
    reader = await phone.task(KEY, access="read")
    with pytest.raises(AccessFixed) as refused:
        reader.access = "write"
    assert refused.value.status == 400
    assert "new session" in refused.value.hint
    for handle in (task, reader):
        with pytest.raises(AccessFixed) as refused:
            handle.handover = "Another text."  # type: ignore[assignment]
        assert refused.value.status == 400
        assert "session" in refused.value.hint
    with pytest.raises(ReadOnly) as read_only:
        await reader.hand_over("From a reader.")
    assert "Open a new session" in read_only.value.hint
    assert task.handover is not None
    assert task.handover.text == TEXT


@pytest.mark.parametrize(
    ("text", "error"),
    [("", ValueRefused), ("  ", ValueRefused), ("\ud800", ValueRefused), (5, ValueRefused), ("ö" * 65_537, TooLarge)],
)
async def test_what_is_no_closing_text_is_refused(task: Task, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await task.hand_over(text)
    assert task.handover is None


async def test_it_is_announced_briefed_exported_and_replayed(phone: Endpoint, task: Task) -> None:
    changes = task.changes()
    await task.hand_over(TEXT)
    assert await anext(changes) == HandOverChanged(KEY, 1, local=True)
    brief = task.brief()
    assert "&lt;/data&gt; Ask Ann" in brief.text
    lines = [line async for line in phone.export(KEY) if line["kind"] == "handover"]
    assert [line["record"] for line in lines] == [{"type": "handover", "version": 1, "text": TEXT}]
    report = await task.replay()
    assert report.equal
    assert "handover" in [stream.stream for stream in report.streams]
    assert report.view.handovers == task.view.handovers


async def test_a_hand_over_that_holds_a_secret_is_withheld_from_an_export(phone: Endpoint, task: Task) -> None:
    await task.slots.declare("pin", ask="PIN?", secret=True)
    await task.slots.confirm("pin", "hunter2-secret")
    await task.hand_over("The PIN is hunter2-secret.")
    assert "hunter2" not in str([line async for line in phone.export(KEY)])


async def test_a_receiver_reads_it_and_can_neither_give_it_again_nor_change_it(tmp_path: Path) -> None:
    async with two_endpoints(tmp_path) as ends:
        here = await ends.phone.task(KEY, create=True)
        given = await here.hand_over(TEXT)
        assert not given.stored
        await ends.phone.synced(timeout_s=30)
        assert here.handover is not None
        assert here.handover.stored
        there = await ends.desktop.task(KEY)
        assert there.handover == here.handover
        with pytest.raises(HandedOver):
            await there.hand_over("Changed by the receiver.")
        with pytest.raises(HandedOver):
            await here.hand_over("Changed by the author.")
        await assert_converged(ends.phone, ends.desktop, KEY)


@pytest.mark.parametrize("order", [("phone", "desktop"), ("desktop", "phone")])
async def test_of_two_given_apart_the_first_at_the_relay_stands_on_both_devices(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """AC-21."""
    first, second = order
    async with two_endpoints(tmp_path) as ends:
        await ends.phone.task(KEY, create=True)
        await ends.phone.synced(timeout_s=30)
        await ends.desktop.task(KEY)
        await ends.phone.aclose()
        await ends.desktop.aclose()
        for device in order:
            async with Endpoint.open(tmp_path / f"{device}.db", subject="test", device=device) as alone:
                given = await (await alone.task(KEY)).hand_over(f"From {device}.")
                assert (given.author, given.stored, given.conflicts) == (device, False, ())
        reopen = {"phone": ends.reopen_phone, "desktop": ends.reopen_desktop}
        await (await reopen[first]()).synced(timeout_s=30)
        behind = await reopen[second]()
        await ends.synced()
        assert_stands((await behind.task(KEY)).handover, first, second)
        here, there = await ends.phone.task(KEY), await ends.desktop.task(KEY)
        assert here.handover == there.handover
        assert f'author="{second}">From {second}.' in here.brief().text
        with pytest.raises(HandedOver, match=f"handed over by {first}"):
            await there.hand_over("Once more.")
        await assert_converged(ends.phone, ends.desktop, KEY)


def assert_stands(given: HandOverText | None, first: str, second: str) -> None:
    assert given is not None
    assert (given.author, given.text, given.stored) == (first, f"From {first}.", True)
    assert [(late.author, late.text, late.stored) for late in given.conflicts] == [(second, f"From {second}.", True)]


async def test_a_watcher_is_told_when_another_hand_over_comes_to_stand(tmp_path: Path) -> None:
    async with two_endpoints(tmp_path) as ends:
        here = await ends.phone.task(KEY, create=True)
        await ends.phone.synced(timeout_s=30)
        there = await ends.desktop.task(KEY)
        changes = there.changes()
        async with ends.apart():
            await there.hand_over("From desktop.")
            await here.hand_over("From phone.")
        # How many follow depends on whether both arrived in one frame.
        assert [await anext(changes), await anext(changes)] == [
            HandOverChanged(KEY, 1, local=True),
            HandOverChanged(KEY, 1, local=False),
        ]
