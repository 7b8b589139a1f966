"""`segue relay token`: tokens of both kinds, as a relay takes them."""

import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from server_relay.admission import Role
from server_relay.command.token import run
from server_relay.tokens import TokenGate, read_public_keys
from sync_core.frames import WIRE_VERSION, Login

SECRET = "a secret of more than thirty-two bytes"
WHO = ["token", "--device", "phone", "--subject", "acme", "--principal", "kim", "--json"]


def minted(capsys: pytest.CaptureFixture[str], *more: str, **environment: str) -> dict[str, object]:
    assert run([*WHO, *more], environment) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def login(document: dict[str, object]) -> Login:
    return Login(WIRE_VERSION, "acme", "phone", str(document["token"]))


def test_a_token_of_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").write_text(SECRET)
    now_ms = int(time.time() * 1000)
    for document in (
        minted(capsys, "--auth", str(tmp_path / "secret"), "--role", "approve", "--task", "expense", "--hours", "1"),
        minted(capsys, "--role", "approve", "--task", "expense", "--hours", "1", SEGUE_AUTH_SECRET=f" {SECRET}\n"),
    ):
        grant = TokenGate((SECRET,))(login(document), now_ms)
        assert (grant.role, grant.tasks, grant.token_id) == (Role.APPROVE, ("expense",), document["token_id"])
        assert 0 <= now_ms + 3_600_000 - (grant.expires_ms or 0) < 10_000


def test_a_token_of_a_private_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "keys").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    gate = TokenGate(read_public_keys(tmp_path / "keys"))
    document = minted(capsys, "--private-key", str(tmp_path / "key"))
    assert gate(login(document), 0).principal == "kim"
    assert document["token_id"] != minted(capsys, "--private-key", str(tmp_path / "key"))["token_id"]


@pytest.mark.parametrize(
    ("more", "environment"),
    [
        ([], {}),
        ([], {"SEGUE_AUTH_SECRET": "short"}),
        (["--auth", "missing"], {}),
        (["--private-key", "missing"], {}),
        (["--auth", "a", "--private-key", "b"], {}),
        (["--hours", "-1"], {"SEGUE_AUTH_SECRET": SECRET}),
        (["--hours", "nan"], {"SEGUE_AUTH_SECRET": SECRET}),
        (["--task", "a//b"], {"SEGUE_AUTH_SECRET": SECRET}),
    ],
)
def test_what_no_relay_takes_is_not_made(
    more: list[str], environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*WHO, *more], environment) == 1
    out = capsys.readouterr().out
    assert json.loads(out)["code"] == "value_refused"
    assert SECRET not in out
