"""The desk: every command is answered exactly once, at once or when what it waits for is here."""

import hashlib

import pytest

from sync_core.document.notes import MergedNote, Note
from sync_core.document.view import TaskView
from sync_core.entry import EntryKind
from sync_core.errors import (
    BaseUnknown,
    Closed,
    ReadOnly,
    ResultUnavailable,
    SegueError,
    StoreFull,
    UnsentWork,
    VersionMismatch,
)
from sync_core.frames import (
    WIRE_VERSION,
    BlobMissing,
    BlobPiece,
    BlobWanted,
    Heads,
    Hello,
    Listing,
    ListTasks,
    Login,
    Receipt,
    StreamHead,
    Unfollow,
)
from sync_core.ids import StreamName
from sync_core.limits import BASE_PIN_KEEP_MS
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.writes import DropTask, PinBase
from tests.sync_core.replica.fleet import TASK
from tests.sync_core.replica.solo import EPOCH, Solo

OTHER = "expense/TRIP-119"
DATA = b"a large result"
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def offline() -> Solo:
    """A device without a link, with an open task."""
    phone = Solo()
    phone.drop_link()
    phone.open()
    phone.forget()
    return phone


@pytest.fixture
def online() -> Solo:
    """A device on a link, with an open task of which everything is stored."""
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK, create=True))
    phone.heads(known=False)
    phone.receipt(phone.unsent()[0], place=1)
    phone.replies.clear()
    phone.forget()
    return phone


def answers(phone: Solo, ref: int) -> list[object]:
    """Every answer to a command, in order."""
    found: list[object] = [x.value for x in phone.log if isinstance(x, e.Reply) and x.ref == ref]
    return found + [x.error for x in phone.log if isinstance(x, e.Fail) and x.ref == ref]


# --- open tasks -------------------------------------------------------------------------------------------------------

