"""One suite for the mailbox on SQLite and for the simulator's model, and a comparison of both on random writes."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from server_relay.effects import (
    HashBlob,
    LoadTask,
    LookUp,
    ReadBlob,
    ReadDue,
    ReadKeys,
    ReadListing,
    ReadTail,
    RelayAnswer,
    RelayRead,
)
from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, KeyState, SubjectRow, TaskGuard
from server_relay.mailbox.mailbox import Mailbox
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.records import (
    Cover,
    DropBlob,
    EmptyStream,
    EndKeys,
    LowerBarrier,
    MailboxWrite,
    PassTime,
    PurgeTask,
    PutGuard,
    PutKeys,
    PutPiece,
    PutTombstone,
    SetBlobAbsent,
    SetSnapshots,
    StartStream,
    StepRow,
    StoredWriter,
    TaskSummary,
    Tombstone,
)
from sync_core.completion import GivenCompletion
from sync_core.entry import Completion, WriterRow
from sync_core.errors import StoreFull
from sync_core.frames import SnapshotRef
from sync_core.ids import StreamName
from tests.contracts.mailbox_rows import append, stored
from tests.contracts.mailbox_suite import MailboxSuite
from tests.simulation.mailbox_model import AsyncMailbox, MailboxModel

TASKS = [("acme", "a/1"), ("acme", "a/2"), ("umbrella", "a/1")]
NAMES = [StreamName.STATE, StreamName.HISTORY, StreamName.HANDOVER]
WRITERS = [70_001, 80_002]
BLOBS = ["a" * 64, "b" * 64]
PLACES, LABELS, ATTEMPTS = ["p1", "p2", "p3"], ["L-1", "L-2"], ["a1", "a2"]


class TestSqliteMailbox(MailboxSuite):
    @pytest.fixture
    async def mailbox(self, tmp_path: Path) -> AsyncIterator[Mailbox]:
        mailbox = await SqliteMailbox.open(tmp_path / "relay.db")
        yield mailbox
        await mailbox.close()


class TestMailboxModel(MailboxSuite):
    @pytest.fixture
    def mailbox(self) -> Mailbox:
        return AsyncMailbox(MailboxModel())


class Workload:
    """Random commits that a relay could make."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._heads: dict[tuple[str, str, StreamName], int] = {}
        self._last_no: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str, str], int] = {}

    def commit(self) -> list[MailboxWrite]:
        return [write for _ in range(self._rng.randint(1, 4)) for write in self._some(*self._rng.choice(TASKS))]

    def _some(self, subject: str, task: str) -> list[MailboxWrite]:
        rng, name = self._rng, self._rng.choice(NAMES)
        started = (subject, task, name) in self._heads
        if rng.random() < 0.1:
            return [self._end(subject, task, name)]
        if rng.random() < 0.2:
            return [self._guard(subject, task)]
        match rng.randint(0, 6 if started else 0):
            case 0:
                self._heads.setdefault((subject, task, name), 0)
                return [StartStream(subject, task, name, rng.randbytes(8))]
            case 1:
                refs = [SnapshotRef(n, rng.choice(BLOBS), b"digest", "phone", n == 1) for n in (1, 2)]
                pair = [rng.choice([None, ref]) for ref in refs]
                return [SetSnapshots(subject, task, name, pair[0], pair[1], rng.randint(1, 5))]
            case 2:
                return self._blob(subject, task)
            case _:
                return [self._append(subject, task)]

    def _end(self, subject: str, task: str, name: StreamName) -> MailboxWrite:
        rng = self._rng
        tombstone = Tombstone(
            rng.randint(0, 3), "purged", rng.randint(1, 10**12), (rng.randbytes(8),), rng.random() < 0.5
        )
        match rng.randint(0, 3):
            case 0:
                self._heads[subject, task, name] = 0
                return EmptyStream(subject, task, name, rng.randbytes(8), self._summary())
            case 1:
                for other in NAMES:
                    self._heads.pop((subject, task, other), None)
                self._last_no.pop((subject, task), None)
                for sha in BLOBS:
                    self._held.pop((subject, task, sha), None)
                return PurgeTask(subject, task, tombstone)
            case 2:
                return PutTombstone(subject, task, tombstone)
            case _:
                return PassTime(*(rng.randint(1, 10**12) for _ in range(3)))

    def _guard(self, subject: str, task: str) -> MailboxWrite:
        rng = self._rng
        match rng.randint(0, 5):
            case 5:
                return EndKeys(subject, task, rng.randint(1, 10**12), rng.random() < 0.5)
            case 0:
                lists = [tuple(rng.sample(names, rng.randint(0, 2))) for names in (["limit", "x"], PLACES)]
                return PutGuard(subject, task, TaskGuard(rng.randint(0, 3), rng.random() < 0.5, (b"e",), *lists))
            case 1:
                return LowerBarrier(subject, task)
            case _:
                state, label = rng.choice(list(KeyState)), rng.choice(["", *LABELS])
                place, token = rng.choice(PLACES), rng.randint(1, 9)
                entity = "e" if place != "p1" else ""
                row = KeyRow(place, "book", entity, rng.randint(1, 3), state, 1, token, task, label=label)
                grant = GrantRow(rng.choice(ATTEMPTS), rng.choice(PLACES), "k", 1, "phone", rng.choice([None, True]))
                yes = ApprovalRow(1, "pay", "pay", "d", rng.choice(["anna", "ben"]), True, rng.randint(1, 9))
                era = rng.choice([None, SubjectRow(rng.randint(1, 4), rng.randint(0, 4), rng.random() < 0.5)])
                return PutKeys(subject, task, era, (row,), (grant,), (yes,))

    def _summary(self) -> TaskSummary:
        completed, edited, cleaned = (self._rng.random() < 0.5 for _ in range(3))
        return TaskSummary(self._rng.randint(1, 3), 1, 1, completed, self._rng.randint(1, 10**12), edited, cleaned)

    def _append(self, subject: str, task: str) -> MailboxWrite:
        rng = self._rng
        names = [name for name in NAMES if (subject, task, name) in self._heads]
        rows = []
        for _ in range(rng.randint(1, 5)):
            name = rng.choice(names)
            self._heads[subject, task, name] += 1
            self._last_no[subject, task] = number = self._last_no.get((subject, task), 0) + 1
            place = self._heads[subject, task, name]
            rows.append(stored(number, place, name=name, writer=rng.choice(WRITERS), size=rng.randint(20, 200)))
        writer = StoredWriter(rows[0].name, WriterRow(rng.choice(WRITERS), "phone", rng.randint(0, 9), 2), "anna")
        step = StepRow(1, rng.choice("abc"), rng.random() < 0.5, "tool", ("x",), rng.random() < 0.3, ("t",))
        cover = Cover(rows[0].name, 90_003, rows[0].relay_seq, rows[0].relay_seq, rows[0].relay_seq)
        completion = GivenCompletion(Completion(1, "anna"), "phone", rows[0].writer, rows[0].writer_seq)
        return append(
            *rows,
            subject=subject,
            task=task,
            writers=(writer,),
            covers=(cover,),
            steps=(step,),
            summary=self._summary(),
            completions=(completion,),
        )

    def _blob(self, subject: str, task: str) -> list[MailboxWrite]:
        rng, sha = self._rng, self._rng.choice(BLOBS)
        held = self._held.get((subject, task, sha), 0)
        if rng.random() < 0.2:
            self._held[subject, task, sha] = 0
            return [DropBlob(subject, task, sha)]
        if rng.random() < 0.2:
            return [SetBlobAbsent(subject, task, sha)]
        data = rng.randbytes(rng.randint(1, 50))
        self._held[subject, task, sha] = held + len(data)
        return [PutPiece(subject, task, sha, held, 10_000, data, rng.random() < 0.3)]


