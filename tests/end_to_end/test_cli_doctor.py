"""`segue doctor` in processes of its own: what it finds, how it ends, and that it needs neither relay nor store."""

import socket
from pathlib import Path
from typing import Any

import pytest

from sync_core import Endpoint
from tests.end_to_end.command_line import Device, running_relay

TOOLS = """
from sync_core import Effect, tool

@tool(effect=Effect.READ)
def look(path: str) -> str:
    return path

@tool(effect=Effect.IRREVERSIBLE)
def pay(amount: str) -> str:
    return amount

reading = [look]
"""


@pytest.fixture
def tools(tmp_path: Path) -> str:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    return str(tmp_path / "my_tools.py")


def codes(document: dict[str, Any]) -> dict[str, str]:
    return {finding["code"]: finding["severity"] for finding in document["findings"]}


def fitting(document: dict[str, Any]) -> list[str]:
    return [route["code"] for route in document["routes"] if route["fits"]]


def test_a_missing_guarantee_is_high_and_ends_with_1(phone: Device, tools: str) -> None:
    document = phone.json("doctor", tools, status=1)
    assert codes(document)["no_idempotency_key"] == "High" and document["counts"]["High"] >= 1
    assert "no_link" not in codes(document) and "store_not_opened" not in codes(document)
    assert fitting(document) == ["authority"]
    assert [tool["name"] for tool in document["tools"]] == ["look", "pay"]
    told = phone.run("doctor", tools)
    assert told.status == 1 and told.err == ""
    assert told.out.startswith("High    ") and "Next: Give it a parameter idempotency_key" in told.out
    assert "=> Writes that cannot be undone" in told.out and told.out.endswith(
        f"Guarantees that are missing: {document['counts']['High']}.\n"
    )


def test_tools_that_read_need_merging_alone(phone: Device, tools: str) -> None:
    document = phone.json("doctor", "--tools", f"{tools}:reading", status=None)
    assert fitting(document) == ["merging"]
    assert not {"no_idempotency_key", "no_class"} & codes(document).keys()
    assert codes(document)["expiry_unknown"] == "Info"


def test_the_relay_is_known_by_its_settings_and_its_figures(tmp_path: Path, phone: Device) -> None:
    settings = tmp_path / "relay.toml"
    settings.write_text('db = "relay.db"\ntask_ttl_s = 86400\n')
    found = codes(phone.json("doctor", "--relay-config", str(settings), status=None))
    assert not {"expiry_unknown", "no_expiry"} & found.keys() and found["clock_unknown"] == "Info"
    settings.write_text('db = "relay.db"\nauthority = false\n')
    alone = Device(tmp_path / "alone", "phone", "ws://127.0.0.1:1")
    found = codes(alone.json("doctor", "--relay-config", str(settings), status=None))
    assert found["no_expiry"] == "Medium" and "no_authority" in found
    settings.write_text("authority = maybe")
    assert phone.json("doctor", "--relay-config", str(settings), status=1)["error"]["code"] == "value_refused"


def test_the_relays_figures_tell_of_its_clock(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "other").mkdir()
    with running_relay(tmp_path / "other", "--port", "0", "--metrics-port", str(port), "--task-ttl-s", "60") as url:
        device = Device(tmp_path / "phone", "phone", url)
        (tmp_path / "relay.toml").write_text('db = "other/relay.db"\ntask_ttl_s = 60\n')
        figures = f"http://127.0.0.1:{port}/metrics"
        options = ("--relay-config", str(tmp_path / "relay.toml"), "--relay-metrics", figures)
        assert "clock_unknown" not in codes(device.json("doctor", *options, status=None))
    for address in (figures, "file:///etc/hostname", f"{figures}/absent"):
        assert device.json("doctor", "--relay-metrics", address, status=2)["error"]["code"] == "wrong_usage"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_it_tells_what_is_not_known_and_asks_no_relay_for_it(tmp_path: Path, tools: str) -> None:
    alone = Device(tmp_path / "phone", "phone", "ws://127.0.0.1:1")
    found = codes(alone.json("doctor", tools, status=1))
    assert (found["no_link"], found["authority_unknown"], found["expiry_unknown"]) == ("Medium", "Medium", "Info")
    assert codes(Device(tmp_path / "phone", "phone", "none").json("doctor", tools, status=1))["no_authority"] == "High"


async def test_a_store_that_another_program_has_open_is_a_finding(phone: Device, tools: str) -> None:
    phone.json("tasks")
    (store,) = phone.home.glob("*.db")
    async with Endpoint.open(store, subject="acme", device="phone"):
        found = codes(phone.json("doctor", tools, status=1))
    assert found["store_not_opened"] == "Medium"


def test_what_others_may_read_is_high(phone: Device) -> None:
    phone.json("tasks")
    phone.home.chmod(0o755)
    document = phone.json("doctor", status=1)
    assert codes(document)["file_exposed"] == "High"
    phone.home.chmod(0o700)


def test_wrong_usage(phone: Device, tools: str) -> None:
    for arguments in (["no_such_module"], [tools, "--tools", tools], ["--tools", f"{tools}:absent"]):
        assert phone.json("doctor", *arguments, status=2)["error"]["code"] == "wrong_usage"
