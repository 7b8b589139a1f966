"""What every mailbox must do with the authority's rows: keys of a subject, grants and approvals of a task, barriers."""

from itertools import count

import msgspec
import pytest

from server_relay.effects import KeysRead, ReadKeys
from server_relay.key_records import (
    ERA_MAX,
    ApprovalRow,
    GrantRow,
    KeyRow,
    KeyState,
    SubjectRow,
    TaskGuard,
)
from server_relay.mailbox.mailbox import Mailbox
from server_relay.records import (
    EndKeys,
    LowerBarrier,
    PassTime,
    PurgeTask,
    PutGuard,
    PutKeys,
    SetSnapshots,
    TaskSummary,
    Tombstone,
)
from sync_core.errors import StoreDamaged
from sync_core.frames import SnapshotRef
from tests.contracts.mailbox_rows import HISTORY, STATE, SUBJECT, TASK, append, load, start, stored

__all__ = ["MailboxGuards"]

ROW = KeyRow(
    "p1",
    "book",
    '["u1"]',
    2,
    KeyState.DONE,
    3,
    (3 << 32) + 7,
    TASK,
    "step",
    1,
    "d" * 64,
    "a1",
    "phone",
    "anna",
    True,
    '"paid"',
    "b" * 64,
    "HATHAT",
    "because",
)
GRANT = GrantRow("a1", "p1", "k1", 7, "phone", True, (("book", "HATHAT"),))
YES = ApprovalRow(1, "pay", "pay", "d" * 64, "ben", True, 5)
CALL = (1, "pay", "pay", "d" * 64)
EMPTY = PutKeys(SUBJECT, TASK)
GUARD = TaskGuard(2, True, (b"e1", b"e2"), ("limit", "budget"), ("p1",))


def put(**fields: object) -> PutKeys:
    return msgspec.structs.replace(EMPTY, **fields)


async def keys(mailbox: Mailbox, subject: str = SUBJECT, task: str = TASK, **asked: object) -> KeysRead:
    read = msgspec.structs.replace(ReadKeys(subject, task), **asked)
    (answer,) = await mailbox.read([read])
    assert isinstance(answer, KeysRead)
    assert answer.asked == read
    return answer