async def everything(mailbox: Mailbox) -> list[object]:
    reads: list[RelayRead] = [ReadListing(1, subject, 1, "", "", 2) for subject in ("acme", "umbrella")]
    reads += [ReadDue(at, at // 2, 2) for at in (10**11, 10**12)]
    keys = tuple((name, writer, number) for name in NAMES for writer in (*WRITERS, 90_003) for number in range(4))
    places = tuple((name, place) for name in NAMES for place in range(4))
    for subject, task in TASKS:
        reads += [LoadTask(subject, task), LookUp(subject, task, keys, places)]
        reads += [ReadTail(subject, task, 1, after, ((NAMES[0], 2),), 500) for after in (0, 3)]
        reads += [ReadBlob(subject, task, sha) for sha in BLOBS]
        reads += [HashBlob(subject, task, sha, b"end") for sha in BLOBS]
        calls = ((1, "pay", "pay", "d"),)
        reads += [ReadKeys(subject, task, (place,), (), (), calls) for place in PLACES]
        reads += [ReadKeys(subject, task, (), (("book", label),)) for label in LABELS]
        reads += [ReadKeys(subject, task, (), (), (attempt,)) for attempt in ATTEMPTS]
    answers: list[RelayAnswer] = await mailbox.read(reads)
    return [*answers, replace(await mailbox.stats(), store_bytes=0)]


@pytest.mark.parametrize("seed", range(20))
async def test_the_file_and_the_model_agree_on_random_writes(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    workload, model, path = Workload(rng), MailboxModel(), tmp_path / "relay.db"
    memory, mailbox = AsyncMailbox(model), await SqliteMailbox.open(path)
    try:
        for _ in range(30):
            writes = workload.commit()
            await memory.commit(writes)
            await mailbox.commit(writes)
            assert await everything(mailbox) == await everything(memory)
            if rng.random() < 0.1:
                number = rng.randint(0, 2**32)
                await memory.mark_restored(Random(number).randbytes, number)
                await mailbox.mark_restored(Random(number).randbytes, number)
                assert await everything(mailbox) == await everything(memory)
        await mailbox.close()
        mailbox = await SqliteMailbox.open(path)
        assert await everything(mailbox) == await everything(memory)
    finally:
        await mailbox.close()


async def test_a_crash_of_the_model_loses_unsynced_commits_from_the_end() -> None:
    lost_counts = set()
    for seed in range(50):
        model, workload = MailboxModel(), Workload(Random(1))
        commits = [workload.commit() for _ in range(6)]
        for writes in commits[:3]:
            model.commit(writes)
        model.sync()
        for writes in commits[3:]:
            model.commit(writes)
        assert model.unsynced == 3
        lost = model.crash(Random(seed))
        lost_counts.add(lost)
        expected = MailboxModel()
        for writes in commits[: 6 - lost]:
            expected.commit(writes)
        assert await everything(AsyncMailbox(model)) == await everything(AsyncMailbox(expected))
    assert lost_counts == {0, 1, 2, 3}


async def test_the_model_fails_a_planned_commit_and_comes_back_from_an_image() -> None:
    model, workload = MailboxModel(), Workload(Random(2))
    model.commit(workload.commit())
    image, before, writes = model.image(), await everything(AsyncMailbox(model)), workload.commit()
    model.fail_next(StoreFull("The disk is full."))
    with pytest.raises(StoreFull):
        model.commit(writes)
    assert await everything(AsyncMailbox(model)) == before
    model.commit(writes)
    assert await everything(AsyncMailbox(model)) != before
    model.restore(image)
    assert await everything(AsyncMailbox(model)) == before
