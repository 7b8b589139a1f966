"""The Relay: frames in, effects out. It stores and forwards entries and never looks at what they say.

`turn` takes all events that wait, and returns what they come to: writes first, then what each connection is sent, then
reads (see `effects`). What is stored in one turn is one commit, and goes to each reader in one go. The Relay holds the
tasks that somebody follows; anything else is read from the mailbox when it is asked for. It relies on one promise of
its driver: effects are carried out in the order of `effects`, and none of the later ones if the commit fails.

The subject is the grant's, never a frame's: no frame can name a key of another subject.
"""

from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from server_relay.admission import Admit, Grant, LoginRefused
from server_relay.allowance import Allowances
from server_relay.border import keep_out
from server_relay.config import RelaySettings
from server_relay.effects import (
    AccessChanged,
    BlobHashed,
    BlobRead,
    Close,
    CommitFailed,
    Connected,
    Disconnected,
    Drained,
    DueRead,
    KeysRead,
    ListingRead,
    LookedUp,
    Malformed,
    NamedRead,
    PieceRead,
    PurgeOrdered,
    ReadDue,
    ReadListing,
    ReadPiece,
    ReadTail,
    Received,
    RelayEffect,
    RelayEvent,
    Send,
    TailRead,
    TaskLoaded,
    Tick,
    Written,
)
from server_relay.fanout import CATCH_UP_ROOM_BYTES, pump
from server_relay.lifetimes import Sweeps
from server_relay.listings import listing_frame
from server_relay.notes import Note
from server_relay.quarantine import Quarantine
from server_relay.records import PassTime
from server_relay.sessions import CLOSE_POLICY, CLOSE_TRY_LATER, REQUESTS_MAX, Session, Turn
from server_relay.tasks import TaskFrame, Tasks, refuse
from sync_core.errors import ProtocolError, SegueError, ValueRefused
from sync_core.frames import (
    WIRE_VERSION,
    BlobPiece,
    DigestAt,
    Hello,
    ListTasks,
    Login,
    Push,
    Refused,
    SnapshotConfirmed,
    SnapshotOffer,
    StreamPosition,
    Welcome,
)
from sync_core.ids import Entropy, check_task, split_stream
from sync_core.limits import HELLO_OWN_WRITERS_MAX
from sync_core.wire import ClientFrame

__all__ = ["HELLO_POSITIONS_MAX", "Relay"]

HELLO_POSITIONS_MAX = 64
"""Positions, over all pages of the Hellos under way, each with at most `HELLO_OWN_WRITERS_MAX` writers; also how many
Hellos may be under way."""

_NOTES_MAX = 1_000


