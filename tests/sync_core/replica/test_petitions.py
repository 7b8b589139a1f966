"""Petitions: what is asked of the authority, when, and what becomes of a question that is not answered."""

import pytest

from sync_core.document.calls import CallBegun, CallRecorded, CallState
from sync_core.document.slots import CandidateStatus, Slot
from sync_core.entry import CallOutcome, Effect, EntryKind, VersionDecision, decode_record
from sync_core.errors import (
    InDoubt,
    KeyReused,
    NeedsAuthority,
    ReadOnly,
    Refused,
    RunningElsewhere,
    SegueError,
    StoreFull,
    ValueRefused,
    VersionMismatch,
)
from sync_core.frames import Hello, Push, StreamHead
from sync_core.ids import StreamName
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict, HoldSlot, LiftBarrier, Ruled, SettleDoubt
from sync_core.replica import commands as c
from sync_core.replica.core import ReplicaSettings
from sync_core.replica.replica import Replica
from sync_core.rulings import Doubted, Held
from tests.sync_core.replica.fleet import TASK
from tests.sync_core.replica.guarded import DIGEST, Guarded
from tests.sync_core.replica.solo import EPOCH, STATE


@pytest.fixture
def phone() -> Guarded:
    return Guarded()


def state_of(phone: Guarded, step: str = "pay") -> CallState:
    return phone.view.calls[1, step].state


# --- a claim ----------------------------------------------------------------------------------------------------------


def test_a_claim_is_asked_and_its_grant_begins_the_call_under_the_granted_attempt(phone: Guarded) -> None:
    phone.claim(entity='"E"', releases=(("book", "X"),), needs_approval=True, checked=True)
    (claim,) = phone.sent(Claim)
    assert (claim.task, claim.version, claim.step, claim.tool, claim.arguments_digest) == (
        TASK,
        1,
        "pay",
        "pay",
        DIGEST,
    )
    assert (claim.entity, claim.releases, claim.needs_approval, claim.checked) == ('"E"', (("book", "X"),), True, True)
    claimed = phone.answer(ClaimVerdict.GRANTED, token=7)
    assert claimed.attempt == claim.attempt
    phone.rule(phone.granted(claim.attempt, 7))
    assert state_of(phone) is CallState.RUNNING
    begun = phone.begin_granted(claimed)
    assert begun == CallBegun(claim.attempt, "key", 7)
    assert state_of(phone) is CallState.RUNNING
    end = c.EndCall(phone.ref(), TASK, 1, "pay", begun.attempt, True, '"R1"', token=7, label="R1")
    recorded = phone.ask(end, CallRecorded)
    assert recorded.call.state is CallState.DONE
    outcome = decode_record(EntryKind.CALL, phone.unsent(EntryKind.CALL)[-1].payload)
    assert isinstance(outcome, CallOutcome)
    assert (outcome.token, outcome.label, outcome.unsure) == (7, "R1", False)


def test_a_call_that_cannot_be_undone_begins_with_a_grant_alone(phone: Guarded) -> None:
    with pytest.raises(NeedsAuthority):
        phone.begin("pay", DIGEST, Effect.IRREVERSIBLE)


def test_an_outcome_that_is_unsure_leaves_the_call_in_doubt(phone: Guarded) -> None:
    phone.claim()
    begun = phone.begin_granted(phone.answer(ClaimVerdict.GRANTED, token=1))
    end = c.EndCall(phone.ref(), TASK, 1, "pay", begun.attempt, False, None, "Boom", unsure=True, token=1)
    assert phone.ask(end, CallRecorded).call.state is CallState.IN_DOUBT


def test_a_recorded_success_is_answered_and_other_arguments_are_refused_before_anything_is_asked(
    phone: Guarded,
) -> None:
    phone.claim()
    begun = phone.begin_granted(phone.answer(ClaimVerdict.GRANTED, token=1))
    phone.ask(c.EndCall(phone.ref(), TASK, 1, "pay", begun.attempt, True, "5", token=1), CallRecorded)
    phone.forget()
    assert isinstance(phone.replies.pop(phone.claim()), CallRecorded)
    assert isinstance(phone.error(phone.claim(digest="2" * 64)), KeyReused)
    assert isinstance(phone.error(phone.claim_version(2)), VersionMismatch)
    assert phone.sent(Claim) == []


