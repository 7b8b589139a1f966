"""What `segue doctor` looks at: the tools of a module, this device's files, the versions; and asks nobody."""

import contextlib
import importlib
import importlib.util
import os
import platform
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clients.config import Settings, WrongUsage
from clients.desktop.facts import EXPOSED, OpenFile, ToolFacts
from clients.desktop.findings import SUPPORTED

if TYPE_CHECKING:
    from sync_core import Tool

__all__ = [
    "exposed_among",
    "exposed_files",
    "in_clear",
    "load_tools",
    "memory_file_system",
    "sqlite_version",
    "versions",
]

_WITHOUT_DISK = frozenset({"tmpfs", "ramfs"})


def load_tools(place: str) -> tuple[ToolFacts, ...]:
    """Return what the tools at `module`, `module:attribute` or `file.py:attribute` declare, by name.

    Without an attribute every tool of the module counts, also those in its lists and dicts. Raises `WrongUsage` if the
    module cannot be imported or there are none.
    """
    name, _, attribute = place.partition(":")
    # What the module prints while it is imported must not get into the answer.
    with contextlib.redirect_stdout(sys.stderr):
        module = _import(name)
    if attribute and not hasattr(module, attribute):
        raise WrongUsage(f"The module {name} has no attribute {attribute}.")
    tools = {tool.name: tool for tool in _tools_in(vars(module)[attribute] if attribute else vars(module))}
    if not tools:
        raise WrongUsage(f"There are no tools at {place}.", hint="Name a module whose functions are made with @tool.")
    return tuple(_facts(tool) for _, tool in sorted(tools.items()))


def _import(name: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _run_file(Path(name))
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    except Exception as error:
        # A module may raise anything while it is imported.
        raise WrongUsage(
            f"The module {name} cannot be imported: {type(error).__name__}: {error}.",
            hint="Name it as in Python, from the folder it lies in, or as a .py file.",
        ) from None


def _run_file(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None or not path.is_file():
        raise FileNotFoundError("there is no such file")
    module = importlib.util.module_from_spec(found)
    # Annotations of a dataclass are looked up in the module by its name.
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.absolute()))
    found.loader.exec_module(module)
    return module


def _tools_in(value: object) -> Iterator["Tool[..., object]"]:
    from sync_core import Tool

    if isinstance(value, Tool):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in list(value.items()):
            if not (isinstance(name, str) and name.startswith("__")):
                yield from _tools_in(inner)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for inner in value:
            yield from _tools_in(inner)


def _facts(tool: "Tool[..., object]") -> ToolFacts:
    safeguards = tool.safeguards
    return ToolFacts(
        name=tool.name,
        effect=tool.effect,
        effect_given=tool.effect_given,
        takes_key=tool.takes_key,
        by_entity=safeguards.by_entity,
        checked=safeguards.checked,
        has_probe=safeguards.can_probe,
        needs_approval=safeguards.approval,
    )


def exposed_files(settings: Settings, others: Iterable[Path]) -> tuple[OpenFile, ...]:
    """Return which of this device's files others than their owner may read or write; `others` are looked at too."""
    store = settings.store
    files = [store, *(store.with_name(store.name + end) for end in ("-wal", "-shm")), *others]
    if store.parent == settings.own_folder:
        files.append(store.parent)
    return exposed_among(files)


def exposed_among(files: Iterable[Path]) -> tuple[OpenFile, ...]:
    """Return which of these files others than their owner may read or write; one that is not there is none."""
    if os.name != "posix":
        return ()
    found = []
    for path in dict.fromkeys(files):
        with contextlib.suppress(OSError):
            mode = path.stat().st_mode & 0o777
            if mode & EXPOSED:
                found.append(OpenFile(str(path), mode))
    return tuple(found)


def memory_file_system(path: Path) -> str:
    """Return the kind of the file system that a path lies on if it has no disk, else an empty text; Linux only."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except (OSError, ValueError):
        return ""
    place = path.expanduser().absolute()
    # The mount with the longest name that the path lies below; of two at one place the later one hides the other.
    below = [(len(where), kind) for where, kind in mounts if place.is_relative_to(where)]
    kind = max(below, key=lambda mount: mount[0], default=(0, ""))[1] if below else ""
    return kind if kind in _WITHOUT_DISK else ""


def in_clear(address: str) -> bool:
    """Return whether a relay's address leaves this machine without TLS."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme != "ws" or host == "localhost":
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def sqlite_version() -> tuple[int, ...]:
    """Return the version of the SQLite that this Python comes with."""
    return sqlite3.sqlite_version_info


def versions() -> dict[str, str]:
    """Return the versions that matter, by name; empty for a package that is not installed."""
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for name in ("segue", *(name for name in SUPPORTED if name != "python")):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found
