"""Tokens of both kinds: made, checked, refused; revoked; and what an open relay asks for."""

import base64
import hmac
import json
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed448
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from server_relay.admission import Grant, LoginRefused, Role, admit_anyone
from server_relay.revocations import parse_revocations
from server_relay.tokens import Access, TokenGate, make_token, read_public_keys, read_signing_key
from sync_core.errors import ValueRefused
from sync_core.frames import WIRE_VERSION, Login

SECRET = "a secret of more than thirty-two bytes"
NOW_MS = 1_790_000_000_000
LATER_S = NOW_MS // 1000 + 60


def token(key: str | Ed25519PrivateKey = SECRET, **changes: object) -> str:
    values = {"principal": "anna", "device": "phone", "subject": "acme", "role": Role.WRITE, "expires_s": LATER_S}
    return make_token(key, **(values | changes))  # type: ignore[arg-type]


CLAIMS = {"sub": "anna", "device": "phone", "subject": "acme", "role": "write", "exp": LATER_S}


def login(text: str, subject: str = "acme", device: str = "phone", version: int = WIRE_VERSION) -> Login:
    return Login(version, subject, device, text)


def refused(gate: TokenGate, attempt: Login, now_ms: int = NOW_MS) -> LoginRefused:
    with pytest.raises(LoginRefused) as caught:
        gate(attempt, now_ms)
    return caught.value


@pytest.fixture
def gate() -> TokenGate:
    return TokenGate((SECRET,))


@pytest.mark.parametrize("role", list(Role))
def test_a_token_grants_what_it_names(gate: TokenGate, role: Role) -> None:
    (key_id,) = gate.key_ids
    assert SECRET not in key_id
    assert gate(login(token(role=role)), NOW_MS) == Grant("anna", "phone", "acme", role, LATER_S * 1000, key_id=key_id)


def test_only_readers_may_not_write() -> None:
    assert [role for role in Role if not role.may_write] == [Role.READ]


def test_an_expired_token_may_be_replaced(gate: TokenGate) -> None:
    error = refused(gate, login(token()), LATER_S * 1000)
    assert (error.reason, error.final) == ("credentials", False)


def forged(algorithm: str) -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in (
            {"alg": algorithm, "typ": "JWT"},
            {"sub": "anna", "device": "phone", "subject": "acme", "role": "admin", "exp": LATER_S},
        )
    ]
    return ".".join([*parts, ""])


@pytest.mark.parametrize(
    "attempt",
    [
        login(token("another secret of thirty-two bytes and more")),
        login(forged("none")),
        login(forged("HS256")),
        login(""),
        login("no token at all"),
        login(base64.urlsafe_b64encode(b"[" * 99_999).decode() + ".e30.AA"),
        login(token()[:-2]),
        login(token(), subject="other"),
        login(token(), device="desktop"),
        login(token(subject="other")),
        login(jwt.encode({"sub": "anna"}, SECRET, algorithm="HS256")),
        login(jwt.encode({"sub": "anna", "device": "phone", "subject": "acme", "role": "god", "exp": LATER_S}, SECRET)),
        login(jwt.encode({key: CLAIMS[key] for key in CLAIMS if key != "exp"}, SECRET)),
        login(jwt.encode(CLAIMS | {"exp": LATER_S + 0.5}, SECRET)),
        login(jwt.encode(CLAIMS | {"aud": "another service"}, SECRET)),
        login(jwt.encode(CLAIMS | {"scope": "nothing"}, SECRET)),
        login(jwt.encode(CLAIMS | {"sub": "a\nb"}, SECRET)),
        login(jwt.encode(CLAIMS | {"tasks": ["expense/"]}, SECRET)),
        login(jwt.encode(CLAIMS | {"tasks": ["t"] * 65}, SECRET)),
        login(jwt.encode(CLAIMS | {"jti": "x" * 16_000}, SECRET)),
        login(jwt.encode(CLAIMS, SECRET * 2, algorithm="HS512")),
        login(jwt.encode(CLAIMS, SECRET, headers={"jku": "https://evil.example/keys"})),
        login(jwt.encode(CLAIMS, SECRET, headers={"kid": "other"})),
        login(token(Ed25519PrivateKey.generate())),
    ],
)
def test_every_token_that_does_not_fit_gets_the_same_final_answer(gate: TokenGate, attempt: Login) -> None:
    error, wrong = refused(gate, attempt), refused(gate, login("wrong"))
    assert (error.sentence, error.hint, error.reason, error.final) == (wrong.sentence, wrong.hint, wrong.reason, True)


