"""Digests (rule B): devices compare what they hold at the same place; a difference is healed or shown, never hidden.

Once a stream is quiet, a device with nothing of its own above the cursor tells its digest. One that computes another at
that place reads its document anew. If it still differs, both say so: the digest goes back, once, to the other one.
"""

from sync_core.frames import DigestAt
from sync_core.replica.changes import TaskDiverged
from sync_core.replica.stream import DigestClaim, StreamReplica
from sync_core.replica.task import TaskReplica

__all__ = ["on_digest", "send_due", "settle_claim"]


def on_digest(task: TaskReplica, frame: DigestAt) -> None:
    """Another device tells its digest: compare at the same place; what is said of a later one is kept until then."""
    stream = task.stream_of(frame.stream)
    if frame.epoch != stream.epoch or frame.relay_seq < stream.cursor:
        return
    # The relay passes only places on that it has: if it is not here yet, something was lost on the way.
    stream.head = max(stream.head, frame.relay_seq)
    stream.claim = DigestClaim(frame.relay_seq, frame.digest, frame.device)
    if frame.relay_seq == stream.cursor:
        _compare(task, stream, _digest(task, stream))


def send_due(task: TaskReplica) -> None:
    """Tell the digests of the streams that have been quiet for a while, and compare them with what others told."""
    for stream in task.streams.values():
        due = stream.digest_due_at_ms
        if due is None or task.core.now_ms < due or stream.behind or not stream.cursor:
            continue
        digest = _digest(task, stream)
        if digest is not None:
            stream.digest_due_at_ms = None
            task.core.send(DigestAt(stream.id, stream.epoch, stream.cursor, digest))
            _compare(task, stream, digest)


def settle_claim(task: TaskReplica) -> None:
    """The document was read anew because of a claim: show the difference if there still is one, and say what is here.

    A device that is shown as diverged already gets no answer, else two of them would never stop.
    """
    name, task.agenda.doubted = task.agenda.doubted, None
    stream = task.stream(name) if name is not None else None
    if stream is None or stream.claim is None or stream.claim.relay_seq != stream.cursor:
        return
    digest, device = _digest(task, stream), stream.claim.device
    if digest is None:
        return
    if digest == stream.claim.digest:
        task.diverged_from -= {device}
    elif device in task.diverged_from:
        return
    else:
        task.diverged_from |= {device}
        task.tell((TaskDiverged(task.key, stream.id, device),))
    stream.claim = None
    task.core.send(DigestAt(stream.id, stream.epoch, stream.cursor, digest))


def _digest(task: TaskReplica, stream: StreamReplica) -> bytes | None:
    """The digest at the cursor; None while the live document holds own entries above it."""
    if task.document is None or len(task.outbox):
        return None
    return task.document.digest(stream.name, stream.writers)


def _compare(task: TaskReplica, stream: StreamReplica, digest: bytes | None) -> None:
    claim = stream.claim
    if claim is None or digest is None or claim.relay_seq != stream.cursor:
        return
    if claim.digest == digest:
        stream.claim = None
        task.diverged_from -= {claim.device}
    elif task.agenda.doubted is None:
        task.agenda.doubted = stream.name
        task.reload()
