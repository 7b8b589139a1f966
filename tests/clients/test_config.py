"""Settings: a flag before the environment, the environment before the file; no secret is shown."""

import os
import stat
from pathlib import Path

import pytest

from clients.config import DEFAULT_RELAY, Settings, WrongUsage, private_folder, read_settings
from sync_core.errors import ValueRefused


def settings(home: Path, flags: dict[str, str] | None = None, **environment: str) -> Settings:
    return read_settings(flags or {}, environment, platform="linux", home=home, hostname="kim.example")


def write_file(home: Path, text: str) -> None:
    folder = home / ".config" / "segue"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def test_without_anything_a_device_named_after_the_machine_uses_the_local_relay(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert (found.relay, found.subject, found.device, found.token) == (DEFAULT_RELAY, "personal", "kim-cli", None)
    assert found.store == tmp_path / ".local/share/segue/personal.kim-cli.db"


@pytest.mark.parametrize("key", ["relay", "subject", "device"])
def test_a_flag_stands_before_the_environment_and_that_before_the_file(tmp_path: Path, key: str) -> None:
    def value(name: str) -> str:
        return f"ws://{name}" if key == "relay" else name

    write_file(tmp_path, f'{key} = "{value("file")}"')
    variable = {f"SEGUE_{key.upper()}": value("environment")}
    assert getattr(settings(tmp_path), key) == value("file")
    assert getattr(settings(tmp_path, None, **variable), key) == value("environment")
    assert getattr(settings(tmp_path, {key: value("flag")}, **variable), key) == value("flag")


def test_a_token_comes_from_the_first_level_that_has_one_as_text_or_as_a_file(tmp_path: Path) -> None:
    write_file(tmp_path, 'token_file = "token"')
    (tmp_path / ".config/segue/token").write_text("from-file\n")
    (tmp_path / "other").write_text("from-flag\n")
    assert settings(tmp_path).token == "from-file"
    assert settings(tmp_path, SEGUE_TOKEN="from-environment").token == "from-environment"
    flag = {"token_file": str(tmp_path / "other")}
    assert settings(tmp_path, flag, SEGUE_TOKEN="from-environment").token == "from-flag"


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_with_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    write_file(tmp_path, 'token = "very-secret"')
    path = tmp_path / ".config/segue/config.toml"
    for mode in (0o644, 0o640, 0o620):
        path.chmod(mode)
        with pytest.raises(WrongUsage, match="open to other users") as refused:
            settings(tmp_path)
        assert "very-secret" not in str(refused.value)
    path.chmod(0o600)
    assert settings(tmp_path).token == "very-secret"


def test_a_token_is_never_in_the_text_of_the_settings(tmp_path: Path) -> None:
    found = settings(tmp_path, SEGUE_TOKEN="very-secret")
    assert found.token == "very-secret"
    assert "very-secret" not in f"{found} {found!r}"


def test_segue_home_holds_store_and_file(tmp_path: Path) -> None:
    home = tmp_path / "own"
    home.mkdir()
    (home / "config.toml").write_text('subject = "acme"')
    found = settings(tmp_path, SEGUE_HOME=str(home))
    assert found.store == home / "acme.kim-cli.db"


@pytest.mark.parametrize(
    ("platform", "store"),
    [
        ("linux", ".local/share/segue/personal.kim-cli.db"),
        ("darwin", "Library/Application Support/segue/personal.kim-cli.db"),
        ("win32", "AppData/Local/segue/personal.kim-cli.db"),
    ],
)
def test_each_platform_has_its_own_folder(tmp_path: Path, platform: str, store: str) -> None:
    found = read_settings({}, {}, platform=platform, home=tmp_path, hostname="kim")
    assert found.store == tmp_path / store


@pytest.mark.parametrize(
    "text",
    [
        "relay = ",
        "colour = 'red'",
        "device = 3",
        "relay = 'http://x'",
        "relay = 'ws://127.0.0.1:99999'",
        "relay = 'ws://x..y'",
        "relay = 'ws://[::1'",
        "token_file = 'absent'",
    ],
)
def test_a_bad_file_is_wrong_usage(tmp_path: Path, text: str) -> None:
    write_file(tmp_path, text)
    with pytest.raises(WrongUsage):
        settings(tmp_path)


@pytest.mark.parametrize("name", ["", "../up", "con", "a.b"])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueRefused):
        settings(tmp_path, SEGUE_SUBJECT="acme", SEGUE_DEVICE=name or "..")


@pytest.mark.parametrize("word", ["none", "", "off"])
def test_no_relay_is_a_setting(tmp_path: Path, word: str) -> None:
    assert settings(tmp_path, {"relay": word}).relay is None


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    found = settings(tmp_path, SEGUE_HOME=str(tmp_path / "new"))
    before = os.umask(0)
    try:
        private_folder(found)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_an_own_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    found = settings(tmp_path, SEGUE_HOME=str(tmp_path / "open"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(WrongUsage):
        private_folder(found)


def test_a_folder_that_cannot_be_made_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongUsage):
        private_folder(settings(tmp_path, SEGUE_HOME=str(tmp_path / "file" / "home")))
