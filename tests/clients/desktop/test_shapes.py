"""What people and programs are shown of a task: exact values, no secret, no guess about what cannot be read."""

import msgspec

from clients.desktop.output import Table
from clients.desktop.shapes import (
    call_document,
    calls_table,
    candidates_table,
    message_line,
    slot_document,
    slot_line,
    slots_table,
)
from sync_core.document.calls import Attempt, Call, CallState
from sync_core.document.slots import Candidate, CandidateStatus, Slot, SlotDefinition, SlotState
from sync_core.entry import Effect
from sync_core.values import JsonValue

ID = "00112233445566ff"


def candidate(text: str, *, readable: bool = True) -> Candidate:
    return Candidate(ID, text, CandidateStatus.CONFIRMED, 1, "phone", "invoice.pdf", 0, readable)


def slot(*candidates: Candidate, secret: bool = False) -> Slot:
    state = SlotState.CONFIRMED if len(candidates) == 1 else SlotState.CONFLICTED if candidates else SlotState.MISSING
    definition = SlotDefinition("Which one?", required=True, secret=secret)
    return Slot("iban", state, candidates, token=frozenset({ID}), definition=definition, secret=secret)


def everything(shown: Slot) -> str:
    tables = [slots_table([shown]), candidates_table(shown)]
    rows = " ".join(cell for table in tables for row in table.rows for cell in row)
    return f"{rows} {slot_line(shown)} {msgspec.json.encode(slot_document(shown)).decode()}"


def test_a_secret_is_shown_as_set_wherever_it_is_shown() -> None:
    for shown in (slot(candidate('"DE89"'), secret=True), slot(candidate('"DE89"'), candidate('"FR76"'), secret=True)):
        assert "DE89" not in everything(shown) and "FR76" not in everything(shown)
        assert all("set" in row[1] for row in candidates_table(shown).rows)


def test_a_number_is_printed_as_it_is_stored() -> None:
    big = str(2**70)
    document = slot_document(slot(candidate(big)))
    assert f'"value":{big}' in msgspec.json.encode(document).decode()


def test_a_text_is_shown_plain_and_anything_else_as_json() -> None:
    assert slot_line(slot(candidate('"CC-1"'))) == "slot iban is confirmed: CC-1"
    assert slot_line(slot(candidate('{"a":1}'))) == 'slot iban is confirmed: {"a":1}'
    assert slot_line(slot()) == "slot iban is missing"


def test_a_candidate_that_cannot_be_read_is_shown_so() -> None:
    shown = slot(candidate("{broken", readable=False), candidate('"x"'))
    assert candidates_table(shown).rows[0][1] == "(unreadable)"
    assert "broken" not in everything(shown)


def test_a_call_says_where_it_stands_and_who_ran_it() -> None:
    attempt = Attempt("a1", 1, "phone", "read_invoice", Effect.READ, "digest", None, 0, ok=True, result="1")
    call = Call("invoice", 1, CallState.DONE, (attempt, attempt), attempt, recorded_twice=True)
    assert call_document(call)["device"] == "phone" and call_document(call)["recorded_twice"] is True
    assert calls_table([call]).rows == (("invoice", "done", "read_invoice", "phone", "2 (recorded twice)", ""),)
    planned = Call("scan", 1, CallState.PLANNED, (), None, tool="scan", requires=("camera",))
    assert calls_table([planned]).rows == (("scan", "planned", "scan", "-", "0", "camera"),)
    assert isinstance(calls_table([]), Table)


def test_a_message_is_one_line_with_what_it_calls() -> None:
    function: JsonValue = {"name": "look", "arguments": '{"at": 1}'}
    assert message_line({"role": "user", "content": "hello"}) == "user: hello"
    assert message_line({"role": "assistant", "content": None, "tool_calls": [{"function": function}]}) == (
        'assistant: [calls look {"at": 1}]'
    )
    assert message_line({"role": "assistant", "tool_calls": [3]}) == "assistant: (a call that cannot be read)"
    assert message_line({"role": "tool", "name": "look", "content": "fine"}) == "tool look: fine"
    assert message_line({"role": "user", "content": [{"type": "text"}]}) == 'user: [{"type":"text"}]'
