"""What the authority ruled: grants, doubts, verdicts, approvals, held slots; the same in whatever order they come."""

import itertools
import random

import msgspec
import pytest

from sync_core.document.approvals import ApprovalState, RequestedApproval, request_id
from sync_core.document.calls import Call, CallRecorded, CallState
from sync_core.document.document import TaskDocument
from sync_core.document.slots import SlotState
from sync_core.entry import CallIntent, CallOutcome, Effect, Entry, EntryKind, Record, encode_record
from sync_core.errors import KeyReused, NeedsAuthority, ValueRefused
from sync_core.ids import AUTHORITY_DEVICE, StreamName
from sync_core.rulings import (
    Approval,
    ApprovalRequest,
    Approved,
    Contradicted,
    Doubted,
    Granted,
    Held,
    Ruling,
    Settled,
    SettledBy,
)
from sync_core.values import digest_text
from tests.sync_core.document.log import TASK, Device, devices

ARGUMENTS = '{"amount":100}'
D1, D2 = digest_text(ARGUMENTS), "2" * 64
NOBODY: frozenset[str] = frozenset()
REQUEST = request_id("pay", 1, "pay", D1)


def granted(attempt: str = "a1", digest: str = D1, token: int = 1, approved_by: str = "", device: str = "a") -> Granted:
    return Granted("k", "pay", 1, "pay", digest, attempt, token, "ann", device, approved_by=approved_by)


def settled(happened: bool, attempt: str = "a1", by: SettledBy = SettledBy.HOLDER, **more: object) -> Settled:
    ruling = Settled("k", "pay", 1, attempt, 1, happened, by, "ann", "a")
    return msgspec.structs.replace(ruling, **more)


def intent(attempt: str = "a1", digest: str = D1, n: int = 1) -> CallIntent:
    return CallIntent("pay", 1, "pay", Effect.IRREVERSIBLE, digest, attempt, n, ARGUMENTS)


def outcome(ok: bool, attempt: str = "a1", **more: object) -> CallOutcome:
    return msgspec.structs.replace(CallOutcome("pay", 1, attempt, ok, '"paid"' if ok else None, token=1), **more)


def approved(yes: bool = True, by: str = "bea") -> Approved:
    return Approved("pay", 1, "pay", D1, yes, by, "b", "" if yes else "too much")


class Teller:
    """Gives records their entries, as the relay or a device would, and shows a task that took them."""

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}
        self._place = 0

    def entry(
        self, record: Record, device: str = "a", *, place: int | None = -1, vouched_by: str | None = None
    ) -> Entry:
        kind = {
            CallIntent: EntryKind.CALL,
            CallOutcome: EntryKind.CALL,
            ApprovalRequest: EntryKind.PLAN,
            Approval: EntryKind.APPROVAL,
        }.get(type(record), EntryKind.RULING)
        stream = StreamName.STATE if kind in (EntryKind.CALL, EntryKind.PLAN) else StreamName.AUTHORITY
        author = AUTHORITY_DEVICE if kind is EntryKind.RULING else device
        self._place += 1
        seq = self._seqs[author] = self._seqs.get(author, 0) + 1
        payload = encode_record(record)
        at = self._place if place == -1 else place
        return Entry(
            f"{TASK}:{stream.value}", 2**30 + sum(author.encode()), seq, kind, payload, author, 7, None, at, vouched_by
        )

    def entries(self, *records: Record | tuple[Record, str]) -> list[Entry]:
        return [self.entry(*record) if isinstance(record, tuple) else self.entry(record) for record in records]


def shown(*records: Record | tuple[Record, str]) -> TaskDocument:
    """A document that took these records; every order of them shows the same."""
    entries = Teller().entries(*records)
    views = []
    orders = itertools.islice(itertools.permutations(entries), 30)
    for order in orders:
        document = Device("reader", random.Random(1)).document
        for entry in order:
            document.record(entry)
        views.append(document.view())
    assert all(view == views[0] for view in views)
    return document


def call_of(document: TaskDocument) -> Call:
    return document.view().calls[1, "pay"]