def test_an_expired_token_of_another_secret_is_not_told_to_have_expired(gate: TokenGate) -> None:
    assert refused(gate, login(token("another secret of thirty-two bytes and more")), LATER_S * 2000).final


def test_no_error_holds_the_token(gate: TokenGate) -> None:
    for attempt in (login("secret-token"), login(token(), subject="other")):
        assert attempt.token not in str(refused(gate, attempt))


@pytest.mark.parametrize("changes", [{"device": "a/b"}, {"subject": ""}, {"principal": ""}, {"principal": "a\nb"}])
def test_a_token_of_bad_names_is_not_made(changes: dict[str, str]) -> None:
    with pytest.raises(ValueRefused):
        token(**changes)


def test_an_open_relay_admits_well_formed_logins() -> None:
    assert admit_anyone(login(""), NOW_MS) == Grant("phone", "phone", "acme", Role.ADMIN, authenticated=False)


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (login("", version=WIRE_VERSION + 1), "wire_version"),
        (login("", version=0), "wire_version"),
        (login("", subject="../x"), "name"),
        (login("", device="con"), "name"),
    ],
)
def test_another_version_and_bad_names_are_refused_for_good(gate: TokenGate, attempt: Login, reason: str) -> None:
    with pytest.raises(LoginRefused) as caught:
        admit_anyone(attempt, NOW_MS)
    assert (caught.value.reason, caught.value.final) == (reason, True)
    assert refused(gate, attempt).reason == reason


def test_a_token_may_name_tasks_an_id_and_a_first_moment(gate: TokenGate) -> None:
    grant = gate(login(token(tasks=("expense", "a/b"), token_id="t-1")), NOW_MS)
    assert (grant.tasks, grant.token_id) == (("expense", "a/b"), "t-1")
    later = jwt.encode(CLAIMS | {"nbf": NOW_MS // 1000 + 1, "iat": 5}, SECRET)
    assert not refused(gate, login(later)).final
    assert gate(login(later), NOW_MS + 1000).principal == "anna"


@pytest.mark.parametrize(
    ("tasks", "task", "admitted"),
    [
        (None, "anything", True),
        ((), "anything", False),
        (("expense",), "expense", True),
        (("expense",), "expense/TRIP-118/x", True),
        (("expense",), "expenses", False),
        (("expense",), "Expense", False),
        (("expense/TRIP-1",), "expense/TRIP-118", False),
        (("expense/TRIP-1",), "expense", False),
        (("a", "b"), "b/c", True),
    ],
)
def test_a_grant_admits_to_tasks_as_whole_keys(tasks: tuple[str, ...] | None, task: str, admitted: bool) -> None:
    assert Grant("anna", "phone", "acme", Role.READ, tasks=tasks).admits(task) is admitted


# --- public keys ------------------------------------------------------------------------------------------------------


def pem(key: Ed25519PrivateKey | ed448.Ed448PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def jwk(key: Ed25519PrivateKey, **more: str) -> dict[str, str]:
    x = base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "x": x, **more}


OLD, NEW = Ed25519PrivateKey.from_private_bytes(bytes(32)), Ed25519PrivateKey.from_private_bytes(b"\1" * 32)


def gate_of(path: Path, content: bytes) -> TokenGate:
    path.write_bytes(content)
    return TokenGate(read_public_keys(path))


def test_keys_of_a_pem_file_check_tokens_each_under_its_thumbprint(tmp_path: Path) -> None:
    gate = gate_of(tmp_path / "keys", b"# old\n" + pem(OLD) + b"# new\n" + pem(NEW))
    grants = [gate(login(token(key)), NOW_MS) for key in (OLD, NEW)]
    assert {grant.key_id for grant in grants} == gate.key_ids
    assert len(gate.key_ids) == 2


def test_keys_of_a_jwks_are_rotated_by_their_kid(tmp_path: Path) -> None:
    both = {"keys": [jwk(OLD, kid="2026-01", alg="EdDSA"), jwk(NEW, kid="2026-02")]}
    gate = gate_of(tmp_path / "keys", json.dumps(both).encode())
    assert gate(login(token(OLD, key_id="2026-01")), NOW_MS).key_id == "2026-01"
    assert gate(login(token(NEW, key_id="2026-02")), NOW_MS).key_id == "2026-02"
    assert gate(login(jwt.encode(CLAIMS, NEW, algorithm="EdDSA")), NOW_MS).key_id == "2026-02"
    rotated = gate_of(tmp_path / "keys", json.dumps({"keys": both["keys"][1:]}).encode())
    for attempt in (token(OLD, key_id="2026-01"), token(OLD, key_id="2026-02"), token(NEW, key_id="2026-01")):
        assert refused(rotated, login(attempt)).final


def test_a_public_key_is_never_a_secret(tmp_path: Path) -> None:
    """The confusion of algorithms: a token signed with HMAC, the published key as its secret."""
    gate = gate_of(tmp_path / "keys", pem(NEW))
    raw = NEW.public_key().public_bytes_raw()
    for secret in (raw, raw.hex().encode(), base64.b64encode(raw), raw.ljust(64, b"\0")):
        assert refused(gate, login(jwt.encode(CLAIMS, secret, algorithm="HS256"))).final
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "HS256"}, CLAIMS)
    )
    signature = base64.urlsafe_b64encode(hmac.digest(pem(NEW), head + b"." + body, "sha256")).rstrip(b"=")
    assert refused(gate, login(b".".join((head, body, signature)).decode())).final
    assert refused(gate, login(token(SECRET))).final
    assert refused(gate, login(forged("none"))).final


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing",
        private_pem(NEW),
        pem(OLD) + private_pem(NEW),
        pem(ed448.Ed448PrivateKey.generate()),
        pem(NEW) + pem(NEW),
        b"".join(pem(Ed25519PrivateKey.generate()) for _ in range(17)),
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"{}",
        b'{"keys": []}',
        b'{"keys": [5]}',
        json.dumps({"keys": [jwk(NEW, d="private")]}).encode(),
        json.dumps({"keys": [jwk(NEW, kty="oct")]}).encode(),
        json.dumps({"keys": [jwk(NEW, x="AAAA")]}).encode(),
        json.dumps({"keys": [jwk(OLD, kid="1"), jwk(NEW, kid="1")]}).encode(),
    ],
)
def test_a_file_without_usable_public_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueRefused):
        gate_of(tmp_path / "keys", content)


