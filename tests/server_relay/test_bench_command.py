"""`segue relay bench`: a load on a relay of its own, and on a given one, where it leaves nothing behind."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from server_relay.command.bench import run
from server_relay.config import RelaySettings
from server_relay.server import serve

_SHORT = ("--seconds", "0.3", "--devices", "4", "--tasks", "2")


async def bench(*arguments: str) -> tuple[int, str, str]:
    """Run the command in a process of its own; return its status and what it said."""
    command = (sys.executable, "-m", "server_relay", "bench", *_SHORT, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, error = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), error.decode()


async def test_it_starts_a_relay_of_its_own() -> None:
    status, said, _ = await bench()
    assert status == 0
    assert "It carries about" in said and "4 devices, 2 tasks" in said


async def test_a_rate_is_offered_and_what_came_of_it_is_told(tmp_path: Path) -> None:
    status, said, _ = await bench("--rate", "200", "--json")
    told = json.loads(said)
    assert status == 0
    assert told["carried"] and told["held_back"] == told["refused"] == 0
    assert told["receipted_rate"] == pytest.approx(told["offered_rate"], rel=0.5)
    assert told["stored_bytes"] > 0.9 * told["receipted_rate"] * told["seconds"] * 100
    # Each of two tasks has two devices, so each update reaches one other device.
    assert told["delivered_rate"] <= told["receipted_rate"] * 1.01


async def test_at_a_given_relay_it_purges_what_it_wrote(tmp_path: Path) -> None:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    try:
        status, _, error = await bench("--url", f"ws://127.0.0.1:{relay.port}")
        assert status == 0, error
        metrics = await relay.metrics()
        assert metrics.counts["entries_stored"] > 0
        assert (metrics.mailbox.entries, metrics.mailbox.streams) == (0, 0)
    finally:
        await relay.close()


async def test_what_is_no_relay_is_told_in_a_sentence(tmp_path: Path) -> None:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, metrics_port=0))
    try:
        status, said, error = await bench("--url", f"ws://127.0.0.1:{relay.metrics_port}")
        assert (status, said) == (1, "")
        assert error.startswith("There is no relay at ws://127.0.0.1:") and "Traceback" not in error
    finally:
        await relay.close()


async def test_a_bound_of_the_relay_is_named(tmp_path: Path) -> None:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, entries_per_minute_max=100))
    try:
        status, said, _ = await bench("--url", f"ws://127.0.0.1:{relay.port}")
        assert status == 1
        assert "too many entries in a minute" in said and "entries_per_minute_max" in said
        # What came up to there is told, and purged all the same.
        assert "receipted" in said and "It was stopped after" in said
        metrics = await relay.metrics()
        assert metrics.counts["entries_stored"] > 0 and metrics.mailbox.entries == 0
    finally:
        await relay.close()


async def test_no_relay_and_no_relays_url(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = await bench("--url", "ws://127.0.0.1:1")
    assert status == 1 and "There is no relay at ws://127.0.0.1:1" in error
    with pytest.raises(SystemExit):
        run(["bench", "--url", "http://x"], {})
    assert "begins with ws://" in capsys.readouterr().err


async def test_who_is_not_admitted_is_told_so(tmp_path: Path) -> None:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0, secret="s" * 40))
    try:
        status, _, error = await bench("--url", f"ws://127.0.0.1:{relay.port}")
        assert status == 1 and "The token does not admit this device" in error
    finally:
        await relay.close()
