"""What a listing says of a task, record by record."""

from server_relay.records import StepRow, TaskSummary
from server_relay.summary import TaskSteps
from sync_core.entry import (
    CallIntent,
    CallOutcome,
    Completion,
    Effect,
    Entry,
    EntryKind,
    Plan,
    Record,
    VersionDecision,
    WriterRow,
    encode_record,
)
from sync_core.frames import Listing, ListTasks, PlannedStep, TaskListing
from sync_core.ids import StreamName
from sync_core.rulings import Doubted, Settled, SettledBy
from tests.server_relay.harness import Harness

KINDS: dict[type, EntryKind] = {
    CallIntent: EntryKind.CALL,
    CallOutcome: EntryKind.CALL,
    Plan: EntryKind.PLAN,
    VersionDecision: EntryKind.VERSION,
    Completion: EntryKind.COMPLETION,
    Doubted: EntryKind.RULING,
    Settled: EntryKind.RULING,
}


def entry(record: Record, seq: int = 1, task: str = "t") -> Entry:
    return Entry(f"{task}:state", 700_001, seq, KINDS[type(record)], encode_record(record), "phone")


def steps_after(*records: Record) -> TaskSteps:
    steps = TaskSteps(TaskSummary(), ())
    for record in records:
        steps.apply(entry(record))
    return steps


def intent(attempt: str, step: str = "scan", version: int = 1) -> CallIntent:
    return CallIntent(step, version, "read_invoice", Effect.READ, "d", attempt, 1)


def outcome(attempt: str, ok: bool, step: str = "scan", version: int = 1) -> CallOutcome:
    return CallOutcome(step, version, attempt, ok)


def counts(*records: Record) -> tuple[int, int]:
    summary = steps_after(*records).summary
    return summary.calls_done, summary.calls_in_doubt


def test_an_intent_without_an_outcome_is_in_doubt() -> None:
    assert counts(intent("a")) == (0, 1)
    assert counts(intent("a"), intent("b")) == (0, 1)
    assert counts(intent("a"), outcome("a", False)) == (0, 0)
    assert counts(intent("a"), intent("b"), outcome("a", False)) == (0, 1)


def test_a_success_settles_its_step_once() -> None:
    assert counts(intent("a"), outcome("a", True)) == (1, 0)
    assert counts(intent("a"), intent("b"), outcome("a", True)) == (1, 0)
    assert counts(intent("a"), intent("b"), outcome("a", True), outcome("b", True)) == (1, 0)
    assert counts(intent("a"), outcome("a", True), intent("c")) == (1, 0)
    assert counts(intent("a"), intent("b"), outcome("a", True), outcome("b", False)) == (1, 0)


def test_a_call_of_which_nobody_knows_stays_in_doubt_until_it_is_settled() -> None:
    unsure = CallOutcome("scan", 1, "a", ok=False, unsure=True)
    doubted = Doubted("key", "scan", 1, "a", 7, "its tool raised")

    def settled(happened: bool) -> Settled:
        return Settled("key", "scan", 1, "a", 7, happened, SettledBy.PERSON, "ann", "phone")

    assert counts(intent("a"), unsure) == counts(intent("a"), unsure, doubted) == counts(doubted) == (0, 1)
    assert counts(intent("a"), unsure, doubted, settled(True)) == (1, 0)
    assert counts(intent("a"), unsure, doubted, settled(False)) == (0, 0)
    assert counts(intent("a"), outcome("a", True), settled(True)) == (1, 0)


def test_attempts_after_a_success_are_not_kept() -> None:
    steps = steps_after(intent("a"), outcome("a", True), intent("b"))
    assert steps.changed[1, "scan"].open == ()


def test_steps_of_two_versions_are_two_steps() -> None:
    assert counts(intent("a"), outcome("a", True), intent("b", version=2)) == (1, 1)


def test_a_planned_step_is_changed_and_kept_once() -> None:
    steps = steps_after(Plan("scan", 1, "read_invoice", "{}", 1, ("camera",)), intent("a"))
    assert steps.changed == {(1, "scan"): StepRow(1, "scan", True, "read_invoice", ("camera",), False, ("a",))}


def test_the_highest_version_stands_and_a_higher_one_opens_a_completed_task_again() -> None:
    steps = steps_after(VersionDecision(3, "anna"), VersionDecision(2, "eve"), Completion(3, "anna"))
    steps.judge({})
    assert (steps.summary.version, steps.summary.completed, steps.summary.edited) == (3, True, False)
    steps.judge({StreamName.STATE: (WriterRow(70_001, "desktop", 0, 2),)})
    assert (steps.summary.completed, steps.summary.edited) == (True, True)
    again = steps_after(Completion(3, "anna"), VersionDecision(4, "anna"))
    again.judge({})
    assert (again.summary.version, again.summary.completed) == (4, False)


def test_the_listing_follows_what_is_stored_and_survives_a_restart() -> None:
    harness = Harness()
    phone = harness.login("phone")
    phone.push("t", entry(Plan("scan", 1, "read_invoice", "{}", 1, ("camera",))), entry(intent("a", "check"), 2))
    expected = TaskListing("t", 1, (PlannedStep("scan", "read_invoice", ("camera",)),), 0, 1, False, harness.now_ms)
    phone.send(ListTasks(5))
    assert phone.take(Listing) == [Listing(5, (expected,), False)]
    harness.restart()
    phone = harness.login("phone")
    phone.push("t", entry(outcome("a", True, "check"), 3), entry(intent("b"), 4), entry(outcome("b", True), 5))
    phone.send(ListTasks(6))
    assert phone.take(Listing) == [Listing(6, (TaskListing("t", 1, (), 2, 0, False, harness.now_ms),), False)]


def test_a_page_that_would_outgrow_a_frame_is_cut() -> None:
    harness = Harness()
    phone = harness.login("phone")
    for number in range(20):
        task = f"t{number:02}"
        plans = [entry(Plan(f"{'s' * 190}{seq}", 1, "x" * 60, "{}", 1), seq, task) for seq in range(1, 51)]
        phone.push(task, *plans)
    seen: list[str] = []
    more = True
    while more:
        phone.send(ListTasks(1, after=seen[-1] if seen else ""))
        harness.drain()
        (page,) = phone.take(Listing)
        seen += [task.task for task in page.tasks]
        more = page.more
    assert seen == [f"t{number:02}" for number in range(20)]


def test_a_task_with_huge_plans_is_listed_with_as_many_as_fit() -> None:
    harness = Harness()
    phone = harness.login("phone")
    for seq in range(1, 6):
        phone.push("t", entry(Plan(f"step-{seq}", 1, "x" * 30_000, "{}", 1), seq))
    phone.send(ListTasks(1))
    (page,) = phone.take(Listing)
    assert [step.step for step in page.tasks[0].planned] == ["step-1", "step-2"]
