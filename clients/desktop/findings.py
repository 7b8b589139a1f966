"""What `segue doctor` finds: from facts that somebody else gathered to findings, each with its next step. Pure.

A guarantee that is missing is High; what is only not known is told as that, never guessed.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from clients.desktop.facts import Facts, OpenFile, RelayFacts, StoreFacts, ToolFacts, Version
from sync_core.entry import Effect

__all__ = ["SQLITE_MIN", "SUPPORTED", "Finding", "Severity", "find"]

SQLITE_MIN: Version = (3, 33, 0)
"""What the statements of the store need: UPDATE … FROM came with it."""
_WAL_RESET: tuple[Version, Version] = ((3, 7, 0), (3, 51, 2))
SUPPORTED: dict[str, tuple[Version, Version]] = {
    "python": ((3, 11), (4,)),
    "pycrdt": ((0, 14, 1), (0, 15)),
    "websockets": ((16,), (18,)),
}
"""From the first version on, up to and without the second."""


class Severity(StrEnum):
    """How bad it is: High is a guarantee that is missing."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"
    INFO = "Info"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was found: a stable `code`, what it is about (a tool, a file; may be empty), and what to do."""

    severity: Severity
    code: str
    about: str
    sentence: str
    next: str


def find(facts: Facts) -> tuple[Finding, ...]:
    """Return what there is to say, the worst first."""
    order = list(Severity)
    found = [
        *_tools(facts.tools),
        *_store(facts.store),
        *_authority(facts),
        *_relay(facts.relay),
        *_files(facts.open_files + facts.relay.open_files),
        *_sqlite(facts.sqlite),
        *_versions(facts.versions),
    ]
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def _tools(tools: tuple[ToolFacts, ...] | None) -> Iterator[Finding]:
    if tools is None:
        yield Finding(
            Severity.INFO, "tools_unknown", "", "No tools were given, so none were looked at.", "segue doctor MODULE"
        )
    for tool in tools or ():
        if not tool.effect_given:
            yield Finding(
                Severity.MEDIUM,
                "no_class",
                tool.name,
                f"The tool {tool.name} does not say what it changes, so it counts as irreversible.",
                "Say effect=Effect.READ, IDEMPOTENT or IRREVERSIBLE.",
            )
        if tool.is_final:
            yield from _final_tool(tool)
        elif tool.effect is Effect.IDEMPOTENT and not tool.takes_key:
            yield Finding(
                Severity.LOW,
                "idempotent_without_key",
                tool.name,
                f"The tool {tool.name} is declared idempotent and takes no key: that it is, rests on its arguments.",
                f"Check it with verify_idempotent({tool.name}, …, records=…).",
            )


def _final_tool(tool: ToolFacts) -> Iterator[Finding]:
    if not tool.takes_key:
        yield Finding(
            Severity.HIGH,
            "no_idempotency_key",
            tool.name,
            f"The tool {tool.name} cannot be undone and takes no idempotency_key, so it is refused.",
            "Give it a parameter idempotency_key and pass that on to the outside system.",
        )
        return
    if not tool.by_entity:
        yield Finding(
            Severity.LOW,
            "no_business_key",
            tool.name,
            f"The tool {tool.name} is known by its step: another step may do the same to the same thing again.",
            "Declare key=, a function of its arguments that names what it acts on.",
        )
    if not tool.checked:
        yield Finding(
            Severity.LOW,
            "key_not_checked",
            tool.name,
            f"Nothing says that the outside system checks the key or fencing token of {tool.name}: after «it did not"
            " happen» its key is retired.",
            "Declare keyed=True or fenced=True if it does.",
        )
    if not tool.has_probe:
        yield Finding(
            Severity.LOW,
            "no_probe",
            tool.name,
            f"The tool {tool.name} has no probe, so a person has to settle each call in doubt.",
            "Declare probe=, which asks the outside system whether it happened.",
        )


def _store(store: StoreFacts) -> Iterator[Finding]:
    if store.problem:
        yield Finding(
            Severity.MEDIUM,
            "store_not_opened",
            store.path,
            f"The store was not opened: {store.problem.rstrip('.')}.",
            "Close the other program, or name the file with --store, and ask again.",
        )
    if store.durable is False:
        yield Finding(
            Severity.HIGH,
            "store_volatile",
            store.path,
            "The store does not outlive its process, so nothing that is written is safe.",
            "Use a store in a file; a guarded call is refused on this one.",
        )
    elif store.in_memory:
        yield Finding(
            Severity.HIGH,
            "store_volatile",
            store.path,
            f"The store lies on a file system without a disk ({store.in_memory}), so a restart loses it.",
            "Name a file on a disk with --store or SEGUE_HOME.",
        )


def _authority(facts: Facts) -> Iterator[Finding]:
    final = [tool.name for tool in facts.tools or () if tool.is_final]
    needed = f"needed by {', '.join(final)}" if final else "and no tool was given that needs one"
    missing = Severity.HIGH if final else Severity.INFO
    relay = facts.relay
    if not relay.address:
        yield Finding(
            missing,
            "no_authority",
            "",
            f"No relay is configured, so there is no authority, {needed}.",
            "Run a relay and name it with --relay; without one only what merges works.",
        )
    elif relay.authority is None:
        yield Finding(
            Severity.MEDIUM if final else Severity.INFO,
            "authority_unknown",
            relay.address,
            f"Whether the relay is an authority is not known, {needed}.",
            "Ask again while the relay can be reached.",
        )
    elif not relay.authority:
        yield Finding(
            missing,
            "no_authority",
            relay.address,
            f"The relay is no authority, {needed}.",
            "Run it without --no-authority, with --db on a disk.",
        )


def _relay(relay: RelayFacts) -> Iterator[Finding]:
    if not relay.address:
        return
    if not relay.linked:
        why = f": {relay.why_not.rstrip('.')}" if relay.why_not else ""
        yield Finding(
            Severity.MEDIUM,
            "no_link",
            relay.address,
            f"The relay was not reached{why}.",
            "Start it, or correct --relay and the token, and ask again.",
        )
    if relay.role == "read":
        yield Finding(
            Severity.LOW,
            "role_read",
            relay.address,
            "The relay lets this device only read (role read).",
            "Have a token made with --role write if it shall take part.",
        )
    if relay.in_clear:
        yield Finding(
            Severity.HIGH,
            "in_clear",
            relay.address,
            "Token and content cross the network in clear.",
            "Reach the relay by wss://, through a proxy that ends TLS.",
        )
    if relay.durable is False:
        yield Finding(
            Severity.HIGH,
            "mailbox_volatile",
            relay.address,
            "The relay's mailbox does not outlive its process, so a receipt from it means nothing.",
            "Run the relay with --db on a disk.",
        )
    yield from _expiry(relay)


def _expiry(relay: RelayFacts) -> Iterator[Finding]:
    if relay.clock_suspended:
        yield Finding(
            Severity.MEDIUM,
            "clock_suspended",
            relay.address,
            "The relay's clock jumped, so expiry is suspended there.",
            "Look at the relay's clock, then start it with --clock-confirmed.",
        )
    elif relay.clock_suspended is None and relay.expires:
        yield Finding(
            Severity.INFO,
            "clock_unknown",
            relay.address,
            "Whether the relay trusts its clock, and so lets tasks expire, is not known here.",
            "Name the relay's figures with --relay-metrics.",
        )
    if relay.expires is None:
        yield Finding(
            Severity.INFO,
            "expiry_unknown",
            relay.address,
            "Whether unfinished tasks expire at the relay is not known here.",
            "Name the relay's file of settings with --relay-config.",
        )
    elif not relay.expires:
        yield Finding(
            Severity.MEDIUM,
            "no_expiry",
            relay.address,
            "Unfinished tasks never expire at the relay, so it grows for ever.",
            "Start the relay with --task-ttl-s.",
        )


def _files(files: tuple[OpenFile, ...]) -> Iterator[Finding]:
    for file in files:
        yield Finding(
            Severity.HIGH,
            "file_exposed",
            file.path,
            f"{file.path} is open to other users of this machine (mode {file.mode:03o}).",
            f"chmod go= {file.path}",
        )


def _sqlite(version: Version) -> Iterator[Finding]:
    text = ".".join(map(str, version))
    if version < SQLITE_MIN:
        least = ".".join(map(str, SQLITE_MIN))
        yield Finding(
            Severity.MEDIUM,
            "sqlite_too_old",
            text,
            f"SQLite {text} is older than {least}, which is the oldest that Segue is made for.",
            "Use a Python that comes with a newer SQLite.",
        )
    elif _WAL_RESET[0] <= version <= _WAL_RESET[1]:
        yield Finding(
            Severity.INFO,
            "sqlite_wal_reset",
            text,
            f"SQLite {text} may damage a file that several connections write at once. Segue uses one for each file.",
            "Open no file of Segue with another program while it runs.",
        )


def _versions(versions: dict[str, str]) -> Iterator[Finding]:
    for name, (first, end) in SUPPORTED.items():
        text = versions.get(name, "")
        if not text:
            yield Finding(
                Severity.MEDIUM, "version_unsupported", name, f"{name} is not installed.", "pip install segue"
            )
        elif not first <= _parsed(text) < end:
            yield Finding(
                Severity.MEDIUM,
                "version_unsupported",
                name,
                f"{name} {text} is outside what Segue is made for"
                f" ({'.'.join(map(str, first))} up to, and without, {'.'.join(map(str, end))}).",
                f"Install a {name} of that range.",
            )
    shown = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
    yield Finding(Severity.INFO, "versions", "", f"This is {shown}.", "Nothing to do.")


def _parsed(text: str) -> Version:
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
