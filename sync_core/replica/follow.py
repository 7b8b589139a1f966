"""A task's standing with the relay in the present session."""

from sync_core.replica.core import ReplicaSettings
from sync_core.replica.patience import Patience

__all__ = ["Follow"]


class Follow:
    """What was asked of the relay for one task, what it answered, and since when nothing came.

    `known`: whether the relay has anything of the task; None while this session's heads are not told. `pushed`: whether
    something was sent since. `hello_number` counts the Hellos over all sessions. `hello_again`: one is due. `resend`:
    what waits is to be sent again with the next tick. `patience` is that
    with the answer to Hello. Times are of the driver's clock, in milliseconds.
    """

    __slots__ = (
        "gap_since_ms",
        "hello_again",
        "hello_at_ms",
        "hello_number",
        "known",
        "patience",
        "progress_at_ms",
        "pushed",
        "resend",
    )

    def __init__(self) -> None:
        self.known: bool | None = None
        self.pushed = False
        self.hello_number = 0
        self.hello_at_ms = 0
        self.hello_again = False
        self.resend = False
        self.progress_at_ms = 0
        self.gap_since_ms: int | None = None
        self.patience = Patience()

    def leave(self) -> None:
        """The session is over, or nothing of it counts any more."""
        self.known = None
        self.pushed = False
        self.patience.regain()

    def moved(self, now_ms: int) -> None:
        """Something of the task came."""
        self.progress_at_ms = now_ms
        self.patience.regain()

    def is_stuck(self, now_ms: int, settings: ReplicaSettings) -> bool:
        """Whether nothing of the task came for a while since Hello was said."""
        return self.patience.is_over(settings.hello_retry_ms, max(self.hello_at_ms, self.progress_at_ms), now_ms)

    def note_gap(self, has_gap: bool, now_ms: int) -> None:
        """Something waits for what should have come before it, or nothing does any more."""
        if not has_gap:
            self.gap_since_ms = None
        elif self.gap_since_ms is None:
            self.gap_since_ms = now_ms

    def ask_again_if_stuck(self, behind: bool, now_ms: int, settings: ReplicaSettings) -> None:
        """Have Hello said again where a gap does not close, or what the relay spoke of does not come."""
        gap = self.gap_since_ms is not None and now_ms - self.gap_since_ms >= settings.gap_retry_ms
        stuck = behind and self.is_stuck(now_ms, settings)
        if gap or stuck:
            if stuck:
                self.patience.lose()
            self.gap_since_ms = None
            self.progress_at_ms = now_ms
            self.hello_again = True
