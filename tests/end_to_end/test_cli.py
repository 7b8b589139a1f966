"""The command line in processes of its own, against a real relay: what it prints, what it refuses, how it ends."""

import asyncio
import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clients.desktop.app import app
from sync_core import Effect, Endpoint, tool
from tests.end_to_end.command_line import TASK, Device, running_relay
from tests.processor import starts_fast

SECRET = "a secret of at least thirty-two bytes, for tests"


def values_of(slot: dict[str, Any]) -> set[str]:
    return {candidate["value"] for candidate in slot["candidates"]}


# --- the relay and the folder -----------------------------------------------------------------------------------------


def test_a_relay_starts_and_stops_within_a_third_of_a_second_of_processor_time(tmp_path: Path) -> None:
    def start_and_stop() -> None:
        with running_relay(tmp_path, "--port", "0"):
            pass

    assert starts_fast(start_and_stop)


def test_the_store_is_this_users_alone(phone: Device) -> None:
    phone.json("tasks")
    (store,) = phone.home.glob("*.db")
    assert stat.S_IMODE(phone.home.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.stat().st_mode) == 0o600


def test_a_relay_open_to_other_machines_does_not_start_without_a_secret(phone: Device, tmp_path: Path) -> None:
    done = phone.run("relay", "--db", str(tmp_path / "other.db"), "--host", "0.0.0.0", "--port", "0")
    assert done.status == 1 and "secret" in done.err


# --- slots ------------------------------------------------------------------------------------------------------------


def test_a_task_starts_on_one_device_and_is_listed_and_shown_on_another(phone: Device, desktop: Device) -> None:
    assert phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")["relay"]
    (info,) = desktop.json("tasks")["tasks"]
    assert (info["task"], info["known_here"]) == (TASK, False)
    (slot,) = desktop.json("slot", "list", TASK)["slots"]
    assert (slot["state"], slot["value"]) == ("confirmed", "CC-1042")
    assert "CC-1042" in desktop.run("show", TASK).out


def test_a_present_value_is_replaced_only_by_who_has_read_it(phone: Device) -> None:
    phone.json("slot", "propose", TASK, "amount", "410", "--as-json", "--create", "--source", "invoice.pdf")
    refused = phone.run("slot", "confirm", TASK, "amount", "412.50", "--as-json")
    assert refused.status == 1 and "Error: " in refused.err and "410" in refused.out
    document = phone.json("slot", "confirm", TASK, "amount", "412.50", "--as-json", status=1)
    assert document["error"]["code"] == "read_needed"
    token = str(document["slot"]["read"])
    assert token in refused.err
    written = phone.json("slot", "confirm", TASK, "amount", "412.50", "--as-json", "--read", token)["slot"]
    assert (written["state"], written["value"], written["proposals"]) == ("confirmed", 412.5, [])


def test_a_value_that_came_meanwhile_survives_and_is_settled_by_a_person(phone: Device, desktop: Device) -> None:
    first = phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")["slot"]
    stale = str(first["read"])
    desktop.json("slot", "confirm", TASK, "cost_center", "CC-2000", "--read", stale)
    document = phone.json("slot", "confirm", TASK, "cost_center", "CC-3000", "--read", stale, status=1)
    conflicted = document["slot"]
    assert (conflicted["state"], values_of(conflicted)) == ("conflicted", {"CC-2000", "CC-3000"})
    wanted = next(each for each in conflicted["candidates"] if each["value"] == "CC-2000")
    assert desktop.json("slot", "resolve", TASK, "cost_center", wanted["write_id"], status=1)["error"]
    token = str(conflicted["read"])
    settled = desktop.json("slot", "resolve", TASK, "cost_center", wanted["write_id"][:6], "--read", token)["slot"]
    assert (settled["state"], settled["value"]) == ("confirmed", "CC-2000")


def test_clear_deletes_what_was_read(phone: Device) -> None:
    slot = phone.json("slot", "confirm", TASK, "currency", "EUR", "--create")["slot"]
    assert phone.run("slot", "clear", TASK, "currency").status == 1
    assert phone.json("slot", "clear", TASK, "currency", "--read", str(slot["read"]))["slot"]["state"] == "missing"
    assert phone.run("slot", "clear", TASK, "currency").status == 0


def test_a_value_can_come_from_standard_input(phone: Device) -> None:
    done = phone.run("slot", "confirm", TASK, "iban", "-", "--create", "--json", stdin="DE89 – 3704\n")
    assert done.json()["slot"]["value"] == "DE89 – 3704"


# --- notes ------------------------------------------------------------------------------------------------------------


