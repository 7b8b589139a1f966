"""The session with the relay: its states as one table.

Rules:
1. Nothing but `Login` is sent before `Welcome`.
2. `Welcome` starts syncing; the session is live once every followed task has reached the heads that it was told.
3. A link that ends is tried again, except after a final refusal: then only a new endpoint may log in.
4. A pair that is not in the table is a protocol error.
"""

from enum import StrEnum

from sync_core.entry import EntryKind
from sync_core.errors import ProtocolError, ReadOnly
from sync_core.parts import Role, roles_of
from sync_core.replica.changes import LinkState

__all__ = ["TRANSITIONS", "Session", "SessionEvent"]


class SessionEvent(StrEnum):
    """What happens to a session."""

    LINK_UP = "link up"
    LINK_DOWN = "link down"
    LINK_FAILED = "link failed"
    WELCOME = "welcome"
    REFUSED = "refused"
    REFUSED_FOR_GOOD = "refused for good"
    BEHIND = "behind"
    CAUGHT_UP = "caught up"


_OFFLINE, _CONNECTING, _SYNCING, _LIVE, _REFUSED = LinkState

TRANSITIONS: dict[tuple[LinkState, SessionEvent], LinkState] = {
    (_OFFLINE, SessionEvent.LINK_UP): _CONNECTING,
    (_OFFLINE, SessionEvent.LINK_FAILED): _OFFLINE,
    (_OFFLINE, SessionEvent.LINK_DOWN): _OFFLINE,
    (_CONNECTING, SessionEvent.LINK_UP): _CONNECTING,
    (_CONNECTING, SessionEvent.LINK_FAILED): _OFFLINE,
    (_CONNECTING, SessionEvent.LINK_DOWN): _OFFLINE,
    (_CONNECTING, SessionEvent.WELCOME): _SYNCING,
    (_CONNECTING, SessionEvent.REFUSED): _OFFLINE,
    (_CONNECTING, SessionEvent.REFUSED_FOR_GOOD): _REFUSED,
    (_SYNCING, SessionEvent.CAUGHT_UP): _LIVE,
    (_SYNCING, SessionEvent.WELCOME): _SYNCING,
    (_SYNCING, SessionEvent.LINK_DOWN): _CONNECTING,
    (_SYNCING, SessionEvent.REFUSED): _OFFLINE,
    (_SYNCING, SessionEvent.REFUSED_FOR_GOOD): _REFUSED,
    (_LIVE, SessionEvent.BEHIND): _SYNCING,
    (_LIVE, SessionEvent.WELCOME): _LIVE,
    (_LIVE, SessionEvent.LINK_DOWN): _CONNECTING,
    (_LIVE, SessionEvent.REFUSED): _OFFLINE,
    (_LIVE, SessionEvent.REFUSED_FOR_GOOD): _REFUSED,
    (_REFUSED, SessionEvent.LINK_UP): _REFUSED,
    (_REFUSED, SessionEvent.LINK_DOWN): _REFUSED,
    (_REFUSED, SessionEvent.LINK_FAILED): _REFUSED,
}


class Session:
    """Where the link stands, and what the relay said of this device."""

    def __init__(self, has_relay: bool) -> None:
        self.state = LinkState.CONNECTING if has_relay else LinkState.OFFLINE
        self.reason = "" if has_relay else "no relay is configured"
        self.role: Role | None = None
        self.relay_time_ms = 0
        self.authority = False
        self.logged_in = False
        self.login_at_ms = 0

    def on(self, event: SessionEvent, reason: str = "") -> None:
        """Move by the table; raises `ProtocolError` for a pair that is not in it."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise ProtocolError(f"A session that is {self.state.value} cannot take «{event.value}».")
        if self.state is not state or event not in (SessionEvent.LINK_DOWN, SessionEvent.LINK_UP):
            # A link that ends because of a refusal, or came about before it was read, does not hide why.
            self.reason = reason
        self.state = state
        self.logged_in = state in (LinkState.SYNCING, LinkState.LIVE)

    @property
    def is_live(self) -> bool:
        """Whether everything followed has reached the heads."""
        return self.state is LinkState.LIVE

    @property
    def may_write(self) -> bool:
        """Whether the relay, as far as it has said, lets this device write."""
        return self.role is None or self.role.may_write

    def check_may_write(self, kind: EntryKind) -> None:
        """Raise `ReadOnly` if the role that the relay gave this device may not write a kind of entry (see `parts`)."""
        self.check_role(roles_of(kind))

    def check_role(self, roles: frozenset[Role]) -> None:
        """Raise `ReadOnly` if the role that the relay gave this device is none of these.

        Before the relay has said anything, nothing is refused here: the relay judges what it is sent.
        """
        if self.role is not None and self.role not in roles:
            asked = "write" if not self.role.may_write else "do this"
            raise ReadOnly(
                f"The relay gave this device the role {self.role.value}.", hint=f"Log in with a token that may {asked}."
            )
