"""One task as `MailboxState` holds it."""

from dataclasses import dataclass, field

from server_relay.key_records import TaskGuard
from server_relay.records import (
    BlobRow,
    Cover,
    StepRow,
    StoredEntry,
    StoredWriter,
    StreamImage,
    TaskSummary,
    Tombstone,
)
from sync_core.completion import GivenCompletion
from sync_core.ids import StreamName

__all__ = ["StreamState", "TaskState"]


@dataclass
class StreamState:
    """One stream's log; `numbers` are places by (writer, writer_seq)."""

    image: StreamImage
    places: list[StoredEntry] = field(default_factory=list)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    covers: list[Cover] = field(default_factory=list)
    writers: dict[int, StoredWriter] = field(default_factory=dict)

    def copy(self) -> "StreamState":
        """Return an independent copy."""
        return StreamState(self.image, list(self.places), dict(self.numbers), list(self.covers), dict(self.writers))


@dataclass
class TaskState:
    """One task, with the entries of all its streams in stored order."""

    log: list[StoredEntry] = field(default_factory=list)
    summary: TaskSummary = field(default_factory=TaskSummary)
    streams: dict[StreamName, StreamState] = field(default_factory=dict)
    steps: dict[tuple[int, str], StepRow] = field(default_factory=dict)
    blobs: dict[str, BlobRow] = field(default_factory=dict)
    bytes_of: dict[str, bytes] = field(default_factory=dict)
    completions: dict[tuple[int, int], GivenCompletion] = field(default_factory=dict)
    tombstone: Tombstone | None = None
    head_no: int = 0
    guard: TaskGuard = field(default_factory=TaskGuard)

    def copy(self) -> "TaskState":
        """Return an independent copy."""
        streams = {name: stream.copy() for name, stream in self.streams.items()}
        return TaskState(
            list(self.log),
            self.summary,
            streams,
            dict(self.steps),
            dict(self.blobs),
            dict(self.bytes_of),
            dict(self.completions),
            self.tombstone,
            self.head_no,
            self.guard,
        )
