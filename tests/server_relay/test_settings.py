"""A relay's settings: by flag, environment, file and default, each with its origin."""

from pathlib import Path

import pytest

from server_relay.config import SECRET_BYTES_MIN, RelaySettings
from server_relay.settings import HELP, SETTING_NAMES, Configured, flag_of, is_list, is_switch, read_relay_settings
from sync_core.errors import ValueRefused

SECRET = "s" * SECRET_BYTES_MIN


def read(
    config: Path | None = None, environment: dict[str, str] | None = None, **flags: str | list[str] | None
) -> Configured:
    return read_relay_settings({"db": "relay.db", **flags}, environment or {}, config)


def shown(configured: Configured, name: str) -> tuple[str, str]:
    (found,) = [setting for setting in configured.shown if setting.name == name]
    return found.value, found.origin


def test_a_flag_comes_before_the_environment_before_the_file_before_the_default(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text("port = 1\nfollows_max = 1\nidle_task_ms = 1\n")
    environment = {"SEGUE_RELAY_PORT": "2", "SEGUE_RELAY_FOLLOWS_MAX": "2"}
    configured = read(file, environment, port="3")
    settings = configured.settings
    assert (settings.port, settings.follows_max, settings.idle_task_ms, settings.login_timeout_ms) == (3, 2, 1, 5_000)
    assert shown(configured, "port") == ("3", "flag --port")
    assert shown(configured, "follows_max") == ("2", "environment SEGUE_RELAY_FOLLOWS_MAX")
    assert shown(configured, "idle_task_ms") == ("1", f"file {file}")
    assert shown(configured, "login_timeout_ms") == ("5000", "default")


def test_every_setting_may_come_from_each_place_and_means_the_same(tmp_path: Path) -> None:
    values = {
        "db": "x.db",
        "host": "127.0.0.2",
        "origins": "https://a.example",
        "hosts": "a.example",
        "log_format": "json",
        "metrics_host": "127.0.0.3",
        "clock_confirmed": "true",
        "authority": "false",
    }
    texts = {"auth_keys", "revocations", "tls_cert", "tls_key", "auth_secret_file"}
    for name in SETTING_NAMES:
        if name in texts:
            continue
        value = values.get(name, "17")
        by_flag = read(**{name: [value] if is_list(name) else value})
        by_variable = read_relay_settings({}, {f"SEGUE_RELAY_{name.upper()}": value, "SEGUE_RELAY_DB": "x.db"}, None)
        literal = value if value in ("17", "true", "false") else f'["{value}"]' if is_list(name) else f'"{value}"'
        (tmp_path / "relay.toml").write_text(f"{name} = {literal}\n" + ("" if name == "db" else 'db = "x.db"\n'))
        by_file = read_relay_settings({}, {}, tmp_path / "relay.toml")
        got = {str(getattr(each.settings, name)).split("/")[-1] for each in (by_flag, by_variable, by_file)}
        assert len(got) == 1, (name, got)
        assert got != {str(getattr(RelaySettings(Path("y.db")), name))}


def test_the_secret_is_shown_as_set_never_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    by_flag = read(auth_secret_file=str(file))
    by_variable = read(environment={"SEGUE_RELAY_SECRET": SECRET})
    assert by_flag.settings.auth_secret_file == file
    assert by_variable.settings.secret == SECRET
    for configured, origin in ((by_flag, "flag --auth"), (by_variable, "environment SEGUE_RELAY_SECRET")):
        assert shown(configured, "secret") == ("set", origin)
        assert SECRET not in repr(configured.shown)
    assert shown(read(), "secret") == ("not set", "default")
    (tmp_path / "relay.toml").write_text('auth_secret_file = "secret"\n')
    assert read(tmp_path / "relay.toml").settings.auth_secret_file == file


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "relay.toml").write_text('db = "store/relay.db"\n')
    assert read_relay_settings({}, {}, tmp_path / "relay.toml").settings.db == tmp_path / "store/relay.db"


def test_lists_in_the_environment_are_separated_by_commas() -> None:
    settings = read(environment={"SEGUE_RELAY_ORIGINS": "https://a.example,https://b.example"}).settings
    assert settings.origins == ("https://a.example", "https://b.example")


@pytest.mark.parametrize(
    "content",
    ["port =", "unknown = 1", f'secret = "{SECRET}"', 'port = "8700"', "port = 1.5", "origins = 5", "port = 70000",
     "db = 5", 'log_format = "xml"', "access_reread_ms = 0", "access_reread_ms = 30000", "follows_max = -1",
     'tls_cert = "a.pem"'],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    (tmp_path / "relay.toml").write_text(content)
    with pytest.raises(ValueRefused) as caught:
        read_relay_settings({} if content.startswith("db") else {"db": "x.db"}, {}, tmp_path / "relay.toml")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("flags", [{"port": "x"}, {"port": "-1"}, {"db": None}, {"store_bytes_max": "1.5"}])
def test_a_flag_that_does_not_fit_is_refused(flags: dict[str, str | None]) -> None:
    with pytest.raises(ValueRefused):
        read(**flags)
    with pytest.raises(ValueRefused):
        read(Path("missing.toml"))


def test_a_relay_checks_tokens_in_one_way() -> None:
    with pytest.raises(ValueRefused, match="not with both"):
        RelaySettings(Path("x"), secret=SECRET, auth_keys=Path("keys"))
    with pytest.raises(ValueRefused, match="open relay"):
        RelaySettings(Path("x"), revocations=Path("list"))


def test_every_setting_has_help_and_a_flag() -> None:
    assert set(HELP) == set(SETTING_NAMES)
    flags = [flag for name in SETTING_NAMES for flag in flag_of(name)]
    assert len(flags) == len(set(flags))
    assert [name for name in SETTING_NAMES if is_switch(name)] == ["clock_confirmed", "authority"]


def test_a_variable_that_is_no_setting_is_told() -> None:
    environment = {"SEGUE_RELAY_DB": "relay.db", "SEGUE_RELAY_AUTH_SECRET_FLIE": "x", "SEGUE_RELAY_CONFIG": ""}
    assert read_relay_settings({}, environment, None).unknown == ("SEGUE_RELAY_AUTH_SECRET_FLIE",)