@pytest.mark.parametrize("verdict", [v for v in ClaimVerdict if v is not ClaimVerdict.GRANTED])
def test_any_other_verdict_is_passed_on_and_leaves_nothing_running(phone: Guarded, verdict: ClaimVerdict) -> None:
    phone.claim()
    attempt = phone.sent(Claim)[-1].attempt
    claimed = phone.answer(verdict, reason="so")
    assert (claimed.answer.verdict, claimed.answer.reason) == (verdict, "so")
    phone.rule(phone.granted(attempt), Doubted("key", "pay", 1, attempt, 1, "lease"))
    assert state_of(phone) is CallState.IN_DOUBT
    phone.claim()
    phone.store_all()
    assert phone.sent(Claim)[-1].attempt != attempt


# --- no authority -----------------------------------------------------------------------------------------------------


def test_without_a_link_or_with_a_relay_that_rules_on_nothing_a_claim_is_refused_at_once(phone: Guarded) -> None:
    phone.drop_link()
    assert isinstance(phone.error(phone.claim()), NeedsAuthority)
    phone.log_in(authority=False)
    assert isinstance(phone.error(phone.claim()), NeedsAuthority)
    assert phone.sent(Claim) == []
    assert phone.unsent() == []


def test_a_volatile_store_makes_no_guarded_call(phone: Guarded) -> None:
    settings = ReplicaSettings(has_relay=True, durable=False)
    phone.replica = Replica("acme", "phone", phone.fleet.random.randbytes, phone.disk.followed_tasks(), settings)
    phone.log_in()
    phone.handle(c.OpenTask(phone.ref(), TASK))
    phone.heads(*phone.told())
    error = phone.error(phone.claim())
    assert isinstance(error, NeedsAuthority)
    assert "volatile" in error.sentence
    assert phone.sent(Claim) == []


def test_a_link_that_ends_and_an_answer_that_does_not_come_end_the_waiting(phone: Guarded) -> None:
    ref = phone.claim()
    phone.drop_link()
    assert isinstance(phone.error(ref), NeedsAuthority)
    phone.log_in()
    phone.heads(*phone.told())
    ref = phone.claim()
    phone.wait(9_000)
    assert ref not in phone.replies
    phone.wait(1_200)
    assert isinstance(phone.error(ref), NeedsAuthority)
    late = phone.sent(Claim)[-1]
    phone.hear(ClaimAnswer(TASK, late.request, ClaimVerdict.GRANTED, "key", 5))
    assert ref not in phone.replies
    (entry,) = phone.unsent(EntryKind.CALL)
    outcome = decode_record(entry.kind, entry.payload)
    assert outcome == CallOutcome("pay", 1, late.attempt, False, None, "It was not started.", token=5)
    phone.store_all()
    phone.claim()
    assert phone.sent(Claim)[-1].attempt != late.attempt


def test_a_late_grant_of_an_attempt_that_is_asked_for_again_is_not_given_back(phone: Guarded) -> None:
    ref = phone.claim()
    phone.handle(c.Cancel(ref))
    phone.claim()
    first, second = phone.sent(Claim)
    assert first.attempt == second.attempt
    phone.hear(ClaimAnswer(TASK, first.request, ClaimVerdict.GRANTED, "key", 1))
    assert phone.unsent(EntryKind.CALL) == []
    phone.begin_granted(phone.answer(ClaimVerdict.GRANTED, token=1))


def test_a_claim_whose_answer_was_lost_is_asked_again_under_the_same_attempt_until_an_intent_is_written(
    phone: Guarded,
) -> None:
    phone.claim()
    phone.drop_link()
    phone.log_in()
    phone.heads(*phone.told())
    phone.claim()
    first, second = phone.sent(Claim)
    assert first.attempt == second.attempt
    phone.rule(phone.granted(second.attempt))
    phone.begin_granted(phone.answer(ClaimVerdict.GRANTED, token=1))
    phone.store_all()
    phone.claim()
    assert phone.sent(Claim)[-1].attempt != first.attempt


def test_an_attempt_that_was_never_begun_and_is_in_doubt_is_reported_as_not_started_and_asked_for_anew(
    phone: Guarded,
) -> None:
    phone.claim()
    phone.drop_link()
    attempt = phone.sent(Claim)[-1].attempt
    phone.log_in()
    phone.heads(*phone.told())
    phone.rule(phone.granted(attempt, 3), Doubted("key", "pay", 1, attempt, 3, "lease"))
    phone.claim()
    assert len(phone.sent(Claim)) == 1
    (entry,) = phone.unsent(EntryKind.CALL)
    outcome = decode_record(entry.kind, entry.payload)
    assert isinstance(outcome, CallOutcome)
    assert (outcome.attempt, outcome.ok, outcome.unsure, outcome.token) == (attempt, False, False, 3)
    phone.store_all()
    assert phone.sent(Claim)[-1].attempt not in ("", attempt)


