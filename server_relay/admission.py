"""Who may take part: tokens, roles, and what a login is granted.

A token is a JWT (HS256) that names principal, device, subject, role and expiry. The grant that comes of it is bound to
the connection; every later frame is judged by the grant, and nothing that a frame says can widen it.
"""

import contextlib
from collections.abc import Callable

import msgspec

from sync_core.errors import Refused, ValueRefused
from sync_core.frames import WIRE_VERSION, Login
from sync_core.ids import AUTHORITY_DEVICE, check_name
from sync_core.parts import Role

__all__ = ["Admit", "Grant", "LoginRefused", "Role", "TokenGate", "admit_anyone", "make_token"]

_ALGORITHM = "HS256"


class Grant(msgspec.Struct, frozen=True):
    """What a connection was granted. `expires_ms` is relay time; None never ends (an open loopback relay)."""

    principal: str
    device: str
    subject: str
    role: Role
    expires_ms: int | None = None


class LoginRefused(Refused):
    """A login was refused. `final` says that trying again with the same credentials is useless."""

    def __init__(self, sentence: str, *, hint: str, final: bool, reason: str = "credentials") -> None:
        super().__init__(sentence, hint=hint)
        self.final = final
        self.reason = reason


Admit = Callable[[Login, int], Grant]
"""Judges a login at a relay time in milliseconds; raises `LoginRefused`."""


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    device: str
    subject: str
    role: Role
    exp: int


def make_token(secret: str, *, principal: str, device: str, subject: str, role: Role, expires_s: int) -> str:
    """Return a signed token.

    `principal` is who signs in (1 to 200 characters), `device` and `subject` are names, `expires_s` is in seconds since
    1970. Raises `ValueRefused` for a bad name.
    """
    import jwt

    check_name(device, "device")
    check_name(subject, "subject")
    if not 0 < len(principal) <= 200 or not principal.isprintable():
        raise ValueRefused("The principal is not valid.", hint="Use 1 to 200 printable characters.")
    claims = _Claims(principal, device, subject, role, expires_s)
    return jwt.encode(msgspec.to_builtins(claims), secret, algorithm=_ALGORITHM)


class TokenGate:
    """Admits logins whose token bears this secret's signature."""

    def __init__(self, secret: str) -> None:
        # Here and not at the top, because an open relay needs no tokens; and not at the first login, which is too late.
        import jwt

        self._jwt = jwt
        self._secret = secret

    def __call__(self, login: Login, now_ms: int) -> Grant:
        """Return the grant of a login; raises `LoginRefused`, with the same answer whatever does not fit."""
        _check_login(login)
        claims = self._claims(login.token)
        if claims is None or (claims.device, claims.subject) != (login.device, login.subject):
            raise LoginRefused(
                "The token does not admit this device to this subject.", hint="Ask for a new token.", final=True
            )
        if claims.exp * 1000 <= now_ms:
            raise LoginRefused("The token has expired.", hint="Connect again with a fresh token.", final=False)
        return Grant(claims.sub, claims.device, claims.subject, claims.role, claims.exp * 1000)

    def _claims(self, token: str) -> _Claims | None:
        """Return what a token says, None if its signature or its shape is wrong; expiry is judged in relay time."""
        # Older PyJWT lets a header nested too deep pass as RecursionError.
        with contextlib.suppress(self._jwt.PyJWTError, msgspec.ValidationError, RecursionError):
            said = self._jwt.decode(
                token,
                self._secret,
                [_ALGORITHM],
                options={"verify_exp": False, "verify_aud": False, "verify_iat": False, "verify_nbf": False},
            )
            return msgspec.convert(said, _Claims)
        return None


def admit_anyone(login: Login, now_ms: int) -> Grant:
    """Admit every login that is well formed, with all rights: an open loopback relay."""
    _check_login(login)
    return Grant(login.device, login.device, login.subject, Role.ADMIN)


def _check_login(login: Login) -> None:
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
