"""The authority after a log was lost or restored: nothing is granted twice because the relay forgot (rule J)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from server_relay.records import LowerBarrier
from sync_core.entry import CallOutcome, Entry, EntryKind, VersionDecision, encode_record
from sync_core.errors import StoreFull
from sync_core.frames import RefusalCode, StreamPosition
from sync_core.ids import AUTHORITY_DEVICE, StreamName
from sync_core.petitions import ClaimVerdict
from sync_core.rulings import Approved, Granted, Held, Ruling, Settled, SettledBy
from tests.server_relay.harness import Harness, position
from tests.server_relay.petitioners import DIGEST, OTHER_DIGEST, TASK, TOOL, Petitioner, admit_by_token

VERDICT = ClaimVerdict
ENTITY = '["u1","HAT"]'


@pytest.fixture
def harness() -> Harness:
    return Harness(admit_by_token)


@pytest.fixture
def phone(harness: Harness) -> Petitioner:
    phone = Petitioner(harness, "phone", "anna/admin")
    phone.open()
    return phone


class Memory:
    """What a device holds of the task: every entry, and where it is."""

    def __init__(self, harness: Harness, task: str = TASK) -> None:
        reader = harness.login("memory", token="eve/read")
        heads = reader.hello(task)
        harness.drain()
        self.entries = reader.entries()
        self.epochs = {head.name: head.epoch for head in heads.streams}
        of_stream = {name: [e for e in self.entries if e.stream == f"{task}:{name}"] for name in self.epochs}
        self.positions = [position(name, self.epochs[name], tuple(of_stream[name])) for name in self.epochs]
        reader.leave()

    def bring_back(self, device: Petitioner, wanted: Callable[[Entry], bool] = lambda _: True) -> list[RefusalCode]:
        """Push what is held as recovered; return the refusals."""
        device.client.push(device.task, *filter(wanted, self.entries), recovered=True)
        return device.refusals()


def lose(harness: Harness, image: object, memory: Memory, device: str = "phone") -> Petitioner:
    """Put an old state in place, start the relay on it, and let a device that knows more say where it is."""
    harness.model.restore(image)  # type: ignore[arg-type]
    harness.restart()
    back = Petitioner(harness, device, "anna/admin", hello=False)
    back.hello(*memory.positions)
    return back


def is_kind(kind: EntryKind) -> Callable[[Entry], bool]:
    return lambda entry: entry.kind is kind


def ruling(record: Ruling, seq: int = 1, writer: int = 990_001, device: str = AUTHORITY_DEVICE) -> Entry:
    return Entry(f"{TASK}:authority", writer, seq, EntryKind.RULING, encode_record(record), device, relay_seq=seq)


# --- found ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entity", ["", ENTITY])
def test_after_a_loss_no_key_is_granted_until_what_was_done_comes_back(
    harness: Harness, phone: Petitioner, entity: str
) -> None:
    image = harness.model.image()
    first = phone.claim(entity=entity)
    phone.outcome(first)
    memory = Memory(harness)
    back = lose(harness, image, memory)
    for step in ("pay", "never-run"):
        answer = back.claim(step, entity=entity)
        assert (answer.verdict, answer.token) == (VERDICT.IN_DOUBT, 0)
        assert "lost" in answer.reason
    assert memory.bring_back(back) == []
    done = back.claim(entity=entity, arguments_digest=OTHER_DIGEST)
    assert (done.verdict, done.result, done.holder_device) == (VERDICT.DONE, '"paid"', "phone")
    expected = VERDICT.DONE if entity else VERDICT.IN_DOUBT
    assert back.claim("never-run", entity=entity).verdict is expected
    assert harness.relay.counts["losses_found"] == 1


@pytest.mark.parametrize("first", list(EntryKind))
def test_the_order_in_which_it_comes_back_makes_no_difference(
    harness: Harness, phone: Petitioner, first: EntryKind
) -> None:
    image = harness.model.image()
    phone.outcome(phone.claim(entity=ENTITY))
    memory = Memory(harness)
    back = lose(harness, image, memory)
    memory.bring_back(back, is_kind(first))
    assert memory.bring_back(back) == []
    answer = back.claim(entity=ENTITY)
    assert (answer.verdict, answer.result) == (VERDICT.DONE, '"paid"')


def test_an_outcome_that_comes_back_alone_and_first_counts_for_the_entity_that_is_named_later(
    harness: Harness, phone: Petitioner
) -> None:
    image = harness.model.image()
    phone.outcome(phone.claim(entity=ENTITY))
    memory = Memory(harness)
    back = lose(harness, image, memory)
    memory.bring_back(back, is_kind(EntryKind.CALL))
    assert back.claim(entity=ENTITY).verdict is VERDICT.IN_DOUBT
    first = [entry for entry in memory.entries if entry.kind is EntryKind.RULING][:1]
    memory.bring_back(back, lambda entry: entry in first)
    answer = back.claim(entity=ENTITY)
    assert (answer.verdict, answer.result, answer.recorded_digest) == (VERDICT.DONE, '"paid"', DIGEST)


def test_a_grant_that_comes_back_is_in_doubt_and_its_outcome_settles_it(harness: Harness, phone: Petitioner) -> None:
    image = harness.model.image()
    granted, attempt = phone.claim(entity=ENTITY), phone.last_attempt
    memory = Memory(harness)
    back = lose(harness, image, memory)
    memory.bring_back(back)
    answer = back.claim(entity=ENTITY)
    assert (answer.verdict, answer.holder_device, answer.recorded_digest) == (VERDICT.IN_DOUBT, "phone", DIGEST)
    back.outcome(granted, attempt=attempt)
    assert back.claim(entity=ENTITY).verdict is VERDICT.DONE


def test_an_outcome_that_was_never_sent_closes_the_key_of_a_lost_grant(harness: Harness, phone: Petitioner) -> None:
    image = harness.model.image()
    granted, attempt = phone.claim(), phone.last_attempt
    back = lose(harness, image, Memory(harness))
    back.outcome(granted, attempt=attempt)
    assert back.claim().verdict is VERDICT.DONE


def test_what_did_not_happen_before_the_loss_frees_nothing_after_it(harness: Harness, phone: Petitioner) -> None:
    image = harness.model.image()
    phone.outcome(phone.claim(), ok=False, result=None, error="full")
    memory = Memory(harness)
    back = lose(harness, image, memory)
    assert memory.bring_back(back) == []
    assert back.claim().verdict is VERDICT.IN_DOUBT
    assert back.settle(False) == ""
    assert back.claim().verdict is VERDICT.RETIRED
    assert back.claim(checked=True).verdict is VERDICT.GRANTED


def test_tokens_after_a_loss_are_above_all_that_the_lost_log_gave_out(harness: Harness, phone: Petitioner) -> None:
    highest = 0
    for version in (1, 2, 3):
        image = harness.model.image()
        granted = phone.claim(version=version)
        assert granted.token > highest
        highest = granted.token
        memory = Memory(harness)
        phone = lose(harness, image, memory)
        assert memory.bring_back(phone) == []
        phone.open(version + 1, harness_epoch(harness))


def test_a_lost_file_learns_from_what_comes_back_how_high_tokens_were(harness: Harness, phone: Petitioner) -> None:
    empty = Harness(admit_by_token).model.image()
    for _ in range(3):
        harness.model.mark_restored(harness.entropy.randbytes, harness.now_ms)
    harness.restart()
    phone = phone.again()
    assert phone.lift() == ""
    high = phone.claim()
    assert high.token >> 32 == 4
    memory = Memory(harness)
    back = lose(harness, empty, memory)
    assert memory.bring_back(back) == []
    back.open(2, harness_epoch(harness))
    assert back.claim(version=2).token > high.token


def harness_epoch(harness: Harness) -> bytes:
    """Return the present epoch of the task's state log."""
    return Memory(harness).epochs[StreamName.STATE]


