"""Who may take part: roles, and what a login is granted.

The grant is bound to the connection; every later frame is judged by it, and nothing that a frame says can widen it.
"""

from collections.abc import Callable

import msgspec

from sync_core.errors import Refused, ValueRefused
from sync_core.frames import WIRE_VERSION, Login
from sync_core.ids import AUTHORITY_DEVICE, check_name
from sync_core.parts import Role

__all__ = ["Admit", "Grant", "LoginRefused", "Role", "admit_anyone", "check_login"]


_LIVES_MS_MAX = 2**53


class Grant(msgspec.Struct, frozen=True):
    """What a connection was granted.

    `expires_ms` is relay time; None never ends (an open loopback relay, where nobody was `authenticated`). `tasks` are
    the task keys that it may see, each with everything below it (`expense` admits `expense/TRIP-118`, not `expenses`);
    None for all of the subject. `token_id` and `key_id` say which token, signed with which key, admitted it.
    """

    principal: str
    device: str
    subject: str
    role: Role
    expires_ms: int | None = None
    tasks: tuple[str, ...] | None = None
    token_id: str = ""
    key_id: str = ""
    authenticated: bool = True

    def lives_ms(self, now_ms: int) -> int:
        """Return how much longer it lasts, at least 1 for one that ends and 0 for one that does not; a far end is told
        as near enough for any wire."""
        return 0 if self.expires_ms is None else min(max(self.expires_ms - now_ms, 1), _LIVES_MS_MAX)

    def admits(self, task: str) -> bool:
        """Return whether the connection may know of this task at all."""
        return self.tasks is None or any(task == key or task.startswith(f"{key}/") for key in self.tasks)


class LoginRefused(Refused):
    """A login was refused. `final` says that trying again with the same credentials is useless."""

    def __init__(self, sentence: str, *, hint: str, final: bool, reason: str = "credentials") -> None:
        super().__init__(sentence, hint=hint)
        self.final = final
        self.reason = reason


Admit = Callable[[Login, int], Grant]
"""Judges a login at a relay time in milliseconds; raises `LoginRefused`."""


def admit_anyone(login: Login, now_ms: int) -> Grant:
    """Admit every login that is well formed, with all rights: an open loopback relay."""
    check_login(login)
    return Grant(login.device, login.device, login.subject, Role.ADMIN, authenticated=False)


def check_login(login: Login) -> None:
    """Raise `LoginRefused` for another version of the wire, and for names that no device may have."""
    if login.wire_version != WIRE_VERSION:
        raise LoginRefused(
            f"This relay speaks version {WIRE_VERSION} of the wire.",
            hint="Bring endpoint and relay to the same version.",
            final=True,
            reason="wire_version",
        )
    try:
        check_name(login.subject, "subject")
        if check_name(login.device, "device") == AUTHORITY_DEVICE:
            raise ValueRefused("The device's name is the authority's own.", hint="Give the device another name.")
    except ValueRefused as error:
        raise LoginRefused(error.sentence, hint=error.hint, final=True, reason="name") from None
