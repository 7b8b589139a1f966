"""The demo's parts: the PDF, the policy, the logs on disk, the picture, the processes."""

import asyncio
import io
import itertools
import os
import re
import xml.etree.ElementTree as ET
from decimal import Decimal
from pathlib import Path

import pytest

from clients.demo.conflict import choices, chosen
from clients.demo.diagram import draw
from clients.demo.executions import log_execution, read_executions
from clients.demo.invoice import parse_invoice, read_invoice_file
from clients.demo.layout import LABEL_LINE, lay_out
from clients.demo.narrator import PlainNarrator, RichNarrator, SilentNarrator, narrator_for
from clients.demo.people import ScriptedPerson, TypingPerson
from clients.demo.policy import check_invoice, claim_values, load_policy
from clients.demo.processes import DemoProcess, ProcessFailed
from clients.demo.story import INVOICE_FILE, PHONE, POLICY_FILE, SHIPPED
from clients.demo.timeline import Mark, MarkKind, Post, PostKind, Span, SpanKind, Timeline
from clients.demo.transcript import LineKind, Transcript, read_transcript
from sync_core.document.slots import Candidate, CandidateStatus, Slot, SlotState
from sync_core.errors import ValueRefused
from sync_core.values import canonical

PAGE = """Rail Nordwind                                            INVOICE

                              Invoice number:     RN-77
                              Invoice date:       1 December 2026

  Description            Quantity    Unit price    VAT     Net EUR
  Train, second class           2      1,000.50    19%    2,001.00

                              Net amount:         EUR 2,001.00
                              VAT 19% on 2,001.00:   EUR 380.19
                              Total due:          EUR 2,381.19
"""


# --- the invoice ------------------------------------------------------------------------------------------------------


def test_the_shipped_pdf_is_read_by_its_labels() -> None:
    invoice = read_invoice_file(SHIPPED / INVOICE_FILE)
    assert invoice.supplier == "Hotel Brunnenhof"
    assert (invoice.invoice_number, invoice.invoice_date) == ("BH-2026-04417", "2026-11-05")
    assert [line.description for line in invoice.lines] == ["Lodging, single room", "Breakfast", "Hamburg city tax"]
    assert [(vat.percent, vat.amount) for vat in invoice.vat] == [(7, Decimal("16.52")), (19, Decimal("5.32"))]
    assert (invoice.net, invoice.total, invoice.currency) == (Decimal("270.00"), Decimal("291.84"), "EUR")


def test_another_invoice_with_the_same_labels_is_read_too() -> None:
    invoice = parse_invoice(PAGE)
    assert (invoice.supplier, invoice.invoice_number, invoice.invoice_date) == ("Rail Nordwind", "RN-77", "2026-12-01")
    assert invoice.lines[0].unit_price == Decimal("1000.50")
    assert invoice.total == Decimal("2381.19")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("Invoice number:", "Number:", "Invoice number"),
        ("Total due:", "Total:", "Total due"),
        ("1 December 2026", "41 December 2026", "date"),
        ("Description", "What", "table"),
        ("INVOICE", "", "letterhead"),
        ("EUR 2,381.19", "EUR 2,381.20", "add up"),
        ("EUR 2,001.00\n", "USD 2,001.00\n", "currencies"),
        ("1,000.50    19%", "1,000.5     19%", "line"),
    ],
)
def test_an_invoice_that_cannot_be_read_is_refused_and_the_reason_named(old: str, new: str, named: str) -> None:
    assert old in PAGE
    with pytest.raises(ValueRefused, match=named):
        parse_invoice(PAGE.replace(old, new))


def test_a_file_that_is_no_pdf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "note.pdf"
    path.write_text("not a PDF")
    with pytest.raises(ValueRefused, match=r"note\.pdf"):
        read_invoice_file(path)


# --- the policy -------------------------------------------------------------------------------------------------------


def test_the_shipped_invoice_is_within_the_shipped_policy_and_lacks_only_the_cost_centre() -> None:
    check = check_invoice(read_invoice_file(SHIPPED / INVOICE_FILE), load_policy(SHIPPED / POLICY_FILE))
    assert check.within_limits
    assert check.missing == ("cost_center",)
    assert len(check.findings) == 3


def test_a_price_above_its_limit_is_a_breach_that_names_both() -> None:
    check = check_invoice(parse_invoice(PAGE), load_policy(SHIPPED / POLICY_FILE))
    assert not check.within_limits
    assert check.findings == ("Train, second class: 1000.50 is above the limit of 180.00 for rail.",)


def test_a_line_that_fits_no_category_is_a_breach() -> None:
    check = check_invoice(parse_invoice(PAGE.replace("Train", "Yacht")), load_policy(SHIPPED / POLICY_FILE))
    assert not check.within_limits
    assert "no category" in check.findings[0]


