"""The relay as a process, on the loop that it has in production: doors, figures, certificate, control, drain."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server_relay.command.top import Scrape, read_scrape
from server_relay.mailbox.verifying import verify_file
from tests.server_relay.test_doors import certify, trusting, welcomed
from tests.server_relay.test_health import get
from tests.server_relay.test_main import line_of
from tests.server_relay.wire_client import WireClient, history_entry

TASK, PHONE = "expense/TRIP-118", 700_001


@contextlib.contextmanager
def running(folder: Path, *arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A relay's process with its two ports."""
    command = [sys.executable, "-m", "server_relay", "--db", str(folder / "relay.db"), "--port", "0", "--json"]
    process = subprocess.Popen(
        [*command, "--metrics-port", "0", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = line_of(process)
        port, metrics_port = line["port"], line["metrics_port"]
        assert isinstance(port, int)
        assert isinstance(metrics_port, int)
        yield process, port, metrics_port
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


async def figures(metrics_port: int) -> Scrape:
    return read_scrape((await get(metrics_port, "/metrics"))[1])


def test_it_runs_on_uvloop_where_that_is_installed() -> None:
    pytest.importorskip("uvloop")
    program = (
        "from server_relay.command.run import relay_runner\n"
        "with relay_runner() as runner:\n"
        "    print(type(runner.get_loop()).__module__)"
    )
    # In a process of its own: it sets up the collector, too.
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip().startswith("uvloop")


async def test_sockets_beyond_the_bound_are_cut_off(tmp_path: Path) -> None:
    with running(tmp_path, "--connections-max", "3", "--connections-before-login-max", "2") as (_, port, metrics_port):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
        async with asyncio.timeout(30):
            while (scrape := await figures(metrics_port))["sockets_cut_off_total", ""] < 7:
                pass
        assert (scrape["sockets", ""], scrape["connections", ""]) == (5, 0)
        for each in silent:
            each.close()
        async with asyncio.timeout(30):
            while (await figures(metrics_port))["sockets", ""]:
                pass
        async with await WireClient.open(port, "phone"):
            assert await get(metrics_port, "/readyz") == (200, "ready\n")


async def test_a_certificate_is_renewed_while_devices_come(tmp_path: Path) -> None:
    cert_file, key_file = certify(tmp_path)
    arguments = ("--tls-cert", cert_file, "--tls-key", key_file, "--access-reread-ms", "20")
    with running(tmp_path, *arguments) as (_, port, _metrics_port):
        before = trusting(cert_file)
        assert await welcomed(port, before) == "Welcome"
        certify(tmp_path)
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(ssl.SSLError):
                    assert await welcomed(port, trusting(cert_file)) == "Welcome"
                    break
        with pytest.raises(ssl.SSLError):
            await welcomed(port, before)


async def test_a_backup_is_made_by_the_process_that_has_the_store(tmp_path: Path) -> None:
    with running(tmp_path, "--log-format", "json") as (process, port, _):
        async with await WireClient.open(port, "phone") as phone:
            await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
            await phone.receipts(1)
        backup = tmp_path / "backup.db"
        command = [sys.executable, "-m", "server_relay", "backup", "--db", str(tmp_path / "relay.db")]
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, "--to", str(backup), "--json"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        assert json.loads(done.stdout)["by_the_relay"] is True
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert verify_file(backup).entries == 1
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert events == ["listening", "login", "left", "backed_up", "stopping", "stopped"]
