"""`segue stats, evict` in processes of their own: what this device keeps, and how it forgets a task."""

from tests.end_to_end.command_line import TASK, Device


def test_stats_show_every_task_and_one_stream_by_stream(phone: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    phone.json("note", "append", TASK, "worklog", "x" * 5_000)
    found = phone.json("stats")
    assert found["level"] == "ok" and found["store_bytes"]["value"] == found["store"]["store_bytes"]
    [task] = found["tasks"]
    assert (task["task"], task["entries"]) == (TASK, found["store"]["entries"])
    assert task["gauges"]["document_bytes"]["value"] > 5_000
    one = phone.json("stats", TASK, "--ttl-days", "30")["tasks"][0]
    assert one["gauges"]["writes"]["value"] > 1 and one["gauges"]["age_days"]["limit"] == 30
    assert [stream["stream"] for stream in one["streams"]] == ["state"]
    told = phone.run("stats", TASK).out
    assert "document bytes" in told and "16,777,216" in told and "sync latency" in told
    assert TASK in phone.run("stats").out
    old = phone.json("stats", "--ttl-days", "0")
    assert (old["level"], old["tasks"][0]["gauges"]["age_days"]["level"]) == ("limit", "limit")
    assert phone.run("stats", "--ttl-days", "-1").status == 2
    assert phone.json("stats", "no/such", status=1)["error"]["code"] == "task_not_found"


def test_an_evicted_task_is_gone_here_and_comes_back_from_the_relay(phone: Device, desktop: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create")
    told = phone.run("evict", TASK)
    assert (told.status, told.out) == (0, f"{TASK} is forgotten here.\n")
    assert phone.json("evict", TASK)["evicted"] is False
    assert phone.json("stats")["tasks"] == []
    assert [info["known_here"] for info in phone.json("tasks")["tasks"]] == [False]
    assert desktop.json("slot", "list", TASK)["slots"][0]["value"] == "CC-1042"
    assert phone.json("slot", "list", TASK)["slots"][0]["value"] == "CC-1042"


def test_a_task_that_the_relay_does_not_have_whole_is_not_evicted(phone: Device) -> None:
    phone.json("slot", "confirm", TASK, "cost_center", "CC-1042", "--create", "--relay", "none")
    refused = phone.json("evict", TASK, "--relay", "none", status=1)
    assert refused["error"]["code"] == "unsent_work"
    assert phone.json("evict", TASK)["evicted"] is True