def test_a_grant_that_cannot_be_begun_is_reported_as_not_started(phone: Guarded) -> None:
    phone.claim()
    claimed = phone.answer(ClaimVerdict.GRANTED, token=4)
    phone.rule(phone.granted(claimed.attempt, 4))
    phone.handle(c.OpenTask(phone.ref(), TASK, False, 2))
    phone.heads(*phone.told())
    with pytest.raises(VersionMismatch):
        phone.begin_granted(claimed)
    outcomes = [decode_record(entry.kind, entry.payload) for entry in phone.unsent(EntryKind.CALL)]
    assert outcomes == [CallOutcome("pay", 1, claimed.attempt, False, None, "It was not started.", token=4)]
    assert state_of(phone) is CallState.FAILED


def test_an_intent_that_a_full_disk_refused_is_asked_for_again_under_the_same_attempt(phone: Guarded) -> None:
    phone.claim()
    claimed = phone.answer(ClaimVerdict.GRANTED, token=1)
    phone.disk.fail_next(StoreFull("The disk is full."))
    with pytest.raises(StoreFull):
        phone.begin_granted(claimed)
    phone.heads(*phone.told())
    phone.claim()
    assert phone.sent(Claim)[-1].attempt == claimed.attempt
    assert phone.begin_granted(phone.answer(ClaimVerdict.GRANTED, token=1)).attempt == claimed.attempt


def test_a_step_that_is_in_doubt_here_says_so_without_a_link(phone: Guarded) -> None:
    phone.rule(phone.granted("other"))
    phone.drop_link()
    assert isinstance(phone.error(phone.claim()), InDoubt)
    assert isinstance(phone.error(phone.claim("else")), NeedsAuthority)


def test_a_reader_asks_for_nothing(phone: Guarded) -> None:
    phone.drop_link()
    phone.log_in("read")
    phone.heads(*phone.told())
    assert isinstance(phone.error(phone.claim()), ReadOnly)
    assert isinstance(phone.error(phone.settle()), ReadOnly)
    assert phone.sent(Claim) == []


# --- what this device holds goes first --------------------------------------------------------------------------------


def test_a_claim_waits_until_what_waits_here_is_stored(phone: Guarded) -> None:
    phone.confirm("x", 1)
    phone.claim()
    assert phone.sent(Claim) == []
    phone.store_all()
    assert len(phone.sent(Claim)) == 1


def test_a_claim_that_waits_too_long_for_what_is_on_its_way_says_so(phone: Guarded) -> None:
    phone.confirm("x", 1)
    ref = phone.claim()
    phone.wait(10_200)
    assert "on its way" in phone.error(ref).sentence
    phone.store_all()
    assert phone.sent(Claim) == []


def test_a_claim_waits_for_the_heads_of_the_session(phone: Guarded) -> None:
    phone.drop_link()
    phone.log_in()
    phone.claim()
    assert phone.sent(Claim) == []
    phone.places[StreamName.AUTHORITY] = 1
    phone.heads(*phone.told())
    assert phone.sent(Claim) == []
    phone.places[StreamName.AUTHORITY] = 0
    phone.rule(phone.granted("other"))
    assert len(phone.sent(Claim)) == 1


def test_in_a_new_epoch_everything_held_is_brought_back_before_the_first_claim(phone: Guarded) -> None:
    phone.rule(phone.granted("other"))
    phone.drop_link()
    phone.log_in()
    phone.claim()
    phone.heads(
        StreamHead(StreamName.STATE, b"epoch-02", 0), StreamHead(StreamName.AUTHORITY, b"epoch-02", 0), known=False
    )
    phone.heads(known=False)
    recovered = [push for push in phone.sent(Push) if push.recovered]
    entries = [entry for push in recovered for entry in push.entries]
    assert {entry.kind for entry in entries} == {EntryKind.VERSION, EntryKind.RULING}
    assert phone.sent(Claim) == []
    for entry in entries:
        phone.receipt(entry, place=1, epoch=b"epoch-02")
    assert len(phone.sent(Claim)) == 1


