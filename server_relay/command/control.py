"""How an operator speaks to a running relay: a socket beside the store, mode 0600, one JSON line each way.

The relay alone has the store open, so what is done with it while it runs is done by the relay itself. Who may write to
the store's folder may ask; nobody else can reach the socket. Where there are no such sockets, or the path is too long
for one, the relay runs without it, and a backup is made while it is stopped.
"""

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from server_relay.quarantine import Poison
from sync_core.errors import SegueError, StoreInUse, StoreUnusable

__all__ = ["BackedUp", "Compacted", "Control", "Poisons", "Purged", "ask", "control_path"]

_LINE_BYTES_MAX = 64 * 1024

T = TypeVar("T", bound=msgspec.Struct)
_Handler = Callable[[str], Awaitable[msgspec.Struct]]


class BackedUp(msgspec.Struct, frozen=True):
    """A copy of the store was made, of this size."""

    bytes: int


class Compacted(msgspec.Struct, frozen=True):
    """The store's size before and now."""

    bytes_before: int
    bytes: int


class Poisons(msgspec.Struct, frozen=True):
    """The poison that a relay knows, or how much of it was `cleared`."""

    known: tuple[Poison, ...] = ()
    cleared: int = 0


class Purged(msgspec.Struct, frozen=True):
    """So many tasks were purged, or would be."""

    tasks: int


def control_path(db: Path) -> Path:
    """Return where the socket of a store's relay is."""
    return db.absolute().with_name(f"{db.name}-control")


class Control:
    """Listens beside a store. `handlers` are by what is asked for; each gets one argument."""

    def __init__(self, db: Path, handlers: Mapping[str, _Handler]) -> None:
        self._path = control_path(db)
        self._handlers = handlers
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Begin to listen; return why that is not possible, '' if it is. The store must be open: it is the lock."""
        try:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(self._path.lstat().st_mode):
                    return "the path is taken"
                self._path.unlink()
            listening = socket.socket(socket.AF_UNIX)
            try:
                # The folder may be open to others, so the mode is right before anybody can connect.
                os.fchmod(listening.fileno(), 0o600)
                listening.bind(str(self._path))
                os.chmod(self._path, 0o600)
                self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=_LINE_BYTES_MAX)
            except BaseException:
                listening.close()
                raise
        except (OSError, AttributeError, NotImplementedError) as error:
            return type(error).__name__ if not isinstance(error, OSError) else str(error.strerror or error)
        return ""

    async def close(self) -> None:
        """Stop listening and take the socket away; idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError):
            # Who asked is gone, or sent a line without an end.
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, object]:
        try:
            asked = json.loads(line)
            handler = self._handlers[asked["do"]]
            argument = str(asked.get("with", ""))
        except (ValueError, KeyError, TypeError, RecursionError):
            return {"failed": True, **StoreUnusable("The relay does not understand what it is asked.").as_json()}
        try:
            return {"failed": False, **msgspec.to_builtins(await handler(argument))}
        except SegueError as error:
            return {"failed": True, **error.as_json()}


def ask(db: Path, do: str, answer: type[T], argument: str = "") -> T | None:
    """Ask the relay that runs on this store; return its answer, of this shape, None if none runs.

    Raises `StoreUnusable` with the relay's own words if it could not do it.
    """
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(control_path(db)))
            asking.sendall(json.dumps({"do": do, "with": argument}).encode() + b"\n")
            line = asking.makefile("rb").readline()
    except (OSError, AttributeError):
        return None
    if not line:
        raise StoreInUse("The relay ended before it answered.", owner_pid=None, hint="Try again.")
    document = json.loads(line)
    if document.pop("failed"):
        raise StoreUnusable(str(document.get("sentence", "")), hint=str(document.get("hint", "")))
    return msgspec.convert(document, answer)
