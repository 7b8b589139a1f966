"""How a task ends at the relay: cleaned up after it was completed, expired, or purged; and what then stands of it.

- *Clean-up*, `clean_up_grace_s` after the last entry of a completed task that nobody else wrote to meanwhile: the
  history's log is emptied, and blobs that no other entry and no snapshot names go. State, calls and hand-over stay.
- *Expiry*, `task_ttl_s` after the last entry, finished or not, is a purge by the relay itself.
- *Purge*, by a device or by the operator: everything goes but a tombstone, which names the logs that are gone. A device
  that read one of them drops what it holds instead of bringing it back (rule J). Only a live decision for a higher
  business version begins the task anew.

What stays is bounded, here and in a device's file alike. Of a cleaned task at most

    CLEANED_TASK_BYTES + entries + blobs that they name + snapshots + CLEANED_ENTRY_BYTES * rows

where the entries are those of state, hand-over and authority (on a device the updates among them are merged into one
row, so there it is snapshot + records), and rows counts entries, blobs, steps and writers: nothing for the length of
the conversation. Of a purged task at most `TOMBSTONE_BYTES`, whatever it held, and those for `tombstone_keep_s`.

The keys of guarded calls outlive the task by `key_keep_s`, counted from its purge or its clean-up; in a task that was
cleaned up the keys of its steps stay with its log, and only those of entities go. A key that runs or is in doubt never
goes.

Ages are counted in relay time (rule K), and nothing is looked for while that is suspended.
"""

from msgspec.structs import replace

from server_relay.config import RelaySettings
from server_relay.effects import ReadDue, ReadNamed, RelayRead
from server_relay.hello import tell_heads
from server_relay.key_records import EPOCH_BYTES
from server_relay.records import (
    AppendStored,
    DropBlob,
    EmptyStream,
    EndKeys,
    PassTime,
    PurgeTask,
    PutTombstone,
    StreamImage,
    TaskImage,
    TaskSummary,
    Tombstone,
)
from server_relay.sessions import Session, Turn
from server_relay.streams import Known, StreamLog, TaskLog
from sync_core.entry import CHAIN_START
from sync_core.errors import ProtocolError
from sync_core.frames import Purge
from sync_core.ids import Entropy, StreamName
from sync_core.limits import RECORD_NUMBER_MAX

__all__ = [
    "CLEANED_ENTRY_BYTES",
    "CLEANED_TASK_BYTES",
    "DEAD_EPOCHS_MAX",
    "TOMBSTONE_BYTES",
    "Sweeps",
    "end_as_due",
    "purge_as_asked",
    "purge_as_ordered",
]

DEAD_EPOCHS_MAX = 64
"""Logs that a tombstone names, the newest ones; a task has four at a time."""
TOMBSTONE_BYTES = 1024
CLEANED_TASK_BYTES = 2_048
CLEANED_ENTRY_BYTES = 256
"""Names, numbers, hashes and checksums beside an entry, a blob, a step or a writer."""

_TIME_EVERY_MS = 600_000
"""How often relay time is remembered, so that a restart can tell a jump of the clock from a quiet relay."""
_DUE_TASKS_MAX = 64
_EPOCHS_OF_PURGE_MAX = 16
_REASONS = frozenset({"purged", "expired", "completed"})


