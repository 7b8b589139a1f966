"""What the doctor looks at: tools of a module, files, addresses."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.config import Settings, WrongUsage
from clients.desktop.surroundings import (
    exposed_files,
    in_clear,
    load_tools,
    memory_file_system,
    sqlite_version,
    versions,
)
from sync_core.entry import Effect

MODULE = """
from sync_core import Effect, tool

print("imported")

@tool(effect=Effect.READ)
def look(path: str) -> str:
    return path

@tool
def order(path: str) -> str:
    return path

@tool(key=lambda path: path, keyed=True, approval=True)
def pay(path: str, *, idempotency_key: str) -> str:
    return path

few = [look]
by_name = {"pay": pay, "more": (order,)}
nothing = []
plain = 5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "tools_to_look_at.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "tools_to_look_at"
    sys.modules.pop("tools_to_look_at", None)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("", ["look", "order", "pay"]),
        (":few", ["look"]),
        (":by_name", ["order", "pay"]),
        (":pay", ["pay"]),
        (".py", ["look", "order", "pay"]),
        (".py:few", ["look"]),
    ],
)
def test_tools_are_found_in_a_module_and_in_what_it_holds(
    module: str, place: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert [tool.name for tool in load_tools(module + place)] == names
    assert capsys.readouterr() == ("", "imported\n")


def test_what_a_tool_declares_is_told(module: str) -> None:
    look, order, pay = load_tools(module)
    assert (look.effect, look.effect_given, look.is_final) == (Effect.READ, True, False)
    assert (order.effect_given, order.takes_key, order.is_final) == (False, False, True)
    assert pay.takes_key and pay.by_entity and pay.checked and pay.needs_approval and not pay.has_probe


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (":absent", "no attribute"),
        (":nothing", "no tools"),
        (":plain", "no tools"),
        ("_not", "cannot be imported"),
        ("/absent.py", "cannot be imported"),
    ],
)
def test_a_place_without_tools_is_wrong_usage(module: str, place: str, told: str) -> None:
    with pytest.raises(WrongUsage, match=told):
        load_tools(module + place)


def test_a_module_that_fails_is_wrong_usage(tmp_path: Path, module: str) -> None:
    (tmp_path / "failing.py").write_text("raise RuntimeError('no database')")
    with pytest.raises(WrongUsage, match="RuntimeError: no database"):
        load_tools("failing")


def test_files_that_others_may_read_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "segue"
    folder.mkdir(mode=0o700)
    settings = Settings(None, "acme", "phone", None, folder / "a.db", folder)
    settings.store.touch(0o600)
    token = folder / "token"
    token.touch(0o600)
    assert exposed_files(settings, [token, folder / "absent"]) == ()
    folder.chmod(0o755)
    token.chmod(0o640)
    found = {Path(file.path).name: file.mode for file in exposed_files(settings, [token])}
    assert found == {"token": 0o640, "segue": 0o755}


@pytest.mark.parametrize(
    ("address", "clear"),
    [
        ("", False),
        ("ws://127.0.0.1:8700", False),
        ("ws://localhost:8700", False),
        ("ws://[::1]:8700", False),
        ("wss://relay.example", False),
        ("ws://relay.example", True),
        ("ws://10.0.0.7:8700", True),
    ],
)
def test_an_address_leaves_the_machine_in_clear_or_not(address: str, clear: bool) -> None:
    assert in_clear(address) is clear


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a file system in memory")
def test_a_file_system_without_a_disk_is_seen() -> None:
    assert memory_file_system(Path("/dev/shm/segue/a.db")) == "tmpfs"
    assert memory_file_system(Path("/proc/a.db")) == ""


def test_versions_are_those_of_this_process() -> None:
    assert sqlite_version() == sqlite_version() >= (3, 33)
    assert versions()["python"].startswith("3.") and versions()["pycrdt"]