def test_a_store_that_was_begun_anew_is_found_out_by_an_older_device(harness: Harness, phone: Petitioner) -> None:
    phone.outcome(phone.claim())
    memory = Memory(harness)
    harness.model.restore(Harness(admit_by_token).model.image())
    harness.restart()
    stranger = Petitioner(harness, "stranger", "eve/write")
    stranger.open()
    assert stranger.claim("other").verdict is VERDICT.GRANTED, "nobody knows better yet"
    older = Petitioner(harness, "phone", "anna/write", hello=False)
    older.hello(*memory.positions)
    assert stranger.claim().verdict is VERDICT.IN_DOUBT
    assert memory.bring_back(older) == []
    assert stranger.claim().verdict is VERDICT.DONE
    again = Petitioner(harness, "third", "anna/write", hello=False)
    again.hello(*memory.positions)
    assert harness.relay.counts["losses_found"] == 1, "what is known to be lost is not found again"


def test_a_restored_file_counts_as_lost_before_any_device_comes(harness: Harness, phone: Petitioner) -> None:
    phone.outcome(phone.claim())
    before = Memory(harness).epochs
    harness.model.mark_restored(harness.entropy.randbytes, harness.now_ms)
    harness.restart()
    back = Petitioner(harness, "phone", "anna/write")
    assert not set(Memory(harness).epochs.values()) & set(before.values())
    assert back.claim().verdict is VERDICT.DONE
    assert back.claim("other").verdict is VERDICT.IN_DOUBT
    assert back.claim("other", entity=ENTITY).verdict is VERDICT.IN_DOUBT


