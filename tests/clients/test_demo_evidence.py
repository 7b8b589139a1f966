"""The demo's figures and timeline, drawn from files alone."""

import random
import sqlite3
from pathlib import Path

import msgspec
import pytest

from clients.demo.evidence import EXPECTED, Evidence, figures_of, lost_lines, table_rows, unmet
from clients.demo.executions import Execution
from clients.demo.processes import ProcessLife
from clients.demo.replayed import replay
from clients.demo.stores import StoredTask, read_device
from clients.demo.story import DESKTOP, PHONE, RELAY, SUBJECT, TASK
from clients.demo.story_timeline import timeline_of
from clients.demo.timeline import MarkKind, PostKind
from clients.demo.transcript import Line, LineKind
from sync_core.context.sqlite_store import SqliteStore
from sync_core.document.document import TaskDocument
from sync_core.document.slots import CandidateStatus, SlotDefinition
from sync_core.entry import CallIntent, Effect, Entry, EntryKind, WriterRow, encode_record
from sync_core.errors import StoreDamaged
from sync_core.guard import check_entry
from sync_core.ids import StreamName, stream_id
from sync_core.replica.writes import PutEntry, SetWriter

# --- the evidence -----------------------------------------------------------------------------------------------------


class Log:
    """A relay's log of the task's state, written by two devices that merge only when they are told to."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.writers: dict[int, WriterRow] = {}
        self._entropy = random.Random(7).randbytes
        self._waiting: list[Entry] = []
        self._merged = {PHONE: 0, DESKTOP: 0}
        self._documents = {
            device: TaskDocument(SUBJECT, TASK, device, writer, self._entropy)
            for device, writer in ((PHONE, 70_001), (DESKTOP, 70_002))
        }
        self._seqs = {PHONE: 0, DESKTOP: 0}

    def of(self, device: str) -> TaskDocument:
        return self._documents[device]

    def write(self, device: str, payload: bytes, kind: EntryKind = EntryKind.UPDATE) -> None:
        self._seqs[device] += 1
        stream, writer = stream_id(TASK, StreamName.STATE), self.of(device).writer
        at_ms = 1_000 + len(self.entries) + len(self._waiting)
        entry = Entry(stream, writer, self._seqs[device], kind, payload, device, at_ms)
        if kind is not EntryKind.UPDATE:
            self.of(device).record(entry)
        self._waiting.append(entry)

    def call(self, device: str, step: str) -> None:
        document = self.of(device)
        intent = document.begin_call(1, step, step, Effect.READ, "0" * 64, "{}", frozenset())
        assert isinstance(intent, CallIntent)
        self.write(device, encode_record(intent), EntryKind.CALL)
        outcome = document.end_call(1, step, intent.attempt, True, "1", None, None)
        self.write(device, encode_record(outcome), EntryKind.CALL)

    def confirm(self, device: str, value: str) -> None:
        document = self.of(device)
        token = document.slot("cost_center").token
        text = f'"{value}"'
        self.write(device, document.write_slot("cost_center", text, CandidateStatus.CONFIRMED, token, None, 0))

    def sync(self) -> None:
        """Number what waits and have both devices merge what the other one wrote."""
        for entry in self._waiting:
            numbered = msgspec.structs.replace(entry, relay_seq=len(self.entries) + 1)
            row, _ = check_entry(entry, self.writers)
            self.writers[row.writer] = row
            self.entries.append(numbered)
            for device in (PHONE, DESKTOP):
                if device != entry.device:
                    self.of(device).merge(numbered)
        self._waiting.clear()

    def stored(self, last: int | None = None) -> StoredTask:
        """What a file holds that got the whole log, or its first entries alone."""
        rows = tuple(self.writers.values())
        return StoredTask(b"", tuple(self.entries[:last]), {stream_id(TASK, StreamName.STATE): rows})


def whole_story(stale_overwrite: bool = False) -> Log:
    log = Log()
    definition = SlotDefinition("Which?", required=True)
    log.write(PHONE, log.of(PHONE).declare_slot("cost_center", definition, 0))
    log.call(PHONE, "invoice")
    log.call(PHONE, "policy")
    log.write(PHONE, log.of(PHONE).write_note("worklog", "- read\n", None))
    log.sync()
    log.confirm(DESKTOP, "CC-1")
    log.sync()
    stale = log.of(DESKTOP).note("worklog").text + "- desktop\n"
    log.confirm(PHONE, "CC-2")
    log.write(PHONE, log.of(PHONE).append_note("worklog", "- phone\n"))
    log.confirm(DESKTOP, "CC-3")
    log.write(DESKTOP, log.of(DESKTOP).append_note("worklog", "- desktop\n"))
    log.sync()
    if stale_overwrite:
        current = log.of(DESKTOP).note("worklog")
        log.write(DESKTOP, log.of(DESKTOP).write_note("worklog", stale, current.content_sha256))
    log.confirm(PHONE, "CC-3")
    log.sync()
    return log


def evidence_of(log: Log, executions: int = 2, phone_has: int | None = None) -> Evidence:
    stored = {PHONE: log.stored(phone_has), DESKTOP: log.stored(), RELAY: log.stored()}
    ran = [Execution(1_002, 1, PHONE, "read_invoice", "invoice"), Execution(1_004, 1, PHONE, "check_policy", "policy")]
    ran.append(Execution(3_000, 2, DESKTOP, "read_invoice", "invoice"))
    values = ("CC-2 (phone)", "CC-3 (desktop)")
    conflict = Line(4_000, 2, LineKind.CONFLICT, "cost_center", "", values)
    question = Line(2_000, 2, LineKind.QUESTION, "cost_center", "Which?")
    online = Line(1_500, 2, LineKind.ONLINE)
    return Evidence(
        stored=stored,
        steps={name: replay(each) for name, each in stored.items()},
        executions=tuple(ran[:executions]),
        transcripts={PHONE: (conflict,), DESKTOP: (online, question, conflict)},
    )


def test_the_figures_of_a_good_run_are_as_expected() -> None:
    evidence = evidence_of(whole_story())
    figures = figures_of(evidence, 3.14159)
    assert {name: getattr(figures, name) for name in EXPECTED} == EXPECTED
    assert figures.seconds == 3.14
    assert unmet(figures, evidence) == ()
    assert all(agrees for _, _, _, agrees in table_rows(figures))


def test_a_tool_that_ran_again_is_told_with_its_device() -> None:
    evidence = evidence_of(whole_story(), executions=3)
    figures = figures_of(evidence, 1)
    assert (figures.calls_executed, figures.calls_executed_again) == (3, 1)
    assert any("read_invoice on the desktop" in sentence for sentence in unmet(figures, evidence))


def test_a_line_overwritten_by_a_stale_text_is_found_in_the_logs() -> None:
    evidence = evidence_of(whole_story(stale_overwrite=True))
    assert lost_lines(evidence) == ("- phone",)
    figures = figures_of(evidence, 1)
    assert figures.note_lines_lost == 1
    assert figures.digests_equal
    assert any("- phone" in sentence for sentence in unmet(figures, evidence))


def test_a_file_that_lacks_an_entry_has_another_digest() -> None:
    log = whole_story()
    figures = figures_of(evidence_of(log, phone_has=len(log.entries) - 1), 1)
    assert not figures.digests_equal


def test_a_call_counts_as_recorded_only_if_every_file_has_it() -> None:
    assert figures_of(evidence_of(whole_story(), phone_has=3), 1).calls_recorded == 1


def test_a_conflict_that_a_transcript_claims_counts_only_if_the_devices_own_log_has_it() -> None:
    log = whole_story()
    evidence = evidence_of(log, phone_has=len(log.entries) - 4)
    assert figures_of(evidence, 1).conflicts_shown == 1
    untold = msgspec.structs.replace(evidence_of(log), transcripts={PHONE: (), DESKTOP: ()})
    assert figures_of(untold, 1).conflicts_shown == 0


def test_the_timeline_shows_who_wrote_what_and_which_entries_competed() -> None:
    lives = [
        ProcessLife(RELAY, 9, 900, 9_000, killed=False),
        ProcessLife(PHONE, 1, 950, 1_400, killed=True),
        ProcessLife(DESKTOP, 2, 1_450, 8_000, killed=False),
    ]
    timeline = timeline_of(evidence_of(whole_story()), lives)
    told = [(post.device, post.label, post.kind) for post in timeline.posts]
    assert told[0] == (PHONE, "slot declared", PostKind.PLAIN)
    assert (PHONE, "cost_center confirmed: CC-2", PostKind.COMPETING) in told
    assert (DESKTOP, "cost_center confirmed: CC-3", PostKind.COMPETING) in told
    assert told[-1] == (PHONE, "cost_center resolved: CC-3", PostKind.RESOLVING)
    assert [mark.text for mark in timeline.marks if mark.kind is MarkKind.KILLED] == ["SIGKILL: process 1 is gone"]
    stored = [post.stored_ms for post in timeline.posts]
    assert stored == sorted(stored)
    assert min(at_ms for post in timeline.posts for device, at_ms in post.arrivals if device == DESKTOP) >= 1_450


# --- the files --------------------------------------------------------------------------------------------------------


async def store_with(log: Log, path: Path) -> None:
    store = await SqliteStore.open(path, subject=SUBJECT)
    stream = stream_id(TASK, StreamName.STATE)
    puts = [PutEntry(entry, own=entry.device == PHONE) for entry in log.entries]
    await store.commit([*puts, *(SetWriter(stream, row) for row in log.writers.values())])
    await store.close()


async def test_a_devices_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = whole_story()
    await store_with(log, tmp_path / "phone.db")
    stored = read_device(tmp_path / "phone.db")
    assert stored.entries == tuple(log.entries)
    assert stored.writers_of(StreamName.STATE) == log.writers


async def test_a_damaged_row_is_refused_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "phone.db"
    await store_with(whole_story(), path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET device = 'other' WHERE local = 2")
    connection.close()
    with pytest.raises(StoreDamaged, match=r"phone\.db"):
        read_device(path)