def test_the_decision_of_a_version_names_the_log_that_it_knows(phone: Guarded) -> None:
    phone.handle(c.OpenTask(phone.ref(), TASK, False, 2))
    phone.heads(*phone.told())
    decisions = [
        decode_record(entry.kind, entry.payload)
        for stream in phone.image.streams
        for entry in stream.entries
        if entry.stream == STATE and entry.kind is EntryKind.VERSION
    ]
    assert decisions == [VersionDecision(1, "phone"), VersionDecision(2, "phone", EPOCH)]


# --- the other petitions ----------------------------------------------------------------------------------------------


def test_a_verdict_is_asked_for_and_answered_once_its_ruling_is_merged(phone: Guarded) -> None:
    phone.rule(phone.granted("other"))
    ref = phone.settle(result='"R1"', by_probe=True, entity='"E"', label="R1")
    (frame,) = phone.sent(SettleDoubt)
    assert frame == SettleDoubt(TASK, ref, 1, "pay", "pay", True, '"E"', '"R1"', "R1", True)
    hellos = len(phone.sent(Hello))
    phone.hear(Ruled(TASK, ref))
    assert ref not in phone.replies
    assert len(phone.sent(Hello)) == hellos + 1
    phone.heads(*phone.told())
    assert phone.replies.pop(ref) is None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("role", ReadOnly),
        ("not_in_doubt", ValueRefused),
        ("running", RunningElsewhere),
        ("other", Refused),
    ],
)
def test_a_petition_that_is_refused_says_why(phone: Guarded, code: str, error: type[SegueError]) -> None:
    ref = phone.settle()
    phone.hear(Ruled(TASK, ref, code, "Because."))
    refused = phone.error(ref)
    assert isinstance(refused, error)
    assert refused.sentence == "Because."


def test_a_ruling_whose_link_ends_before_it_is_merged_stands(phone: Guarded) -> None:
    ref = phone.settle()
    phone.hear(Ruled(TASK, ref))
    phone.drop_link()
    assert phone.replies.pop(ref) is None


def test_a_slot_is_held_through_the_authority_and_nothing_else_writes_it() -> None:
    phone = Guarded("authority")
    command = c.HoldSlot(phone.ref(), TASK, "price", "7")
    phone.handle(command)
    assert phone.sent(HoldSlot) == [HoldSlot(TASK, command.ref, "price", "7")]
    phone.rule(Held("price", "ann", "server", "7"))
    assert phone.view.slots["price"].held
    write = c.WriteSlot(phone.ref(), TASK, "price", "8", CandidateStatus.CONFIRMED, frozenset())
    for refused in (write, c.ClearSlot(phone.ref(), TASK, "price", frozenset())):
        with pytest.raises(NeedsAuthority):
            phone.ask(refused, Slot)
    phone.drop_link()
    command = c.HoldSlot(phone.ref(), TASK, "price", "8")
    phone.handle(command)
    assert isinstance(phone.error(command.ref), NeedsAuthority)
    assert phone.unsent() == []


@pytest.mark.parametrize("role", ["write", "approve"])
def test_what_the_role_does_not_allow_is_not_asked_of_the_authority(role: str) -> None:
    phone = Guarded(role)
    for command in (c.HoldSlot(phone.ref(), TASK, "price", "7"), c.LiftBarrier(phone.ref())):
        phone.handle(command)
        assert isinstance(phone.error(command.ref), ReadOnly)
    assert phone.sent(HoldSlot) == phone.sent(LiftBarrier) == []
    phone.handle(c.HoldSlot(phone.ref(), TASK, "price", None))
    assert len(phone.sent(HoldSlot)) == 1


def test_a_barrier_is_lifted_for_the_whole_subject() -> None:
    phone = Guarded("admin")
    command = c.LiftBarrier(phone.ref())
    phone.handle(command)
    assert phone.sent(LiftBarrier) == [LiftBarrier(TASK, command.ref)]
    phone.hear(Ruled(TASK, command.ref))
    assert phone.replies.pop(command.ref) is None
    phone.drop_link()
    command = c.LiftBarrier(phone.ref())
    phone.handle(command)
    assert isinstance(phone.error(command.ref), NeedsAuthority)


def test_a_petition_of_a_task_that_is_closed_or_given_up_on_is_answered(phone: Guarded) -> None:
    phone.confirm("x", 1)
    ref = phone.claim()
    phone.handle(c.Cancel(ref))
    phone.store_all()
    assert phone.sent(Claim) == []
    ref = phone.claim()
    phone.handle(c.EvictTask(phone.ref(), TASK))
    assert isinstance(phone.error(ref), SegueError)
