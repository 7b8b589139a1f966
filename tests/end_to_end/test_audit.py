"""`segue replay, export, restore` in processes of their own: a task is audited, wiped by a peer, and brought back."""

import json
from typing import Any

from tests.end_to_end.command_line import TASK, Device


def exported(device: Device) -> list[dict[str, Any]]:
    done = device.run("export", TASK)
    assert (done.status, done.err) == (0, ""), done
    return [json.loads(line) for line in done.out.splitlines()]


def test_what_a_peer_deleted_is_seen_in_the_log_and_comes_back_with_one_command(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    phone.json("slot", "propose", TASK, "amount", "291.84")
    phone.json("note", "append", TASK, "worklog", "read the invoice")
    at = max(line["place"] for line in exported(phone) if line["stream"] == "state")

    shown = desktop.json("show", TASK)
    for slot in shown["slots"]:
        desktop.json("slot", "clear", TASK, slot["name"], "--read", slot["read"])
    [note] = shown["notes"]
    desktop.json("note", "write", TASK, "worklog", "", "--sha256", note["content_sha256"])

    replayed = phone.json("replay", TASK)
    assert replayed["equal"] is True and replayed["gaps"] == [] and replayed["slots"] == replayed["notes"] == []
    then = phone.json("replay", TASK, "--at", str(at))
    assert {slot["name"]: (slot["state"], slot["value"]) for slot in then["slots"]} == {
        "amount": ("proposed", "291.84"),
        "cost_center": ("confirmed", "CC-1042"),
    }
    assert then["notes"][0]["text"] == "read the invoice\n"
    wiped = [line for line in exported(phone) if line["device"] == "desktop"]
    assert sorted(named["slot"] for line in wiped for named in line["update"]["deleted"]) == ["amount", "cost_center"]
    assert [each["bytes_after"] for line in wiped for each in line["update"]["notes"]] == [0]
    assert all(line["place"] > at and line["size_bytes"] > 0 for line in wiped)

    told = phone.run("restore", TASK, "--at", str(at))
    assert told.status == 0, told
    assert told.out.splitlines() == [
        "The slot amount has its proposed value back.",
        "The slot cost_center has its confirmed value back.",
        "The note worklog has its text back.",
    ]
    after = desktop.json("show", TASK)
    assert [(slot["name"], slot["state"], slot["value"]) for slot in after["slots"]] == [
        (slot["name"], slot["state"], slot["value"]) for slot in shown["slots"]
    ]
    assert after["notes"] == shown["notes"]
    again = phone.json("restore", TASK, "--at", str(at))
    assert again["slots"] == again["notes"] == again["left"] == []


def test_a_replay_is_shown_to_people_and_a_place_that_is_not_there_is_refused(phone: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    told = phone.run("replay", TASK)
    assert told.status == 0 and "content as the live task" in told.out and "No gaps." in told.out
    assert "CC-1042" in told.out
    refused = phone.json("replay", TASK, "--at", "99", status=1)
    assert refused["error"]["code"] == "value_refused"
    assert phone.run("restore", TASK).status == 2
    assert phone.json("export", "no/such", status=1)["error"]["code"] == "task_not_found"