class MailboxGuards:
    """The tests; each gets a fresh `mailbox`."""

    async def test_a_mailbox_says_whether_it_is_durable(self, mailbox: Mailbox) -> None:
        assert mailbox.durable is True

    async def test_where_no_keys_are_nothing_is_found(self, mailbox: Mailbox) -> None:
        found = await keys(mailbox, places=("p1",), labels=(("book", "L"),), attempts=("a1",), calls=(CALL,))
        assert found == KeysRead(found.asked, SubjectRow(), (), (), ())

    async def test_rows_come_back_exactly_and_are_replaced(self, mailbox: Mailbox) -> None:
        bare = KeyRow("p2", "pay")
        subject = SubjectRow(4, 3, True)
        await mailbox.commit([put(subject_row=subject, rows=(ROW, bare), grants=(GRANT,), approvals=(YES,))])
        found = await keys(mailbox, places=("p2", "p1", "p3"), attempts=("a1", "a2"), calls=(CALL,))
        assert found.subject_row == subject
        assert set(found.rows) == {ROW, bare}
        assert (found.grants, found.approvals) == ((GRANT,), (YES,))
        moved = msgspec.structs.replace(ROW, state=KeyState.FREE, generation=3, label="")
        used = msgspec.structs.replace(YES, used=True)
        open_grant = msgspec.structs.replace(GRANT, happened=None, releases=())
        await mailbox.commit([put(rows=(moved,), grants=(open_grant,), approvals=(used,))])
        found = await keys(mailbox, places=("p1",), attempts=("a1",), calls=(CALL,))
        assert found == KeysRead(found.asked, subject, (moved,), (open_grant,), (used,))

    async def test_an_attempt_brings_the_row_of_its_key(self, mailbox: Mailbox) -> None:
        await mailbox.commit([put(rows=(ROW,), grants=(GRANT,))])
        assert (await keys(mailbox, attempts=("a1",))).rows == (ROW,)
        assert (await keys(mailbox, attempts=("a1",), places=("p1",), labels=(("book", "HATHAT"),))).rows == (ROW,)

    async def test_keys_are_found_by_the_label_of_what_they_made(self, mailbox: Mailbox) -> None:
        twin = msgspec.structs.replace(ROW, place="p0")
        others = [
            msgspec.structs.replace(ROW, place="p3", label="HATHAU"),
            msgspec.structs.replace(ROW, place="p4", tool="pay"),
            msgspec.structs.replace(ROW, place="p5", label=""),
        ]
        await mailbox.commit([put(rows=(ROW, twin, *others))])
        assert set((await keys(mailbox, labels=(("book", "HATHAT"),))).rows) == {ROW, twin}
        assert (await keys(mailbox, labels=(("book", ""),))).rows == ()

    async def test_keys_are_of_the_subject_and_the_rest_is_of_the_task(self, mailbox: Mailbox) -> None:
        await mailbox.commit([put(subject_row=SubjectRow(2), rows=(ROW,), grants=(GRANT,), approvals=(YES,))])
        asked = {"places": ("p1",), "attempts": ("a1",), "calls": (CALL,)}
        beside = await keys(mailbox, task="other", **asked)
        assert (beside.subject_row, beside.rows) == (SubjectRow(2), (ROW,))
        assert (beside.grants, beside.approvals) == ((), ())
        apart = await keys(mailbox, subject="umbrella", **asked)
        assert (apart.subject_row, apart.rows, apart.grants, apart.approvals) == (SubjectRow(), (), (), ())

    @pytest.mark.parametrize("number", range(4))
    async def test_approvals_are_of_exactly_one_call(self, mailbox: Mailbox, number: int) -> None:
        other = (*CALL[:number], 2 if number == 0 else "other", *CALL[number + 1 :])
        rows = (YES, msgspec.structs.replace(YES, principal="cleo", approved=False, relay_seq=9))
        await mailbox.commit([put(approvals=rows)])
        assert (await keys(mailbox, calls=(CALL,))).approvals == rows
        assert (await keys(mailbox, calls=(other,))).approvals == ()  # type: ignore[arg-type]

    async def test_what_guards_a_task_comes_with_it(self, mailbox: Mailbox) -> None:
        await mailbox.commit([start(), append(stored(1, 1)), PutGuard(SUBJECT, TASK, GUARD)])
        assert (await load(mailbox)).guard == GUARD
        await mailbox.commit([append(stored(2, 2)), PutGuard(SUBJECT, TASK, TaskGuard(3))])
        assert (await load(mailbox)).guard == TaskGuard(3)
        assert (await load(mailbox, task="other")).guard == TaskGuard()

    @pytest.mark.parametrize("state", list(KeyState))
    async def test_keys_are_forgotten_when_their_time_after_the_end_is_over(
        self, mailbox: Mailbox, state: KeyState
    ) -> None:
        entity = msgspec.structs.replace(ROW, state=state)
        call = msgspec.structs.replace(ROW, place="p2", entity="", generation=0, state=state)
        beside = msgspec.structs.replace(ROW, place="p3", task="other")
        tombstone = Tombstone(1, "purged", 50)
        await mailbox.commit([start(), append(stored(1, 1)), put(rows=(entity, call, beside))])
        await mailbox.commit([PassTime(90, 0, 90)])
        await mailbox.commit([PurgeTask(SUBJECT, TASK, tombstone), EndKeys(SUBJECT, TASK, 50), PassTime(90, 0, 50)])
        places = ("p1", "p2", "p3")
        assert set((await keys(mailbox, places=places)).rows) == {entity, call, beside}
        await mailbox.commit([PassTime(90, 0, 51)])
        left = {row.place: row for row in (await keys(mailbox, places=places)).rows}
        assert left.pop("p3") == beside
        if state in (KeyState.RUNNING, KeyState.IN_DOUBT):
            assert left == {"p1": entity, "p2": call}
        elif state is KeyState.FREE:
            assert left == {"p1": entity}
        else:
            assert left == {"p1": KeyRow("p1", "book", ROW.entity, 3, KeyState.FREE, 3, ROW.token, TASK)}

    async def test_a_task_whose_log_stays_keeps_the_keys_of_its_steps(self, mailbox: Mailbox) -> None:
        call = msgspec.structs.replace(ROW, place="p2", entity="", generation=0)
        cleaned = TaskSummary(stored_at_ms=50, completed=True, cleaned=True)
        await mailbox.commit([start(), append(stored(1, 1), summary=cleaned), put(rows=(ROW, call))])
        await mailbox.commit([EndKeys(SUBJECT, TASK, 50, entities_only=True), PassTime(90, 0, 90)])
        found = await keys(mailbox, places=("p1", "p2"))
        assert {row.place: row.state for row in found.rows} == {"p1": KeyState.FREE, "p2": KeyState.DONE}

    async def test_a_key_of_a_task_that_goes_on_is_kept_until_that_ends_again(self, mailbox: Mailbox) -> None:
        going_on = TaskSummary(stored_at_ms=60)
        await mailbox.commit([start(), append(stored(1, 1), summary=going_on), put(rows=(ROW,))])
        await mailbox.commit([EndKeys(SUBJECT, TASK, 50, entities_only=True), PassTime(90, 0, 90)])
        assert (await keys(mailbox, places=("p1",))).rows == (ROW,)
        again = msgspec.structs.replace(ROW, state=KeyState.RUNNING)
        cleaned = TaskSummary(stored_at_ms=70, completed=True, cleaned=True)
        await mailbox.commit([put(rows=(again,)), put(rows=(ROW,)), append(stored(2, 2), summary=cleaned)])
        await mailbox.commit([PassTime(90, 0, 90)])
        assert (await keys(mailbox, places=("p1",))).rows == (ROW,)

    async def test_keys_outlive_a_purge_of_their_task_and_nothing_else_of_it_does(self, mailbox: Mailbox) -> None:
        guard = PutGuard(SUBJECT, TASK, GUARD)
        await mailbox.commit(
            [start(), append(stored(1, 1)), guard, put(rows=(ROW,), grants=(GRANT,), approvals=(YES,))]
        )
        await mailbox.commit([PurgeTask(SUBJECT, TASK, Tombstone(1, "purged", 5, (b"e",)))])
        found = await keys(mailbox, places=("p1",), attempts=("a1",), calls=(CALL,))
        assert (found.rows, found.grants, found.approvals) == ((ROW,), (), ())
        assert (await load(mailbox)).guard == TaskGuard()

    async def test_a_lift_lowers_the_barrier_of_one_subject_and_opens_its_standing_versions(
        self, mailbox: Mailbox
    ) -> None:
        for subject in (SUBJECT, "umbrella"):
            summary = TaskSummary(5, stored_at_ms=1)
            await mailbox.commit(
                [
                    start(subject=subject),
                    append(stored(1, 1), subject=subject, summary=summary),
                    PutGuard(subject, TASK, GUARD),
                    PutKeys(subject, TASK, SubjectRow(4, 4, True)),
                ]
            )
        higher = append(stored(2, 2), summary=TaskSummary(6, stored_at_ms=2))
        await mailbox.commit([higher, LowerBarrier(SUBJECT, "other")])
        assert (await keys(mailbox)).subject_row == SubjectRow(4, 0, True)
        lifted = msgspec.structs.replace(GUARD, opened_version=6, lost=False)
        assert (await load(mailbox)).guard == lifted
        assert (await load(mailbox, "umbrella")).guard == GUARD
        assert (await keys(mailbox, "umbrella")).subject_row == SubjectRow(4, 4, True)

    async def test_a_restored_mailbox_has_new_epochs_and_every_barrier_up(self, mailbox: Mailbox) -> None:
        ref = SnapshotRef(1, "0" * 64, b"digest", "phone", True)
        guard = TaskGuard(2, False, (b"old",), ("limit",), ("p1",))
        await mailbox.commit(
            [
                start(),
                start(HISTORY, epoch=b"epoch-h"),
                append(stored(1, 1), stored(2, 1, name=HISTORY)),
                SetSnapshots(SUBJECT, TASK, STATE, ref, ref, 2),
                PutGuard(SUBJECT, TASK, guard),
                put(subject_row=SubjectRow(4, 2, True), rows=(ROW,)),
                start(subject="umbrella"),
                PutKeys("umbrella", TASK, SubjectRow(ERA_MAX)),
                start(subject="third"),
            ]
        )
        numbers = count(1)
        await mailbox.mark_restored(lambda size: next(numbers).to_bytes(size, "big"), 4 * 3_600_000)
        image = await load(mailbox)
        assert len({stream.epoch for stream in image.streams} - {b"epoch-1", b"epoch-h"}) == 2
        for stream in image.streams:
            assert (stream.head, stream.tail_from, stream.usable, stream.offered) == (1, 1, None, None)
        assert image.guard == TaskGuard(0, True, (b"old", b"epoch-1", b"epoch-h"), ("limit",), ("p1",))
        assert (await keys(mailbox, places=("p1",))).rows == (ROW,)
        eras = [(await keys(mailbox, subject)).subject_row for subject in (SUBJECT, "umbrella", "third")]
        assert eras == [SubjectRow(5, 5), SubjectRow(ERA_MAX, ERA_MAX), SubjectRow(4, 4)]

    async def test_nothing_of_a_commit_that_fails_is_kept(self, mailbox: Mailbox) -> None:
        await mailbox.commit([start(), append(stored(1, 1))])
        writes = [
            PutGuard(SUBJECT, TASK, GUARD),
            put(subject_row=SubjectRow(9), rows=(ROW,), grants=(GRANT,), approvals=(YES,)),
            LowerBarrier(SUBJECT, TASK),
        ]
        for done in range(len(writes) + 1):
            with pytest.raises(StoreDamaged):
                await mailbox.commit([*writes[:done], append(stored(9, 1))])
            found = await keys(mailbox, places=("p1",), attempts=("a1",), calls=(CALL,))
            assert found == KeysRead(found.asked, SubjectRow(), (), (), ())
            assert (await load(mailbox)).guard == TaskGuard()