def test_a_note_is_replaced_only_over_the_text_that_was_read(phone: Device, desktop: Device) -> None:
    first = phone.json("note", "write", TASK, "worklog", "one\n", "--create")["note"]
    document = desktop.json("note", "write", TASK, "worklog", "two\n", status=1)
    assert document["error"]["code"] == "memory_precondition_failed_error"
    assert document["current_sha256"] == first["content_sha256"]
    assert str(document["current_sha256"]) in desktop.run("note", "write", TASK, "worklog", "two\n").out
    second = desktop.json("note", "write", TASK, "worklog", "two\n", "--sha256", str(document["current_sha256"]))
    assert second["note"]["text"] == "two\n"
    again = desktop.json("note", "write", TASK, "worklog", "two\n", "--sha256", str(document["current_sha256"]))
    assert again["note"] == second["note"]


def test_both_ends_lines_are_in_a_merged_note(phone: Device, desktop: Device, tmp_path: Path) -> None:
    phone.json("note", "write", TASK, "worklog", "start\n", "--create")
    base = phone.json("note", "read", TASK, "worklog")["note"]["content_sha256"]
    desktop.json("note", "append", TASK, "worklog", "from the desktop")
    (tmp_path / "text").write_text("from the phone\nstart\n")
    merged = phone.json("note", "merge", TASK, "worklog", "--file", str(tmp_path / "text"), "--base", base)
    assert merged["note"]["text"] == "from the phone\nstart\nfrom the desktop\n"
    assert merged["overlap"] == []
    unknown = desktop.json("note", "merge", TASK, "worklog", "x", "--base", "0" * 64, status=1)
    assert unknown["error"]["code"] == "base_unknown"


def test_an_appended_argument_is_a_line_of_its_own(phone: Device) -> None:
    phone.run("note", "write", TASK, "worklog", "--create", stdin="no line end")
    phone.json("note", "append", TASK, "worklog", "a line")
    assert phone.run("note", "read", TASK, "worklog").out.startswith("no line end\na line\n")


# --- offline ----------------------------------------------------------------------------------------------------------


