"""Tokens: made, checked, refused; and what an open relay asks for."""

import base64
import json

import jwt
import pytest

from server_relay.admission import Grant, LoginRefused, Role, TokenGate, admit_anyone, make_token
from sync_core.errors import ValueRefused
from sync_core.frames import WIRE_VERSION, Login

SECRET = "a secret of more than thirty-two bytes"
NOW_MS = 1_790_000_000_000
LATER_S = NOW_MS // 1000 + 60


def token(secret: str = SECRET, **changes: object) -> str:
    values = {"principal": "anna", "device": "phone", "subject": "acme", "role": Role.WRITE, "expires_s": LATER_S}
    return make_token(secret, **(values | changes))  # type: ignore[arg-type]


def login(text: str, subject: str = "acme", device: str = "phone", version: int = WIRE_VERSION) -> Login:
    return Login(version, subject, device, text)


def refused(gate: TokenGate, attempt: Login, now_ms: int = NOW_MS) -> LoginRefused:
    with pytest.raises(LoginRefused) as caught:
        gate(attempt, now_ms)
    return caught.value


@pytest.fixture
def gate() -> TokenGate:
    return TokenGate(SECRET)


@pytest.mark.parametrize("role", list(Role))
def test_a_token_grants_what_it_names(gate: TokenGate, role: Role) -> None:
    assert gate(login(token(role=role)), NOW_MS) == Grant("anna", "phone", "acme", role, LATER_S * 1000)


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
        login(jwt.encode({"sub": "anna", "device": "phone", "subject": "acme", "role": "write"}, SECRET)),
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
    assert admit_anyone(login(""), NOW_MS) == Grant("phone", "phone", "acme", Role.ADMIN, None)


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
