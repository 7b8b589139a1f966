"""What a running relay can tell of itself: figures only, never a name, a key or a word of content."""

import msgspec

from server_relay.histogram import Histogram
from server_relay.records import MailboxStats

__all__ = ["Figures", "RelayMetrics"]


class Figures:
    """What the driver counts while it runs. Spans: how long a commit took, and from a push to its receipts."""

    def __init__(self) -> None:
        self.turns = self.commits = 0
        self.read_bytes = self.written_bytes = 0
        self.commit_spans = Histogram()
        self.receipt_spans = Histogram()


class RelayMetrics(msgspec.Struct, frozen=True):
    """A relay's figures at one moment.

    `counts` are since the start, by name: connections, entries_stored, refused_<reason>, claims_<verdict>,
    poison_<how it was found>, commits_failed, stalled_readers. `poison_kept` are hashes of poison.
    `sockets` are open, also those that are no connection yet; `sockets_cut_off` were
    too many. `waiting_events` wait for the conductor, `waiting_bytes` in the out-queues. `commit_spans` and
    `receipt_spans` are cumulative counts by the bounds of `histogram`, with the sum in seconds. `clock_suspended` says
    that the wall clock jumped (rule K), `access_trouble` that keys or revocations cannot be understood. `store_bytes`
    are measured now, `mailbox` was counted `mailbox_age_ms` ago.
    """

    uptime_ms: int
    connections: int
    sockets: int
    sockets_cut_off: int
    tasks_held: int
    poison_kept: int
    turns: int
    commits: int
    read_bytes: int
    written_bytes: int
    waiting_events: int
    waiting_bytes: int
    commit_spans: tuple[tuple[int, ...], float]
    receipt_spans: tuple[tuple[int, ...], float]
    counts: dict[str, int]
    clock_suspended: bool
    access_trouble: bool
    store_bytes: int
    mailbox: MailboxStats
    mailbox_age_ms: int
