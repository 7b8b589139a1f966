"""Following tasks over the link: who says Hello, who may push, whose document may go; however many are followed."""

from random import Random

import msgspec
import pytest

from sync_core.entry import Entry, EntryKind, HistoryItem, encode_record
from sync_core.errors import StoreDamaged
from sync_core.frames import WIRE_VERSION, Heads, Hello, Push, StreamHead, Unfollow, Welcome
from sync_core.ids import StreamName
from sync_core.replica import commands as c
from sync_core.replica import effects as e
from sync_core.replica.changes import LinkState
from sync_core.replica.core import ReplicaSettings
from sync_core.replica.replica import Replica
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import FollowedStream, FollowedTask, FollowTask, PutEntry
from tests.sync_core.replica.fleet import TASK
from tests.sync_core.replica.solo import EPOCH, Log, Solo, log_of

OTHER = "expense/TRIP-119"


def key(number: int) -> str:
    return f"expense/T-{number}"


class Many:
    """A Replica that follows many tasks of which nothing is in memory; the test plays relay."""

    def __init__(self, count: int) -> None:
        streams = [FollowedStream(f"{key(n)}:state", EPOCH, 5, bytes(16), ()) for n in range(count)]
        followed = tuple(FollowedTask(key(n), (stream,), 0) for n, stream in enumerate(streams))
        settings = ReplicaSettings(has_relay=True)
        self.replica = Replica("acme", "phone", Random(1).randbytes, followed, settings)
        self.now_ms = 1_000
        self.handle(e.LinkUp(""))

    def handle(self, event: e.Event | c.Command) -> list[e.Effect]:
        return self.replica.handle(event, self.now_ms, 0)

    def welcome(self) -> list[str]:
        return hellos(self.handle(e.FrameReceived(Welcome(WIRE_VERSION, 1, "write", "p"))))

    def heads(self, number: int, head: int = 5, answers: int = 1) -> list[e.Effect]:
        heads = (StreamHead(StreamName.STATE, EPOCH, head),)
        return self.handle(e.FrameReceived(Heads(key(number), True, heads, 1, answers)))


def link(many: Many) -> LinkState:
    return many.replica.status.link


def hellos(effects: list[e.Effect]) -> list[str]:
    return [x.frame.task for x in effects if isinstance(x, e.SendFrame) and isinstance(x.frame, Hello)]


# --- Hello ------------------------------------------------------------------------------------------------------------


def test_so_many_hellos_wait_for_their_heads_and_each_answer_lets_another_go() -> None:
    many = Many(300)
    assert many.welcome() == [key(n) for n in range(256)]
    assert hellos(many.heads(0)) == [key(256)]
    assert hellos(many.heads(17)) == [key(257)]


def test_hello_is_said_again_when_no_heads_come() -> None:
    many = Many(2)
    many.welcome()
    many.heads(1)
    many.now_ms += 2_999
    assert hellos(many.handle(e.Tick())) == []
    many.now_ms += 1
    many.handle(e.Tick())
    assert link(many) is LinkState.SYNCING
    many.heads(0, answers=2)
    assert link(many) is LinkState.LIVE


def test_hello_is_said_again_when_what_lies_below_the_heads_does_not_come() -> None:
    many = Many(1)
    many.welcome()
    many.heads(0, head=7)
    many.now_ms += 3_000
    assert hellos(many.handle(e.Tick())) == [key(0)]


def test_the_session_is_live_once_every_task_has_reached_its_heads() -> None:
    many = Many(300)
    waiting = many.welcome()
    while waiting:
        assert link(many) is LinkState.SYNCING
        answered = waiting.pop(len(waiting) // 2)
        waiting += hellos(many.heads(int(answered.rpartition("-")[2])))
    assert link(many) is LinkState.LIVE


def test_a_task_that_is_read_before_its_hello_is_not_live_meanwhile() -> None:
    settings = ReplicaSettings(has_relay=True)
    replica = Replica("acme", "phone", Random(1).randbytes, (FollowedTask(TASK, (), 1),), settings)
    replica.handle(e.LinkUp(""), 1, 1)
    effects = replica.handle(e.FrameReceived(Welcome(WIRE_VERSION, 1, "write", "p")), 1, 1)
    assert e.LoadTask(TASK) in effects
    assert hellos(effects) == []
    assert replica.status.link is LinkState.SYNCING


def test_hello_names_own_writers_page_by_page() -> None:
    phone = Solo()
    writers = range(70_000, 70_600)
    for writer in writers:
        for seq in (1, 2):
            item = HistoryItem(f"{writer}-{seq}", "run", 1, seq, "{}")
            entry = Entry(f"{TASK}:history", writer, seq, EntryKind.HISTORY, encode_record(item), "phone")
            phone.disk.commit([PutEntry(entry, own=True)])
    phone.disk.commit([FollowTask(TASK)])
    phone.boot()
    phone.log_in()
    pages = phone.sent(Hello)
    assert [page.more for page in pages] == [True, False]
    assert [own for page in pages for stream in page.streams for own in stream.own] == [(w, 2) for w in writers]


def test_an_evicted_task_is_followed_no_longer() -> None:
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK, True))
    phone.heads(known=False)
    entry = phone.unsent()[0]
    phone.heads(Log(StreamName.STATE, (entry,)).head)
    phone.receipt(entry, place=1)
    phone.ask(c.EvictTask(2, TASK), object)
    assert phone.sent(Unfollow) == [Unfollow(TASK)]