# --- opened again -----------------------------------------------------------------------------------------------------


def test_only_a_higher_version_decided_in_the_present_epoch_opens_its_keys(harness: Harness, phone: Petitioner) -> None:
    image = harness.model.image()
    phone.claim()
    memory = Memory(harness)
    back = lose(harness, image, memory)
    present = harness_epoch(harness)
    back.open(2, memory.epochs[StreamName.STATE])
    assert back.claim(version=2).verdict is VERDICT.IN_DOUBT, "decided by somebody who did not know of the loss"
    back.open(3)
    assert back.claim(version=3).verdict is VERDICT.IN_DOUBT
    back.open(3, present)
    assert back.claim(version=3).verdict is VERDICT.IN_DOUBT, "it was known before"
    back.open(4, present)
    assert back.claim(version=4).verdict is VERDICT.GRANTED
    assert back.claim("e", version=4, entity=ENTITY).verdict is VERDICT.IN_DOUBT


def test_a_version_that_turns_out_to_be_of_the_lost_log_is_closed_again(harness: Harness, phone: Petitioner) -> None:
    image = harness.model.image()
    phone.open(2)
    memory = Memory(harness)
    back = lose(harness, image, memory, "desktop")
    back.open(2, harness_epoch(harness))
    assert back.claim(version=2).verdict is VERDICT.GRANTED
    assert memory.bring_back(back) == []
    assert back.claim("other", version=2).verdict is VERDICT.IN_DOUBT


def test_an_admin_lifts_the_barrier_for_the_whole_subject(harness: Harness, phone: Petitioner) -> None:
    image = harness.model.image()
    phone.outcome(phone.claim())
    memory = Memory(harness)
    back = lose(harness, image, memory)
    other = Petitioner(harness, "pc", "ben/write", "b")
    other.open()
    assert other.claim(entity=ENTITY).verdict is VERDICT.IN_DOUBT
    assert other.lift() == "role"
    memory.bring_back(back)
    assert back.lift() == ""
    assert back.claim().verdict is VERDICT.DONE
    assert back.claim("other").verdict is VERDICT.GRANTED
    assert other.claim(entity=ENTITY).verdict is VERDICT.GRANTED
    harness.restart()
    late = Petitioner(harness, "late", "anna/write", hello=False)
    late.hello(*memory.positions)
    assert late.claim("third").verdict is VERDICT.GRANTED, "a loss that an admin has looked at is not found again"
    assert memory.bring_back(late, is_kind(EntryKind.RULING)) == []


def test_a_lift_counts_in_every_task_that_is_in_memory_once_it_is_stored(harness: Harness, phone: Petitioner) -> None:
    image = harness.model.image()
    other = Petitioner(harness, "pc", "ben/write", "b")
    for device in (phone, other):
        device.open(1 if device is other else 2)
        device.claim(version=1 if device is other else 2)
    memories = {device.task: Memory(harness, device.task) for device in (phone, other)}
    back = lose(harness, image, memories[TASK])
    also = Petitioner(harness, "pc", "ben/write", "b", hello=False)
    also.hello(*memories["b"].positions)
    assert memories["b"].bring_back(also) == []
    harness.model.fail_next(StoreFull("The disk is full."))
    back.client.send(back.lift_frame())
    assert back.client.closed is not None
    assert not [write for write in harness.writes if isinstance(write, LowerBarrier)]
    also = also.again()
    assert also.claim("new").verdict is VERDICT.IN_DOUBT
    back = back.again()
    assert back.claim("new").verdict is VERDICT.IN_DOUBT
    assert back.lift() == ""
    assert [device.claim("new").verdict for device in (also, back)] == [VERDICT.GRANTED] * 2
    harness.restart()
    assert [device.again().claim("newer").verdict for device in (also, back)] == [VERDICT.GRANTED] * 2


# --- nothing else may come back ---------------------------------------------------------------------------------------

