"""The tasks that a relay holds: loads them, hands them their frames in order, sends what they stored, forgets them."""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from server_relay.admission import Grant
from server_relay.blobs import declare_absent, take_piece, want_blob
from server_relay.config import RelaySettings
from server_relay.effects import (
    BlobHashed,
    BlobRead,
    KeysRead,
    LoadTask,
    LookedUp,
    NamedRead,
    ReadKeys,
    RelayRead,
    TailRead,
    TaskLoaded,
)
from server_relay.fanout import catch_up, deliver
from server_relay.hello import lost_epochs, places_wanted, say_hello, tell_heads
from server_relay.intake import Intake
from server_relay.keeper import Keeper
from server_relay.lifetimes import end_as_due, purge_as_asked, purge_as_ordered
from server_relay.petitions import end_lease_of, petition
from server_relay.quarantine import Quarantine
from server_relay.sessions import CLOSE_POLICY, CLOSE_TRY_LATER, Errand, LeaseOver, Session, Turn
from server_relay.snapshots import ask_for_snapshots, confirm_snapshot, offer_snapshot
from server_relay.streams import DIGEST_BYTES, Job, Order, Sweep, TaskLog
from sync_core.errors import ProtocolError, SegueError, ValueRefused
from sync_core.frames import (
    BlobAbsent,
    BlobMissing,
    BlobPiece,
    BlobWanted,
    DigestAt,
    Hello,
    Purge,
    Push,
    Refusal,
    Refused,
    SnapshotConfirmed,
    SnapshotOffer,
    Unfollow,
)
from sync_core.ids import Entropy, check_task
from sync_core.petitions import Claim, HoldSlot, LiftBarrier, Petition, SettleDoubt

__all__ = ["TaskFrame", "Tasks", "refuse"]

_LogFrame = Hello | Unfollow | Push | DigestAt | SnapshotOffer | SnapshotConfirmed | Purge
TaskFrame = _LogFrame | BlobPiece | BlobWanted | BlobAbsent | Petition
_Key = tuple[str, str]

_NO_READS: tuple[RelayRead, ...] = ()


def refuse(turn: Turn, session: Session, code: str, error: SegueError, final: bool = False) -> None:
    """End a session with the reason."""
    turn.reply(session, Refused(code, error.sentence, error.hint, final))
    turn.close(session, CLOSE_POLICY, code)


