"""What is seen of a relay from outside: health, readiness, figures; and the table made of them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from server_relay.command.top import read_scrape, run, table
from server_relay.config import RelaySettings
from server_relay.histogram import BOUNDS_S, Histogram
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.server import RelayServer, serve
from sync_core.errors import StoreFull
from sync_core.frames import Login, Receipt
from tests.server_relay.test_server import TroubledMailbox
from tests.server_relay.wire_client import WireClient, history_entry

TASK, PHONE = "expense/TRIP-118", 700_001


async def get(port: int, path: str, host: str = "localhost") -> tuple[int, str]:
    """Ask as a probe does; return status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.fixture
def settings(tmp_path: Path) -> RelaySettings:
    return RelaySettings(db=tmp_path / "relay.db", port=0, metrics_port=0)


@pytest.fixture
async def relay(settings: RelaySettings) -> AsyncIterator[RelayServer]:
    server = await serve(settings)
    yield server
    await server.close()


async def test_a_relay_that_runs_is_healthy_and_ready(relay: RelayServer) -> None:
    assert relay.metrics_port not in (0, relay.port)
    assert await get(relay.metrics_port, "/healthz") == (200, "ok\n")
    assert await get(relay.metrics_port, "/readyz?verbose") == (200, "ready\n")
    assert (await get(relay.metrics_port, "/"))[0] == 404
    assert (await get(relay.metrics_port, "/healthz", "rebound.example"))[0] == 403


async def test_without_a_port_nothing_is_told(settings: RelaySettings) -> None:
    server = await serve(replace(settings, metrics_port=None))
    assert server.metrics_port == 0
    await server.close()


async def test_a_port_that_is_taken_keeps_the_relay_from_starting_and_leaves_the_store_free(
    settings: RelaySettings, tmp_path: Path, relay: RelayServer
) -> None:
    other = replace(settings, db=tmp_path / "other.db", metrics_port=relay.metrics_port)
    with pytest.raises(OSError, match="in use"):
        await serve(other)
    await (await serve(replace(other, metrics_port=0))).close()


async def test_a_store_that_failed_is_told_until_it_works_again(settings: RelaySettings) -> None:
    mailbox = TroubledMailbox(await SqliteMailbox.open(settings.db))
    relay = await serve(settings, mailbox)
    mailbox.failures.append(StoreFull("The disk is full."))
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        await phone.closed()
    assert await get(relay.metrics_port, "/readyz") == (503, "store\n")
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        await phone.next(Receipt)
    assert await get(relay.metrics_port, "/readyz") == (200, "ready\n")
    await relay.close()


async def test_a_relay_that_stops_is_not_ready(settings: RelaySettings) -> None:
    mailbox = TroubledMailbox(await SqliteMailbox.open(settings.db))
    relay = await serve(settings, mailbox)
    mailbox.open_gate.clear()
    mailbox.waiting.clear()
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        await mailbox.waiting.wait()
        stopping = asyncio.create_task(relay.close())
        await asyncio.sleep(0)
        assert await get(relay.metrics_port, "/readyz") == (503, "stopping\n")
        mailbox.open_gate.set()
        await stopping


async def test_a_relay_whose_turn_does_not_end_is_to_be_started_anew(
    settings: RelaySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = TroubledMailbox(await SqliteMailbox.open(settings.db))
    relay = await serve(settings, mailbox)
    monkeypatch.setattr("server_relay.server._STUCK_MS", 30)
    mailbox.open_gate.clear()
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, history_entry(TASK, PHONE, 1, "phone"))
        async with asyncio.timeout(30):
            while (answer := await get(relay.metrics_port, "/healthz")) == (200, "ok\n"):
                pass
        assert answer == (503, "stuck\n")
        mailbox.open_gate.set()
        await phone.next(Receipt)
    monkeypatch.setattr("server_relay.server._STUCK_MS", 60_000)
    assert await get(relay.metrics_port, "/healthz") == (200, "ok\n")
    await relay.close()


async def test_the_figures_are_those_of_what_happened_and_name_nobody(relay: RelayServer) -> None:
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, *(history_entry(TASK, PHONE, seq, "phone", '"the content"') for seq in (1, 2, 3)))
        await phone.receipts(3)
        async with await WireClient.raw(relay.port) as stranger:
            await stranger.send(Login(1, "acme", "con"))
            await stranger.closed()
        status, text = await get(relay.metrics_port, "/metrics")
    assert status == 200
    scrape = read_scrape(text)
    for name, value in {
        "connections": 1,
        "connections_total": 2,
        "entries_stored_total": 3,
        "commits_total": 1,
        "receipt_seconds_count": 1,
        "commit_seconds_count": 1,
        "clock_suspended": 0,
        "access_trouble": 0,
    }.items():
        assert scrape[name, ""] == value, name
    assert scrape["refusals_total", "logins"] == 1
    assert scrape["receipt_seconds_bucket", "+Inf"] == 1
    assert scrape["store_bytes", ""] > 0
    assert scrape["read_bytes_total", ""] > 300 > scrape["waiting_bytes", ""]
    assert scrape["written_bytes_total", ""] > 0
    assert not [word for word in ("phone", "acme", "TRIP-118", "content") if word in text]


async def test_a_scrape_does_not_count_the_store_each_time(settings: RelaySettings) -> None:
    class Counted(TroubledMailbox):
        calls = 0

        async def stats(self):  # type: ignore[no-untyped-def]
            self.calls += 1
            return await super().stats()

    mailbox = Counted(await SqliteMailbox.open(settings.db))
    relay = await serve(settings, mailbox)
    for _ in range(5):
        await get(relay.metrics_port, "/metrics")
    assert mailbox.calls == 1
    assert (await relay.metrics()).mailbox.entries == 0
    assert mailbox.calls == 2
    await relay.close()


# --- the table --------------------------------------------------------------------------------------------------------


async def test_the_table_shows_rates_quantiles_and_refusals(
    relay: RelayServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{relay.metrics_port}/metrics"
    before = read_scrape((await get(relay.metrics_port, "/metrics"))[1])
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push(TASK, *(history_entry(TASK, PHONE, seq, "phone") for seq in range(1, 21)))
        await phone.receipts(20)
    lines = table(read_scrape((await get(relay.metrics_port, "/metrics"))[1]), before, 2.0)
    assert any(line.startswith("entries") and " 10 /s" in line for line in lines)
    assert any(line.startswith("receipts") and "p99 ≤" in line for line in lines)
    assert "refused    nothing" in lines
    assert await asyncio.to_thread(run, ["top", "--url", url, "--once"], {}) == 0
    assert "entries" in capsys.readouterr().out
    assert await asyncio.to_thread(run, ["top", "--url", url, "--json"], {}) == 0
    assert json.loads(capsys.readouterr().out)["entries_stored_total"] == 20


def test_a_relay_without_figures_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--url", "http://127.0.0.1:1/metrics"], {}) == 1
    assert "--metrics-port" in capsys.readouterr().err
    with pytest.raises(SystemExit), contextlib.redirect_stderr(None):
        run(["top", "--url", "file:///etc/passwd"], {})


def test_a_histogram_counts_each_span_once_at_its_bound() -> None:
    histogram = Histogram()
    for span_s in (0.0, BOUNDS_S[0], 0.002, 100.0):
        histogram.add(span_s)
    assert histogram.cumulative()[:2] == (2, 3)
    assert histogram.cumulative()[-2:] == (3, 4)
    assert (histogram.count, histogram.sum_s) == (4, pytest.approx(100.003))