# --- pushing ----------------------------------------------------------------------------------------------------------


def test_nothing_is_pushed_before_the_heads_and_tasks_share_the_link_frame_by_frame() -> None:
    phone = Solo()
    phone.drop_link()
    for task in (TASK, OTHER):
        phone.open(task)
        for number in range(3):
            phone.ask(c.WriteNote(phone.ref(), task, f"n{number}", "x" * 60_000, None), object)
    phone.log_in()
    assert phone.sent(Push) == []
    phone.heads(known=False)
    phone.heads(known=False, task=OTHER)
    assert [push.task for push in phone.sent(Push)] == [TASK] * 3 + [OTHER] * 3
    phone.forget()
    phone.wait(3_000)
    assert [push.task for push in phone.sent(Push)] == [TASK, OTHER] * 3


@pytest.fixture
def recovering() -> Solo:
    """A device that stands in a log which the relay has lost."""
    log = log_of(lambda author: author.append("n", "one\n"))[StreamName.STATE]
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK))
    phone.heads(log.head)
    phone.hear(log.frame())
    return phone


def test_recovered_work_waits_until_what_the_new_log_holds_is_merged(recovering: Solo) -> None:
    held = [entry for stream in recovering.image.streams for entry in stream.entries]
    new = Log(StreamName.STATE, (held[0],), epoch=b"epoch-02")
    recovering.heads(new.head)
    recovering.heads(new.head)
    assert recovering.sent(Push) == []
    recovering.hear(new.frame())
    (push,) = recovering.sent(Push)
    assert push.recovered
    assert [(e.writer, e.writer_seq) for e in push.entries] == [(e.writer, e.writer_seq) for e in held[1:]]


def test_recovered_work_waits_for_a_role_that_may_write(recovering: Solo) -> None:
    recovering.drop_link()
    recovering.log_in("read")
    recovering.heads(StreamHead(StreamName.STATE, b"epoch-02", 0))
    recovering.heads(StreamHead(StreamName.STATE, b"epoch-02", 0))
    assert recovering.sent(Push) == []
    recovering.drop_link()
    recovering.log_in("write")
    recovering.heads(StreamHead(StreamName.STATE, b"epoch-02", 0))
    assert recovering.sent(Push)


# --- documents --------------------------------------------------------------------------------------------------------


def test_an_idle_tick_looks_at_no_task_and_nothing_but_places_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    many = Many(1_000)
    many.welcome()
    for number in range(1_000):
        many.heads(number)
    many.handle(e.Tick())
    looked_at: list[str] = []
    monkeypatch.setattr(TaskReplica, "tick", lambda task: looked_at.append(task.key))
    assert many.handle(e.Tick()) == []
    assert looked_at == []
    assert all(task._loaded is None for task in many.replica._table.tasks.values())


def test_entries_for_tasks_without_a_handle_leave_few_documents_and_none_after_a_tick() -> None:
    log = log_of(lambda author: author.append("n", "one\n"))[StreamName.STATE]
    phone = Solo()
    tasks = [key(number) for number in range(40)]
    phone.disk.commit([FollowTask(task) for task in tasks])
    phone.boot()
    phone.log_in()
    for task in tasks:
        moved = tuple(msgspec.structs.replace(entry, stream=f"{task}:state") for entry in log.entries)
        phone.heads(log.head, task=task)
        phone.hear(msgspec.structs.replace(log.frame(), stream=f"{task}:state", entries=moved))
        assert phone.replica.loaded <= 16
    assert phone.replica.loaded == 16
    phone.wait(200)
    assert phone.replica.loaded == 0


def test_a_document_whose_work_is_not_stored_yet_stays_while_the_link_stands() -> None:
    phone = Solo().log_in()
    phone.handle(c.OpenTask(1, TASK, True))
    phone.heads(known=False)
    phone.ask(c.CloseTask(2, TASK), object)
    phone.wait(1_000)
    assert phone.replica.loaded == 1
    phone.drop_link()
    phone.wait(200)
    assert phone.replica.loaded == 0


def test_a_damaged_task_is_read_once_for_each_who_asks_and_holds_up_nobody() -> None:
    phone = Solo()
    phone.drop_link()
    phone.open()
    whole = phone.image
    (state,) = whole.streams
    lost = ((state.entries[0].writer, 1, None),)
    damaged = msgspec.structs.replace(whole, streams=(msgspec.structs.replace(state, entries=(), damaged=lost),))
    phone.crash()
    phone.forget()
    phone.disk.load_task = lambda task: damaged  # type: ignore[method-assign]
    phone.log_in()
    assert phone.count(e.LoadTask) == 1
    assert phone.replica.status.link is LinkState.LIVE
    phone.wait(10_000)
    assert phone.count(e.LoadTask) == 1
    with pytest.raises(StoreDamaged):
        phone.ask(c.OpenTask(9, TASK), object)