# --- attempts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "state", "ok"),
    [
        ((granted(),), CallState.IN_DOUBT, None),
        ((granted(), intent()), CallState.IN_DOUBT, None),
        ((granted(), intent(), outcome(True)), CallState.DONE, True),
        ((granted(), intent(), outcome(True), settled(True)), CallState.DONE, True),
        ((granted(), intent(), outcome(False, unsure=True)), CallState.IN_DOUBT, None),
        ((granted(), intent(), outcome(False)), CallState.FAILED, False),
        ((granted(), intent(), Doubted("k", "pay", 1, "a1", 1, "lease")), CallState.IN_DOUBT, None),
        ((granted(), intent(), settled(True, by=SettledBy.PERSON, result='"R1"')), CallState.DONE, True),
        ((granted(), intent(), settled(True, by=SettledBy.PERSON)), CallState.RESULT_UNAVAILABLE, True),
        ((granted(), intent(), settled(False, by=SettledBy.PROBE)), CallState.FAILED, False),
    ],
    ids=["granted", "intent", "ok", "settled", "unsure", "did not", "lease", "person", "no result", "probe says no"],
)
def test_a_guarded_attempt_is_in_doubt_until_its_holder_or_a_verdict_says_how_it_ended(
    records: tuple[Record, ...], state: CallState, ok: bool | None
) -> None:
    call = call_of(shown(*records))
    assert call.state is state
    assert call.shown is not None
    assert (call.shown.ok, call.shown.token, call.shown.device) == (ok, 1, "a")


def test_a_granted_attempt_shows_running_where_it_runs() -> None:
    document = shown(granted())
    document.set_running(frozenset({"a1"}))
    assert call_of(document).state is CallState.RUNNING


def test_a_verdict_stands_against_a_late_outcome_and_the_contradiction_is_shown() -> None:
    against = Contradicted("k", "pay", 1, "a1", 1, True, "a", '"paid"')
    call = call_of(
        shown(granted(), intent(), settled(False, by=SettledBy.PERSON, retired=True), outcome(True), against)
    )
    assert call.state is CallState.FAILED
    assert call.shown is not None
    assert (call.shown.ok, call.shown.retired, call.shown.settled_by) == (False, True, SettledBy.PERSON)
    assert call.contradictions == (against,)


def test_what_happened_stands_before_what_did_not_where_two_verdicts_were_given() -> None:
    call = call_of(shown(granted(), settled(False), settled(True, by=SettledBy.PERSON, result="1")))
    assert call.state is CallState.DONE


def test_only_the_holder_of_a_grant_can_say_how_it_ended() -> None:
    call = call_of(shown(granted(), intent(), (outcome(True), "thief")))
    assert call.state is CallState.IN_DOUBT


def test_an_intent_under_a_granted_attempt_with_other_arguments_changes_nothing() -> None:
    call = call_of(shown(granted(), (intent(digest=D2), "thief")))
    assert call.shown is not None
    assert (call.shown.arguments_digest, call.shown.arguments, call.shown.device) == (D1, None, "a")


def test_a_success_that_no_ruling_knows_counts_for_nothing_beside_one_that_was_granted() -> None:
    forged = (intent("f1", D2), "thief"), (outcome(True, "f1", result='"forged"'), "thief")
    call = call_of(shown(*forged, granted(), intent(), outcome(True), settled(True)))
    assert (call.state, call.device, call.recorded_twice) == (CallState.DONE, "a", False)
    assert call.shown is not None
    assert call.shown.result == '"paid"'


def test_a_success_whose_grant_was_lost_with_its_log_still_stands() -> None:
    assert call_of(shown(intent(), outcome(True))).state is CallState.DONE


def test_a_call_that_did_not_happen_blocks_no_other_arguments() -> None:
    document = shown(granted(), intent(), outcome(False), settled(False))
    with pytest.raises(NeedsAuthority):
        document.begin_call(1, "pay", "pay", Effect.IRREVERSIBLE, D2, "{}", NOBODY)
    assert document.claimable(1, "pay", D2) is not None
    begun = document.begin_call(1, "pay", "pay", Effect.IRREVERSIBLE, D2, "{}", NOBODY, granted="a2")
    assert isinstance(begun, CallIntent)
    assert begun.attempt == "a2"


@pytest.mark.parametrize("last", [outcome(False, unsure=True), outcome(True)], ids=["in doubt", "done"])
def test_a_call_that_happened_or_may_have_blocks_other_arguments(last: CallOutcome) -> None:
    document = shown(granted(), intent(), last)
    with pytest.raises(KeyReused):
        document.claimable(1, "pay", D2)
    with pytest.raises(KeyReused):
        document.begin_call(1, "pay", "pay", Effect.IRREVERSIBLE, D2, "{}", NOBODY, granted="a2")


def test_a_done_call_is_returned_also_where_a_grant_is_at_hand() -> None:
    document = shown(granted(), intent(), outcome(True))
    begun = document.begin_call(1, "pay", "pay", Effect.IRREVERSIBLE, D1, "{}", NOBODY, granted="a2")
    assert isinstance(begun, CallRecorded)


