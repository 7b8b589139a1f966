"""Poison is judged once, remembered by its hash within bounds, told without its bytes, and ends who goes on (RS-27)."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from server_relay import intake
from server_relay.__main__ import main
from server_relay.command.service import Service
from server_relay.config import RelaySettings
from server_relay.effects import ReadBlob
from server_relay.quarantine import POISONS_MAX
from server_relay.sessions import CLOSE_TRY_LATER
from sync_core.entry import Entry, EntryKind, Snapshot, WriterRow, encode_record
from sync_core.frames import BlobPiece, Refusal, RefusalCode, Refused, Unfollow
from sync_core.guard import check_entry
from tests.server_relay.harness import Client, Harness
from tests.server_relay.wire_client import WireClient, history_entry
from tests.sync_core.updates import note, section, slot, update

TASK, OTHER = "expense/TRIP-118", "expense/TRIP-119"
EVE, MAX = 900_009, 4
POISON = update(section(EVE, 0, slot(root="the secret root")))


def entry(payload: bytes = POISON, writer: int = EVE, task: str = TASK, device: str = "eve") -> Entry:
    return Entry(f"{task}:state", writer, 1, EntryKind.UPDATE, payload, device)


def refusals(client: Client) -> list[tuple[RefusalCode, str]]:
    return [(refusal.code, refusal.sentence) for refusal in client.take(Refusal)]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """The entries that the guard looked at."""
    seen: list[Entry] = []

    def watched(looked_at: Entry, *rest: object) -> object:
        seen.append(looked_at)
        return check_entry(looked_at, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(intake, "check_entry", watched)
    return seen


@pytest.fixture
def harness() -> Harness:
    return Harness(settings=RelaySettings(db=Path("unused"), poisons_per_minute_max=MAX))


def test_the_same_poison_is_refused_again_at_once_with_the_same_words(harness: Harness, judged: list[Entry]) -> None:
    eve = harness.login("eve")
    eve.push(TASK, entry())
    first = refusals(eve)
    # Another task, another writer: it is the bytes that are known.
    for again in (entry(), entry(task=OTHER), entry(writer=EVE + 1)):
        eve.push(again.stream.split(":")[0], again)
        assert refusals(eve) == first == [(RefusalCode.GUARD, "The update sets a key that no document has.")]
    assert len(judged) == 1
    counts = harness.relay.counts
    assert (counts["poison_update"], counts["poison_again"], counts["refused_guard"]) == (1, 3, 4)
    (known,) = harness.relay.quarantine.known_now()
    assert (known.times, known.subject, known.device, known.size_bytes) == (4, "acme", "eve", len(POISON))
    assert harness.writes == []


def test_a_device_that_never_sent_any_is_judged_and_nothing_is_hashed_for_it(
    harness: Harness, judged: list[Entry]
) -> None:
    eve, phone = harness.login("eve"), harness.login("phone")
    eve.push(TASK, entry())
    phone.push(TASK, entry(device="phone"))
    assert len(judged) == 2
    assert len(harness.relay.quarantine) == 1
    phone.push(TASK, entry(device="phone"))
    assert len(judged) == 2


def test_what_is_wrong_only_here_and_now_is_not_remembered(harness: Harness) -> None:
    """It hangs on what is not there yet, and once it is there, it is taken."""
    eve, phone = harness.login("eve"), harness.login("phone")
    eve.push(TASK, entry())
    late = entry(update(section(EVE, 0, note("b", left=(700_001, 0)))))
    eve.push(TASK, late)
    assert [code for code, _ in refusals(eve)] == [RefusalCode.GUARD] * 2
    phone.push(TASK, entry(update(section(700_001, 0, note("a"))), 700_001, device="phone"))
    eve.push(TASK, late)
    assert refusals(eve) == []
    assert eve.receipts() == [(EVE, 1, 2)]
    assert len(harness.relay.quarantine) == 1


def bring(client: Client, data: bytes, writer: int = EVE) -> None:
    """Upload a blob, and push it as a recovered snapshot."""
    sha = hashlib.sha256(data).hexdigest()
    client.send(BlobPiece(TASK, sha, 0, len(data), data))
    snapshot = Entry(f"{TASK}:state", writer, 1, EntryKind.SNAPSHOT, b"", "eve", blob=sha)
    client.push(TASK, snapshot, recovered=True)


def test_a_snapshot_is_known_by_its_blob_and_is_not_read_again(harness: Harness) -> None:
    """An entry of a few bytes would have up to 16 MiB read and judged each time."""
    eve = harness.login("eve")
    rows = (WriterRow(EVE, "eve", 1, 2),)
    broken = Snapshot(f"{TASK}:state", b"", 1, bytes(16), POISON, (), rows, bytes(32))
    for data in (b"no snapshot", encode_record(broken)):
        bring(eve, data)
        (first,) = refusals(eve)
        before = len(harness.batches)
        bring(eve, data, EVE + 1)
        assert refusals(eve) == [first]
        assert not [effect for batch in harness.batches[before:] for effect in batch if isinstance(effect, ReadBlob)]
    assert (harness.relay.counts["poison_snapshot"], harness.relay.counts["poison_again"]) == (2, 2)
    # One that only does not fit what is there is no poison: another log may take it.
    hole = replace(broken, document=update(section(EVE, 3, slot())), writers=(WriterRow(EVE, "eve", 4, 2),))
    bring(eve, encode_record(hole))
    assert [code for code, _ in refusals(eve)] == [RefusalCode.GUARD]
    assert len(harness.relay.quarantine) == 2


def test_the_bytes_of_a_snapshot_count_for_who_has_them_judged(harness: Harness) -> None:
    rows = (WriterRow(EVE, "eve", 4, 2),)
    hole = Snapshot(f"{TASK}:state", b"", 1, bytes(16), update(section(EVE, 3, slot())), (), rows, bytes(32))
    data = encode_record(hole)
    harness.settings = replace(harness.settings, bytes_per_minute_max=3 * len(data))
    harness.restart()
    eve = harness.login("eve")
    for number in range(3):
        bring(eve, data, EVE + number)
        assert eve.closed is None
    bring(eve, data, EVE + 3)
    assert eve.closed is None
    eve.send(Unfollow(TASK))
    assert [frame.code for frame in eve.take(Refused)] == ["limit"]


def test_a_broken_record_is_poison_and_a_missing_snapshot_is_not(harness: Harness) -> None:
    eve = harness.login("eve")
    eve.push(TASK, replace(history_entry(TASK, EVE, 1, "eve"), payload=b"\xc1"))
    snapshot = Entry(f"{TASK}:state", EVE, 1, EntryKind.SNAPSHOT, b"", "eve", blob="a" * 64)
    eve.push(TASK, snapshot, recovered=True)
    assert harness.relay.counts["poison_record"] == 1
    assert [poison.kind for poison in harness.relay.quarantine.known_now()] == ["history"]


@pytest.mark.parametrize("vary", [False, True], ids=["one poison", "ever new ones"])
def test_who_goes_on_is_to_come_again_later_and_others_are_not_touched(harness: Harness, vary: bool) -> None:
    eve, phone = harness.login("eve"), harness.login("phone")
    for number in range(MAX + 1):
        assert eve.closed is None
        eve.push(TASK, entry(POISON + bytes(number * vary)))
    assert [(frame.code, frame.final) for frame in eve.take(Refused)] == [("poison", False)]
    assert eve.closed is not None
    assert eve.closed.code == CLOSE_TRY_LATER
    assert harness.relay.counts["refused_poison"] == 1
    # Coming again gives nothing anew before the minute is over.
    again = harness.login("eve")
    again.push(TASK, history_entry(TASK, EVE, 1, "eve"))
    assert again.receipts() == [(EVE, 1, 1)]
    assert again.closed is None
    again.push(TASK, entry())
    assert again.closed is not None
    harness.tick(60_000)
    later = harness.login("eve")
    later.push(TASK, entry())
    assert later.closed is None
    assert phone.closed is None


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first(harness: Harness, judged: list[Entry]) -> None:
    harness.settings = replace(harness.settings, poisons_per_minute_max=10**6)
    harness.restart()
    eve = harness.login("eve")
    for number in range(POISONS_MAX + 10):
        eve.push(TASK, entry(POISON + bytes(number)))
        eve.push(TASK, entry())
    quarantine = harness.relay.quarantine
    assert len(quarantine) == POISONS_MAX
    assert len(judged) == POISONS_MAX + 10
    assert quarantine.known_now()[0].size_bytes == len(POISON)
    assert quarantine.clear() == POISONS_MAX
    eve.push(TASK, entry())
    assert len(judged) == POISONS_MAX + 11


def test_the_log_is_told_of_each_once_within_bounds_and_never_of_its_bytes(harness: Harness) -> None:
    harness.settings = replace(harness.settings, poisons_per_minute_max=10**6)
    harness.restart()
    eve = harness.login("eve")
    for number in range(100):
        eve.push(TASK, entry(POISON + bytes(number)), entry(POISON + bytes(number)))
    harness.relay.notes.clear()
    harness.tick(1_000)
    notes = [note for note in harness.relay.notes if note.event == "poison"]
    assert len(notes) == 16
    assert set(notes[0].fields) == {"sha256", "kind", "subject", "device", "bytes"}
    assert "secret" not in repr(notes) + repr(harness.relay.quarantine.known_now())


async def test_an_operator_lists_and_clears_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run: Callable[..., object] = lambda *arguments: asyncio.to_thread(main, ["poison", "--db", *map(str, arguments)])  # noqa: E731
    db = tmp_path / "relay.db"
    assert await run(db, "--json") == 1  # type: ignore[misc]
    assert "No relay runs" in json.loads(capsys.readouterr().out)["sentence"]
    service = await Service.start(RelaySettings(db=db, port=0))
    assert await run(db) == 0  # type: ignore[misc]
    assert capsys.readouterr().out == "No poison is known.\n"
    async with await WireClient.open(service.port, "eve") as eve:
        await eve.push(TASK, entry())
        await eve.next(Refusal)
    assert await run(db) == 0  # type: ignore[misc]
    line = capsys.readouterr().out
    assert "from acme/eve: The update sets a key that no document has." in line
    assert await run(db, "--json") == 0  # type: ignore[misc]
    (told,) = json.loads(capsys.readouterr().out)["poison"]
    assert told["sha256"][:16] in line
    assert (told["times"], told["kind"]) == (1, "update")
    assert await run(db, "--clear", "--json") == 0  # type: ignore[misc]
    assert json.loads(capsys.readouterr().out) == {"event": "cleared", "cleared": 1}
    assert await run(db, "--json") == 0  # type: ignore[misc]
    assert json.loads(capsys.readouterr().out)["poison"] == []
    await service.close()