class Relay:
    """One relay. `admit` judges logins, `entropy` names new epochs; times are relay time in milliseconds (rule K).

    `durable` says that what its mailbox committed survives: else nothing is ruled on. `counts` are figures since the
    start, by name; `notes` what happened and was not taken out yet.
    """

    def __init__(self, admit: Admit, entropy: Entropy, settings: RelaySettings, *, durable: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.notes: deque[Note] = deque(maxlen=_NOTES_MAX)
        self._admit = admit
        self._settings = settings
        self._sessions: dict[int, Session] = {}
        self._addresses: Counter[str] = Counter()
        self._strangers = 0
        self._allowances = Allowances()
        self._tasks = Tasks(settings, entropy, self.counts, durable=durable)
        self._sweeps = Sweeps(settings)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._sessions)

    @property
    def quarantine(self) -> Quarantine:
        """The poison that is known."""
        return self._tasks.quarantine

    @property
    def tasks_held(self) -> int:
        """How many tasks are in memory."""
        return len(self._tasks)

    def handle(self, event: RelayEvent, now_ms: int) -> list[RelayEffect]:
        """Take one event and return its effects."""
        return self.turn((event,), now_ms)

    def turn(self, events: Sequence[RelayEvent], now_ms: int) -> list[RelayEffect]:
        """Take all events that wait, in order, and return their effects."""
        turn = Turn(now_ms)
        self._tasks.keeper.ring.started(now_ms)
        for event in events:
            self._take(turn, event)
        self._tasks.flush(turn)
        for session in turn.pump.values():
            pump(turn, session)
        for close in turn.closes:
            self._note("closed", close.conn, code=close.code, reason=close.reason)
            self._forget(close.conn, now_ms)
        return turn.effects()

    def _take(self, turn: Turn, event: RelayEvent) -> None:
        if isinstance(event, Received):
            session = self._sessions.get(event.conn)
            if session is not None and not session.closed:
                self._receive(turn, session, event.frame)
                self._spend(turn, session, event.frame, event.size_bytes)
            return
        match event:
            case TaskLoaded() | LookedUp() | KeysRead() | BlobRead() | BlobHashed() | NamedRead():
                self._tasks.answer(turn, event)
            case TailRead():
                if event.conn in self._sessions:
                    self._tasks.tail(turn, self._sessions[event.conn], event)
            case DueRead(keys, more):
                self._tasks.sweep(turn, keys)
                if more:
                    self._sweeps.go_on()
            case PurgeOrdered(subject, task):
                self._tasks.purge(turn, subject, task)
            case Drained(conn, out_bytes):
                self._drained(turn, conn, out_bytes)
            case PieceRead() | ListingRead():
                self._requested(turn, event)
            case Connected(conn, address):
                self._connect(turn, conn, address)
            case Disconnected(conn):
                if conn in self._sessions:
                    self._note("left", conn)
                self._forget(conn, turn.now_ms)
            case Malformed(conn, sentence, reason):
                if conn in self._sessions:
                    self._refuse(turn, self._sessions[conn], ProtocolError(sentence), reason)
            case AccessChanged():
                # Who is shut out now still gets the receipts of what was stored of it.
                self._tasks.flush(turn)
                self._access_changed(turn, event)
            case Tick():
                self._tasks.flush(turn)
                self._tick(turn)
                self._sweeps.tick(turn, suspended=event.suspended)
            case CommitFailed():
                self._commit_failed(turn, event)

    # --- connections -------------------------------------------------------------------------------------------------

    def _connect(self, turn: Turn, conn: int, address: str) -> None:
        settings = self._settings
        session = self._sessions[conn] = Session(conn, address, turn.now_ms)
        self._addresses[address] += 1
        self._strangers += 1
        self.counts["connections"] += 1
        if (
            len(self._sessions) > settings.connections_max
            or self._addresses[address] > settings.connections_per_address_max
            or self._strangers > settings.connections_before_login_max
        ):
            self.counts["refused_connections"] += 1
            turn.close(session, CLOSE_TRY_LATER, "too many connections")

    def _forget(self, conn: int, now_ms: int) -> None:
        session = self._sessions.pop(conn, None)
        if session is None:
            return
        session.gone = True
        self._tasks.leave(session, now_ms)
        self._addresses[session.address] -= 1
        if not self._addresses[session.address]:
            del self._addresses[session.address]
        if session.grant is None:
            self._strangers -= 1
        session.allowance.connections -= 1

    def _note(self, event: str, conn: int, **fields: str | int) -> None:
        self.notes.append(Note(event, {"conn": conn, **fields}))

    def _drained(self, turn: Turn, conn: int, out_bytes: int) -> None:
        session = self._sessions.get(conn)
        if session is not None:
            session.drained(out_bytes, turn.now_ms)
            if session.behind or session.requests:
                turn.pump[conn] = session

    def _refuse(self, turn: Turn, session: Session, error: SegueError, reason: str = "protocol") -> None:
        self.counts[f"refused_{reason}"] += 1
        refuse(turn, session, error.code, error)

    # --- frames ------------------------------------------------------------------------------------------------------

    def _receive(self, turn: Turn, session: Session, frame: ClientFrame) -> None:
        grant = session.grant
        try:
            if isinstance(frame, Login):
                self._login(turn, session, frame)
            elif grant is None:
                raise ProtocolError("The first frame of a session is its login.")
            elif isinstance(frame, Push):
                self._submit(turn, session, grant, frame.task, frame)
            elif isinstance(frame, ListTasks):
                if len(session.requests) >= REQUESTS_MAX:
                    raise ProtocolError(f"More than {REQUESTS_MAX} requests wait on one connection.")
                session.requests.append(frame)
                turn.pump[session.conn] = session
            elif isinstance(frame, Hello):
                hello = _whole_hello(session, frame)
                if hello is not None:
                    self._submit(turn, session, grant, hello.task, hello)
            elif isinstance(frame, (DigestAt, SnapshotOffer, SnapshotConfirmed)):
                task, _ = split_stream(frame.stream)
                self._submit(turn, session, grant, task, frame)
            else:
                self._submit(turn, session, grant, frame.task, frame)
        except (ProtocolError, ValueRefused) as error:
            self._refuse(turn, session, error)

    def _spend(self, turn: Turn, session: Session, frame: ClientFrame, size_bytes: int) -> None:
        """Count what a device sends; one that sends more in a minute than it may is to come again later."""
        if session.closed or session.grant is None:
            return
        entries = len(frame.entries) if isinstance(frame, Push) else 0
        exceeded = session.allowance.spend(self._settings, turn.now_ms, entries, size_bytes)
        if exceeded:
            self.counts["refused_limit"] += 1
            self._tasks.flush(turn)
            sentence = f"This device has sent too many {exceeded} in a minute."
            turn.reply(session, Refused("limit", sentence, "It may come again in a minute.", False))
            turn.close(session, CLOSE_TRY_LATER, "limit")

    def _submit(self, turn: Turn, session: Session, grant: Grant, task: str, frame: TaskFrame) -> None:
        if grant.admits(task):
            self._tasks.submit(turn, session, grant.subject, task, frame)
        else:
            self.counts["refused_tasks"] += 1
            keep_out(turn, session, check_task(task), frame)

    def _login(self, turn: Turn, session: Session, login: Login) -> None:
        """Open the session, or renew its grant with a fresh token of the same device."""
        before = session.grant
        try:
            grant = self._admit(login, turn.now_ms)
        except LoginRefused as error:
            self.counts["refused_logins"] += 1
            self._note("login_refused", session.conn, address=session.address, reason=error.reason)
            refuse(turn, session, error.reason, error, error.final)
            return
        if before is None:
            self._strangers -= 1
            session.allowance = self._allowances.of(grant, turn.now_ms)
        elif _who(before) != _who(grant):
            raise ProtocolError("A session is renewed by the device that opened it, and for the same tasks.")
        session.grant = grant
        who = {"subject": grant.subject, "device": grant.device, "principal": grant.principal, "role": grant.role.value}
        self._note("login" if before is None else "renewed", session.conn, address=session.address, **who)
        rules = self._tasks.keeper.enabled
        lives_ms = grant.lives_ms(turn.now_ms)
        turn.reply(session, Welcome(WIRE_VERSION, turn.now_ms, grant.role.value, grant.principal, rules, lives_ms))

    def _requested(self, turn: Turn, answer: PieceRead | ListingRead) -> None:
        """Answer a request for which something was read."""
        session = self._sessions.get(answer.conn)
        if session is None:
            return
        session.reading = None
        turn.pump[session.conn] = session
        if isinstance(answer, ListingRead):
            turn.reply(session, listing_frame(answer))
        else:
            turn.reply(session, BlobPiece(answer.task, answer.sha256, answer.offset, answer.size_bytes, answer.data))

    # --- time and trouble --------------------------------------------------------------------------------------------

    def _tick(self, turn: Turn) -> None:
        settings = self._settings
        for session in self._sessions.values():
            grant = session.grant
            if grant is None:
                if turn.now_ms - session.since_ms >= settings.login_timeout_ms:
                    self._refuse(turn, session, ProtocolError("No login came in time."))
            elif grant.expires_ms is not None and grant.expires_ms <= turn.now_ms:
                refuse(turn, session, "credentials", ProtocolError("The token has expired."))
            if (
                session.out_bytes > CATCH_UP_ROOM_BYTES
                and turn.now_ms - session.progress_ms >= settings.stalled_reader_ms
            ):
                self.counts["stalled_readers"] += 1
                turn.close(session, CLOSE_POLICY, "does not read")
        for poison in self._tasks.quarantine.take_news():
            fields = {"sha256": poison.sha256, "kind": poison.kind, "subject": poison.subject, "device": poison.device}
            self.notes.append(Note("poison", {**fields, "bytes": poison.size_bytes}, "warning"))
        self._tasks.end_leases(turn)
        self._tasks.forget_idle(turn.now_ms)
        self._allowances.forget(turn.now_ms)

    def _access_changed(self, turn: Turn, changed: AccessChanged) -> None:
        """Judge logins anew, and end for good the connections whose grant was withdrawn."""
        self._admit = changed.admit
        for session in self._sessions.values():
            if session.grant is not None and not session.closed and not changed.stands(session.grant):
                self.counts["refused_revoked"] += 1
                refuse(turn, session, "revoked", ProtocolError("The device's access was withdrawn."), final=True)

    def _commit_failed(self, turn: Turn, failed: CommitFailed) -> None:
        """Forget what was held of the touched tasks, and close every connection that had a part in it: it comes again
        and finds what is durable."""
        self.counts["commits_failed"] += 1
        keys: set[tuple[str, str]] = set()
        conns: set[int] = set()
        for effect in failed.effects:
            match effect:
                case Written(write):
                    if not isinstance(write, PassTime):
                        keys.add((write.subject, write.task))
                case ReadDue():
                    pass
                case Send() | Close() | ReadListing():
                    conns.add(effect.conn)
                case ReadTail() | ReadPiece():
                    conns.add(effect.conn)
                    keys.add((effect.subject, effect.task))
                case _:
                    keys.add((effect.subject, effect.task))
        sessions = [self._sessions[conn] for conn in sorted(conns) if conn in self._sessions]
        for session in sessions + self._tasks.drop(keys):
            turn.close(session, CLOSE_TRY_LATER, failed.error.code)


def _who(grant: Grant) -> tuple[str, str, str, tuple[str, ...] | None]:
    """What stays the same when a grant is renewed."""
    return grant.principal, grant.device, grant.subject, grant.tasks


def _whole_hello(session: Session, hello: Hello) -> Hello | None:
    """Collect the pages of a Hello; returns the whole once its last page came."""
    check_task(hello.task)
    pages = session.pages.setdefault(hello.task, [])
    pages += hello.streams
    if max(len(session.pages), sum(map(len, session.pages.values()))) > HELLO_POSITIONS_MAX:
        raise ProtocolError("A Hello has too many pages.")
    for position in hello.streams:
        if len(position.own) > HELLO_OWN_WRITERS_MAX or position.cursor < 0:
            raise ProtocolError("A position of a Hello is out of bounds.")
    if hello.more:
        return None
    del session.pages[hello.task]
    whole: dict[str, StreamPosition] = {}
    for position in pages:
        before = whole.get(position.name)
        own = (before.own if before is not None else ()) + position.own
        whole[position.name] = msgspec.structs.replace(position, own=own)
    return Hello(hello.task, tuple(whole.values()), number=hello.number)