class Tasks:
    """All tasks in memory, by (subject, task). `counts` are of everything since the start."""

    def __init__(self, settings: RelaySettings, entropy: Entropy, counts: Counter[str], *, durable: bool) -> None:
        self.keeper = Keeper(settings, entropy, counts, durable=durable)
        self.quarantine = Quarantine(counts)
        self._settings = settings
        self._entropy = entropy
        self._counts = counts
        self._logs: dict[_Key, TaskLog] = {}
        self._dirty: dict[_Key, TaskLog] = {}

    def __len__(self) -> int:
        return len(self._logs)

    # --- frames in, answers in ---------------------------------------------------------------------------------------

    def submit(self, turn: Turn, session: Session, subject: str, task: str, frame: TaskFrame) -> None:
        """Put a frame in its task's line, and go on with the line if it does not wait for a read.

        Raises `ValueRefused` for a malformed task key.
        """
        log = self._logs.get((subject, task))
        if log is None:
            check_task(task)
            if isinstance(frame, Unfollow):
                return
            log = self._load(turn, subject, task)
        self._line_up(turn, log, Job(session, frame))

    def sweep(self, turn: Turn, keys: Iterable[_Key]) -> None:
        """Look at tasks whose time may have come."""
        for subject, task in keys:
            self._line_up(turn, self._loaded(turn, subject, task), Job(None, Sweep()))

    def purge(self, turn: Turn, subject: str, task: str) -> None:
        """Purge a task, after what waits in its line."""
        self._line_up(turn, self._loaded(turn, subject, task), Job(None, Order()))

    def _loaded(self, turn: Turn, subject: str, task: str) -> TaskLog:
        return self._logs.get((subject, task)) or self._load(turn, subject, task)

    def _load(self, turn: Turn, subject: str, task: str) -> TaskLog:
        log = self._logs[subject, task] = TaskLog(subject, task, turn.now_ms)
        turn.reads += log.await_reads((LoadTask(subject, task),))
        return log

    def _line_up(self, turn: Turn, log: TaskLog, job: Job) -> None:
        log.used_ms = turn.now_ms
        log.waiting.append(job)
        self._go_on(turn, log)

    def answer(self, turn: Turn, answer: TaskLoaded | LookedUp | KeysRead | BlobRead | BlobHashed | NamedRead) -> None:
        """Take what was read for the first frame in a task's line."""
        key = (answer.image.subject, answer.image.task) if isinstance(answer, TaskLoaded) else _key(answer)
        log = self._logs.get(key)
        if log is None:
            return
        known = log.waiting[0].known
        match answer:
            case TaskLoaded():
                log.load(answer.image)
                turn.reads += log.await_reads(self.keeper.loaded(log))
            case KeysRead():
                self.keeper.ring.take(answer, turn.now_ms)
                known.take_keys(answer)
            case BlobRead():
                known.blobs[answer.sha256] = answer.data
            case BlobHashed():
                known.digest = answer.digest
            case NamedRead():
                known.named = answer.sha256s
            case LookedUp():
                known.take(answer)
        log.awaited -= 1
        self._go_on(turn, log)

    def tail(self, turn: Turn, session: Session, tail: TailRead) -> None:
        """Send a portion of a task's tail to the session that it was read for, if that still wants it."""
        reading, session.reading = session.reading, None
        turn.pump[session.conn] = session
        follow = session.follows.get(tail.task)
        log = self._logs.get((tail.subject, tail.task))
        if log is not None and follow is not None and follow is reading and not follow.waits:
            catch_up(turn, log, session, follow, tail)

    def _go_on(self, turn: Turn, log: TaskLog) -> None:
        while log.waiting and not log.awaited:
            job = log.waiting[0]
            session = job.session
            reads = _NO_READS
            if session is None:
                reads = self._own_frame(turn, log, job)
            elif session.grant is not None and _is_wanted(job, session):
                try:
                    reads = self._process(turn, log, job, session, session.grant)
                except (ProtocolError, ValueRefused) as error:
                    refuse(turn, session, error.code, error)
            if log.fresh or log.guard_changed:
                self._dirty[log.key] = log
            if reads:
                turn.reads += log.await_reads(reads)
            else:
                log.waiting.popleft()

    def _own_frame(self, turn: Turn, log: TaskLog, job: Job) -> tuple[RelayRead, ...]:
        """Handle a frame of the relay itself."""
        if isinstance(job.frame, LeaseOver):
            return end_lease_of(turn, log, job.frame, job.known, self.keeper)
        if isinstance(job.frame, Order):
            self._settle(turn, log)
            purge_as_ordered(turn, log)
            return _NO_READS
        return end_as_due(turn, log, job.known, self._settings, self._entropy)

    # --- one frame ---------------------------------------------------------------------------------------------------

    def _process(self, turn: Turn, log: TaskLog, job: Job, session: Session, grant: Grant) -> tuple[RelayRead, ...]:
        """Handle the first frame in line; returns reads if it must wait for them and be handled again."""
        frame = job.frame
        match frame:
            case Push():
                return self._push(turn, log, job, session, frame, grant)
            case Hello():
                return self._hello(turn, log, job, session, frame)
            case Claim() | SettleDoubt() | HoldSlot():
                return petition(turn, log, session, frame, grant, job.known, self.keeper)
            case LiftBarrier():
                return self._lift(turn, log, job, session, frame, grant)
            case Unfollow():
                session.follows.pop(log.task, None)
                log.followers.pop(session.conn, None)
            case BlobWanted():
                want_blob(turn, log, session, frame)
            case DigestAt():
                self._pass_on(turn, log, frame, grant, session)
            case BlobPiece() | BlobAbsent() | SnapshotOffer() | SnapshotConfirmed() if not grant.role.may_write:
                self._counts["refused_role"] += 1
                if isinstance(frame, BlobPiece):
                    turn.reply(session, BlobMissing(log.task, frame.sha256))
            case Purge() if not grant.role.may_write:
                self._counts["refused_role"] += 1
                tell_heads(turn, log, session, {})
            case Purge():
                self._settle(turn, log)
                purge_as_asked(turn, log, session, frame)
            case BlobPiece() if log.purged is not None:
                turn.reply(session, BlobMissing(log.task, frame.sha256))
            case BlobPiece():
                return take_piece(turn, log, session, frame, job.known)
            case BlobAbsent():
                declare_absent(turn, log, frame)
            case SnapshotOffer():
                offer_snapshot(turn, log, session, frame)
            case SnapshotConfirmed():
                confirm_snapshot(turn, log, session, frame, self._settings)
            case _:
                raise ProtocolError("The frame is not one of a task.")
        return _NO_READS

    def _push(
        self, turn: Turn, log: TaskLog, job: Job, session: Session, push: Push, grant: Grant
    ) -> tuple[RelayRead, ...]:
        intake = Intake(turn, log, session, grant, job, self.keeper, self.quarantine, self._entropy)
        poisons = session.allowance.poisons
        intake.take(push)
        session.allowance.streams += intake.streams_begun
        follow = session.follows.get(log.task)
        if follow is not None and not push.recovered:
            for stored in intake.stored:
                follow.own[stored.name, stored.writer] = stored.writer_seq
        if intake.stored:
            self._counts["entries_stored"] += len(intake.stored)
        for answer in intake.answers:
            turn.reply(session, answer)
            if isinstance(answer, Refusal):
                self._counts[f"refused_{answer.code.value}"] += 1
        if session.allowance.poisons > max(poisons, self._settings.poisons_per_minute_max):
            self._end_poisoner(turn, session)
        if intake.rest:
            job.frame = Push(push.task, intake.rest, push.recovered)
            return intake.wanted()
        return _NO_READS

    def _end_poisoner(self, turn: Turn, session: Session) -> None:
        """End a session of a device that goes on sending what no device may read; it may come again later."""
        self._counts["refused_poison"] += 1
        sentence = "This device has sent too many entries that no device may read."
        turn.reply(session, Refused("poison", sentence, "It may come again in a minute; its program is broken.", False))
        turn.close(session, CLOSE_TRY_LATER, "poison")

    def _hello(self, turn: Turn, log: TaskLog, job: Job, session: Session, hello: Hello) -> tuple[RelayRead, ...]:
        positions = {position.name: position for position in hello.streams}
        reads = places_wanted(log, positions, job.known)
        if reads:
            return reads
        lost = lost_epochs(log, positions, job.known)
        if lost:
            reads = self.keeper.read(ReadKeys(*log.key), job.known)
            if reads:
                return reads
            self.keeper.lose(turn, log, lost)
            self._doubt_unknown(log.subject)
        if log.task not in session.follows and len(session.follows) >= self._settings.follows_max:
            raise ProtocolError(f"One connection follows at most {self._settings.follows_max} tasks.")
        say_hello(turn, log, session, positions, job.known, self._entropy, hello.number, bool(lost))
        return _NO_READS

    def _doubt_unknown(self, subject: str) -> None:
        """A log of the subject was lost: of what nothing is kept there may have been something, too."""
        for key, other in self._logs.items():
            if key[0] == subject and not other.known:
                other.guard = replace(other.guard, lost=True)

    def _lift(
        self, turn: Turn, log: TaskLog, job: Job, session: Session, frame: LiftBarrier, grant: Grant
    ) -> tuple[RelayRead, ...]:
        """Lift the subject's barrier, also in the tasks that are in memory."""
        before = len(turn.writes)
        reads = petition(turn, log, session, frame, grant, job.known, self.keeper)
        if len(turn.writes) > before:
            for key, other in self._logs.items():
                if key[0] == log.subject:
                    other.put_guard(replace(other.guard, lost=False, opened_version=other.steps.summary.version))
                    if other.guard_changed:
                        self._dirty[key] = other
        return reads

    def _pass_on(self, turn: Turn, log: TaskLog, digest: DigestAt, grant: Grant, session: Session) -> None:
        """Pass a digest to the other followers; one of another epoch, or from a reader, is dropped."""
        if len(digest.digest) != DIGEST_BYTES:
            raise ProtocolError(f"A digest has {DIGEST_BYTES} bytes.")
        stream = log.streams.get(log.names[digest.stream])
        if stream is None or digest.epoch != stream.epoch or not grant.role.may_write:
            return
        passed = DigestAt(digest.stream, digest.epoch, digest.relay_seq, digest.digest, grant.device)
        for other, _ in log.followers.values():
            if other is not session and other.has_room(len(digest.digest) + len(digest.stream)):
                turn.reply(other, passed)

    # --- the end of a turn -------------------------------------------------------------------------------------------

    def flush(self, turn: Turn) -> None:
        """Write and send what was stored in this turn."""
        while turn.errands:
            errand = turn.errands.pop(0)
            self._line_up(turn, self._loaded(turn, errand.subject, errand.task), Job(errand.session, errand.frame))
        for log in list(self._dirty.values()):
            self._settle(turn, log)

    def _settle(self, turn: Turn, log: TaskLog) -> None:
        """Write and send what was stored in one task so far."""
        self._dirty.pop(log.key, None)
        if log.fresh:
            deliver(turn, log)
            turn.writes.append(log.take_fresh(turn.now_ms))
            ask_for_snapshots(turn, log, self._settings)
        if log.guard_changed:
            turn.writes.append(log.take_guard())

    def end_leases(self, turn: Turn) -> None:
        """Have it ruled on what became of the attempts whose leases are over."""
        for subject, task, place in self.keeper.ring.over(turn.now_ms):
            turn.errands.append(Errand(subject, task, None, LeaseOver(place)))

    def leave(self, session: Session, now_ms: int) -> None:
        """Forget a connection's follows, and let the leases end that it kept."""
        self.keeper.ring.left(session.conn, now_ms)
        if session.grant is not None:
            for task in session.follows:
                log = self._logs.get((session.grant.subject, task))
                if log is not None:
                    log.followers.pop(session.conn, None)

    def forget_idle(self, now_ms: int) -> None:
        """Forget tasks that nobody follows, and keys, that nobody used for a while."""
        self.keeper.ring.forget_idle(now_ms)
        idle = [
            key
            for key, log in self._logs.items()
            if not log.followers and not log.waiting and now_ms - log.used_ms >= self._settings.idle_task_ms
        ]
        for key in idle:
            del self._logs[key]

    def drop(self, keys: Iterable[_Key]) -> list[Session]:
        """Forget tasks whose commit failed; returns the sessions that follow them or have a frame in their line."""
        self.keeper.ring.forget()
        sessions: list[Session] = []
        for key in keys:
            log = self._logs.pop(key, None)
            if log is not None:
                sessions += [session for session, _ in log.followers.values()]
                sessions += [job.session for job in log.waiting if job.session is not None]
        return sessions


def _is_wanted(job: Job, session: Session) -> bool:
    """Whether a frame is to be handled although its connection may be gone: what was pushed before is still taken."""
    return not session.closed and (not session.gone or isinstance(job.frame, (Push, Purge)))


def _key(answer: LookedUp | KeysRead | BlobRead | BlobHashed | NamedRead) -> _Key:
    asked = answer.asked if isinstance(answer, KeysRead) else answer
    return asked.subject, asked.task
