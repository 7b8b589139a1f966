"""`segue explain` in processes of its own."""

from tests.end_to_end.command_line import TASK, Device


def test_a_part_is_explained_from_the_table_that_is_enforced(phone: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    told = phone.json("explain", TASK, "slots/cost_center")["explanation"]
    assert (told["stream"], told["may_write"]) == ("state", True)
    shown = phone.run("explain", TASK, "rulings")
    assert shown.status == 0 and "may not write it" in shown.out and "roles        nobody" in shown.out
    assert phone.json("explain", TASK, "moods/blue", status=1)["error"]["code"] == "value_refused"
