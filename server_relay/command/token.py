"""`segue relay token`: make a token for a device, signed with the relay's secret or with a private key."""

import argparse
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from server_relay.admission import Role
from server_relay.command.output import answer, guarded
from server_relay.config import read_secrets
from server_relay.tokens import make_token, read_signing_key
from sync_core.errors import ValueRefused

__all__ = ["HOURS_MAX", "SECRET_VARIABLE", "mint", "run"]

HOURS_MAX = 10 * 366 * 24.0
"""Ten years: what is meant to hold longer is a mistake."""

SECRET_VARIABLE = "SEGUE_AUTH_SECRET"


def mint(
    environment: Mapping[str, str],
    *,
    device: str,
    subject: str,
    principal: str,
    role: Role,
    hours: float,
    secret_file: Path | None,
    private_key: Path | None,
    key_id: str = "",
    tasks: Sequence[str] = (),
) -> dict[str, str | int]:
    """Return a token, its end in seconds since 1970, and the id that it is revoked by.

    Signed with the private key of a file, else with the first secret of a file, else with that of the environment; a
    secret is never an argument, since other users could read it. `hours` is how long it is good for. Raises
    `ValueRefused`.
    """
    if private_key is not None and secret_file is not None:
        raise ValueRefused("A token is signed with a secret or with a private key, not with both.")
    if not 0 <= hours <= HOURS_MAX:
        raise ValueRefused(f"A token is good for 0 to {HOURS_MAX:.0f} hours.")
    if private_key is None:
        secret = (
            read_secrets(secret_file)[0] if secret_file is not None else environment.get(SECRET_VARIABLE, "").strip()
        )
        if not secret:
            raise ValueRefused(
                "There is no secret to sign with.",
                hint=f"Give --auth FILE or --private-key FILE, or set {SECRET_VARIABLE}.",
            )
    expires_s = int(time.time() + hours * 3600)
    token_id = uuid.uuid4().hex
    token = make_token(
        secret if private_key is None else read_signing_key(private_key),
        principal=principal,
        device=device,
        subject=subject,
        role=role,
        expires_s=expires_s,
        tasks=tuple(tasks) or None,
        token_id=token_id,
        key_id=key_id,
    )
    return {"token": token, "expires_s": expires_s, "token_id": token_id}


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Make and print a token; return the exit status."""
    parser = argparse.ArgumentParser(prog="segue relay token", description="Make a token for a device.")
    parser.add_argument("--device", required=True, help="the device that may log in with it")
    parser.add_argument("--subject", required=True, help="the business subject it is for")
    parser.add_argument("--principal", required=True, help="who signs in")
    parser.add_argument("--role", type=Role, choices=list(Role), default=Role.WRITE, help="what it may do (write)")
    parser.add_argument("--hours", type=float, default=720.0, help="how long it is good for (720)")
    parser.add_argument("--task", action="append", default=[], help="only this task key and all below it; repeatable")
    parser.add_argument(
        "--auth", "--auth-secret-file", type=Path, metavar="FILE", help=f"the relay's secret; else {SECRET_VARIABLE}"
    )
    parser.add_argument("--private-key", type=Path, metavar="FILE", help="an Ed25519 private key (PEM) instead")
    parser.add_argument("--key-id", default="", help="the public key's id at the relay; its thumbprint by default")
    parser.add_argument("--json", action="store_true", help="print for programs")
    options = parser.parse_args(argv[1:])

    def made() -> int:
        minted = mint(
            environment,
            device=options.device,
            subject=options.subject,
            principal=options.principal,
            role=options.role,
            hours=options.hours,
            secret_file=options.auth,
            private_key=options.private_key,
            key_id=options.key_id,
            tasks=options.task,
        )
        return answer(minted, (str(minted["token"]),), options.json)

    return guarded(made, options.json)
