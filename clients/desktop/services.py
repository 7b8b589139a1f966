"""`segue token, relay, demo, rehearse`: what needs no store of this device."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from clients.config import WrongUsage
from clients.desktop.connection import AsJson, answered
from clients.desktop.output import Answer
from sync_core.errors import ValueRefused

__all__ = ["demo", "register", "rehearse", "relay", "token"]

_HOURS_MAX = 10 * 366 * 24.0
"""Ten years: what is meant to hold longer is a mistake."""


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("token")(token)
    app.command("relay", add_help_option=False, context_settings=_PASSED_ON)(relay)
    app.command("demo")(demo)
    app.command("rehearse")(rehearse)


_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def token(
    device: Annotated[str, typer.Option("--device", help="The device that may log in with it.")],
    subject: Annotated[str, typer.Option("--subject", help="The business subject it is for.")],
    principal: Annotated[str, typer.Option("--principal", help="Who signs in.")],
    role: Annotated[
        Literal["read", "write", "approve", "authority", "admin"], typer.Option("--role", help="What it may do.")
    ] = "write",
    hours: Annotated[float, typer.Option("--hours", min=0.0, max=_HOURS_MAX, help="How long it is good for.")] = 720.0,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Only this task key and all below it; repeatable.")
    ] = None,
    auth: Annotated[
        Path | None, typer.Option("--auth", help="The file with the relay's secret; else SEGUE_AUTH_SECRET.")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option("--private-key", help="A file with an Ed25519 private key, instead of a secret.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token for a device. The secret is never an argument: other users could read it."""

    def made() -> Answer:
        from server_relay.admission import Role
        from server_relay.command.token import mint

        try:
            minted = mint(
                os.environ,
                device=device,
                subject=subject,
                principal=principal,
                role=Role(role),
                hours=hours,
                secret_file=auth,
                private_key=private_key,
                tasks=task or (),
            )
        except ValueRefused as error:
            raise WrongUsage(error.sentence, hint=error.hint) from None
        return Answer({**minted}, (str(minted["token"]),))

    answered(made, as_json)


def relay(context: typer.Context) -> None:
    """Run a relay; segue relay --help tells its options."""
    from server_relay.__main__ import main

    raise typer.Exit(main(context.args))


def demo(
    ask: Annotated[bool, typer.Option("--ask", help="Type the answers yourself.")] = False,
    break_: Annotated[
        Literal["rerun", "lose-note"] | None, typer.Option("--break", help="Plant a fault, which must be found.")
    ] = None,
    keep: Annotated[Path | None, typer.Option("--keep", help="A new folder for all files of the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Carry a travel claim from a killed phone to a desktop. All in real processes."""
    if find_spec("pypdf") is None:
        raise ModuleNotFoundError("The demo reads a PDF file.", name="pypdf")
    from clients.demo.command import run_demo

    raise typer.Exit(run_demo(ask=ask, break_=break_, json_output=as_json, keep=keep))


def rehearse(
    runs: Annotated[Path, typer.Argument(metavar="RUNS.json", help="Recorded runs in the OpenAI chat format.")],
    tools: Annotated[Path, typer.Option("--tools", help="Effect and key of each tool, as one JSON object.")],
    devices: Annotated[int, typer.Option("--devices", min=1, max=16, help="Devices that take part in each run.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="Repeats the same moves and faults.")] = 7,
    crash: Annotated[bool, typer.Option("--crash", help="Kill devices in the middle of calls.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Cut devices off from the relay.")] = False,
    no_authority: Annotated[
        bool, typer.Option("--no-authority", help="Refuse every call that cannot be undone, as without an authority.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Take only so many runs.")] = None,
    keep: Annotated[Path | None, typer.Option("--keep", help="A new folder for stores and logs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play recorded agent runs over several devices. Counts what ran, what was lost and what came back wrong."""

    def rehearsed() -> Answer:
        from clients.desktop.rehearse.command import run_rehearsal
        from clients.desktop.rehearse.schedule import Faults

        faults = Faults(kills=crash, offline=offline, without_authority=no_authority)
        return run_rehearsal(runs, tools, devices=devices, seed=seed, faults=faults, limit=limit, keep=keep)

    answered(rehearsed, as_json)