def test_a_later_grant_that_succeeds_stands_over_an_earlier_one_that_did_not_happen() -> None:
    second = granted("a2", D2, token=2)
    call = call_of(
        shown(granted(), intent(), outcome(False), second, intent("a2", D2, 2), outcome(True, "a2", token=2))
    )
    assert (call.state, call.device, len(call.attempts)) == (CallState.DONE, "a", 2)
    assert not call.recorded_twice


# --- approvals --------------------------------------------------------------------------------------------------------


def asked_for(arguments: str | None = ARGUMENTS, digest: str = D1) -> ApprovalRequest:
    return ApprovalRequest("pay", 1, "pay", digest, 1, arguments)


def request_of(document: TaskDocument) -> RequestedApproval:
    return document.view().approvals[REQUEST]


@pytest.mark.parametrize(
    ("rulings", "state", "by"),
    [
        ((), ApprovalState.WAITING, ""),
        ((approved(),), ApprovalState.APPROVED, "bea"),
        ((approved(False),), ApprovalState.REJECTED, "bea"),
        ((approved(), granted(approved_by="bea")), ApprovalState.USED, "bea"),
        ((approved(), granted(approved_by="bea"), settled(True)), ApprovalState.USED, "bea"),
        ((approved(), granted(approved_by="bea"), settled(False)), ApprovalState.WAITING, ""),
        ((approved(), granted(approved_by="bea"), settled(False), approved()), ApprovalState.APPROVED, "bea"),
    ],
)
def test_a_request_stands_as_the_rulings_say(rulings: tuple[Ruling, ...], state: ApprovalState, by: str) -> None:
    request = request_of(shown(asked_for(), *rulings))
    assert (request.state, request.by) == (state, by)


def test_an_approval_that_no_ruling_took_counts_for_nothing() -> None:
    said = Approval("pay", 1, "pay", D1, True)
    document = shown(asked_for(), (said, "b"))
    assert request_of(document).state is ApprovalState.WAITING
    assert document.give_approval(REQUEST, "b", True, "") is None
    assert document.give_approval(REQUEST, "c", True, "") == said


def test_a_request_that_shows_other_arguments_than_it_asks_for_is_rejected_only() -> None:
    document = shown(asked_for('{"amount":1}'))
    with pytest.raises(ValueRefused, match="not those"):
        document.give_approval(REQUEST, "b", True, "")
    assert document.give_approval(REQUEST, "b", False, "odd") == Approval("pay", 1, "pay", D1, False, "odd")
    honest = shown((asked_for('{"amount":1}'), "thief"), (asked_for(), "a"))
    assert request_of(honest).arguments == ARGUMENTS


def test_a_call_is_asked_about_once() -> None:
    _, (a,) = devices("a")
    made = a.document.request_approval(1, "pay", "pay", D1, ARGUMENTS)
    assert made == ApprovalRequest("pay", 1, "pay", D1, 1, ARGUMENTS)
    a.document.record(Teller().entry(made))
    assert a.document.request_approval(1, "pay", "pay", D1, ARGUMENTS) is None
    with pytest.raises(ValueRefused):
        a.document.give_approval("0" * 16, "a", True, "")


# --- slots ------------------------------------------------------------------------------------------------------------


def test_a_held_slot_has_the_authoritys_value_alone() -> None:
    _, (a,) = devices("a")
    a.confirm("price", "1")
    teller = Teller()
    for value in (None, "5", "7"):
        a.document.record(teller.entry(Held("price", "ann", "server", value)))
    for slot in (a.document.slot("price"), a.document.view().slots["price"]):
        assert (slot.value, slot.state, slot.held, slot.token) == (7, SlotState.CONFIRMED, True, frozenset())
        assert slot.candidates[0].author == "server"


def test_a_slot_that_is_held_without_a_value_is_missing_whatever_the_document_says() -> None:
    _, (a,) = devices("a")
    a.confirm("price", "1")
    a.document.record(Teller().entry(Held("price", "ann", "server")))
    assert (a.document.slot("price").state, a.document.slot("price").held) == (SlotState.MISSING, True)
    assert a.document.view().slots["price"].value is None


def test_what_was_brought_back_of_a_held_slot_yields_to_what_the_new_log_says() -> None:
    _, (a,) = devices("a")
    teller = Teller()
    new = teller.entry(Held("price", "ann", "server", "2"), place=1)
    old = teller.entry(Held("price", "ann", "server", "1"), place=None)
    for order in itertools.permutations((new, old)):
        document = a.fresh_document()
        for entry in order:
            document.record(entry)
        assert document.slot("price").value == 2
        numbered = msgspec.structs.replace(old, relay_seq=9, vouched_by="a")
        document.place(numbered)
        assert document.slot("price").value == 2
