"""What the doctor finds, fact by fact: a missing guarantee is High, what is not known is told as that."""

import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from clients.desktop.facts import Facts, OpenFile, RelayFacts, StoreFacts, ToolFacts
from clients.desktop.findings import SUPPORTED, Finding, Severity, find
from clients.desktop.routes import routes
from sync_core.entry import Effect

READ = ToolFacts("look", Effect.READ)
PUT = ToolFacts("put", Effect.IDEMPOTENT, takes_key=True)
PAY = ToolFacts("pay", Effect.IRREVERSIBLE, takes_key=True, by_entity=True, checked=True, has_probe=True)
RELAY = RelayFacts(
    "wss://relay.example", linked=True, authority=True, durable=True, expires=True, clock_suspended=False
)
WELL = Facts(
    store=StoreFacts("a.db", durable=True),
    relay=RELAY,
    sqlite=(3, 53, 0),
    versions={"python": "3.11.7", "pycrdt": "0.14.13", "websockets": "17.4"},
    tools=(READ, PUT, PAY),
)


def found(facts: Facts) -> dict[str, Finding]:
    """What is found beside the versions, by code."""
    return {finding.code: finding for finding in find(facts) if finding.code != "versions"}


def with_tools(*tools: ToolFacts) -> Facts:
    return replace(WELL, tools=tools)


def with_relay(**changes: object) -> Facts:
    return replace(WELL, relay=replace(RELAY, **changes))


def test_where_all_is_well_only_the_versions_are_told() -> None:
    (finding,) = find(WELL)
    assert (finding.code, finding.severity) == ("versions", Severity.INFO)
    assert "pycrdt 0.14.13" in finding.sentence


@pytest.mark.parametrize(
    ("facts", "code", "severity"),
    [
        (with_tools(replace(READ, effect=Effect.IRREVERSIBLE)), "no_idempotency_key", Severity.HIGH),
        (with_tools(replace(PAY, effect_given=False)), "no_class", Severity.MEDIUM),
        (with_tools(replace(PAY, by_entity=False)), "no_business_key", Severity.LOW),
        (with_tools(replace(PAY, checked=False)), "key_not_checked", Severity.LOW),
        (with_tools(replace(PAY, has_probe=False)), "no_probe", Severity.LOW),
        (with_tools(replace(PUT, takes_key=False)), "idempotent_without_key", Severity.LOW),
        (replace(WELL, tools=None), "tools_unknown", Severity.INFO),
        (replace(WELL, store=StoreFacts("a.db", durable=False)), "store_volatile", Severity.HIGH),
        (replace(WELL, store=StoreFacts("a.db", True, in_memory="tmpfs")), "store_volatile", Severity.HIGH),
        (replace(WELL, store=StoreFacts("a.db", True, problem="It is in use.")), "store_not_opened", Severity.MEDIUM),
        (with_relay(authority=False), "no_authority", Severity.HIGH),
        (with_relay(authority=None), "authority_unknown", Severity.MEDIUM),
        (replace(WELL, relay=RelayFacts()), "no_authority", Severity.HIGH),
        (replace(WELL, relay=RelayFacts(), tools=(READ,)), "no_authority", Severity.INFO),
        (with_relay(linked=False, why_not="nobody is there."), "no_link", Severity.MEDIUM),
        (with_relay(role="read"), "role_read", Severity.LOW),
        (with_relay(in_clear=True), "in_clear", Severity.HIGH),
        (with_relay(durable=False), "mailbox_volatile", Severity.HIGH),
        (with_relay(clock_suspended=True), "clock_suspended", Severity.MEDIUM),
        (with_relay(clock_suspended=None), "clock_unknown", Severity.INFO),
        (with_relay(open_files=(OpenFile("relay.db", 0o644),)), "file_exposed", Severity.HIGH),
        (with_relay(expires=False), "no_expiry", Severity.MEDIUM),
        (with_relay(expires=None), "expiry_unknown", Severity.INFO),
        (replace(WELL, open_files=(OpenFile("a.db", 0o644),)), "file_exposed", Severity.HIGH),
        (replace(WELL, sqlite=(3, 32, 3)), "sqlite_too_old", Severity.MEDIUM),
        (replace(WELL, sqlite=(3, 40, 1)), "sqlite_wal_reset", Severity.INFO),
        (replace(WELL, sqlite=(3, 51, 2)), "sqlite_wal_reset", Severity.INFO),
        (replace(WELL, versions={**WELL.versions, "pycrdt": "0.15.0"}), "version_unsupported", Severity.MEDIUM),
        (replace(WELL, versions={**WELL.versions, "websockets": ""}), "version_unsupported", Severity.MEDIUM),
    ],
)
def test_each_fact_has_its_finding_and_no_other(facts: Facts, code: str, severity: Severity) -> None:
    findings = found(facts)
    assert list(findings) == [code]
    finding = findings[code]
    assert finding.severity is severity
    assert finding.sentence.endswith(".") and ".." not in finding.sentence and finding.next


def test_sqlite_behind_the_range_and_a_pre_release_are_fine() -> None:
    assert found(replace(WELL, sqlite=(3, 51, 3))) == {}
    assert found(replace(WELL, versions={**WELL.versions, "python": "3.13.0rc1"})) == {}


def test_a_tool_without_a_key_hears_of_nothing_else_that_needs_one() -> None:
    silent = ToolFacts("pay", Effect.IRREVERSIBLE, effect_given=False)
    assert list(found(with_tools(silent))) == ["no_idempotency_key", "no_class"]


def test_the_worst_comes_first_and_names_what_it_is_about() -> None:
    facts = replace(WELL, tools=(replace(PAY, by_entity=False), ToolFacts("wire", Effect.IRREVERSIBLE)), sqlite=(3, 40))
    findings = find(facts)
    order = list(Severity)
    assert [order.index(each.severity) for each in findings] == sorted(order.index(each.severity) for each in findings)
    assert (findings[0].about, findings[0].code) == ("wire", "no_idempotency_key")


def test_the_supported_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    asked = {
        name: ",".join(
            f"{sign}{'.'.join(map(str, version))}" for sign, version in zip((">=", "<"), SUPPORTED[name], strict=True)
        )
        for name in SUPPORTED
    }
    assert f"pycrdt{asked['pycrdt']}" in project["dependencies"]
    assert f"websockets{asked['websockets']}" in project["dependencies"]
    assert asked["python"].startswith(project["requires-python"])


# --- the route --------------------------------------------------------------------------------------------------------


def test_tools_that_only_read_need_merging_alone() -> None:
    told = {route.code: route.fits for route in routes((READ, PUT))}
    assert told == {"merging": True, "authority": False, "audit": None, "platform": None}
    assert routes((READ,))[0].code == "merging"


def test_one_tool_that_cannot_be_undone_needs_the_authority_and_keys_first() -> None:
    wire = ToolFacts("wire", Effect.IRREVERSIBLE)
    first = routes((READ, wire, replace(PAY, by_entity=False)))[0]
    assert (first.code, first.fits) == ("authority", True)
    assert "idempotency_key" in first.steps[0] and "wire" in first.steps[0] and "pay" not in first.steps[0]
    assert "pay" in first.steps[1] and "wire" not in first.steps[1]


@pytest.mark.parametrize("tools", [None, ()])
def test_without_tools_no_route_is_chosen(tools: tuple[ToolFacts, ...] | None) -> None:
    assert [route.fits for route in routes(tools)] == [None] * 4
    assert len({route.question for route in routes(tools)}) == 4
