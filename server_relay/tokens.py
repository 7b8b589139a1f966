"""Tokens: JWTs signed with a shared secret (HS256), or with keys of which the relay knows the public half (EdDSA).

A relay takes one of the two kinds, never both, and a token says nothing about how it is to be checked but which of the
relay's own keys to use (`kid`). Claims: `sub` (the principal), `device`, `subject`, `role`, `exp`, and optionally
`tasks`, `jti`, `iat`, `nbf`; any other claim may be a restriction that is not understood here, and is refused.
"""

import base64
import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from server_relay.admission import Admit, Grant, LoginRefused, Role, check_login
from server_relay.config import SECRET_BYTES_MIN
from server_relay.revocations import Revocations
from sync_core.errors import ValueRefused
from sync_core.frames import Login
from sync_core.ids import check_name, check_task

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = [
    "PUBLIC_KEYS_MAX",
    "TOKEN_TASKS_MAX",
    "Access",
    "TokenGate",
    "TokenKeys",
    "make_token",
    "read_public_keys",
    "read_signing_key",
]

PUBLIC_KEYS_MAX = 16
TOKEN_TASKS_MAX = 64
_TOKEN_CHARS_MAX = 16 * 1024
_PRINCIPAL_CHARS_MAX = 200
_SECRET_ID_BYTES = 12
_HEADER = frozenset({"alg", "typ", "kid"})
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)

TokenKeys: TypeAlias = "tuple[str, ...] | dict[str, Ed25519PublicKey]"
"""What tokens are checked with: secrets, any of which may have signed, or public keys by their id."""


class _Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    sub: str
    device: str
    subject: str
    role: Role
    exp: int
    tasks: tuple[str, ...] | None = None
    jti: str = ""
    iat: int | float | None = None
    nbf: int | float | None = None

    def check(self) -> None:
        """Raise `ValueRefused` for what no token of ours may hold."""
        check_name(self.device, "device")
        check_name(self.subject, "subject")
        if not 0 < len(self.sub) <= _PRINCIPAL_CHARS_MAX or not self.sub.isprintable():
            raise ValueRefused("The principal is not valid.", hint="Use 1 to 200 printable characters.")
        if len(self.jti) > _PRINCIPAL_CHARS_MAX or not self.jti.isprintable():
            raise ValueRefused("The token's id is not valid.", hint="Use at most 200 printable characters.")
        if self.tasks is not None:
            if len(self.tasks) > TOKEN_TASKS_MAX:
                raise ValueRefused(f"A token names at most {TOKEN_TASKS_MAX} tasks.", hint="Name what is above them.")
            for task in self.tasks:
                check_task(task)


# --- checking ---------------------------------------------------------------------------------------------------------


class TokenGate:
    """Admits logins whose token was signed with one of these secrets, or with the private half of one of these keys."""

    def __init__(self, keys: TokenKeys) -> None:
        # Here and not at the top, because an open relay needs no tokens; and not at the first login, which is too late.
        import jwt

        self._jwt = jwt
        self._algorithm = "EdDSA" if isinstance(keys, dict) else "HS256"
        by_id = keys if isinstance(keys, dict) else {_secret_id(secret): secret for secret in keys}
        self._keys: dict[str, str | Ed25519PublicKey] = {**by_id}

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of the keys that it knows; a secret's says nothing of it to who does not have it."""
        return frozenset(self._keys)

    def __call__(self, login: Login, now_ms: int) -> Grant:
        """Return the grant of a login; raises `LoginRefused`, with the same answer whatever does not fit."""
        check_login(login)
        found = self._claims(login.token)
        if found is None or (found[0].device, found[0].subject) != (login.device, login.subject):
            raise LoginRefused(
                "The token does not admit this device to this subject.", hint="Ask for a new token.", final=True
            )
        claims, key_id = found
        if claims.exp * 1000 <= now_ms:
            raise LoginRefused("The token has expired.", hint="Connect again with a fresh token.", final=False)
        if claims.nbf is not None and claims.nbf * 1000 > now_ms:
            raise LoginRefused("The token is not valid yet.", hint="Check the clock of who made it.", final=False)
        expires_ms = claims.exp * 1000
        return Grant(
            claims.sub, claims.device, claims.subject, claims.role, expires_ms, claims.tasks, claims.jti, key_id
        )

    def _claims(self, token: str) -> tuple[_Claims, str] | None:
        """Return what a token says and which key signed it, None if its signature or its shape is wrong."""
        if len(token) > _TOKEN_CHARS_MAX:
            return None
        # Older PyJWT lets a header nested too deep pass as RecursionError.
        with contextlib.suppress(self._jwt.PyJWTError, RecursionError):
            header = self._jwt.get_unverified_header(token)
            if not header.keys() <= _HEADER or header.get("typ", "JWT") != "JWT":
                return None
            named = header.get("kid")
            candidates = self._keys if named is None else {named: self._keys[named]} if named in self._keys else {}
            for key_id, key in candidates.items():
                claims = self._verified(token, key)
                if claims is not None:
                    return claims, key_id
        return None

    def _verified(self, token: str, key: "str | Ed25519PublicKey") -> _Claims | None:
        with contextlib.suppress(
            self._jwt.PyJWTError, msgspec.ValidationError, RecursionError, ValueRefused, OverflowError
        ):
            # Times are judged in relay time, and whose token it is by the claims themselves.
            said = self._jwt.decode(
                token,
                key,
                algorithms=[self._algorithm],
                options={"verify_exp": False, "verify_aud": False, "verify_iat": False, "verify_nbf": False},
            )
            claims = msgspec.convert(said, _Claims)
            claims.check()
            return claims
        return None


