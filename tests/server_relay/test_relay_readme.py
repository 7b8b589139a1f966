"""The relay's page says what the code says."""

import re
import tomllib
from pathlib import Path

from server_relay.command.run import COMMANDS
from server_relay.config import RelaySettings
from server_relay.exposition import exposition
from server_relay.revocations import parse_revocations
from server_relay.server import GOING_AWAY, serve
from server_relay.sessions import CLOSE_POLICY, CLOSE_TRY_LATER
from server_relay.settings import SETTING_NAMES, read_relay_settings
from tests.server_relay.readme_tables import README, with_tables

TEXT = README.read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return found[1]


def test_its_tables_are_up_to_date() -> None:
    assert with_tables(TEXT) == TEXT, "run: python -m tests.server_relay.readme_tables"


def test_it_names_every_command_and_close_code() -> None:
    for name in COMMANDS:
        assert f"segue relay {name}" in TEXT
    for code in (GOING_AWAY, CLOSE_POLICY, CLOSE_TRY_LATER, 1009):
        assert f"| {code} |" in TEXT


def test_its_settings_file_is_one(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(block("toml"))
    (tmp_path / "secret").write_text("s" * 32)
    settings = read_relay_settings({}, {}, file).settings
    assert settings.tls_cert == tmp_path / "cert.pem"
    assert set(tomllib.loads(block("toml"))) <= set(SETTING_NAMES)


def test_its_revocation_list_is_one() -> None:
    revocations = parse_revocations(block("text"))
    assert (len(revocations.devices), len(revocations.tokens), len(revocations.principals)) == (1, 1, 1)


def test_the_settings_of_its_unit_and_container_are_settings() -> None:
    for name in re.findall(r"SEGUE_RELAY_([A-Z_]+)=", TEXT):
        assert name.lower() in SETTING_NAMES
    flags = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", block("ini") + block("sh")))
    known = {name.replace("_", "-") for name in SETTING_NAMES} | {"config"}
    assert flags <= known


async def test_every_figure_is_named(tmp_path: Path) -> None:
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    scrape = exposition(await relay.metrics()).decode()
    await relay.close()
    for name in re.findall(r"^# TYPE segue_relay(\w+) ", scrape, re.MULTILINE):
        assert f"{name}" in TEXT, name