def test_another_currency_is_a_breach() -> None:
    page = PAGE.replace("EUR", "SEK").replace("1,000.50", "100.00").replace("2,001.00", "200.00")
    page = page.replace("380.19", "38.00").replace("2,381.19", "238.00")
    check = check_invoice(parse_invoice(page), load_policy(SHIPPED / POLICY_FILE))
    assert not check.within_limits
    assert "SEK" in check.findings[-1]


def test_an_invoice_answers_every_needed_slot_but_the_cost_centre() -> None:
    answered = claim_values(read_invoice_file(SHIPPED / INVOICE_FILE))
    assert set(load_policy(SHIPPED / POLICY_FILE).needed) - set(answered) == {"cost_center"}
    assert answered["amount"] == Decimal("291.84")


def test_a_policy_file_with_a_wrong_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('currency = "EUR"\nlimit = 3\n')
    with pytest.raises(ValueRefused, match=r"policy\.toml"):
        load_policy(path)


# --- files of lines ---------------------------------------------------------------------------------------------------


def test_each_execution_is_one_line_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "executions.jsonl"
    assert read_executions(path) == ()
    log_execution(path, "phone", "read_invoice", "invoice")
    log_execution(path, "phone", "check_policy", "policy")
    assert [(each.device, each.tool, each.step) for each in read_executions(path)] == [
        ("phone", "read_invoice", "invoice"),
        ("phone", "check_policy", "policy"),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_transcript_keeps_its_lines_in_order(tmp_path: Path) -> None:
    path = tmp_path / "desktop.transcript.jsonl"
    transcript = Transcript(path)
    transcript.add(LineKind.QUESTION, slot="cost_center", text="Which?")
    transcript.add(LineKind.CONFLICT, slot="cost_center", values=("CC-1", "CC-2"))
    assert [(line.kind, line.values) for line in read_transcript(path)] == [
        (LineKind.QUESTION, ()),
        (LineKind.CONFLICT, ("CC-1", "CC-2")),
    ]


# --- narrators --------------------------------------------------------------------------------------------------------


def test_json_output_is_told_by_nobody_and_a_pipe_in_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(narrator_for(json_output=True), SilentNarrator)
    plain = narrator_for(json_output=False)
    assert isinstance(plain, PlainNarrator)
    plain.line("phone", "Reads the invoice.")
    plain.figures([("calls", "2", "2", True), ("digests equal", "no", "yes", False)])
    told = capsys.readouterr().out
    assert "phone    Reads the invoice." in told
    assert re.search(r"digests equal +no +yes +<-- wrong", told)


def test_a_terminal_is_told_the_same_story_in_colour(capsys: pytest.CaptureFixture[str]) -> None:
    rich = RichNarrator()
    rich.chapter("1. A phone begins")
    rich.waiting("the phone", 1)
    rich.line("phone", "Reads the invoice.")
    rich.figures([("digests equal", "no", "yes", False)])
    rich.closing("Not as expected.", good=False)
    told = capsys.readouterr().out
    for text in ("1. A phone begins", "phone", "Reads the invoice.", "digests equal", "Not as expected."):
        assert text in told


async def test_when_typed_input_has_ended_the_script_answers_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("CC-1\n"))
    person = TypingPerson(SilentNarrator(), ScriptedPerson(SilentNarrator(), {PHONE: ("CC-2",)}))
    assert await person.answer(PHONE, "Which?") == "CC-1"
    assert await person.answer(PHONE, "Which?") == "CC-2"
    assert "no more input" in capsys.readouterr().err


