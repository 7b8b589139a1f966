"""The authority in a relay: who is given a key, when an answer leaves, and who may ask."""

import pytest
from msgspec.structs import replace

from server_relay.effects import ReadKeys, RelayRead, Send, Written
from server_relay.records import AppendStored, PutKeys
from sync_core.entry import CallIntent, CallOutcome, Effect, EntryKind
from sync_core.frames import Entries, Hello, Receipt, Welcome
from sync_core.keys import entity_key, idempotency_key
from sync_core.petitions import ClaimAnswer, ClaimVerdict
from sync_core.rulings import Doubted, Granted, Settled, SettledBy
from tests.server_relay.harness import Harness
from tests.server_relay.petitioners import DIGEST, OTHER_DIGEST, TASK, Petitioner, admit_by_token

VERDICT = ClaimVerdict
ENTITY = '["u1","HAT"]'


@pytest.fixture
def harness() -> Harness:
    return Harness(admit_by_token)


@pytest.fixture
def phone(harness: Harness) -> Petitioner:
    phone = Petitioner(harness, "phone", "anna/write")
    phone.open()
    return phone


@pytest.fixture
def desktop(harness: Harness, phone: Petitioner) -> Petitioner:
    return Petitioner(harness, "desktop", "ben/write")


# --- a call, from claim to result -------------------------------------------------------------------------------------


def test_an_answer_leaves_in_the_same_turn_as_its_commit_and_after_it(harness: Harness, phone: Petitioner) -> None:
    """One claim is one commit, and one outcome is one."""

    def the_one_commit() -> None:
        (batch,) = [batch for batch in harness.batches if any(isinstance(effect, Written) for effect in batch)]
        harness.batches.clear()
        types = [type(effect) for effect in batch]
        assert types.index(Send) > max(number for number, kind in enumerate(types) if kind is Written)
        writes = {type(effect.write) for effect in batch if isinstance(effect, Written)}
        assert {AppendStored, PutKeys} <= writes

    harness.batches.clear()
    granted = phone.claim()
    the_one_commit()
    phone.outcome(granted)
    the_one_commit()


def test_a_granted_call_that_succeeded_is_known_to_everybody_and_is_not_granted_again(
    phone: Petitioner, desktop: Petitioner
) -> None:
    """RS-16: the loser sees the winner's result."""
    granted = phone.claim()
    assert (granted.verdict, granted.key) == (VERDICT.GRANTED, idempotency_key("acme", TASK, 1, "pay"))
    assert desktop.claim().verdict is VERDICT.RUNNING
    assert desktop.claim(arguments_digest=OTHER_DIGEST).verdict is VERDICT.KEY_REUSED
    phone.outcome(granted)
    for device in (phone, desktop):
        ruled, settled = device.rulings()
        assert isinstance(ruled, Granted)
        assert isinstance(settled, Settled)
        assert (settled.by, settled.happened, settled.principal) == (SettledBy.HOLDER, True, "anna")
    answer = desktop.claim(arguments_digest=OTHER_DIGEST)
    assert (answer.verdict, answer.result, answer.recorded_digest) == (VERDICT.DONE, '"paid"', DIGEST)
    assert (answer.holder_task, answer.holder_step, answer.holder_device) == (TASK, "pay", "phone")


def test_a_pushed_outcome_comes_before_its_ruling_and_both_have_places(phone: Petitioner, desktop: Petitioner) -> None:
    granted = phone.claim()
    desktop.client.frames.clear()
    phone.outcome(granted)
    came = [(entry.kind, entry.relay_seq) for entry in desktop.client.entries()]
    assert came == [(EntryKind.CALL, 2), (EntryKind.RULING, 2)]
    frames = [type(frame) for frame in phone.client.frames if isinstance(frame, (Receipt, Entries))]
    assert frames[-2:] == [Receipt, Entries]