def test_a_signing_key_is_an_ed25519_key_in_clear(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(private_pem(NEW))
    assert read_signing_key(file).private_bytes_raw() == NEW.private_bytes_raw()
    for content in (b"", pem(NEW), b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        file.write_bytes(content)
        with pytest.raises(ValueRefused):
            read_signing_key(file)
    with pytest.raises(ValueRefused):
        read_signing_key(tmp_path / "missing")


# --- revocation -------------------------------------------------------------------------------------------------------


LIST = """
# lost in a train
device acme/phone
token t-7
principal Anna Berg
"""


@pytest.mark.parametrize(
    ("grant", "revoked"),
    [
        (Grant("kim", "phone", "acme", Role.WRITE), True),
        (Grant("kim", "phone", "other", Role.WRITE), False),
        (Grant("kim", "desk", "acme", Role.WRITE, token_id="t-7"), True),
        (Grant("kim", "desk", "acme", Role.WRITE), False),
        (Grant("Anna Berg", "desk", "acme", Role.WRITE), True),
        (Grant("Anna", "desk", "acme", Role.WRITE), False),
    ],
)
def test_a_list_revokes_tokens_devices_and_principals(grant: Grant, revoked: bool) -> None:
    access = Access(lambda login, now_ms: grant, parse_revocations(LIST))
    assert access.stands(grant) is not revoked
    if revoked:
        with pytest.raises(LoginRefused) as caught:
            access.admit(login(""), NOW_MS)
        assert (caught.value.reason, caught.value.final) == ("revoked", True)
    else:
        assert access.admit(login(""), NOW_MS) is grant


@pytest.mark.parametrize(
    "line", ["device phone", "device acme/a/b", "token", "principal ", "user anna", "device acme/"]
)
def test_a_list_with_a_line_that_says_nothing_is_refused_by_the_lines_number(line: str) -> None:
    with pytest.raises(ValueRefused, match="Line 2 ") as caught:
        parse_revocations(f"token t-1\n{line}\n")
    assert line not in caught.value.sentence


def test_a_grant_falls_with_the_key_that_signed_its_token() -> None:
    grant = Grant("anna", "phone", "acme", Role.WRITE, key_id="2026-01")
    assert Access(admit_anyone, key_ids=frozenset({"2026-01"})).stands(grant)
    assert not Access(admit_anyone, key_ids=frozenset({"2026-02"})).stands(grant)