COMMANDS: list[c.Command] = [
    c.ReadNote(9, TASK, "n"),
    c.AppendNote(9, TASK, "n", "x"),
    c.MergeNote(9, TASK, "n", "x", "0" * 64),
    c.PopHistory(9, TASK),
    c.FetchBlob(9, TASK, SHA),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_on_a_task_that_is_not_open_is_refused(offline: Solo, command: c.Command) -> None:
    offline.ask(c.CloseTask(8, TASK), object)
    offline.handle(command)
    assert [type(answer) for answer in answers(offline, 9)] == [Closed]


def test_a_handle_that_is_given_back_twice_takes_no_other_one_away(offline: Solo) -> None:
    offline.open()
    for ref in (5, 6, 7):
        offline.ask(c.CloseTask(ref, TASK), object)
        if ref == 5:
            offline.append("n", "still open\n")
    with pytest.raises(Closed):
        offline.append("n", "x")
    offline.open()
    offline.ask(c.CloseTask(8, TASK), object)
    with pytest.raises(Closed):
        offline.append("n", "x")


def test_a_command_that_is_refused_leaves_nothing_behind(offline: Solo) -> None:
    before = offline.unsent()
    with pytest.raises(VersionMismatch):
        offline.ask(c.PlanCall(9, TASK, 7, "step", "tool", "{}", ()), object)
    assert offline.unsent() == before
    assert offline.count(e.Written) == 0


def test_a_device_in_the_role_read_reads_and_writes_nothing(online: Solo) -> None:
    online.append("n", "line\n")
    (own,) = online.unsent()
    online.receipt(own, place=2)
    online.drop_link()
    online.log_in("read")
    online.forget()
    assert online.ask(c.ReadNote(8, TASK, "n"), Note).text == "line\n"
    for command in (c.AppendNote(9, TASK, "n", "x"), c.MergeNote(9, TASK, "n", "x", "0" * 64)):
        with pytest.raises(ReadOnly):
            online.ask(command, object)
    assert online.unsent() == []


# --- notes and their bases --------------------------------------------------------------------------------------------


def test_a_text_is_pinned_when_it_is_read_again_when_it_changed_and_again_before_the_pin_is_too_old(
    online: Solo,
) -> None:
    def read() -> int:
        online.ask(c.ReadNote(online.ref() + 50, TASK, "n"), Note)
        return len(online.written(PinBase))

    assert (read(), read()) == (1, 1)
    online.append("n", "x\n")
    assert (read(), read()) == (2, 2)
    online.hear(Heads(TASK, True, (), 1_000 + BASE_PIN_KEEP_MS // 2, answers=1))
    assert (read(), read()) == (3, 3)


def test_a_merge_takes_the_pinned_base_from_the_store_and_refuses_an_unknown_one(offline: Solo) -> None:
    offline.append("n", "base\n")
    base = offline.ask(c.ReadNote(8, TASK, "n"), Note)
    offline.append("n", "meanwhile\n")
    merged = offline.ask(c.MergeNote(9, TASK, "n", "base\nmine\n", base.content_sha256), MergedNote)
    assert sorted(merged.note.text.split()) == ["base", "meanwhile", "mine"]
    assert offline.log[-1] != e.LoadBase(TASK, "n", base.content_sha256)
    with pytest.raises(BaseUnknown):
        offline.ask(c.MergeNote(10, TASK, "n", "x", "0" * 64), object)


# --- eviction ---------------------------------------------------------------------------------------------------------


def test_a_task_is_evicted_once_all_of_it_is_stored(online: Solo) -> None:
    online.append("n", "x\n")
    with pytest.raises(UnsentWork):
        online.ask(c.EvictTask(8, TASK), object)
    online.receipt(online.unsent()[0], place=2)
    online.ask(c.EvictTask(9, TASK), object)
    assert online.written(DropTask) == [DropTask(TASK)]
    assert online.sent(Unfollow) == [Unfollow(TASK)]
    assert online.ask(c.EvictTask(10, OTHER), object) is None


def test_who_waits_for_a_task_that_is_evicted_is_told(online: Solo) -> None:
    online.handle(c.FetchBlob(7, TASK, SHA))
    online.drop_link()
    online.log_in()
    online.handle(c.FetchBlob(8, TASK, SHA))
    online.handle(c.OpenTask(9, TASK))
    online.handle(c.EvictTask(10, TASK))
    assert [type(answer) for answer in answers(online, 7)] == [ResultUnavailable]
    for ref in (8, 9):
        assert [type(answer) for answer in answers(online, ref)] == [Closed]
    assert answers(online, 10) == [None]


# --- blobs ------------------------------------------------------------------------------------------------------------


def test_a_blob_is_served_from_the_file_else_from_the_relay_else_unavailable(online: Solo) -> None:
    online.handle(c.FetchBlob(5, TASK, SHA))
    online.handle(c.FetchBlob(6, TASK, SHA))
    assert online.sent(BlobWanted) == [BlobWanted(TASK, SHA, 0)]
    online.hear(BlobPiece(TASK, SHA, 0, len(DATA), DATA))
    assert answers(online, 5) == answers(online, 6) == [DATA]
    online.forget()
    online.handle(c.FetchBlob(7, TASK, SHA))
    assert answers(online, 7) == [DATA]
    assert online.sent(BlobWanted) == []
    online.handle(c.FetchBlob(8, TASK, "0" * 64))
    online.hear(BlobMissing(TASK, "0" * 64))
    assert [type(answer) for answer in answers(online, 8)] == [ResultUnavailable]


def test_a_blob_that_is_not_here_is_unavailable_without_a_link(offline: Solo) -> None:
    offline.handle(c.FetchBlob(5, TASK, SHA))
    assert [type(answer) for answer in answers(offline, 5)] == [ResultUnavailable]


# --- what only the relay can answer -----------------------------------------------------------------------------------


def test_a_listing_goes_to_who_asked_for_it_and_there_is_none_without_a_link(online: Solo) -> None:
    online.handle(c.QueryTasks(5, "expense/", "expense/A"))
    assert online.sent(ListTasks) == [ListTasks(5, "expense/", "expense/A")]
    page = Listing(5, (), more=False)
    online.hear(Listing(6, (), more=False), page, page)
    assert answers(online, 5) == [page]
    assert answers(online, 6) == []
    online.handle(c.QueryTasks(7))
    online.drop_link()
    assert answers(online, 7) == [None]
    online.handle(c.QueryTasks(8))
    assert answers(online, 8) == [None]


# --- giving up --------------------------------------------------------------------------------------------------------


def test_a_command_whose_caller_gave_up_is_not_answered(online: Solo) -> None:
    online.handle(c.OpenTask(5, OTHER, create=True))
    online.handle(c.FetchBlob(6, TASK, SHA))
    online.handle(c.QueryTasks(7))
    online.handle(c.AwaitSynced(8))
    for ref in (5, 6, 7, 8):
        online.handle(c.Cancel(ref))
    online.heads(task=OTHER, known=False)
    online.heads(task=TASK)
    online.hear(BlobPiece(TASK, SHA, 0, len(DATA), DATA), Listing(7, (), more=False))
    assert [answers(online, ref) for ref in (5, 6, 7, 8)] == [[], [], [], []]
    assert online.sent(Unfollow) == [Unfollow(OTHER)]


# --- when a commit fails ----------------------------------------------------------------------------------------------


def test_what_a_failed_commit_would_have_answered_fails_with_its_error(offline: Solo) -> None:
    offline.disk.fail_next(StoreFull("The disk is full."))
    offline.handle(c.AppendNote(5, TASK, "n", "lost\n"))
    assert isinstance(offline.replies[5], StoreFull)
    assert offline.ask(c.ReadNote(6, TASK, "n"), Note).text == ""
    offline.append("n", "kept\n")
    assert [entry.writer_seq for entry in offline.unsent()] == [1, 2]


def test_an_opening_whose_commit_fails_leaves_no_handle() -> None:
    phone = Solo()
    phone.drop_link()
    phone.disk.fail_next(StoreFull("The disk is full."))
    phone.handle(c.OpenTask(1, TASK, create=True))
    assert isinstance(phone.replies[1], StoreFull)
    with pytest.raises(Closed):
        phone.append("n", "x")
    assert phone.open().version == 1


def test_an_eviction_whose_commit_fails_forgets_nothing(online: Solo) -> None:
    online.disk.fail_next(StoreFull("The disk is full."))
    with pytest.raises(StoreFull):
        online.ask(c.EvictTask(5, TASK), object)
    assert online.sent(Hello)[-1].task == TASK
    online.handle(c.OpenTask(6, TASK))
    online.heads(known=True)
    assert isinstance(answers(online, 6)[-1], TaskView)


def test_an_eviction_whose_commit_fails_leaves_the_handles_open(online: Solo) -> None:
    online.disk.fail_next(StoreFull("The disk is full."))
    with pytest.raises(StoreFull):
        online.ask(c.EvictTask(5, TASK), object)
    online.append("n", "by the handle that stayed\n")
    online.ask(c.CloseTask(6, TASK), object)
    with pytest.raises(Closed):
        online.append("n", "by nobody\n")


def test_a_task_given_back_in_the_event_whose_commit_fails_is_read_again(online: Solo) -> None:
    online.append("n", "kept\n")
    (waiting,) = online.unsent()
    online.handle(c.CloseTask(5, TASK))
    receipt = Receipt(waiting.stream, EPOCH, waiting.writer, waiting.writer_seq, waiting.writer_seq, 2)
    effects = [*online.replica.handle(e.FrameReceived(receipt), 0, 0), *online.replica.handle(e.Tick(), 0, 0)]
    assert (online.replica.loaded, online.replica.status.unsent) == (0, 0)
    online.handle(e.CommitFailed(tuple(effects), StoreFull("The disk is full.")))
    assert online.replica.status.unsent == 1
    online.heads(StreamHead(StreamName.STATE, EPOCH, 2))
    online.hear(receipt)
    assert (online.unsent(), online.replica.status.unsent) == ([], 0)


def test_what_speaks_of_nothing_that_was_to_be_durable_is_owed_also_after_a_failed_commit() -> None:
    phone = Solo()
    phone.replica.handle(c.OpenTask(1, TASK, create=True), 0, 0)
    phone.replica.handle(e.LinkUp("secret"), 1_000, 0)
    login = Login(WIRE_VERSION, "acme", "phone", "secret")
    hang_up, status = e.HangUp("credentials", final=True), e.StatusIs(phone.replica.status)
    frames = [e.SendFrame(frame) for frame in (login, Hello(TASK), ListTasks(7))]
    lost = e.CommitFailed((*frames, status, hang_up), StoreFull("full"))
    owed = phone.replica.handle(lost, 1_000, 0)
    assert [x for x in owed if not isinstance(x, (e.LoadTask, e.Written))] == [frames[0], frames[2], status, hang_up]


def test_compaction_is_answered_once_also_if_there_is_nothing_to_merge(offline: Solo) -> None:
    offline.handle(c.CompactTask(5, TASK))
    offline.handle(c.CompactTask(6, OTHER))
    assert answers(offline, 5) == [None]
    assert [type(answer) for answer in answers(offline, 6)] == [Closed]
    assert [entry.kind for entry in offline.unsent()] == [EntryKind.VERSION]
    assert not any(isinstance(reply, SegueError) for ref, reply in offline.replies.items() if ref == 5)