def test_a_tool_that_raised_is_in_doubt_and_one_that_says_it_did_not_happen_may_run_again(
    phone: Petitioner, desktop: Petitioner
) -> None:
    granted = phone.claim("first")
    phone.outcome(granted, "first", ok=False, unsure=True, error="timeout", result=None)
    assert desktop.kinds() == [Granted, Doubted]
    assert desktop.claim("first").verdict is VERDICT.IN_DOUBT
    granted = phone.claim("second")
    phone.outcome(granted, "second", ok=False, error="full", result=None)
    again = desktop.claim("second", tool="transfer", arguments_digest=OTHER_DIGEST)
    assert (again.verdict, again.key, again.token) == (VERDICT.GRANTED, granted.key, granted.token + 1)


def test_an_outcome_counts_for_the_device_that_was_granted_and_under_its_attempt(
    phone: Petitioner, desktop: Petitioner
) -> None:
    granted = phone.claim()
    desktop.outcome(granted, attempt=phone.last_attempt)
    desktop.outcome(granted, attempt="another")
    assert phone.kinds() == [Granted]
    assert desktop.claim().verdict is VERDICT.RUNNING
    phone.outcome(granted)
    assert desktop.claim().verdict is VERDICT.DONE


def test_calls_that_need_no_key_cost_no_read_and_no_ruling(harness: Harness, phone: Petitioner) -> None:
    harness.batches.clear()
    intent = CallIntent("scan", 1, "read_invoice", Effect.READ, DIGEST, "r1", 1)
    outcome = CallOutcome("scan", 1, "r1", True, result="1")
    phone.client.push(TASK, phone.entry(intent), phone.entry(outcome))
    Petitioner(harness, "desktop")
    effects = [effect for batch in harness.batches for effect in batch]
    assert not [effect for effect in effects if isinstance(effect, ReadKeys)]
    assert not [effect for effect in effects if isinstance(effect, Written) and isinstance(effect.write, PutKeys)]
    assert [entry for entry in phone.client.entries() if entry.kind is EntryKind.RULING] == []


def test_a_claim_reads_once_and_the_outcome_of_a_key_that_is_in_use_reads_nothing(
    harness: Harness, phone: Petitioner
) -> None:
    def reads() -> int:
        effects = [effect for batch in harness.batches for effect in batch]
        harness.batches.clear()
        return sum(isinstance(effect, RelayRead) for effect in effects)

    harness.batches.clear()
    granted = phone.claim()
    assert reads() == 1
    phone.outcome(granted)
    assert reads() == 0


# --- entities ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["nothing", "freed", "freed and forgotten"])
def test_two_tasks_that_claim_one_entity_in_one_turn_are_not_both_given_it(harness: Harness, before: str) -> None:
    if before != "nothing":
        first = Petitioner(harness, "first", task="c")
        first.open()
        first.outcome(first.claim(entity=ENTITY), ok=False, result=None)
    if before == "freed and forgotten":
        harness.restart()
    devices = [Petitioner(harness, name, task=task) for name, task in (("phone", "a"), ("pc", "b"))]
    for device in devices:
        device.open()
    harness.turn(*(e for device in devices for e in device.client.received(device.claim_frame(entity=ENTITY))))
    answers = [device.client.take(ClaimAnswer)[0] for device in devices]
    assert [answer.verdict for answer in answers] == [VERDICT.GRANTED, VERDICT.RUNNING]
    assert answers[0].key == answers[1].key == entity_key("acme", "pay", ENTITY, 1)
    assert (answers[1].holder_task, answers[1].holder_device) == ("a", "phone")


def test_another_subject_has_keys_of_its_own(harness: Harness, phone: Petitioner) -> None:
    mine = phone.claim(entity=ENTITY)
    other = harness.login("phone", subject="umbrella", token="anna/write")
    other.send(Hello(TASK, ()), phone.claim_frame(entity=ENTITY))
    (theirs,) = other.take(ClaimAnswer)
    assert theirs.verdict is VERDICT.GRANTED
    assert theirs.key != mine.key
    assert phone.kinds() == [Granted]


