"""What a connection hears of a task that its grant does not admit it to: the same as of a task that is not there.

Nothing is looked up for it, so neither the answer nor the time that it takes tells whether there is such a task.
"""

from server_relay.sessions import Session, Turn
from sync_core.frames import (
    BlobMissing,
    BlobPiece,
    BlobWanted,
    Heads,
    Hello,
    Purge,
    Push,
    Refusal,
    RefusalCode,
    SnapshotOffer,
)
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict, HoldSlot, LiftBarrier, Ruled, SettleDoubt
from sync_core.wire import ClientFrame

__all__ = ["keep_out"]

_SENTENCE = "This device may not write to this task."
_STREAM_CHARS_MAX = 256
"""More of a stream's id is not repeated in a refusal, which must fit a frame."""


def keep_out(turn: Turn, session: Session, task: str, frame: ClientFrame) -> None:
    """Answer a frame of a task that the session may not know of; what it asks for does not happen."""
    match frame:
        case Hello():
            turn.reply(session, Heads(task, False, (), turn.now_ms, frame.number))
        case SnapshotOffer() | Purge():
            turn.reply(session, Heads(task, False, (), turn.now_ms))
        case Push():
            for entry in frame.entries:
                place = (entry.stream[:_STREAM_CHARS_MAX], entry.writer, entry.writer_seq)
                turn.reply(session, Refusal(*place, RefusalCode.ROLE, _SENTENCE, 1))
        case BlobWanted() | BlobPiece():
            turn.reply(session, BlobMissing(task, frame.sha256))
        case Claim():
            turn.reply(session, ClaimAnswer(task, frame.request, ClaimVerdict.REFUSED, "", reason=_SENTENCE))
        case SettleDoubt() | HoldSlot() | LiftBarrier():
            turn.reply(session, Ruled(task, frame.request, RefusalCode.ROLE.value, _SENTENCE))
        case _:
            pass
