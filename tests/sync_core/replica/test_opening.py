"""When an opening is answered, and when `synced()` is: never early, never with less than the relay named."""

import pytest

from sync_core.document.view import TaskView
from sync_core.entry import EntryKind, VersionDecision, decode_record
from sync_core.errors import NotSyncedYet, ReadOnly, Refused, SegueError, TaskNotFound, VersionMismatch
from sync_core.frames import Hello, Login, Push, Receipt
from sync_core.frames import Refused as RefusedFrame
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import LinkState
from sync_core.replica.writes import FollowTask
from tests.sync_core.replica.fleet import TASK, Device
from tests.sync_core.replica.solo import EPOCH, STATE, Log, Solo, log_of

OTHER = "expense/TRIP-119"


def work(author: Device) -> None:
    author.append("n", f"{author.name}\n")
    author.ask(c.AppendHistory(author.ref(), TASK, ('{"content":"hello","role":"user"}',)), object)


@pytest.fixture
def logs() -> tuple[Log, Log]:
    logs = log_of(work)
    return logs[StreamName.STATE], logs[StreamName.HISTORY]


@pytest.fixture
def phone() -> Solo:
    return Solo()


def opened(phone: Solo, ref: int = 1) -> TaskView:
    view = phone.replies[ref]
    assert isinstance(view, TaskView)
    return view


def failed(phone: Solo, ref: int = 1) -> SegueError:
    error = phone.replies[ref]
    assert isinstance(error, SegueError)
    return error


# --- opening ----------------------------------------------------------------------------------------------------------


def test_a_task_opens_once_all_its_streams_have_reached_the_heads(phone: Solo, logs: tuple[Log, Log]) -> None:
    state, history = logs
    phone.log_in()
    phone.handle(c.OpenTask(1, TASK))
    assert phone.replies == {}
    phone.heads(state.head, history.head)
    phone.hear(state.frame())
    assert phone.replies == {}
    phone.hear(history.frame())
    assert opened(phone).notes["n"].text == "author\n"
    assert len(opened(phone).history) == 1
    assert phone.written(FollowTask) == [FollowTask(TASK)]


def test_a_task_that_nobody_has_is_created_or_not_found(phone: Solo) -> None:
    phone.log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(known=False)
    assert isinstance(failed(phone), TaskNotFound)
    phone.handle(c.OpenTask(2, TASK, create=True))
    phone.heads(known=False)
    assert opened(phone, 2).version == 1
    assert [entry.kind for entry in phone.unsent()] == [EntryKind.VERSION]


def test_without_a_link_only_what_is_here_opens_at_once(phone: Solo) -> None:
    phone.drop_link()
    phone.handle(c.OpenTask(1, TASK))
    assert isinstance(failed(phone), NotSyncedYet)
    phone.handle(c.OpenTask(2, TASK, create=True))
    phone.handle(c.OpenTask(3, TASK))
    assert opened(phone, 2).version == opened(phone, 3).version == 1


def test_while_a_link_may_still_come_about_an_opening_waits_five_seconds(phone: Solo) -> None:
    phone.handle(c.OpenTask(1, TASK, create=True))
    phone.wait(4_800)
    assert phone.replies == {}
    phone.wait(200)
    assert opened(phone).version == 1


def test_an_opening_that_waits_is_answered_when_the_link_fails(phone: Solo) -> None:
    phone.log_in()
    phone.handle(c.OpenTask(1, TASK, create=True))
    phone.handle(e.LinkDown())
    assert phone.replies == {}
    phone.handle(e.LinkFailed("no route"))
    assert opened(phone).version == 1


def test_a_device_that_was_refused_opens_what_it_has_and_says_why_of_the_rest(phone: Solo) -> None:
    phone.log_in()
    phone.hear(RefusedFrame("credentials", "The token is revoked.", "", final=True))
    phone.handle(c.OpenTask(1, TASK))
    assert isinstance(failed(phone), Refused)
    assert "The token is revoked" in failed(phone).sentence
    phone.handle(c.OpenTask(2, TASK, create=True))
    assert opened(phone, 2).version == 1


def test_a_link_that_came_before_the_final_refusal_was_read_is_hung_up_for_good(phone: Solo) -> None:
    phone.log_in()
    phone.hear(RefusedFrame("credentials", "The token is revoked.", "", final=True))
    phone.handle(e.LinkDown("closed"))
    phone.log.clear()
    phone.handle(e.LinkUp(""))
    assert [effect.final for effect in phone.log if isinstance(effect, e.HangUp)] == [True]
    assert not phone.sent(Login)
    phone.handle(c.OpenTask(1, TASK))
    assert "The token is revoked" in failed(phone).sentence


def test_a_bad_key_is_refused_before_anything_is_asked(phone: Solo) -> None:
    phone.handle(c.OpenTask(1, "../x", create=True))
    assert failed(phone).code == "value_refused"
    assert phone.count(e.LoadTask) == 0


# --- versions and roles -----------------------------------------------------------------------------------------------


def decisions(phone: Solo) -> list[int]:
    records = [decode_record(entry.kind, entry.payload) for entry in phone.unsent(EntryKind.VERSION)]
    return [record.version for record in records if isinstance(record, VersionDecision)]