class Sweeps:
    """When to look for tasks whose time has come: every `sweep_every_ms`, and at once while more are waiting."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._next_ms: int | None = None
        self._told_ms = 0

    def tick(self, turn: Turn, *, suspended: bool) -> None:
        """Ask the mailbox what is due, if it is time to."""
        now_ms, settings = turn.now_ms, self._settings
        if suspended or self._next_ms is None:
            self._next_ms = now_ms + settings.sweep_every_ms
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + settings.sweep_every_ms
        if now_ms - self._told_ms >= _TIME_EVERY_MS:
            self._told_ms = now_ms
            keys_before_ms = max(0, now_ms - settings.key_keep_s * 1000)
            turn.writes.append(PassTime(now_ms, now_ms - settings.tombstone_keep_s * 1000, keys_before_ms))
        expire_before_ms = 0 if settings.task_ttl_s is None else now_ms - settings.task_ttl_s * 1000
        clean_before_ms = now_ms - settings.clean_up_grace_s * 1000
        turn.reads.append(ReadDue(max(0, expire_before_ms), max(0, clean_before_ms), _DUE_TASKS_MAX))

    def go_on(self) -> None:
        """There was more than one page: look again with the next tick."""
        self._next_ms = 0


# --- what is due ------------------------------------------------------------------------------------------------------


def end_as_due(
    turn: Turn, log: TaskLog, known: Known, settings: RelaySettings, entropy: Entropy
) -> tuple[RelayRead, ...]:
    """Expire a task, or clean it up, if that is due now; returns the read that must be answered first."""
    summary = log.steps.summary
    age_ms = turn.now_ms - summary.stored_at_ms
    if not log.known or log.fresh:
        return ()
    if settings.task_ttl_s is not None and age_ms > settings.task_ttl_s * 1000:
        _end(turn, log, summary.version, "completed" if summary.completed else "expired", ())
    elif _is_to_be_cleaned(summary) and age_ms > settings.clean_up_grace_s * 1000:
        if known.named is None:
            return (ReadNamed(*log.key, StreamName.HISTORY),)
        _clean_up(turn, log, known.named, entropy)
    return ()


def _is_to_be_cleaned(summary: TaskSummary) -> bool:
    return summary.completed and not summary.edited and not summary.cleaned


def _clean_up(turn: Turn, log: TaskLog, named: frozenset[str], entropy: Entropy) -> None:
    """Empty the history's log, and drop the blobs that nothing else names."""
    others = [stream for name, stream in log.streams.items() if name is not StreamName.HISTORY]
    snapshots = {ref.sha256 for stream in others for ref in (stream.usable, stream.offered) if ref is not None}
    for sha256 in sorted(log.blobs.keys() - named - snapshots):
        del log.blobs[sha256]
        turn.writes.append(DropBlob(*log.key, sha256))
    summary = log.steps.summary = replace(log.steps.summary, cleaned=True)
    turn.writes.append(EndKeys(*log.key, turn.now_ms, entities_only=True))
    history = log.streams.get(StreamName.HISTORY)
    if history is None:
        turn.writes.append(AppendStored(*log.key, (), (), (), (), summary))
        return
    log.tombstone = _tombstone(log, log.tombstone or Tombstone(), turn.now_ms, (history.epoch,))
    epoch = entropy(EPOCH_BYTES)
    image = StreamImage(StreamName.HISTORY, epoch, 0, CHAIN_START, 1, None, None, ())
    log.streams[StreamName.HISTORY] = StreamLog(log.task, image)
    turn.writes.append(EmptyStream(*log.key, StreamName.HISTORY, epoch, summary))
    turn.writes.append(PutTombstone(*log.key, log.tombstone))
    for session, follow in log.followers.values():
        follow.waits = True
        tell_heads(turn, log, session, {})


# --- purge ------------------------------------------------------------------------------------------------------------


def purge_as_asked(turn: Turn, log: TaskLog, session: Session, purge: Purge) -> None:
    """Purge a task, unless a higher business version stands; the session hears the heads either way.

    A tombstone that is brought back tells a relay that lost it. Raises `ProtocolError` for a frame out of bounds.
    """
    if not 1 <= purge.version <= RECORD_NUMBER_MAX or purge.reason not in _REASONS:
        raise ProtocolError("A purge names a business version and one of the known reasons.")
    if len(purge.epochs) > _EPOCHS_OF_PURGE_MAX or any(len(epoch) > EPOCH_BYTES for epoch in purge.epochs):
        raise ProtocolError("A purge names too many logs.")
    buried = log.purged.version if log.purged is not None else 0
    standing = log.steps.summary.version if log.known else buried + 1
    follows = session.conn in log.followers
    if purge.version >= standing:
        _end(turn, log, purge.version, purge.reason, purge.epochs)
    elif not log.known and set(purge.epochs) - set(log.tombstone.epochs if log.tombstone is not None else ()):
        log.tombstone = _tombstone(log, log.tombstone or Tombstone(), turn.now_ms, purge.epochs)
        turn.writes.append(PutTombstone(*log.key, log.tombstone))
    if not follows or purge.version < standing:
        tell_heads(turn, log, session, {})


def purge_as_ordered(turn: Turn, log: TaskLog) -> None:
    """Purge a task of which anything is stored, whatever its version; only a higher one begins it anew."""
    if log.known:
        _end(turn, log, max(log.steps.summary.version, 1), "purged", ())


def _end(turn: Turn, log: TaskLog, version: int, reason: str, epochs: tuple[bytes, ...]) -> None:
    """Delete all of a task but its tombstone; whoever follows it is told, and follows it no longer."""
    gone = (*epochs, *(stream.epoch for stream in log.streams.values()))
    tombstone = _tombstone(log, Tombstone(version, reason), turn.now_ms, gone)
    turn.writes += [PurgeTask(*log.key, tombstone), EndKeys(*log.key, turn.now_ms)]
    log.load(TaskImage(*log.key, summary=TaskSummary(stored_at_ms=turn.now_ms), tombstone=tombstone))
    followers = [session for session, _ in log.followers.values()]
    log.followers.clear()
    for session in followers:
        session.follows.pop(log.task, None)
        tell_heads(turn, log, session, {})


def _tombstone(log: TaskLog, tombstone: Tombstone, now_ms: int, epochs: tuple[bytes, ...]) -> Tombstone:
    """Return the tombstone with what the one that stands names, and these logs, as of now."""
    before = log.tombstone.epochs if log.tombstone is not None else ()
    dead = dict.fromkeys(epoch for epoch in (*before, *epochs) if epoch)
    return replace(tombstone, at_ms=now_ms, epochs=tuple(dead)[-DEAD_EPOCHS_MAX:])
