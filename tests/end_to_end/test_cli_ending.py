"""`segue handover, complete, purge` in processes of their own: given once, finished once stored, gone for everybody."""

from pathlib import Path

from tests.end_to_end.command_line import TASK, Device


def test_a_hand_over_is_given_once_and_read_by_everybody(phone: Device, desktop: Device, tmp_path: Path) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    nothing = phone.run("handover", TASK)
    assert (nothing.status, nothing.out) == (0, "The task was not handed over.\n")
    given = phone.json("handover", TASK, "--text", "The receipt is missing.\n")["handover"]
    assert (given["author"], given["stored"], given["version"]) == ("phone", True, 1)
    for reader in (phone, desktop):
        told = reader.run("handover", TASK)
        assert told.status == 0 and told.out.startswith("The receipt is missing.\n-- version 1, by phone, ")
    again = desktop.json("handover", TASK, "--text", "Mine.", status=1)
    assert again["error"]["code"] == "handed_over"
    (tmp_path / "text").write_text("Mine.")
    assert phone.json("handover", TASK, "--file", str(tmp_path / "text"), status=1)["error"]["code"] == "handed_over"
    assert desktop.json("handover", TASK)["handover"]["text"] == "The receipt is missing.\n"


def test_the_text_comes_from_a_file_or_from_standard_input_and_only_from_one(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    assert phone.run("handover", TASK, "--text", "a", "--file", "-").status == 2
    assert phone.run("handover", TASK, "--file", "absent").status == 2
    assert phone.run("handover", TASK, "--file", "-", stdin="From a pipe – ö.\n").status == 0
    assert desktop.json("handover", TASK)["handover"]["text"] == "From a pipe – ö.\n"


def test_two_hand_overs_given_apart_are_both_shown_and_one_stands(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    desktop.json("show", TASK)
    apart = desktop.json("handover", TASK, "--text", "From the desktop.", "--relay", "none")
    assert apart["handover"]["stored"] is False
    phone.json("handover", TASK, "--text", "From the phone.")
    told = desktop.json("handover", TASK, status=1)["handover"]
    assert (told["text"], [other["text"] for other in told["conflicts"]]) == ("From the phone.", ["From the desktop."])
    shown = phone.run("handover", TASK)
    assert shown.status == 1 and "not standing:\nFrom the desktop.\n" in shown.out


def test_a_task_is_completed_when_the_relay_has_stored_it(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    waiting = phone.json("complete", TASK, "--relay", "none")
    assert waiting["state"] == "completing"
    told = phone.run("complete", TASK)
    assert (told.status, told.out) == (0, f"{TASK}, version 1, is completed, by phone.\n")
    assert [info["state"] for info in desktop.json("tasks")["tasks"]] == ["completed"]
    assert phone.json("complete", "no/such", status=1)["error"]["code"] == "task_not_found"


def test_what_was_written_apart_from_a_completion_is_for_a_person_to_decide(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    desktop.json("show", TASK)
    phone.json("complete", TASK, "--relay", "none")
    desktop.json("slot", "confirm", TASK, "amount", "291.84")
    assert phone.json("show", TASK)["state"] == "completed_while_edited"
    assert "completed_while_edited" in phone.run("show", TASK).out
    assert phone.json("complete", TASK)["state"] == "completed"
    assert desktop.json("show", TASK)["state"] == "completed"


def test_a_purged_task_is_gone_everywhere_and_comes_back_with_a_higher_version_alone(
    phone: Device, desktop: Device
) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    desktop.json("show", TASK)
    asked = phone.json("purge", TASK, status=2)
    assert asked["error"]["code"] == "wrong_usage" and "nobody gets it back" in asked["error"]["sentence"]
    told = phone.run("purge", TASK, "--yes")
    assert (told.status, told.out) == (0, f"{TASK} is deleted everywhere.\n")
    for device in (phone, desktop):
        assert device.json("tasks")["tasks"] == []
        gone = device.json("slot", "confirm", TASK, "cost_center", "CC-2000", "--create", status=1)
        assert gone["error"]["code"] == "purged"
    assert phone.json("purge", TASK, "--yes")["purged"] is True
    assert phone.json("purge", "no/such", "--yes", status=1)["error"]["code"] == "task_not_found"


def test_what_a_device_wrote_while_apart_from_a_purge_is_kept_aside_and_told(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    desktop.json("show", TASK)
    desktop.json("slot", "confirm", TASK, "amount", "291.84", "--relay", "none")
    phone.json("purge", TASK, "--yes")
    told = desktop.json("tasks")["relay"]
    assert told["set_aside"] > 0 and told["unsent"] == 0
    assert "set aside" in desktop.run("tasks").out


def test_a_purge_without_a_link_is_told_to_the_relay_later(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    told = phone.run("purge", TASK, "--yes", "--relay", "none")
    assert told.status == 0 and told.out.startswith(
        f"{TASK} is deleted here, and elsewhere once the relay hears of it."
    )
    assert len(desktop.json("tasks")["tasks"]) == 1
    phone.json("tasks")
    assert desktop.json("tasks")["tasks"] == []
