"""SE-10: a compaction keeps the content at every crash point, and the file shrinks."""

import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import apsw
import pytest
from pycrdt import Doc, Map

from sync_core.context.apply import commit_writes
from sync_core.context.connection import connect
from sync_core.context.reads import load_task
from sync_core.context.sqlite_store import SqliteStore
from sync_core.entry import EntryKind
from sync_core.replica.writes import CompactStream, DropTask, PutEntry, SetPosition, StreamImage, TaskImage, Write
from tests.contracts.store_values import CHAIN, EPOCH, MINE, STATE, TASK, image_of, make_entry
from tests.sync_core.context.power import power_connection

UPDATES = 500
NUMBERED = 450


def written_updates() -> list[bytes]:
    """Return the updates of 500 slot writes by one writer."""
    document: Doc[Map[str]] = Doc(client_id=MINE)
    updates: list[bytes] = []
    subscription = document.observe(lambda event: updates.append(event.update))
    slots = document.get("slots", type=Map)
    for number in range(UPDATES):
        with document.transaction():
            slots[f"amount/{number:04}"] = f'{{"value":{number * 31}}}'
            if number:
                del slots[f"amount/{number - 1:04}"]
    document.unobserve(subscription)
    return updates


def merged(document: bytes, updates: Iterable[bytes]) -> Doc[Map[str]]:
    """Return a document of a compacted row and the updates after it."""
    doc: Doc[Map[str]] = Doc()
    for update in [document, *updates] if document else updates:
        doc.apply_update(update)
    return doc


def content_of(image: StreamImage) -> tuple[dict[str, str], bytes]:
    """Return what a stream says: its slots, and how far each writer is."""
    updates = (entry.payload for entry in image.entries if entry.kind is EntryKind.UPDATE)
    doc = merged(image.document, updates)
    return dict(doc.get("slots", type=Map).to_py() or {}), doc.get_state()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store file of 500 updates, of which 450 have a number."""
    path = tmp_path_factory.mktemp("filled") / "acme.db"
    writes: list[Write] = [SetPosition(STATE, EPOCH, NUMBERED, CHAIN)]
    for seq, update in enumerate(written_updates(), 1):
        relay_seq = seq if seq <= NUMBERED else None
        writes.append(PutEntry(make_entry(MINE, seq, payload=update, relay_seq=relay_seq), own=True))
    connection = connect(path, "acme")
    commit_writes(connection, writes, compress=True)
    connection.close()
    return path


def compaction_of(image: TaskImage) -> CompactStream:
    """Return the write that a replica makes after it checked that the content is equal."""
    updates = [entry.payload for entry in image.streams[0].entries if entry.relay_seq is not None]
    return CompactStream(STATE, NUMBERED, merged(b"", updates).get_update(), (), CHAIN)


class Photographer:
    """Copies the file set before each single statement of a connection: what a kill at that moment leaves."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.statements: list[str] = []

    def __call__(self, statement: str) -> None:
        copy = self.folder / f"{len(self.statements):03}"
        copy.mkdir()
        for file in self.path.parent.iterdir():
            shutil.copy(file, copy / file.name)
        self.statements.append(statement)

    def images(self) -> list[TaskImage]:
        """Open each copy as after a restart, and return what it holds."""
        found = []
        for copy in sorted(self.folder.iterdir()):
            connection = connect(copy / self.path.name, "acme")
            found.append(load_task(connection, TASK))
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            connection.close()
        return found