def test_without_a_relay_it_works_here_says_so_and_catches_up_later(tmp_path: Path, relay: str) -> None:
    alone = Device(tmp_path / "phone", "phone", "ws://127.0.0.1:9")
    done = alone.run("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    assert done.status == 0 and "Not in step with the relay: offline" in done.out
    document = alone.json("slot", "list", TASK)
    assert document["relay"]["synced"] is False and document["relay"]["unsent"] > 0
    found = Device(tmp_path / "phone", "phone", relay).json("tasks")["relay"]
    assert found["synced"] is True and found["unsent"] == 0
    (slot,) = Device(tmp_path / "desktop", "desktop", relay).json("slot", "list", TASK)["slots"]
    assert slot["value"] == "CC-1042"


def test_no_relay_at_all_is_a_setting(tmp_path: Path) -> None:
    device = Device(tmp_path / "phone", "phone", "none")
    device.json("note", "write", TASK, "worklog", "alone\n", "--create", "--wait", "30")
    assert device.json("tasks")["relay"]["reason"] == "no relay is configured"


# --- refusals and wrong usage -----------------------------------------------------------------------------------------


def test_an_unknown_task_is_refused_with_a_hint_for_people_and_a_document_for_programs(phone: Device) -> None:
    done = phone.run("show", "expense/NONE")
    assert done.status == 1 and done.out == ""
    sentence, hint = done.err.splitlines()
    assert sentence.startswith("Error: ") and "--create" in hint
    error = phone.json("show", "expense/NONE", status=1)["error"]
    assert (error["code"], error["status"]) == ("task_not_found", 404)


@pytest.mark.parametrize(
    "arguments",
    [
        ["slot", "confirm", TASK, "x", "1", "--read", "nonsense"],
        ["slot", "confirm", TASK, "x", "{", "--as-json"],
        ["note", "merge", TASK, "worklog", "x"],
        ["note", "write", TASK, "worklog", "x", "--file", "y"],
        ["note", "write", TASK, "worklog", "--file", "absent"],
        ["tasks", "--relay", "http://127.0.0.1"],
        ["tasks", "--token-file", "absent"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_status_2_and_one_document(phone: Device, arguments: list[str]) -> None:
    phone.json("slot", "confirm", TASK, "x", "0", "--create")
    done = phone.run(*arguments, "--json")
    assert done.status == 2 and done.err == ""
    assert done.json()["error"]["code"] == "wrong_usage"


def test_a_second_process_on_the_store_is_refused_with_the_owners_pid(phone: Device) -> None:
    phone.json("slot", "confirm", TASK, "x", "0", "--create")
    with watching(phone) as watch:
        done = phone.run("tasks")
        assert done.status == 1 and str(watch.pid) in done.err


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_admits_the_device_that_it_was_made_for(tmp_path: Path) -> None:
    secret, token = tmp_path / "secret", tmp_path / "token"
    secret.write_text(SECRET)
    with running_relay(tmp_path, "--port", "0", "--auth", str(secret)) as url:
        phone = Device(tmp_path / "phone", "phone", url)
        refused = phone.json("slot", "confirm", TASK, "x", "1", "--create", status=1)
        assert "error" in refused or refused["relay"]["link"] == "refused"
        made = phone.run("token", "--device", "phone", "--subject", "acme", "--principal", "kim", "--auth", str(secret))
        assert made.status == 0 and SECRET not in made.out
        token.write_text(made.out)
        kept = phone.json("slot", "list", TASK, "--token-file", str(token))
        assert kept["relay"]["synced"] is True
        other = Device(tmp_path / "other", "other", url, token=made.out.strip())
        for command in ("tasks", "stats"):
            done = other.run(command)
            assert done.status == 1 and "refused" in done.out


def test_a_token_is_made_with_a_secret_from_the_environment_and_never_without(phone: Device) -> None:
    arguments = ("token", "--device", "phone", "--subject", "acme", "--principal", "kim")
    assert phone.json(*arguments, status=2)["error"]
    phone.environment["SEGUE_AUTH_SECRET"] = SECRET
    assert phone.json(*arguments)["token"]


# --- watching ---------------------------------------------------------------------------------------------------------


@contextmanager
def watching(device: Device) -> Iterator[subprocess.Popen[str]]:
    """A watch of the task that has begun; it is ended by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "clients.desktop", "watch", TASK, "--json"],
        env=device.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run that was started in the background of a script hands on that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    try:
        assert "Watching" in process.stderr.readline()
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_watch_prints_a_change_from_elsewhere_as_it_comes(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "x", "0", "--create")
    with watching(phone) as watch:
        desktop.json("slot", "propose", TASK, "cost_center", "CC-1")
        assert watch.stdout is not None
        change = json.loads(watch.stdout.readline())
        assert (change["type"], change["local"], change["slot"]["value"]) == ("slot", False, "CC-1")


# --- what was made by a program ---------------------------------------------------------------------------------------


@tool(effect=Effect.READ)
async def read_invoice(path: str) -> dict[str, str]:
    return {"path": path, "total": "412.50"}


async def made_by_a_program(home: Path, relay: str) -> None:
    async with (
        Endpoint.open(home / "p.db", subject="acme", device="agent", relay=relay, tools=[read_invoice]) as agent,
        agent.task(TASK, create=True) as task,
    ):
        await task.slots.declare("iban", ask="Which account?", secret=True, required=True)
        await task.slots.declare("cost_center", ask="Which cost centre?", schema={"type": "string"})
        await task.slots.confirm("iban", "DE89-SECRET")
        await task.history.append({"role": "user", "content": "Please pay \x1b]0;owned\x07 this."})
        await task.call("invoice", read_invoice, "invoice.pdf")
        await task.notes.append("worklog", "read the invoice\n")
        await agent.synced(timeout_s=20)


def test_every_reading_command_shows_the_task_and_never_its_secret(phone: Device, relay: str, tmp_path: Path) -> None:
    asyncio.run(made_by_a_program(tmp_path / "program", relay))
    for command in (
        ["tasks"],
        ["show", TASK],
        ["brief", TASK],
        ["brief", TASK, "--view", "confirm", "--max-chars", "500"],
        ["slot", "list", TASK],
        ["calls", TASK],
        ["history", TASK, "--last", "5"],
        ["note", "read", TASK, "worklog"],
        ["stats"],
    ):
        for arguments in (command, [*command, "--json"]):
            told = CliRunner().invoke(app, arguments, env=phone.environment)
            assert told.exit_code == 0 and told.stderr == "", (arguments, told.output)
            assert "DE89-SECRET" not in told.output and "\x1b" not in told.output, arguments
    assert "invoice" in phone.run("calls", TASK).out
    assert "Please pay" in phone.run("history", TASK).out
    assert "set" in phone.run("slot", "list", TASK).out


def test_a_value_that_fails_the_schema_is_refused(phone: Device, relay: str, tmp_path: Path) -> None:
    asyncio.run(made_by_a_program(tmp_path / "program", relay))
    error = phone.json("slot", "confirm", TASK, "cost_center", "5", "--as-json", status=1)["error"]
    assert error["code"] == "value_refused"
