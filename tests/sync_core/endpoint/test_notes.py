"""Notes at a handle."""

from pathlib import Path

import pytest

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.task import Task
from sync_core.errors import BaseUnknown, PreconditionFailed, StoreFull, ValueRefused
from tests.sync_core.endpoint.conftest import KEY


async def test_a_stale_write_fails_with_the_current_text_inside_and_leaves_it_intact(task: Task) -> None:
    await task.notes.write("worklog", "a\n")
    first = await task.notes.read("worklog")
    await task.notes.write("worklog", "a\nb\n", content_sha256=first.content_sha256)
    with pytest.raises(PreconditionFailed) as caught:
        await task.notes.write("worklog", "a\nc\n", content_sha256=first.content_sha256)
    error = caught.value
    assert (error.code, error.status, error.current_text) == ("memory_precondition_failed_error", 409, "a\nb\n")
    merged = await task.notes.merge("worklog", "a\nc\n", base=first)
    assert sorted(merged.note.text.splitlines()) == ["a", "b", "c"]


async def test_the_same_content_succeeds_with_a_stale_hash(task: Task) -> None:
    first = await task.notes.write("worklog", "a\n")
    second = await task.notes.write("worklog", "b\n", content_sha256=first.content_sha256)
    assert await task.notes.write("worklog", "b\n", content_sha256=first.content_sha256) == second


async def test_a_merge_takes_the_note_or_its_hash_as_base(task: Task) -> None:
    await task.notes.write("worklog", "one\ntwo\nthree\n")
    base = await task.notes.read("worklog")
    await task.notes.edit("worklog", "one", "1")
    merged = await task.notes.merge("worklog", "one\ntwo\n3\n", base=base.content_sha256)
    assert merged.note.text == "1\ntwo\n3\n"
    assert merged.overlap == ()
    with pytest.raises(BaseUnknown):
        await task.notes.merge("worklog", "x", base="0" * 64)


async def test_append_edit_list_and_delete(task: Task) -> None:
    assert task.notes.list() == ()
    await task.notes.append("b", "line\n")
    note = await task.notes.append("b", "more\n")
    await task.notes.append("a", "x")
    assert [note.name for note in task.notes.list()] == ["a", "b"]
    assert note.text == "line\nmore\n"
    with pytest.raises(ValueRefused):
        await task.notes.edit("b", "absent", "y")
    await task.notes.delete("b", content_sha256=note.content_sha256)
    assert (await task.notes.read("b")).text == ""


async def test_a_note_is_read_though_the_store_is_full_and_can_hold_no_base(tmp_path: Path) -> None:
    path = tmp_path / "full.db"
    async with Endpoint.open(path, subject="acme", device="phone", store_bytes_max=400_000) as phone:
        task = await phone.task(KEY, create=True)
        await task.notes.write("worklog", "line\n")
        with pytest.raises(StoreFull):
            for number in range(1_000):
                await task.notes.append("filling", f"{number}" * 1_000)
        for _ in range(2):
            assert (await task.notes.read("worklog")).text == "line\n"
            assert (await task.notes.read("nobody")).text == ""
    async with Endpoint.open(path, subject="acme", device="phone") as phone:
        task = await phone.task(KEY)
        base = await task.notes.read("worklog")
        assert (await task.notes.merge("worklog", "line\nmore\n", base=base)).note.text == "line\nmore\n"


async def test_a_note_may_not_be_named_handover(task: Task) -> None:
    with pytest.raises(ValueRefused, match="handover"):
        await task.notes.write("handover", "x")
