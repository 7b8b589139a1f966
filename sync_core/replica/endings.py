"""What a device does when a task ends: purged here or elsewhere, or its conversation cleaned up at the relay.

Rules:
1. What the relay emptied or purged on purpose is dropped here, never brought back (rule J is for what was lost). Only
   entries that were never sent are kept, set aside and told.
2. A purged task leaves a tombstone in this device's file. It is told to the relay first after each login, so that a
   relay that lost its own, or was restored from before, learns it before anything comes back.
3. Under a tombstone a task opens only with a higher business version. A device that holds a higher version of a purged
   task, in a log that the purge did not name, holds what was begun anew: it begins that at the relay again.
4. Tombstones age in relay time as last received (rule K). Beyond `TOMBSTONES_MAX` the oldest go that the relay knows.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from sync_core.entry import Entry, EntryKind, VersionDecision, encode_record
from sync_core.errors import Purged
from sync_core.frames import Heads, Purge, Push, RefusalCode
from sync_core.ids import StreamName, new_writer
from sync_core.limits import TOMBSTONE_KEEP_MS, TOMBSTONES_MAX
from sync_core.replica.changes import EntrySetAside, TaskPurged
from sync_core.replica.core import Core
from sync_core.replica.stream import StreamReplica
from sync_core.replica.task import TaskReplica
from sync_core.replica.writes import DropTask, DropTombstone, EmptyStream, PutTombstone, SetAside, Tombstone

__all__ = [
    "begin_again",
    "bury",
    "check_not_purged",
    "empty_log",
    "learn",
    "log_is_gone",
    "on_answer",
    "purged",
    "take_back",
    "tell_tombstones",
]

_SENTENCE = "It was never sent, and its log was emptied on purpose."


def purged(tombstone: Tombstone) -> Purged:
    """Return the error of whoever asks for a purged task."""
    why = {"expired": "It expired", "completed": "It was completed and its time was over"}.get(tombstone.reason)
    kept = f" {tombstone.set_aside} unsent entries are kept aside here." if tombstone.set_aside else ""
    told = why or "It was deleted everywhere on purpose"
    return Purged(f"The task {tombstone.task} is gone: {told}, at version {tombstone.version}.{kept}")


def check_not_purged(core: Core, task: str, version: int) -> None:
    """Raise `Purged` for a task that was deleted at this version or a higher one."""
    tombstone = core.tombstones.get(task)
    if tombstone is not None and version <= tombstone.version:
        raise purged(tombstone)


# --- a task is deleted ------------------------------------------------------------------------------------------------


def bury(task: TaskReplica, version: int, reason: str, *, told: bool) -> Tombstone:
    """Drop all of a task but what was never sent, leave a tombstone, and tell whoever has it open.

    The document is at hand. `told`: the relay knows already.
    """
    core = task.core
    unsent = tuple(task.outbox.unsent.values())
    _set_aside(task, unsent)
    epochs = tuple(dict.fromkeys(stream.epoch for stream in task.streams.values() if stream.epoch))
    aside = task.set_aside + len(unsent)
    tombstone = Tombstone(task.key, version, reason, epochs, aside, told, core.session.relay_time_ms)
    _put(core, tombstone)
    core.write(DropTask(task.key))
    task.tell((TaskPurged(task.key, version, reason, len(unsent)),))
    return tombstone


def learn(core: Core, frame: Heads) -> None:
    """A task of which nothing is here was purged: remember that too."""
    known = core.tombstones.get(frame.task)
    if known is None or known.version < frame.purged_version:
        epochs, aside = (known.epochs, known.set_aside) if known is not None else ((), 0)
        relay_time_ms = core.session.relay_time_ms
        _put(core, Tombstone(frame.task, frame.purged_version, frame.purged_for, epochs, aside, True, relay_time_ms))


def log_is_gone(frame: Heads) -> bool:
    """Whether the log of the task itself is gone on purpose, also where another one has taken its place since."""
    return any(told.emptied and told.name is StreamName.STATE for told in frame.streams)


def begin_again(task: TaskReplica) -> None:
    """The relay has a tombstone of a lower version than what is here: decide this version, live, before all else.

    The decision has a writer of its own, for the relay knows none of the others any more, and it names the log that is
    lost, so that it opens no key.
    """
    if not task.core.session.may_write:
        return
    assert task.document is not None
    epoch = task.stream(StreamName.STATE).epoch
    decision = VersionDecision(task.document.view().version, task.core.device, epoch)
    writer = new_writer(task.core.entropy)
    entry = task.append(StreamName.STATE, EntryKind.VERSION, encode_record(decision), writer=writer)
    task.document.record(entry)
    task.core.send(Push(task.key, (entry,)))
    task.follow.hello_again = True


# --- a log is emptied -------------------------------------------------------------------------------------------------


def empty_log(task: TaskReplica, stream: StreamReplica, epoch: bytes) -> None:
    """Drop what is held of a stream that the relay emptied; the document is at hand and read anew afterwards.

    The task is written under a fresh id from here on: numbers of the old log mean nothing in this one.
    """
    unsent = tuple(entry for entry in task.outbox.unsent.values() if entry.stream == stream.id)
    _set_aside(task, unsent)
    task.tell(tuple(EntrySetAside(task.key, e.stream, e.writer_seq, RefusalCode.TOMBSTONE.value) for e in unsent))
    task.outbox.pause()
    task.core.write(EmptyStream(stream.id, epoch))
    stream.reset()
    stream.enter(epoch)
    stream.head = 0
    stream.offer = stream.snapshot = stream.claim = None
    task.loaded.moved.discard(stream.name)
    task.writer = new_writer(task.core.entropy)
    task.agenda.to_compact = True
    task.reload()


def _set_aside(task: TaskReplica, entries: Iterable[Entry]) -> None:
    for entry in entries:
        code = RefusalCode.TOMBSTONE.value
        task.core.write(SetAside(entry.stream, entry.writer, entry.writer_seq, code, _SENTENCE))


# --- tombstones and the relay -----------------------------------------------------------------------------------------


def tell_tombstones(core: Core, held: Iterable[str]) -> None:
    """Tell the relay every tombstone, after a login, but those of tasks that were begun anew here (`held`)."""
    if not core.tombstones:
        return
    now_ms = core.session.relay_time_ms
    begun_anew = frozenset(held)
    for tombstone in list(core.tombstones.values()):
        if not tombstone.relay_time_ms:
            _put(core, replace(tombstone, relay_time_ms=now_ms))
        elif now_ms - tombstone.relay_time_ms > TOMBSTONE_KEEP_MS:
            _drop(core, tombstone.task)
            continue
        if not tombstone.told or tombstone.task not in begun_anew:
            epochs, reason = tombstone.epochs, tombstone.reason
            core.send(Purge(tombstone.task, tombstone.version, epochs, reason, recovered=tombstone.told))


def on_answer(core: Core, frame: Heads) -> None:
    """The relay told the heads of a task that was purged here: it knows now, or a higher version stands there. One that
    has nothing to say of the task does not admit this device to it: there is nothing more to tell."""
    tombstone = core.tombstones.get(frame.task)
    if tombstone is None or tombstone.told or frame.answers:
        return
    if frame.known and not frame.purged_version:
        _drop(core, tombstone.task)
    else:
        _put(core, replace(tombstone, told=True))


def take_back(core: Core, task: str) -> None:
    """A task was not deleted after all: the commit failed."""
    core.tombstones.pop(task, None)


def _put(core: Core, tombstone: Tombstone) -> None:
    core.tombstones.pop(tombstone.task, None)
    core.tombstones[tombstone.task] = tombstone
    core.write(PutTombstone(tombstone))
    told = [other.task for other in core.tombstones.values() if other.told]
    for task in told[: max(0, len(core.tombstones) - TOMBSTONES_MAX)]:
        _drop(core, task)


def _drop(core: Core, task: str) -> None:
    del core.tombstones[task]
    core.write(DropTombstone(task))
