"""`segue doctor`: which guarantees are missing for these tools, this device and this relay, and which route to go."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from clients.config import Settings, WrongUsage
from clients.desktop.connection import Given, Sending
from clients.desktop.facts import Facts, RelayFacts, StoreFacts
from clients.desktop.findings import Finding, Severity, find
from clients.desktop.output import Answer, ExitStatus, JsonDocument
from clients.desktop.relay_facts import with_figures, with_settings
from clients.desktop.routes import Route, routes
from clients.desktop.surroundings import (
    exposed_files,
    in_clear,
    load_tools,
    memory_file_system,
    sqlite_version,
    versions,
)
from sync_core.errors import SegueError
from sync_core.replica.changes import LinkState

__all__ = ["doctor"]


async def doctor(
    given: Given,
    module: Annotated[
        str | None, typer.Argument(metavar="TOOLS_MODULE", help="The module whose tools are looked at.")
    ] = None,
    tools: Annotated[
        str | None, typer.Option("--tools", metavar="MODULE:ATTRIBUTE", help="The tools in this attribute alone.")
    ] = None,
    relay_config: Annotated[
        Path | None, typer.Option("--relay-config", metavar="FILE", help="The relay's file of settings.")
    ] = None,
    relay_metrics: Annotated[
        str | None, typer.Option("--relay-metrics", metavar="URL", help="The relay's /metrics.")
    ] = None,
) -> Answer:
    """Find what is missing, and which route your tools need. Ends with 1 if a guarantee is missing."""
    if module is not None and tools is not None:
        raise WrongUsage("The tools were given twice.", hint="Give the module as an argument or with --tools.")
    place = module or tools
    settings = given.settings()
    found_tools = None if place is None else load_tools(place)
    store, relay = await _look(given, settings)
    if relay_config is not None:
        relay = with_settings(relay, relay_config)
    if relay_metrics is not None:
        relay = await asyncio.to_thread(with_figures, relay, relay_metrics)
    facts = Facts(
        store=store,
        relay=relay,
        sqlite=sqlite_version(),
        versions=versions(),
        tools=found_tools,
        open_files=exposed_files(settings, _named_files(given, settings)),
    )
    return _answer(facts)


async def _look(given: Given, settings: Settings) -> tuple[StoreFacts, RelayFacts]:
    """Open the store and ask what this device learns of the relay; neither has to succeed."""
    from sync_core.context.sqlite_store import SqliteStore

    store = StoreFacts(str(settings.store), SqliteStore.durable, memory_file_system(settings.store))
    relay = RelayFacts(settings.relay or "", in_clear=in_clear(settings.relay or ""))
    try:
        async with given.session() as session:
            return store, _relay_facts(relay, await session.synced())
    except SegueError as error:
        why = "the store was not opened"
        return msgspec.structs.replace(store, problem=error.sentence), msgspec.structs.replace(relay, why_not=why)


def _relay_facts(relay: RelayFacts, sending: Sending) -> RelayFacts:
    status = sending.status
    linked = status.link is LinkState.LIVE
    return msgspec.structs.replace(
        relay,
        linked=linked,
        why_not="" if linked else status.reason,
        authority=status.authority,
        role=status.role,
    )


def _named_files(given: Given, settings: Settings) -> list[Path]:
    """The files that may hold a token."""
    named = given.flag("token_file") or os.environ.get("SEGUE_TOKEN_FILE", "")
    return [settings.own_folder / "config.toml", *([Path(named).expanduser()] if named else [])]


def _answer(facts: Facts) -> Answer:
    findings, answers = find(facts), routes(facts.tools)
    counted = {severity: sum(each.severity is severity for each in findings) for severity in Severity}
    document: dict[str, JsonDocument] = {
        "findings": [msgspec.to_builtins(each) for each in findings],
        "counts": {severity.value: count for severity, count in counted.items()},
        "routes": [msgspec.to_builtins(each) for each in answers],
        "tools": None if facts.tools is None else [msgspec.to_builtins(each) for each in facts.tools],
    }
    lines = [line for each in findings for line in _finding_lines(each)]
    lines += ["", "Which route?"]
    lines += [line for each in answers for line in _route_lines(each)]
    missing = counted[Severity.HIGH]
    unknown = " What is not known is said above." if any("not known" in each.sentence for each in findings) else ""
    lines += [
        "",
        f"Guarantees that are missing: {missing}." if missing else f"No guarantee is known to be missing.{unknown}",
    ]
    return Answer(document, tuple(lines), ExitStatus.REFUSED if missing else ExitStatus.DONE)


_WIDTH = max(len(severity.value) for severity in Severity) + 2


def _finding_lines(finding: Finding) -> tuple[str, ...]:
    margin = " " * _WIDTH
    return f"{finding.severity.value:{_WIDTH}}{finding.sentence}", f"{margin}Next: {finding.next}"


def _route_lines(route: Route) -> tuple[str, ...]:
    mark = {True: "=>", False: "  ", None: " -"}[route.fits]
    head = f"{mark} {route.question}: {route.answer}"
    return (head, *(f"     {number}. {step}" for number, step in enumerate(route.steps, 1)))
