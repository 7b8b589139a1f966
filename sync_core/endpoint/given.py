"""What `Endpoint.open(…)` is given beside names and numbers, checked before a file is touched."""

import os
from collections.abc import Callable, Iterable

from sync_core.checked import check_instance, check_text, refused
from sync_core.endpoint.link import Backoff, TokenSource
from sync_core.endpoint.tools import MODEL_TOOL_NAMES, Tool
from sync_core.endpoint.transport import Transport, check_address
from sync_core.errors import ValueRefused

__all__ = ["check_link", "checked_path", "tools_by_name"]


def checked_path(path: str | os.PathLike[str]) -> str:
    """Return the store's path; raises `ValueRefused` for what can name no file."""
    check_instance(path, (str, os.PathLike), "path", "a path")
    name = os.fspath(path)
    check_instance(name, str, "path", "a path of text")
    if "\0" in name:
        raise ValueRefused("path holds a NUL character, which no file name has.")
    if name == ":memory:":
        raise ValueRefused("A store is a file: there is none in memory.", hint="Name a file in a temporary folder.")
    return name


def check_link(
    relay: str | None,
    token: TokenSource,
    backoff: Backoff | None,
    transport: Transport | None,
    chance: Callable[[], float],
) -> str | None:
    """Return the relay's address; raises `ValueRefused` for what the link could only fail on later."""
    if not callable(token):
        check_text(token, "token")
    if backoff is not None:
        check_instance(backoff, Backoff, "backoff", "a Backoff")
    if not callable(chance):
        raise refused("chance", "a function", chance)
    if relay is None:
        return None
    # What an address is at another transport, that transport knows.
    return check_address(relay) if transport is None else check_text(relay, "relay")


def tools_by_name(tools: Iterable[Tool[..., object]]) -> dict[str, Tool[..., object]]:
    """Return the tools by name; raises `ValueRefused` for what is no tool and for a name that is taken."""
    check_instance(tools, Iterable, "tools", "several tools", hint="Put a single one into a list.")
    named: dict[str, Tool[..., object]] = {}
    for tool in tools:
        check_instance(tool, Tool, "Each of tools", "a tool", hint="Decorate the function with @tool.")
        if tool.name in named or tool.name in MODEL_TOOL_NAMES:
            raise ValueRefused(f"The tool name {tool.name} is taken.", hint="Give another one with @tool(name=…).")
        named[tool.name] = tool
    return named
