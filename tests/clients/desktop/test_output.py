"""What is printed: one JSON document or text for people, nothing that can steer a terminal, errors with their hint."""

import json
from decimal import Decimal

import msgspec
import pytest

from clients.config import WrongUsage
from clients.desktop.output import Answer, ExitStatus, Table, emit, emit_error, emit_line, printable
from sync_core.errors import KeyReused, TaskNotFound

HOSTILE = "\x1b]0;owned\x07\u202eabc\x9b2J\r\n\tend"


def test_json_is_exactly_one_document_on_stdout(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    answer = Answer({"value": msgspec.Raw(b"1.10E0"), "name": "Zoë"}, ("for people",))
    assert emit(answer, as_json=True) == 0
    out, err = capfdbinary.readouterr()
    assert json.loads(out, parse_float=Decimal) == {"value": Decimal("1.10"), "name": "Zoë"}
    assert out.count(b"\n") == 1 and err == b""


def test_people_get_aligned_columns_without_colour_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("SLOT", "STATE"), (("a", "confirmed"), ("a-longer-name", "missing")))
    emit(Answer({}, (table, "two slots")), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].index("STATE") == lines[1].index("confirmed") == lines[2].index("missing")
    assert lines[3] == "two slots" and "\x1b" not in "".join(lines)


def test_text_from_elsewhere_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Answer({}, (Table(("X",), ((HOSTILE,),)), HOSTILE)), as_json=False)
    emit_line({}, HOSTILE, as_json=False)
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(out)
    assert "\\x1b]0;owned" in out


def test_markup_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Answer({}, (Table(("X",), (("[bold]plain[/bold] :smile:",),)),)), as_json=False)
    assert "[bold]plain[/bold] :smile:" in capsys.readouterr().out


def test_line_ends_and_tabs_stay() -> None:
    assert printable("a\n\tb\x00\ud800") == "a\n\tb\\x00\\ud800"


def test_an_error_for_people_is_a_sentence_and_a_hint_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert emit_error(TaskNotFound("No such task."), as_json=False) == ExitStatus.REFUSED
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == ["Error: No such task.", TaskNotFound.default_hint]


def test_an_error_for_programs_is_one_document(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    error = KeyReused("Other arguments.", recorded_digest="a", given_digest="b")
    assert emit_error(error, as_json=True) == ExitStatus.REFUSED
    out, err = capfdbinary.readouterr()
    assert err == b""
    assert json.loads(out) == {
        "error": {"code": "key_reused", "status": 409, "sentence": "Other arguments.", "hint": KeyReused.default_hint}
    }


def test_wrong_usage_has_a_status_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert emit_error(WrongUsage("No."), as_json=False) == ExitStatus.WRONG_USAGE


def test_an_answer_carries_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert emit(Answer({}, (), ExitStatus.REFUSED), as_json=False) == 1


def test_a_long_cell_is_cut_but_never_one_that_is_there_to_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Answer({}, (Table(("VALUE", "READ"), (("v" * 100, "r" * 100),)),)), as_json=False)
    out = capsys.readouterr().out
    assert "v" * 63 + "…" in out and "v" * 64 not in out and "r" * 100 in out
