"""Rows and writes of a mailbox for its contract suite."""

import hashlib

from server_relay.effects import LoadTask, TaskLoaded
from server_relay.mailbox.mailbox import Mailbox
from server_relay.records import (
    AppendStored,
    Cover,
    StartStream,
    StepRow,
    StoredEntry,
    StoredWriter,
    TaskImage,
    TaskSummary,
)
from sync_core.completion import GivenCompletion
from sync_core.ids import StreamName

__all__ = ["HISTORY", "STATE", "SUBJECT", "TASK", "WRITER", "append", "load", "start", "stored"]

SUBJECT, TASK = "acme", "expense/TRIP-118"
STATE, HISTORY = StreamName.STATE, StreamName.HISTORY
WRITER = 700_001
SUMMARY = TaskSummary(stored_at_ms=1_000)


def stored(
    stored_no: int, relay_seq: int, *, name: StreamName = STATE, writer: int = WRITER, seq: int = 0, size: int = 20
) -> StoredEntry:
    """Return a row whose hash, chain and bytes follow from its numbers."""
    text = f"{name}/{relay_seq}/{writer}".encode()
    digest = hashlib.sha256(text).digest()
    return StoredEntry(
        stored_no, name, relay_seq, writer, seq or relay_seq, digest, digest[:16], text.ljust(size, b".")
    )


def append(
    *entries: StoredEntry,
    subject: str = SUBJECT,
    task: str = TASK,
    writers: tuple[StoredWriter, ...] = (),
    covers: tuple[Cover, ...] = (),
    steps: tuple[StepRow, ...] = (),
    summary: TaskSummary = SUMMARY,
    completions: tuple[GivenCompletion, ...] = (),
) -> AppendStored:
    """Return the write that appends these entries."""
    return AppendStored(subject, task, entries, writers, covers, steps, summary, completions)


def start(
    name: StreamName = STATE, *, subject: str = SUBJECT, task: str = TASK, epoch: bytes = b"epoch-1"
) -> StartStream:
    return StartStream(subject, task, name, epoch)


async def load(mailbox: Mailbox, subject: str = SUBJECT, task: str = TASK) -> TaskImage:
    (answer,) = await mailbox.read([LoadTask(subject, task)])
    assert isinstance(answer, TaskLoaded)
    return answer.image