def test_a_higher_version_is_decided_a_lower_one_refused_and_none_takes_the_known_one(phone: Solo) -> None:
    phone.drop_link()
    phone.handle(c.OpenTask(1, TASK, create=True, version=3))
    phone.handle(c.OpenTask(2, TASK, version=5))
    phone.handle(c.OpenTask(3, TASK, version=4))
    phone.handle(c.OpenTask(4, TASK))
    assert opened(phone, 1).version == 3
    assert opened(phone, 2).version == opened(phone, 4).version == 5
    assert isinstance(failed(phone, 3), VersionMismatch)
    assert decisions(phone) == [3, 5]


def test_a_handle_that_may_only_read_decides_no_version(phone: Solo) -> None:
    phone.drop_link()
    phone.handle(c.OpenTask(1, TASK, create=True, write=False))
    assert isinstance(failed(phone), ReadOnly)
    phone.handle(c.OpenTask(2, TASK, create=True))
    phone.handle(c.OpenTask(3, TASK, version=2, write=False))
    assert isinstance(failed(phone, 3), ReadOnly)
    phone.handle(c.OpenTask(4, TASK, write=False))
    assert opened(phone, 4).version == 1


def test_a_device_in_the_role_read_opens_but_neither_creates_nor_decides(phone: Solo, logs: tuple[Log, Log]) -> None:
    state, history = logs
    phone.log_in("read")
    phone.handle(c.OpenTask(1, OTHER, create=True))
    phone.heads(task=OTHER, known=False)
    assert isinstance(failed(phone), ReadOnly)
    phone.handle(c.OpenTask(2, TASK))
    phone.heads(state.head, history.head)
    phone.hear(state.frame(), history.frame())
    assert opened(phone, 2).version == 1
    phone.handle(c.OpenTask(3, TASK, version=2))
    assert isinstance(failed(phone, 3), ReadOnly)
    assert phone.unsent() == []


# --- synced -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def synced(phone: Solo, logs: tuple[Log, Log]) -> Solo:
    """A live device with an open task, at the heads."""
    phone.log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(logs[0].head, logs[1].head)
    phone.hear(logs[0].frame(), logs[1].frame())
    phone.replies.clear()
    assert phone.replica.status.link is LinkState.LIVE
    return phone


def test_synced_waits_for_heads_that_are_younger_than_the_command(synced: Solo, logs: tuple[Log, Log]) -> None:
    state, history = logs
    before = len(synced.sent(Hello))
    synced.handle(c.AwaitSynced(5))
    assert len(synced.sent(Hello)) == before + 1
    assert synced.replies == {}
    further = log_of(work, "author", "tablet")[StreamName.STATE]
    assert further.entries[: len(state.entries)] == state.entries
    synced.heads(further.head, history.head)
    assert synced.replies == {}
    synced.hear(further.frame(len(state.entries) + 1))
    assert synced.replies == {5: None}


def test_synced_waits_for_the_receipts_of_what_was_written_before_but_not_after(
    synced: Solo, logs: tuple[Log, Log]
) -> None:
    synced.append("n", "before\n")
    synced.handle(c.AwaitSynced(5))
    (before,) = synced.unsent()
    synced.heads(logs[0].head, logs[1].head)
    synced.append("n", "after\n")
    assert 5 not in synced.replies
    synced.receipt(before, place=len(logs[0].entries) + 1)
    assert 5 in synced.replies
    assert len(synced.unsent()) == 1


def test_synced_waits_through_a_lost_link_for_the_next_heads(synced: Solo, logs: tuple[Log, Log]) -> None:
    synced.handle(c.AwaitSynced(5))
    synced.drop_link()
    synced.wait(1_000)
    assert synced.replies == {}
    synced.log_in()
    synced.heads(logs[0].head, logs[1].head)
    assert synced.replies == {5: None}


def test_synced_waits_for_work_in_the_file_that_nobody_has_opened(phone: Solo) -> None:
    phone.drop_link()
    phone.open()
    phone.crash()
    phone.handle(c.AwaitSynced(5))
    phone.log_in()
    phone.heads(known=False)
    assert phone.replies == {}
    assert phone.sent(Push)
    phone.receipt(phone.unsent()[0], place=1)
    assert phone.replies == {5: None}


def test_synced_does_not_wait_for_what_is_evicted_nor_at_all_if_nothing_is_followed(synced: Solo) -> None:
    synced.handle(c.AwaitSynced(5))
    synced.ask(c.EvictTask(6, TASK), object)
    assert 5 in synced.replies
    synced.handle(c.AwaitSynced(7))
    assert 7 in synced.replies


def test_synced_is_not_answered_while_a_task_starts_over(synced: Solo, logs: tuple[Log, Log]) -> None:
    state, history = logs
    synced.handle(c.AwaitSynced(5))
    further = log_of(work, "author", "tablet")[StreamName.STATE]
    synced.heads(further.head, history.head)
    # The relay leaves out a payload that is not here: it is asked for anew, and until then nobody knows the heads.
    synced.hear(Receipt(STATE, EPOCH, 70_000, 1, 1, further.head.head))
    assert synced.replies == {}
    synced.heads(further.head, history.head)
    synced.hear(further.frame(state.head.head + 1))
    assert synced.replies == {5: None}