@pytest.mark.parametrize("by_label", [False, True])
def test_a_call_that_undoes_another_frees_its_entity(harness: Harness, phone: Petitioner, by_label: bool) -> None:
    booked = phone.claim("book", tool="book", entity=ENTITY)
    phone.outcome(booked, "book", label="HATHAT")
    assert phone.claim("again", tool="book", entity=ENTITY).verdict is VERDICT.DONE
    other = Petitioner(harness, "pc", task="b")
    other.open()
    cancelled = other.claim("cancel", tool="cancel", releases=(("book", "HATHAT" if by_label else ENTITY),))
    assert phone.claim("again", tool="book", entity=ENTITY).verdict is VERDICT.DONE, "not before it happened"
    if by_label:
        harness.tick(20_000)  # what is in nobody's use is read again
    other.outcome(cancelled, "cancel")
    again = phone.claim("again", tool="book", entity=ENTITY, arguments_digest=OTHER_DIGEST)
    assert (again.verdict, again.token) == (VERDICT.GRANTED, booked.token + 1)
    assert again.key == entity_key("acme", "book", ENTITY, 2)


def test_a_verdict_that_an_undoing_call_happened_frees_what_it_undoes(harness: Harness, phone: Petitioner) -> None:
    phone.outcome(phone.claim("book", tool="book", entity=ENTITY), "book", label="HATHAT")
    cancelled = phone.claim("cancel", tool="cancel", releases=(("book", "HATHAT"),))
    phone.outcome(cancelled, "cancel", ok=False, unsure=True, result=None)
    harness.restart()
    desktop = Petitioner(harness, "desktop", "ben/write")
    assert desktop.claim("again", tool="book", entity=ENTITY).verdict is VERDICT.DONE
    harness.restart()
    desktop = Petitioner(harness, "desktop", "ben/write")
    assert desktop.settle(True, "cancel", tool="cancel") == ""
    assert desktop.claim("again", tool="book", entity=ENTITY).verdict is VERDICT.GRANTED


def test_the_doubt_and_the_verdict_on_an_entity_stand_in_the_task_whose_attempt_it_was(
    harness: Harness, phone: Petitioner
) -> None:
    other = Petitioner(harness, "pc", task="b")
    other.open()
    other.claim(entity=ENTITY)
    other.client.leave()
    harness.now_ms += 60_000
    watcher = Petitioner(harness, "watch", task="b")
    assert phone.claim(entity=ENTITY).verdict is VERDICT.IN_DOUBT
    assert watcher.kinds() == [Granted, Doubted]
    assert phone.settle(True, entity=ENTITY, result='"seen"') == ""
    (settled,) = watcher.rulings()
    assert isinstance(settled, Settled)
    assert (settled.by, settled.principal, settled.step) == (SettledBy.PERSON, "anna", "pay")
    assert phone.rulings() == []
    assert phone.claim(entity=ENTITY).result == '"seen"'


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_a_doubt_is_settled_once_and_asking_again_is_safe(phone: Petitioner, desktop: Petitioner) -> None:
    assert desktop.settle(True) == "not_in_doubt"
    granted = phone.claim()
    assert desktop.settle(True) == "running"
    phone.outcome(granted, ok=False, unsure=True, result=None)
    assert desktop.settle(True, result='"seen"', by_probe=True) == ""
    assert desktop.settle(True, result='"seen"', by_probe=True) == ""
    assert desktop.settle(False) == "not_in_doubt"
    assert phone.kinds() == [Granted, Doubted, Settled]
    assert phone.claim().result == '"seen"'


def test_what_did_not_happen_runs_again_only_where_the_outside_checks(phone: Petitioner, desktop: Petitioner) -> None:
    granted = phone.claim()
    phone.outcome(granted, ok=False, unsure=True, result=None)
    assert desktop.settle(False) == ""
    assert desktop.claim().verdict is VERDICT.RETIRED
    again = desktop.claim(checked=True, arguments_digest=OTHER_DIGEST)
    assert (again.verdict, again.token) == (VERDICT.GRANTED, granted.token + 1)


