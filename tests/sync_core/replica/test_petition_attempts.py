"""What becomes of an attempt that was asked for here and never begun."""

from sync_core.document.calls import CallRecorded
from sync_core.entry import CallIntent, CallOutcome, Effect, Entry, EntryKind, decode_record, encode_record
from sync_core.errors import NeedsAuthority
from sync_core.frames import Entries
from sync_core.ids import StreamName
from sync_core.petitions import Claim, ClaimVerdict
from sync_core.replica import commands as c
from sync_core.replica.petitions import _ATTEMPTS_MAX
from sync_core.rulings import Doubted
from tests.sync_core.replica.fleet import TASK
from tests.sync_core.replica.guarded import DIGEST, Guarded, begin_granted
from tests.sync_core.replica.solo import EPOCH, STATE


def test_an_attempt_that_was_answered_in_doubt_before_its_ruling_came_is_reported_as_not_started() -> None:
    phone = Guarded()
    ref = phone.claim()
    attempt = phone.sent(Claim)[-1].attempt
    phone.drop_link()
    assert isinstance(phone.error(ref), NeedsAuthority)
    phone.log_in()
    phone.heads(*phone.told())
    phone.claim()
    assert phone.sent(Claim)[-1].attempt == attempt
    phone.answer(ClaimVerdict.IN_DOUBT)
    phone.rule(phone.granted(attempt, 7), Doubted("key", "pay", 1, attempt, 7, "lease"))
    phone.claim()
    outcome = decode_record(EntryKind.CALL, phone.unsent(EntryKind.CALL)[-1].payload)
    assert isinstance(outcome, CallOutcome)
    assert (outcome.attempt, outcome.ok, outcome.unsure, outcome.token) == (attempt, False, False, 7)


def test_a_grant_that_meets_a_success_recorded_meanwhile_is_left_to_its_lease() -> None:
    phone = Guarded()
    phone.claim()
    claimed = phone.answer(ClaimVerdict.GRANTED, token=7)
    phone.rule(phone.granted(claimed.attempt, 7))
    before = len(phone.unsent(EntryKind.CALL))
    records = (
        CallIntent("pay", 1, "pay", Effect.IRREVERSIBLE, DIGEST, "b" * 16, 1),
        CallOutcome("pay", 1, "b" * 16, True, "5"),
    )
    for seq, record in enumerate(records, 1):
        place = phone.places[StreamName.STATE] = phone.places[StreamName.STATE] + 1
        payload = encode_record(record)
        entry = Entry(STATE, 2**40 + 9, seq, EntryKind.CALL, payload, "desktop", relay_seq=place)
        phone.hear(Entries(STATE, EPOCH, (entry,)))
    assert isinstance(phone.ask(begin_granted(phone.ref(), claimed), CallRecorded), CallRecorded)
    assert len(phone.unsent(EntryKind.CALL)) == before
    task = phone.replica._table.get(TASK)
    assert task is not None and not task.loaded.running


def test_what_is_remembered_of_answers_that_never_came_is_bounded_and_goes_with_its_task() -> None:
    phone = Guarded()
    for number in range(_ATTEMPTS_MAX + 5):
        phone.handle(c.Cancel(phone.claim(f"pay/{number}")))
    petitions = phone.replica._desk.petitions
    assert len(petitions._attempts) == _ATTEMPTS_MAX
    phone.handle(c.EvictTask(phone.ref(), TASK))
    assert not petitions._attempts