FORGED = (
    Approved("pay", 1, TOOL, DIGEST, True, "ben", "pc"),
    Granted("k" * 64, "pay", 1, TOOL, DIGEST, "x", 1, "ben", "pc"),
    Settled("k" * 64, "pay", 1, "x", 1, True, SettledBy.PERSON, "ben", "pc", result='"forged"'),
    Held("limit", "ben", "pc", "1000000"),
)


@pytest.mark.parametrize("record", FORGED)
def test_a_forged_ruling_is_refused_however_it_is_brought(harness: Harness, phone: Petitioner, record: Ruling) -> None:
    """AC-24."""
    eve = Petitioner(harness, "eve", "eve/admin")
    eve.client.push(TASK, ruling(record))
    eve.client.push(TASK, ruling(record, device="eve"))
    eve.client.push(TASK, ruling(record), recovered=True)
    eve.client.push(TASK, ruling(record, device="eve"), recovered=True)
    assert eve.refusals() == [RefusalCode.GUARD] * 4
    assert Petitioner(harness, "pc").rulings() == []
    assert phone.claim(needs_approval=True).verdict is VERDICT.NEEDS_APPROVAL


@pytest.mark.parametrize("record", FORGED)
def test_a_forged_ruling_after_a_loss_opens_nothing(harness: Harness, phone: Petitioner, record: Ruling) -> None:
    image = harness.model.image()
    phone.claim("some")
    back = lose(harness, image, Memory(harness))
    eve = Petitioner(harness, "eve", "eve/write")
    eve.client.push(TASK, ruling(record), recovered=True)
    assert eve.refusals() == []
    assert back.claim(needs_approval=True).verdict in (VERDICT.IN_DOUBT, VERDICT.DONE)
    back.open(2, harness_epoch(harness))
    assert back.claim(version=2, needs_approval=True).verdict is VERDICT.NEEDS_APPROVAL


def test_an_outcome_that_is_called_recovered_closes_nothing_where_nothing_was_lost(
    harness: Harness, phone: Petitioner
) -> None:
    eve = Petitioner(harness, "eve", "eve/write")
    said = CallOutcome("pay", 1, "x", True, result='"forged"', token=7)
    eve.client.push(TASK, eve.entry(said), recovered=True)
    eve.client.push(TASK, eve.entry(said))
    assert phone.claim().verdict is VERDICT.GRANTED


def test_a_version_that_is_called_recovered_closes_nothing_where_nothing_was_lost(
    harness: Harness, phone: Petitioner
) -> None:
    eve = Petitioner(harness, "eve", "eve/write")
    eve.client.push(TASK, eve.entry(VersionDecision(1, "eve")), recovered=True)
    assert eve.refusals() == []
    assert phone.claim().verdict is VERDICT.GRANTED


def test_a_token_that_is_forged_to_the_end_of_its_range_leaves_room_for_others(
    harness: Harness, phone: Petitioner
) -> None:
    image = harness.model.image()
    phone.claim("some")
    back = lose(harness, image, Memory(harness))
    eve = Petitioner(harness, "eve", "eve/write")
    eve.client.push(TASK, ruling(replace(FORGED[1], token=2**53)), recovered=True)
    assert eve.refusals() == []
    back.open(2, harness_epoch(harness))
    granted = back.claim(version=2)
    assert granted.verdict is VERDICT.GRANTED
    back.outcome(granted, version=2)
    assert back.refusals() == []
    assert back.claim(version=2).verdict is VERDICT.DONE


def test_two_losses_in_a_row_of_which_nothing_was_opened_between_are_one_era(
    harness: Harness, phone: Petitioner
) -> None:
    image = harness.model.image()
    phone.claim()
    memory = Memory(harness)
    other = Petitioner(harness, "pc", "ben/write", "b")
    other.open()
    lost = Memory(harness, "b")
    back = lose(harness, image, memory)
    late = Petitioner(harness, "pc", "ben/write", "b", hello=False)
    late.hello(*lost.positions)
    assert harness.relay.counts["losses_found"] == 2
    back.open(2, harness_epoch(harness))
    assert back.claim(version=2).token >> 32 == 2


def test_positions_at_the_start_lose_nothing(harness: Harness, phone: Petitioner) -> None:
    fresh = Petitioner(harness, "fresh", hello=False)
    fresh.hello(*(StreamPosition(name, b"", 0, bytes(16)) for name in StreamName))
    fresh.hello(*(StreamPosition(name, b"anything", 0, bytes(16)) for name in StreamName))
    assert harness.relay.counts["losses_found"] == 0
    assert fresh.claim().verdict is VERDICT.GRANTED