def test_only_the_version_that_stands_may_run(phone: Petitioner) -> None:
    assert phone.claim(version=2).verdict is VERDICT.VERSION
    granted = phone.claim()
    phone.outcome(granted)
    phone.open(2)
    assert phone.claim().verdict is VERDICT.VERSION
    assert phone.claim(version=2).verdict is VERDICT.GRANTED


# --- who may ask ------------------------------------------------------------------------------------------------------


def test_a_reader_may_ask_for_nothing(harness: Harness, phone: Petitioner) -> None:
    """SE-22, RS-23."""
    reader = Petitioner(harness, "reader", "eve/read")
    before = len(harness.writes)
    assert reader.claim().verdict is VERDICT.REFUSED
    assert [reader.settle(True), reader.hold("limit"), reader.hold("limit", "1"), reader.lift()] == ["role"] * 4
    assert len(harness.writes) == before
    assert phone.claim().verdict is VERDICT.GRANTED


def test_nothing_is_claimed_before_a_hello(harness: Harness, phone: Petitioner) -> None:
    desktop = Petitioner(harness, "desktop", hello=False)
    assert desktop.claim().verdict is VERDICT.REFUSED
    desktop.hello()
    assert desktop.claim().verdict is VERDICT.GRANTED


@pytest.mark.parametrize("durable", [True, False])
def test_a_volatile_relay_rules_on_nothing_and_says_so(harness: Harness, durable: bool) -> None:
    if durable:
        harness.settings = replace(harness.settings, authority=False)
    harness.restart(durable=durable)
    phone = Petitioner(harness, "phone", "anna/admin")
    assert [welcome.authority for welcome in phone.client.take(Welcome)] == [False]
    phone.open()
    assert phone.claim().verdict is VERDICT.REFUSED
    assert [phone.settle(True), phone.hold("limit"), phone.lift()] == ["no_authority"] * 3
    phone.approve()
    assert [code.value for code in phone.refusals()] == ["role"]


@pytest.mark.parametrize(
    "wild",
    [{"step": "../x"}, {"tool": "t" * 5_000}, {"releases": (("a", "b"),) * 17}, {"attempt": ""}, {"version": -1}],
)
def test_a_claim_that_no_device_makes_costs_the_connection(phone: Petitioner, wild: dict[str, object]) -> None:
    step = str(wild.pop("step", "pay"))
    phone.client.send(phone.claim_frame(step, **wild))
    assert phone.client.closed is not None
    assert phone.client.take(ClaimAnswer) == []


def test_what_has_an_entity_in_a_task_that_the_device_may_not_see_is_not_told(harness: Harness) -> None:
    harness.admit = lambda login, now_ms: replace(admit_by_token(login, now_ms), tasks=(login.device,))
    harness.restart()
    mine, theirs = Petitioner(harness, "a", "anna/admin", "a/1"), Petitioner(harness, "b", "ben/admin", "b/1")
    for device in (mine, theirs):
        device.open()
    granted = mine.claim("secret-step", entity=ENTITY)
    heard = theirs.claim(entity=ENTITY)
    mine.outcome(granted, "secret-step", ok=False, unsure=True, result=None, error="secret")
    assert theirs.settle(True, entity=ENTITY) == "role"
    assert mine.settle(True, "secret-step", entity=ENTITY, result='"secret"') == ""
    done = theirs.claim(entity=ENTITY)
    assert [answer.verdict for answer in (heard, done)] == [VERDICT.RUNNING, VERDICT.DONE]
    for answer in (heard, done):
        assert "secret" not in repr(answer)
        assert (answer.holder_task, answer.holder_device, answer.recorded_digest) == ("", "", "")
    assert mine.lift() == "role", "the barrier is of the whole subject"
