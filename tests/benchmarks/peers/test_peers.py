"""The bench of the peers: its updates are ones that a CRDT and the guard take, and its figures say what they claim."""

import random

import msgspec
import pytest
from pycrdt import Doc, Map

from sync_core.entry import WriterRow
from sync_core.frames import Push
from sync_core.guard import check_entry
from sync_core.wire import decode_client
from tests.benchmarks.machine import Machine
from tests.benchmarks.peers.dialects import RawDialect
from tests.benchmarks.peers.fan_out import FanOut, Step, percentile
from tests.benchmarks.peers.load import Client, Load
from tests.benchmarks.peers.report import Results, as_json, as_markdown
from tests.benchmarks.peers.segue_dialect import SegueDialect
from tests.benchmarks.peers.yjs import MARK, MapWriter, marked, marks_of, numbers_in

MACHINE = Machine("a processor", 2, "3.11", "3.40", "0.14", "16.0", 0.1)


def test_a_marker_is_found_again_in_whatever_surrounds_it() -> None:
    rows = [(7, 1.25, 1), (65_535, 1e6, 2**32 - 1)]
    data = b"\xff".join(f'{{"v":"{marked(*row)}"}}'.encode() for row in rows)
    assert list(marks_of(MARK.findall(data))) == rows
    assert numbers_in(data) == {1, 2**32 - 1}


def test_a_writers_updates_are_what_map_set_makes() -> None:
    rng = random.Random(3)
    writer, wanted = MapWriter(0x0800_0001), {}
    doc: Doc = Doc()
    slots = doc.get("slots", type=Map)
    for number in range(200):
        items = [(f"k{key}", marked(1, 0.0, number)) for key in rng.sample(range(20), rng.randint(1, 5))]
        doc.apply_update(writer.set_many(items))
        wanted.update(items)
    assert dict(slots) == wanted
    assert doc.get_state() == writer.state_vector()


def test_the_relays_guard_lets_every_write_of_the_load_pass() -> None:
    load = Load("127.0.0.1", 1, "/", RawDialect())
    client, dialect = Client(load, "room", 5, None), SegueDialect()
    writers: dict[int, WriterRow] = {}
    messages = [dialect.write(client, "k5", marked(5, 0.0, number)) for number in range(20)]
    messages.append(dialect.seed(client, [(f"k{number}", marked(5, 0.0, number)) for number in range(20)]))
    messages.append(dialect.write_all(client, "k5", [marked(5, 0.0, number) for number in range(64)]))
    for message in messages:
        for frame in decode_client(message):
            assert isinstance(frame, Push)
            for entry in frame.entries:
                row, _ = check_entry(entry, writers)
                writers[row.writer] = row
    assert len(writers) == 1


def test_a_percentile_of_nothing_is_no_figure() -> None:
    assert percentile([], 0.5) == float("inf")
    assert percentile([5.0, 1.0, 3.0], 0.5) == 3.0


def step(rate: float) -> Step:
    return Step(rate, 1, 1, rate * 49, 1.0, 2.0, 130.0, 1.0, 0.5, 0.0, 0, True)


def test_the_table_compares_with_the_best_peer_and_names_what_failed() -> None:
    results = {
        "segue": Results(w1=FanOut(step(300), None)),
        "hocuspocus": Results(w1=FanOut(step(200), None)),
        "pycrdt-websocket": Results(w1=FanOut(step(100), None), failed={"w6": "nobody came back"}),
    }
    table = as_markdown(MACHINE, "2026-01-01", results)
    line = next(line for line in table.splitlines() if line.startswith("| W1"))
    assert "14,700" in line and line.endswith("| 1.50 × |")
    assert "pycrdt-websocket failed at w6: nobody came back" in table
    document = msgspec.json.decode(as_json(MACHINE, "2026-01-01", results))
    assert document["results"]["segue"]["w1"]["best"]["rate"] == 300


def test_without_a_figure_of_ones_own_nothing_is_compared() -> None:
    table = as_markdown(MACHINE, "2026-01-01", {"hocuspocus": Results(w1=FanOut(step(200), None))})
    assert "×  |" not in table


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_client_counts_frames_of_every_length(size: int) -> None:
    client = Client(Load("127.0.0.1", 1, "/", RawDialect()), "room", 1, None)
    head = (
        bytes((0x82, size))
        if size < 126
        else b"\x82\x7e" + size.to_bytes(2, "big")
        if size < 65_536
        else b"\x82\x7f" + size.to_bytes(8, "big")
    )
    whole = (head + bytes(size)) * 3
    client._in = whole[:-1] if size else whole
    client._count()
    assert client.messages == (2 if size else 3)
