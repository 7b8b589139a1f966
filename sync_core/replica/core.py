"""What the parts of a Replica share: who it is, what time it is told, and the effects of the event in hand."""

import msgspec

from sync_core.ids import Entropy, new_writer
from sync_core.replica.effects import Effect, SendFrame, Written
from sync_core.replica.session import Session
from sync_core.replica.writes import Tombstone, Write
from sync_core.wire import ClientFrame

__all__ = ["Core", "ReplicaSettings"]


class ReplicaSettings(msgspec.Struct, frozen=True):
    """How a Replica waits. All times in milliseconds of the clock that the driver hands in.

    `has_relay`: a relay is configured, so opening a task waits for it. `compact_entries`, `compact_bytes`: merge a
    task's stored updates into one row when so many, or so large ones, are found at load. `loaded_idle_tasks_max`:
    documents kept for tasks without a handle. `durable`: the store keeps what was committed; a volatile one makes no
    guarded call. `petition_timeout_ms`: how long the authority may take to answer.
    """

    has_relay: bool = False
    open_timeout_ms: int = 5_000
    login_timeout_ms: int = 5_000
    hello_retry_ms: int = 3_000
    gap_retry_ms: int = 1_000
    digest_after_ms: int = 1_000
    compact_entries: int = 1_000
    compact_bytes: int = 1024 * 1024
    loaded_idle_tasks_max: int = 16
    durable: bool = True
    petition_timeout_ms: int = 10_000


class Core:
    """The identity of this opening and the effects that are being collected. `tombstones` are by task, oldest first."""

    def __init__(self, subject: str, device: str, entropy: Entropy, settings: ReplicaSettings) -> None:
        self.subject = subject
        self.device = device
        self.entropy = entropy
        self.settings = settings
        self.session = Session(settings.has_relay)
        self.writer = new_writer(entropy)
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        self.tombstones: dict[str, Tombstone] = {}

    def take(self) -> list[Effect]:
        """Return what was collected and start anew."""
        effects, self.effects = self.effects, []
        return effects

    def emit(self, effect: Effect) -> None:
        """Add an effect."""
        self.effects.append(effect)

    def write(self, write: Write) -> None:
        """Make something durable with the next commit."""
        self.effects.append(Written(write))

    def send(self, frame: ClientFrame) -> None:
        """Send a frame, once what was written before it is durable."""
        self.effects.append(SendFrame(frame))