def test_what_was_typed_and_is_no_utf_8_is_an_answer_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for error_handler in ("strict", "surrogateescape"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff CC-1\n"), "utf-8", error_handler))
        person = TypingPerson(SilentNarrator(), ScriptedPerson(SilentNarrator(), {}))
        assert asyncio.run(person.answer(PHONE, "Which?")) == "\ufffd CC-1"


def test_a_conflict_is_answered_by_number_by_value_or_as_it_was_shown() -> None:
    candidates = tuple(
        Candidate(f"w{author}", canonical(value), CandidateStatus.CONFIRMED, 1, author, None, 0)
        for author, value in (("phone", "CC-2"), ("desktop", "CC-1"))
    )
    slot = Slot("cost_center", SlotState.CONFLICTED, candidates)
    assert choices(slot) == "[1] CC-1 (desktop) or [2] CC-2 (phone)"
    for answer in ("2", "[2]", "CC-2", "CC-2 (phone)"):
        assert chosen(slot, answer) == candidates[0]
    for answer in ("", "0", "3", "CC-", "phone"):
        assert chosen(slot, answer) is None


# --- the picture ------------------------------------------------------------------------------------------------------


def timeline() -> Timeline:
    posts = (
        Post("phone", "slots declared", PostKind.PLAIN, 1_000, 1_003, 1, (("desktop", 3_000),)),
        Post("phone", "slots declared", PostKind.PLAIN, 1_001, 1_003, 2, (("desktop", 3_000),)),
        Post("phone", "cost_center confirmed: <CC-1>", PostKind.COMPETING, 1_001, 5_000, 3, (("desktop", 5_001),)),
        Post("desktop", "cost_center confirmed: CC-2", PostKind.COMPETING, 4_000, 5_002, 4, (("phone", 5_003),)),
        Post("desktop", "cost_center resolved: CC-2", PostKind.RESOLVING, 6_000, 6_001, 5, (("phone", 6_002),)),
    )
    marks = (
        Mark("phone", MarkKind.STARTED, 990, "process 1 starts"),
        Mark("phone", MarkKind.RAN, 1_000, "read_invoice runs"),
        Mark("phone", MarkKind.KILLED, 2_000, "SIGKILL: process 1 is gone"),
        Mark("desktop", MarkKind.CONFLICT, 5_500, "conflict shown: CC-1 (phone) or CC-2 (desktop), nothing chosen"),
    )
    spans = (
        Span("phone", SpanKind.ONLINE, 990, 2_000),
        Span("desktop", SpanKind.ONLINE, 2_500, 3_500),
        Span("desktop", SpanKind.OFFLINE, 3_500, 4_900),
        Span("desktop", SpanKind.ONLINE, 4_900, 7_000),
        Span("relay", SpanKind.ONLINE, 900, 7_000),
    )
    return Timeline("a title", "a subtitle", ("phone", "relay", "desktop"), spans, posts, marks)


def test_time_never_runs_backwards_in_the_picture() -> None:
    layout = lay_out(timeline())
    assert list(layout.moments) == sorted(layout.moments)
    assert all(placed.written_y < placed.stored_y for placed in layout.posts)
    assert all(placed.stored_y < y for placed in layout.posts for _, y in placed.arrivals)


def test_labels_of_one_lane_never_overlap() -> None:
    for lane in ("phone", "desktop"):
        labels = [label for label in lay_out(timeline()).labels if label.lane == lane]
        assert len(labels) >= 3
        for above, below in itertools.pairwise(labels):
            assert above.y + LABEL_LINE * len(above.lines) <= below.y


def test_equal_labels_in_a_row_are_told_once_with_their_places_in_the_log() -> None:
    lines = [" ".join(label.lines) for label in lay_out(timeline()).labels]
    assert "slots declared ×2 #1-2" in lines
    assert "cost_center resolved: CC-2 #5" in lines


def test_the_picture_is_one_well_formed_svg_with_every_entry_as_an_arrow() -> None:
    text = draw(timeline())
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    arrows = [line for line in root.iter("{http://www.w3.org/2000/svg}line") if line.get("marker-end")]
    in_legend = 2
    assert len(arrows) - in_legend == 5 * 2
    assert "&lt;CC-1&gt;" in text
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_same_timeline_gives_the_same_picture() -> None:
    assert draw(timeline()) == draw(timeline())


def test_the_kill_the_offline_spell_and_the_conflict_are_drawn() -> None:
    root = ET.fromstring(draw(timeline()))
    kinds = [each.get("class") for each in root.iter()]
    assert kinds.count("cross") == 1
    in_legend = 1
    assert kinds.count("spell") == 1 + in_legend
    assert len([each for each in root.iter("{http://www.w3.org/2000/svg}path") if each.get("class") == "red"]) == 3


# --- processes --------------------------------------------------------------------------------------------------------


async def test_a_process_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    program = "import sys; print('out of paper', file=sys.stderr); sys.exit(3)"
    process = await DemoProcess.start(PHONE, ["-c", program], tmp_path / "phone.txt", SilentNarrator())
    with pytest.raises(ProcessFailed, match=r"(?s)phone process ended early, with status 3.*out of paper"):
        await process.until("waiting", ScriptedPerson(SilentNarrator(), {}))


async def test_a_line_that_is_no_message_is_a_failure(tmp_path: Path) -> None:
    process = await DemoProcess.start(PHONE, ["-c", "print('hello')"], tmp_path / "phone.txt", SilentNarrator())
    with pytest.raises(ProcessFailed, match="hello"):
        await process.until("waiting", ScriptedPerson(SilentNarrator(), {}))
    await process.clean_up()


async def test_a_killed_process_is_gone_before_the_story_goes_on(tmp_path: Path) -> None:
    process = await DemoProcess.start(PHONE, ["-c", "input()"], tmp_path / "phone.txt", SilentNarrator())
    await process.kill()
    assert process.life().killed
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_a_process_asks_and_is_answered_over_its_own_streams(tmp_path: Path) -> None:
    program = (
        'print(\'{"kind": "question", "text": "Which?"}\', flush=True)\n'
        'print(\'{"kind": "reached", "text": "%s"}\' % input(), flush=True)\n'
    )
    process = await DemoProcess.start(PHONE, ["-c", program], tmp_path / "phone.txt", SilentNarrator())
    person = ScriptedPerson(SilentNarrator(), {PHONE: ("CC-1042",)})
    await process.until("CC-1042", person)
    await process.until_end(person)
    assert not process.life().killed
