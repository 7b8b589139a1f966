"""Where a device is in a task, and what follows from it: a follow, the heads, or the finding that a log was lost.

For each stream the device names (epoch, cursor, chain at the cursor). With the relay's own epoch and a cursor beyond
the head, or another chain there, the log was lost or restored: the stream gets a new epoch, durably, before anything
is answered, and every follower hears of it (rule J). With another epoch, or none, the device starts from 0; an epoch
that was never heard of is that of a log that is lost too, whoever began the present one since. The state begins a new
epoch with whatever other stream was lost: a business version that was decided before does not count as decided since.
"""

from msgspec import structs

from server_relay.effects import LookUp, RelayRead
from server_relay.key_records import EPOCH_BYTES
from server_relay.records import StartStream, Tombstone
from server_relay.sessions import Follow, Session, Turn
from server_relay.streams import Known, StreamLog, TaskLog
from sync_core.frames import Heads, StreamPosition
from sync_core.ids import Entropy, StreamName

__all__ = ["lost_epochs", "places_wanted", "say_hello", "tell_heads"]

_Positions = dict[StreamName, StreamPosition]


def places_wanted(log: TaskLog, positions: _Positions, known: Known) -> tuple[RelayRead, ...]:
    """Return the read of the places that must be known before a Hello can be answered; none for a reader at the heads
    or at the start."""
    cursors = {
        name: _claimed_cursor(stream, positions.get(name)) for name, stream in log.streams.items() if stream.head
    }
    if not any(cursors.values()):
        return ()
    places = tuple(
        (name, cursor)
        for name, cursor in cursors.items()
        if cursor < log.streams[name].head and (name, cursor) not in known.places
    )
    return (LookUp(*log.key, (), places),) if places else ()


def lost_epochs(log: TaskLog, positions: _Positions, known: Known) -> tuple[bytes, ...]:
    """Return the epochs that end because a log that a device has read is newly found to be lost; what was emptied or
    purged on purpose is not."""
    gone = _gone(log, positions)
    epochs = [
        position.epoch
        for name, position in positions.items()
        if name not in gone
        and (
            _is_lost(log, position, known)
            or (position.cursor > 0 and position.epoch not in (log.stream(name).epoch, *log.guard.past))
        )
    ]
    if epochs and StreamName.STATE in log.streams:
        epochs.append(log.streams[StreamName.STATE].epoch)
    return tuple(dict.fromkeys(epochs))


def say_hello(
    turn: Turn,
    log: TaskLog,
    session: Session,
    positions: _Positions,
    known: Known,
    entropy: Entropy,
    number: int,
    loss_found: bool,
) -> None:
    """Answer the Hello of this number, all of whose pages came: begin lost logs anew, start the follow, tell the heads.

    `loss_found` says that it showed a loss that nobody knew of.
    """
    gone = _gone(log, positions)
    if log.purged is not None:
        # Nothing is lost that was deleted; a device that holds what was begun anew begins it here again.
        positions = {}
    positions = {name: position for name, position in positions.items() if name not in gone}
    lost = [name for name, position in positions.items() if _is_lost(log, position, known)]
    if loss_found and StreamName.STATE in log.streams and StreamName.STATE not in lost:
        lost.append(StreamName.STATE)
    for name in lost:
        stream = log.stream(name)
        stream.start_epoch(entropy(EPOCH_BYTES))
        log.streams[name] = stream
        turn.writes.append(StartStream(*log.key, name, stream.epoch))
    cursors = {name: _claimed_cursor(stream, positions.get(name)) for name, stream in log.streams.items()}
    follow = _follow(log, session, positions, cursors, known)
    session.follows[log.task] = follow
    log.followers[session.conn] = (session, follow)
    if lost:
        _tell_all(turn, log, session)
    tell_heads(turn, log, session, cursors, number, gone)
    if follow.sent_no < log.head_no and not follow.waits:
        session.fall_behind(log.task, follow)
        turn.pump[session.conn] = session


def tell_heads(
    turn: Turn,
    log: TaskLog,
    session: Session,
    cursors: dict[StreamName, int],
    answers: int = 0,
    gone: frozenset[StreamName] = frozenset(),
) -> None:
    """Send the heads of a task to a reader with these cursors; one that has read everything is told of snapshots that
    wait for being confirmed. `answers` is the number of the Hello that asked, `gone` are the streams of which
    it named a log that was emptied on purpose."""
    heads = []
    for name in sorted(log.streams.keys() | gone):
        stream = log.stream(name)
        head = stream.head_for(cursors.get(name, stream.head))
        heads.append(structs.replace(head, emptied=True) if name in gone else head)
    # Who names a log of before the purge hears of it also after the task was begun anew.
    tombstone = log.tombstone if StreamName.STATE in gone else log.purged
    purged = tombstone or Tombstone()
    turn.reply(session, Heads(log.task, log.known, tuple(heads), turn.now_ms, answers, purged.version, purged.reason))


def _tell_all(turn: Turn, log: TaskLog, session: Session) -> None:
    """Tell every other follower that a stream has a new epoch; nothing is sent to it before its next Hello."""
    for other, follow in log.followers.values():
        if other is not session:
            follow.waits = True
            tell_heads(turn, log, other, {})


def _gone(log: TaskLog, positions: _Positions) -> frozenset[StreamName]:
    """The streams of which the device names a log that was emptied or purged: there is nothing to go on from, and
    nothing that is to be brought back."""
    tombstone = log.tombstone
    if tombstone is None:
        return frozenset()
    return frozenset(name for name, position in positions.items() if position.epoch in tombstone.epochs)


def _claimed_cursor(stream: StreamLog, position: StreamPosition | None) -> int:
    return position.cursor if position is not None and position.epoch == stream.epoch else 0


def _is_lost(log: TaskLog, position: StreamPosition, known: Known) -> bool:
    """Whether what the device read under this epoch is not what the relay holds."""
    stream = log.streams.get(position.name)
    if stream is None:
        return position.cursor > 0
    if position.epoch != stream.epoch or position.cursor == 0:
        return False
    if position.cursor >= stream.head:
        return position.cursor > stream.head or position.chain != stream.chain
    return position.chain != known.places[position.name, position.cursor].chain


def _follow(
    log: TaskLog, session: Session, positions: _Positions, cursors: dict[StreamName, int], known: Known
) -> Follow:
    starts = [log.head_no]
    for name, cursor in cursors.items():
        if cursor < log.streams[name].head:
            place = known.places.get((name, cursor))
            starts.append(place.next_no - 1 if place is not None else 0)
    own = {
        (name, writer): number
        for name, position in positions.items()
        for writer, number in position.own
        if _is_own(log, name, writer, session)
    }
    waits = any(log.streams[name].needs_snapshot(cursor) for name, cursor in cursors.items())
    return Follow(min(starts), {name: cursor for name, cursor in cursors.items() if cursor}, own, waits)


def _is_own(log: TaskLog, name: StreamName, writer: int, session: Session) -> bool:
    row = log.stream(name).writers.get(writer)
    return row is None or session.grant is None or row.device == session.grant.device