@pytest.mark.parametrize("compress", [True, False])
def test_a_kill_before_any_statement_of_a_compaction_keeps_the_content(
    filled: Path, tmp_path: Path, compress: bool
) -> None:
    live, copies = tmp_path / "live", tmp_path / "copies"
    live.mkdir()
    copies.mkdir()
    path = Path(shutil.copy(filled, live))
    connection = connect(path, "acme")
    before = load_task(connection, TASK)
    photographer = Photographer(path, copies)
    connection.set_trace_callback(photographer)
    commit_writes(connection, [compaction_of(before)], compress)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.set_trace_callback(None)
    after = load_task(connection, TASK)
    connection.close()
    images = photographer.images()
    assert len(images) > 6
    assert set(map(repr, images)) == {repr(before), repr(after)}
    assert content_of(after.streams[0]) == content_of(before.streams[0])
    assert after.unsent == before.unsent
    assert len(after.unsent) == UPDATES - NUMBERED


def test_a_compaction_of_which_a_write_fails_changes_nothing_and_is_made_again(filled: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(filled, tmp_path))
    with power_connection(str(path)) as (disk, connection):
        before = load_task(connection, TASK)
        for failing in range(1_000):
            disk.writes, disk.fail_write = 0, failing
            try:
                commit_writes(connection, [compaction_of(before)], compress=True)
            except (apsw.FullError, apsw.IOError):
                disk.fail_write = None
                assert load_task(connection, TASK) == before
            else:
                disk.fail_write = None
                break
        assert failing > 10
        after = load_task(connection, TASK)
    assert content_of(after.streams[0]) == content_of(before.streams[0])
    assert len(after.streams[0].entries) == UPDATES - NUMBERED


@pytest.mark.parametrize("compress", [True, False])
async def test_the_files_shrink_after_a_compaction(filled: Path, tmp_path: Path, compress: bool) -> None:
    path = Path(shutil.copy(filled, tmp_path))
    store = await SqliteStore.open(path, subject="acme", compress=compress)
    before = await store.stats()
    image = await store.load_task(TASK)
    await store.commit([compaction_of(image)])
    after = await store.stats()
    assert after.entries == UPDATES - NUMBERED
    assert after.store_bytes < before.store_bytes * 0.6
    assert content_of(await image_of(store)) == content_of(image.streams[0])
    await store.close()


async def test_the_files_shrink_after_a_task_was_dropped(filled: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(filled, tmp_path))
    store = await SqliteStore.open(path, subject="acme")
    before = await store.stats()
    await store.commit([DropTask(TASK)])
    assert (await store.stats()).store_bytes < before.store_bytes / 2
    await store.close()


async def test_a_document_is_zipped_only_when_asked_for_and_smaller(tmp_path: Path) -> None:
    sizes = {}
    for name, compress, document in (
        ("zipped", True, b"the same words " * 10_000),
        ("plain", False, b"the same words " * 10_000),
        ("tiny", True, b"\x01\x02"),
    ):
        store = await SqliteStore.open(tmp_path / f"{name}.db", subject="acme", compress=compress)
        await store.commit([CompactStream(STATE, 1, document, (), CHAIN)])
        assert (await image_of(store)).document == document
        sizes[name] = (await store.stats()).store_bytes
        await store.close()
    assert sizes["zipped"] < sizes["plain"] - 100_000
    connection = sqlite3.connect(tmp_path / "tiny.db")
    assert connection.execute("SELECT zipped, document FROM documents").fetchall() == [(0, b"\x01\x02")]
    connection.close()


async def test_a_second_compaction_replaces_the_first(filled: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(filled, tmp_path))
    store = await SqliteStore.open(path, subject="acme")
    image = await image_of(store)
    numbered = [entry.payload for entry in image.entries if entry.relay_seq is not None]
    first = merged(b"", numbered[:200]).get_update()
    await store.commit([CompactStream(STATE, 200, first, (), CHAIN)])
    halfway = await image_of(store)
    assert content_of(halfway) == content_of(image)
    second = merged(first, numbered[200:]).get_update()
    await store.commit([CompactStream(STATE, NUMBERED, second, (), CHAIN[::-1])])
    after = await image_of(store)
    assert (after.covers_seq, after.snapshot_chain) == (NUMBERED, CHAIN[::-1])
    assert content_of(after) == content_of(image)
    await store.close()