class Access(msgspec.Struct, frozen=True):
    """Who is let in at present: the gate, less what was revoked. `key_ids` are the keys whose tokens still stand."""

    gate: Admit
    revoked: Revocations = Revocations()
    key_ids: frozenset[str] | None = None

    def admit(self, login: Login, now_ms: int) -> Grant:
        """Return the grant of a login; raises `LoginRefused`."""
        grant = self.gate(login, now_ms)
        if self.revoked.revoke(grant):
            raise LoginRefused(
                "The device's access was withdrawn.", hint="Ask for a new token.", final=True, reason="revoked"
            )
        return grant

    def stands(self, grant: Grant) -> bool:
        """Return whether an earlier grant is still good, its expiry aside."""
        return not self.revoked.revoke(grant) and (self.key_ids is None or grant.key_id in self.key_ids)


# --- keys -------------------------------------------------------------------------------------------------------------


def read_public_keys(path: Path) -> "dict[str, Ed25519PublicKey]":
    """Return the Ed25519 public keys of a file, by id: PEM blocks one after the other, or a JWKS.

    A key without an id of its own has its RFC 7638 thumbprint. Raises `ValueRefused` for anything else.
    """
    data = _read(path, "The file of public keys")
    try:
        found = _of_jwks(data) if data.lstrip().startswith(b"{") else _of_pem(data)
    except ValueRefused:
        raise
    except Exception:
        # Whatever the libraries raise for broken keys: it is one answer to whoever wrote the file.
        found = []
    keys = dict(found)
    if not keys or len(keys) != len(found) or len(keys) > PUBLIC_KEYS_MAX:
        raise ValueRefused(
            "The file of public keys holds no keys that can be used.",
            hint=f"1 to {PUBLIC_KEYS_MAX} Ed25519 public keys with different ids, as PEM or as a JWKS.",
        )
    return keys


def read_signing_key(path: Path) -> "Ed25519PrivateKey":
    """Return the private key of a PEM file; raises `ValueRefused` for anything else."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path, "The private key's file")
    try:
        key = load_pem_private_key(data, None)
    except Exception:
        # Broken, of another kind, or locked with a pass phrase: one answer for all.
        raise _no_signing_key() from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_signing_key()
    return key


def _no_signing_key() -> ValueRefused:
    return ValueRefused(
        "The file holds no Ed25519 private key in clear.",
        hint="Make one with openssl genpkey -algorithm ed25519 -out key.pem",
    )


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise ValueRefused(f"{what} cannot be read.", hint="Check the path and its permissions.") from None


def _of_pem(data: bytes) -> "list[tuple[str, Ed25519PublicKey]]":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found: list[tuple[str, Ed25519PublicKey]] = []
    for block in _PEM.finditer(data):
        if b"PRIVATE" in block[1]:
            raise ValueRefused("The file of public keys holds a private one.", hint="The relay needs public keys only.")
        key = load_pem_public_key(block[0])
        if not isinstance(key, Ed25519PublicKey):
            return []
        found.append((_thumbprint(key), key))
    return found


def _of_jwks(data: bytes) -> "list[tuple[str, Ed25519PublicKey]]":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found: list[tuple[str, Ed25519PublicKey]] = []
    for listed in json.loads(data)["keys"]:
        if "d" in listed:
            raise ValueRefused("The file of public keys holds a private one.", hint="The relay needs public keys only.")
        if (listed["kty"], listed["crv"]) != ("OKP", "Ed25519"):
            return []
        raw = base64.urlsafe_b64decode(listed["x"] + "=" * (-len(listed["x"]) % 4))
        key = Ed25519PublicKey.from_public_bytes(raw)
        found.append((str(listed["kid"]) if "kid" in listed else _thumbprint(key), key))
    return found


def _thumbprint(key: "Ed25519PublicKey") -> str:
    """The id of a key by its content (RFC 7638)."""
    canonical = f'{{"crv":"Ed25519","kty":"OKP","x":"{_base64(key.public_bytes_raw())}"}}'
    return _base64(hashlib.sha256(canonical.encode()).digest())


def _secret_id(secret: str) -> str:
    return _base64(hashlib.sha256(secret.encode()).digest()[:_SECRET_ID_BYTES])


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# --- making -----------------------------------------------------------------------------------------------------------


def make_token(
    key: "str | Ed25519PrivateKey",
    *,
    principal: str,
    device: str,
    subject: str,
    role: Role,
    expires_s: int,
    tasks: tuple[str, ...] | None = None,
    token_id: str = "",
    key_id: str = "",
) -> str:
    """Return a token that is signed with a secret or a private key.

    `principal` is who signs in (1 to 200 characters), `device` and `subject` are names, `expires_s` is in seconds since
    1970, `tasks` are the only task keys that it admits to, each with all below it. `token_id` is what it is revoked by.
    `key_id` names the public key at the relay; by default its thumbprint. Raises `ValueRefused` for a bad name or a
    secret that no relay takes.
    """
    import jwt

    claims = _Claims(principal, device, subject, role, expires_s, tasks, token_id)
    claims.check()
    said = msgspec.to_builtins(claims)
    if isinstance(key, str):
        if len(key.encode()) < SECRET_BYTES_MIN:
            raise ValueRefused(f"The secret is shorter than {SECRET_BYTES_MIN} bytes, so no relay takes it.")
        return jwt.encode(said, key, algorithm="HS256")
    return jwt.encode(said, key, algorithm="EdDSA", headers={"kid": key_id or _thumbprint(key.public_key())})
