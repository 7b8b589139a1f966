"""The log: one line for each event, which nobody can forge and no content enters; bounded under a flood."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server_relay import logs
from server_relay.admission import Grant, LoginRefused, Role
from server_relay.config import RelaySettings
from server_relay.logs import LOGGER_NAME, RelayLog, failure, write_log
from server_relay.notes import Note, as_json_line, as_text
from server_relay.server import serve
from sync_core.frames import Login, Receipt
from tests.server_relay.harness import Harness
from tests.server_relay.wire_client import WireClient, history_entry

TASK, PHONE = "expense/TRIP-118", 700_001
FORGED = "anna\n2026-01-01T00:00:00Z info login device=evil\r\x1b[2K\u2028\u202e\x85\"'="


Lines = Callable[[], list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """What was written to standard error since the last look; the logger is left as it was."""
    loggers = [logging.getLogger(name) for name in (LOGGER_NAME, "asyncio")]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield lambda: capsys.readouterr().err.splitlines()
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_no_value_ends_a_line_or_looks_like_another_field() -> None:
    note = Note("login", {"principal": FORGED, "conn": 7, "open": True})
    text = as_text(note)
    assert text.isprintable()
    assert text.isascii()
    assert text.startswith('login principal="anna\\n2026')
    assert text.endswith(" conn=7 open=true")
    line = as_json_line(note, "2026-11-30T00:00:00Z")
    assert len(line.splitlines()) == 1
    assert json.loads(line)["principal"] == FORGED
    assert len(as_text(Note("x", {"a": "y" * 10_000}))) < 300


@pytest.mark.parametrize("value", ["a b", "a=b", "", '"', "é", "a\\b", "x\ty"])
def test_what_is_not_plain_is_quoted(value: str) -> None:
    assert as_text(Note("e", {"f": value})) == f"e f={json.dumps(value)}"


def test_lines_are_text_or_json(lines: Lines) -> None:
    for style in ("text", "json"):
        write_log(style)  # type: ignore[arg-type]
        RelayLog().put(Note("login", {"device": "phone"}))
        logging.getLogger("asyncio").warning("from elsewhere\n%s", FORGED)
    first, other, as_json, other_json = lines()
    assert first.endswith("Z info login device=phone")
    assert " warning logged by=asyncio at_line=test_logs.py:" in other
    assert "elsewhere" not in other + other_json
    assert json.loads(as_json) | {"at": ""} == {"at": "", "level": "info", "event": "login", "device": "phone"}
    assert json.loads(other_json)["event"] == "logged"


def test_a_flood_is_counted_not_written(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    second = 100.0
    monkeypatch.setattr(logs.time, "monotonic", lambda: second)
    write_log("text")
    log = RelayLog()
    for _ in range(1_000):
        log.put(Note("login_refused", {"reason": "credentials"}))
    log.put(Note("commit_failed", {"code": "store_full"}, "error"))
    assert len(lines()) == 101
    second = 101.0
    log.put(Note("login", {}))
    assert [line.split(" ", 1)[1] for line in lines()] == ["warning lines_left_out lines=900", "info login"]


def test_the_relay_notes_who_came_and_who_was_turned_away() -> None:
    def admit(login: Login, now_ms: int) -> Grant:
        if login.token != "good":
            raise LoginRefused("No.", hint="", final=True)
        return Grant(FORGED, login.device, login.subject, Role.WRITE)

    harness = Harness(admit)
    phone = harness.login("phone", token="good")
    harness.login("phone", token="the secret token")
    phone.push(TASK, history_entry(TASK, PHONE, 1, "phone", '"the content"'))
    phone.leave()
    notes = list(harness.relay.notes)
    assert [note.event for note in notes] == ["login", "login_refused", "closed", "left"]
    assert (notes[1].fields["reason"], notes[2].fields["code"]) == ("credentials", 1008)
    text = " ".join(map(as_text, notes))
    assert "content" not in text
    assert "secret token" not in text
    for _ in range(3_000):
        harness.login("phone", token="bad").leave()
    assert len(harness.relay.notes) == 1_000


async def test_a_running_relay_writes_lines_that_programs_can_read(tmp_path: Path, lines: Lines) -> None:
    write_log("json")
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone", '"the content"'))
        await phone.next(Receipt)
        await phone.websocket.send("text")
        await phone.closed()
    await relay.close()
    told = lines()
    documents = [json.loads(line) for line in told]
    assert [document["event"] for document in documents] == ["login", "closed"]
    assert documents[1]["reason"] == "protocol_error"
    assert "content" not in " ".join(told)


def test_an_error_that_nobody_foresaw_is_told_by_type_and_place_only() -> None:
    try:
        raise KeyError("the content")
    except KeyError as error:
        note = failure(error)
    assert note.fields["error"] == "KeyError"
    assert str(note.fields["where"]).startswith("test_logs.py:")
    assert "content" not in as_text(note)
