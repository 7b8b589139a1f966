"""The status adds up what the tasks have to show, and is told when it changed."""

from sync_core.document.view import TaskView
from sync_core.parts import Role
from sync_core.replica.changes import LinkState, Status
from sync_core.replica.core import Core, ReplicaSettings
from sync_core.replica.tally import Tally
from sync_core.replica.task import TaskReplica


def test_the_status_adds_up_the_tasks_and_is_renewed_only_when_it_changed() -> None:
    core = Core("acme", "phone", lambda count: bytes(range(count)), ReplicaSettings())
    first, second = TaskReplica(core, "a"), TaskReplica(core, "b")
    first.waiting = 2
    tally = Tally(core.session, [first, second])
    assert tally.status == Status(LinkState.OFFLINE, "no relay is configured", 2)
    assert not tally.renew(core.session)
    second.waiting, second.set_aside, second.diverged_from = 3, 1, frozenset({"desktop"})
    first.quarantined = 4
    for task in (first, second):
        tally.note(task)
    assert tally.renew(core.session)
    assert tally.status == Status(LinkState.OFFLINE, "no relay is configured", 5, 1, 4, ("b",))
    for task in (first, second):
        tally.note(task)
    assert not tally.renew(core.session)


def test_a_forgotten_task_counts_no_longer() -> None:
    core = Core("acme", "phone", lambda count: bytes(range(count)), ReplicaSettings())
    task = TaskReplica(core, "a")
    task.waiting, task.set_aside = 2, 1
    tally = Tally(core.session, [task])
    tally.note(task)
    tally.renew(core.session)
    tally.forget("a")
    assert tally.renew(core.session)
    assert tally.status == Status(LinkState.OFFLINE, "no relay is configured")


def test_a_task_near_the_bound_of_its_writes_is_growing_while_it_is_open() -> None:
    core = Core("acme", "phone", lambda count: bytes(range(count)), ReplicaSettings())
    task = TaskReplica(core, "a")
    tally = Tally(core.session, [task])
    task.loaded.view = TaskView("a", 1, {}, {}, {}, (), writes=20_000)
    tally.note(task)
    assert tally.renew(core.session)
    assert tally.status.growing == ("a",)
    task.unload()
    tally.note(task)
    assert tally.renew(core.session)
    assert not tally.status.growing


def test_whether_there_is_an_authority_is_known_only_while_the_relay_is_connected() -> None:
    core = Core("acme", "phone", lambda count: bytes(range(count)), ReplicaSettings())
    tally = Tally(core.session, [])
    assert (tally.status.role, tally.status.authority) == ("", None)
    core.session.state, core.session.logged_in = LinkState.LIVE, True
    core.session.role, core.session.authority = Role.APPROVE, True
    assert tally.renew(core.session)
    assert (tally.status.role, tally.status.authority) == ("approve", True)
    core.session.state, core.session.logged_in = LinkState.OFFLINE, False
    assert tally.renew(core.session)
    assert (tally.status.role, tally.status.authority) == ("approve", None)
