"""What a running relay can tell of itself: figures only, never a name, a key or a word of content."""

import msgspec

from server_relay.records import MailboxStats

__all__ = ["RelayMetrics"]


class RelayMetrics(msgspec.Struct, frozen=True):
    """A relay's figures at one moment.

    `counts` are since the start, by name: connections, entries_stored, refused_<reason>, commits_failed,
    stalled_readers. `clock_suspended` says that the wall clock jumped (rule K).
    """

    uptime_ms: int
    connections: int
    tasks_held: int
    turns: int
    commits: int
    counts: dict[str, int]
    clock_suspended: bool
    mailbox: MailboxStats
