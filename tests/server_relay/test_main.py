"""The command: its line, its exit status, how fast it starts."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from server_relay.__main__ import main
from server_relay.admission import Role
from server_relay.server import GOING_AWAY
from server_relay.tokens import make_token
from sync_core.frames import Heads, Receipt
from tests.processor import starts_fast
from tests.server_relay.wire_client import WireClient, history_entry

SECRET = "0123456789abcdef0123456789abcdef"


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "server_relay", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    line: dict[str, object] = json.loads(process.stdout.readline())
    return line


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> int:
    process.send_signal(number)
    process.communicate(timeout=60)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_where_it_listens_and_stops_with_status_0(tmp_path: Path, number: signal.Signals) -> None:
    process = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
    line = line_of(process)
    assert (line["event"], line["pid"], line["open"]) == ("listening", process.pid, True)
    assert line["url"] == f"ws://127.0.0.1:{line['port']}"
    assert stop(process, number) == 0


def test_it_says_it_to_people_too(tmp_path: Path) -> None:
    process = start("--db", tmp_path / "relay.db", "--port", "0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("The relay listens on ws://127.0.0.1:")
    assert stop(process) == 0


def test_it_starts_fast(tmp_path: Path) -> None:
    """Start and stop together."""

    def start_and_stop() -> None:
        process = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
        line_of(process)
        stop(process)

    assert starts_fast(start_and_stop)


def test_it_never_loads_the_engine() -> None:
    script = "import sys, server_relay.__main__; print(sorted({'pycrdt', 'jsonschema', 'jwt'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_it_asks_for_tokens_when_it_has_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    process = start("--db", tmp_path / "relay.db", "--port", "0", "--json", "--auth-secret-file", secret)
    line = line_of(process)
    assert line["open"] is False
    port = line["port"]
    assert isinstance(port, int)
    token = make_token(
        SECRET, principal="anna", device="phone", subject="acme", role=Role.WRITE, expires_s=int(time.time()) + 60
    )
    async with await WireClient.open(port, "phone", token=token) as phone:
        await phone.follow("t")
    with pytest.raises(Exception, match="1008"):
        await WireClient.open(port, "phone")
    assert stop(process) == 0


def test_it_refuses_to_listen_to_the_world_without_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--db", str(tmp_path / "relay.db"), "--host", "0.0.0.0", "--port", "0"]) == 1
    assert "loopback" in capsys.readouterr().err
    assert not (tmp_path / "relay.db").exists()


def test_a_second_relay_on_the_same_file_is_refused(tmp_path: Path) -> None:
    first = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
    line_of(first)
    second = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
    output, errors = second.communicate(timeout=60)
    assert (second.returncode, errors) == (1, "")
    assert json.loads(output)["code"] == "store_in_use"
    assert stop(first) == 0


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    first = start("--db", tmp_path / "one.db", "--port", "0", "--json")
    port = line_of(first)["port"]
    second = start("--db", tmp_path / "two.db", "--port", str(port))
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "cannot listen" in errors
    third = start("--db", tmp_path / "three.db", "--port", "0", "--metrics-port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}" in third.communicate(timeout=60)[1]
    assert stop(first) == 0


def test_a_host_that_is_nowhere_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    assert main(["--db", str(tmp_path / "relay.db"), "--host", "nowhere.invalid", "--auth", str(secret)]) == 1
    told = capsys.readouterr().err
    assert "nowhere.invalid:8700" in told
    assert "Unknown error" not in told


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--nonsense"])
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_killed_relay_leaves_its_file_free(tmp_path: Path) -> None:
    first = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
    line_of(first)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    second = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
    line_of(second)
    assert stop(second) == 0


# --- settings ---------------------------------------------------------------------------------------------------------


def test_it_shows_its_settings_and_where_each_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    (tmp_path / "relay.toml").write_text('port = 9000\nauth_secret_file = "secret"\n')
    arguments = ["--db", str(tmp_path / "relay.db"), "--config", str(tmp_path / "relay.toml"), "--show-config"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out
    assert f"9000  (file {tmp_path / 'relay.toml'})" in lines
    assert SECRET not in lines
    assert main([*arguments, "--json", "--no-authority"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["secret"] == {"value": "set", "origin": f"file {tmp_path / 'relay.toml'}"}
    assert shown["authority"] == {"value": "false", "origin": "flag --authority"}
    assert shown["host"] == {"value": "127.0.0.1", "origin": "default"}
    assert not (tmp_path / "relay.db").exists()


def test_settings_may_come_from_the_environment_alone(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SEGUE_RELAY_DB": str(tmp_path / "relay.db"),
        "SEGUE_RELAY_PORT": "0",
        "SEGUE_RELAY_METRICS_PORT": "0",
        "SEGUE_RELAY_LOG_FORMAT": "json",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "server_relay", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert line_of(process)["metrics_port"] != 0
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert [json.loads(line)["event"] for line in errors.splitlines()] == ["listening", "stopping", "stopped"]


def test_a_setting_that_does_not_fit_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--db", str(tmp_path / "relay.db"), "--port", "x", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["code"] == "value_refused"
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


# --- the drain --------------------------------------------------------------------------------------------------------


async def test_sigterm_drains_what_was_taken_is_receipted_and_the_code_says_come_again(tmp_path: Path) -> None:
    """SE-06 with SIGTERM: nothing receipted is lost, and what was not is taken by the successor."""
    process = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
    port = line_of(process)["port"]
    assert isinstance(port, int)
    entries = [history_entry("t", 700_001, seq, "phone") for seq in range(1, 301)]
    async with await WireClient.open(port, "phone") as phone:
        for entry in entries:
            await phone.push("t", entry)
        process.send_signal(signal.SIGTERM)
        assert await phone.closed() == GOING_AWAY
        receipted = sum(frame.last_seq - frame.first_seq + 1 for frame in phone.frames if isinstance(frame, Receipt))
    assert await asyncio.to_thread(process.wait, 60) == 0
    process.communicate()
    again = start("--db", tmp_path / "relay.db", "--port", "0", "--json")
    port = line_of(again)["port"]
    assert isinstance(port, int)
    async with await WireClient.open(port, "phone") as phone:
        await phone.follow("t")
        heads = await phone.next(Heads)
        stored = heads.streams[0].head if heads.streams else 0
        assert stored >= receipted
        for first in range(stored, 300, 50):
            await phone.push("t", *entries[first : first + 50])
        await phone.receipts(300 - stored)
    assert stop(again) == 0
