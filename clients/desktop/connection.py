"""Between the command line and the endpoint: the options of every command that opens the store, and opening it.

A command is an async function of an open `Session` and its own arguments that returns an `Answer`; `connected` turns it
into what typer calls, and `configured` one that opens the session itself, if at all. The engine is imported when a
command runs, so that help and usage errors come at once.
"""

import asyncio
import inspect
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from clients.config import Settings, WrongUsage, private_folder, read_settings
from clients.desktop.output import Answer, ExitStatus, JsonDocument, emit, emit_error
from sync_core.errors import NotSyncedYet, Refused, SegueError, SyncTimeout
from sync_core.replica.changes import LinkState, Status

if TYPE_CHECKING:
    from sync_core import Endpoint, Task
    from sync_core.endpoint.opening import Opening

__all__ = ["AsJson", "Given", "Sending", "Session", "answered", "configured", "connected"]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_WAIT_S = 5.0
_WAIT_S_MAX = 10**9
_LOOK_S = 0.02
_OPTIONS: dict[str, tuple[str, type, str]] = {
    "relay": ("--relay", str, "The relay's address (ws:// or wss://), or none."),
    "subject": ("--subject", str, "The business subject."),
    "device": ("--device", str, "The name of this device."),
    "token_file": ("--token-file", str, "The file that holds the relay's token."),
    "store": ("--store", str, "This device's file."),
    "wait": ("--wait", float, "Seconds to wait for the relay; else 5, less if it cannot be reached."),
}


class Sending(msgspec.Struct, frozen=True):
    """Whether the relay has all of this device's work, and why not."""

    done: bool
    status: Status

    @property
    def refused(self) -> bool:
        """Whether the relay refused this device for good; what was written stays here."""
        return self.status.link is LinkState.REFUSED

    @property
    def exit_status(self) -> ExitStatus:
        """How a command ends whose own part went well."""
        return ExitStatus.REFUSED if self.refused else ExitStatus.DONE

    def document(self) -> dict[str, JsonDocument]:
        """Return it for programs."""
        return {
            "synced": self.done,
            "link": self.status.link.value,
            "reason": self.status.reason,
            "unsent": self.status.unsent,
            "set_aside": self.status.set_aside,
            "diverged": list(self.status.diverged),
            "growing": list(self.status.growing),
        }

    def sentences(self) -> tuple[str, ...]:
        """Return it for people; nothing if all is well."""
        said = []
        if not self.done:
            why = f" ({self.status.reason.rstrip('.')})" if self.status.reason else ""
            waiting = f" Entries that wait on this device: {self.status.unsent}." if self.status.unsent else ""
            said.append(f"Not in step with the relay: {self.status.link.value}{why}.{waiting}")
        if self.status.set_aside:
            said.append(f"Entries of this device that were refused and are set aside: {self.status.set_aside}.")
        said += [f"{key} holds other content than on another device; keep both files." for key in self.status.diverged]
        said += [f"{key} nears the bound of its writes; go on in a new task soon." for key in self.status.growing]
        return tuple(said)


class Session:
    """An open endpoint, and how long a command waits for the relay, if there is one.

    With `wait_s` None a command waits 5 s, and gives up as soon as the relay cannot be reached.
    """

    def __init__(self, endpoint: "Endpoint", wait_s: float | None, as_json: bool) -> None:
        self.endpoint = endpoint
        self.as_json = as_json
        self._wait_s = wait_s

    def task(self, key: str, *, write: bool = False, create: bool = False) -> "Opening[Task]":
        """Open a task for one command; without a link, what this device has of it."""
        return self.endpoint.task(key, create=create, access="write" if write else "read")

    async def synced(self) -> Sending:
        """Wait until this device and the relay are in step, and return where that stands."""
        left_s = _WAIT_S if self._wait_s is None else self._wait_s
        while left_s > 0 and self._may_come():
            await asyncio.sleep(_LOOK_S)
            left_s -= _LOOK_S
        try:
            # A device that follows nothing is in step with everybody, so being connected is asked for apart.
            if self.endpoint.status.link is not LinkState.LIVE:
                return Sending(False, self.endpoint.status)
            await self.endpoint.synced(timeout_s=max(left_s, _LOOK_S))
        except (SyncTimeout, Refused):
            return Sending(False, self.endpoint.status)
        return Sending(True, self.endpoint.status)

    def _may_come(self) -> bool:
        """Whether a link is about to stand. One that failed may come back; only an explicit wait is that patient."""
        link = self.endpoint.status.link
        if link is LinkState.OFFLINE:
            return self._wait_s is not None
        return link in (LinkState.CONNECTING, LinkState.SYNCING)


class Given:
    """What a command was given beside its own arguments: the options that name relay, subject, device and store."""

    def __init__(self, options: dict[str, object], as_json: bool) -> None:
        wait = options["wait"]
        self._wait_s = wait if isinstance(wait, float) else None
        self._as_json = as_json
        self._flags = {name: value if isinstance(value, str) else None for name, value in options.items()}
        del self._flags["wait"]

    def flag(self, name: str) -> str | None:
        """Return what was given for an option, None if it was left out."""
        return self._flags[name]

    def settings(self) -> Settings:
        """Return the settings that stand; raises `WrongUsage`, also for a wait that is no time."""
        if self._wait_s is not None and not 0 <= self._wait_s <= _WAIT_S_MAX:
            raise WrongUsage(f"--wait takes from 0 to {_WAIT_S_MAX} seconds.")
        return read_settings(self._flags, os.environ, hostname=platform.node())

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Open this device's store, in a folder that is its owner's alone."""
        settings = self.settings()
        private_folder(settings)

        from sync_core import Endpoint

        async with Endpoint.open(
            settings.store,
            subject=settings.subject,
            device=settings.device,
            relay=settings.relay,
            # A file that holds it is read again: a command that goes on for long outlives its first token.
            token=lambda: self.settings().token or "",
            open_timeout_s=_WAIT_S if self._wait_s is None else self._wait_s,
        ) as endpoint:
            yield Session(endpoint, self._wait_s if settings.relay else 0.0, self._as_json)


def configured(work: Callable[..., Awaitable[Answer | None]]) -> Callable[..., None]:
    """Return the command that lets `work` do its part and prints its answer.

    `work` takes a `Given` and then its own arguments, annotated for typer; the command has those and the shared ones.
    """
    own = list(inspect.signature(work).parameters.values())[1:]
    shared = [_parameter(name, *_OPTIONS[name]) for name in _OPTIONS]
    json_option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)

    def command(**arguments: object) -> None:
        options = {name: arguments.pop(name) for name in _OPTIONS}
        as_json = bool(arguments.pop("as_json"))

        async def run() -> Answer | None:
            return await work(Given(options, as_json), **arguments)

        answered(lambda: asyncio.run(run()), as_json)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared + [json_option]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = work.__doc__
    command.__name__ = work.__name__
    return command


def connected(work: Callable[..., Awaitable[Answer | None]]) -> Callable[..., None]:
    """Return the command that opens this device's store, lets `work` do its part and prints its answer.

    As `configured`, but `work` takes the open `Session`.
    """

    async def opened(given: Given, **arguments: object) -> Answer | None:
        async with given.session() as session:
            try:
                return await work(session, **arguments)
            except NotSyncedYet as error:
                raise _with_reason(error, session.endpoint.status.reason) from None

    opened.__signature__ = inspect.signature(work)  # type: ignore[attr-defined]
    opened.__doc__ = work.__doc__
    opened.__name__ = work.__name__
    return configured(opened)


def _with_reason(error: NotSyncedYet, reason: str) -> NotSyncedYet:
    """The error with why there is no link, which may be all that has to be mended."""
    return NotSyncedYet(f"{error.sentence} Why: {reason.rstrip('.')}.") if reason else error


_HINTS = {
    "task_not_found": "Check the key; --create starts a task where a value or a note is written.",
    "not_synced_yet": "Connect once to the relay; --create starts it here where a value or a note is written.",
}
"""What a person at the command line can do, where the error's own hint speaks to a program."""


def answered(work: Callable[[], Answer | None], as_json: bool) -> None:
    """Run a command's work, print its answer, if any, or its error, and end with the exit status."""
    try:
        answer = work()
        status = 0 if answer is None else emit(answer, as_json)
    except SegueError as error:
        error.hint = _HINTS.get(error.code, error.hint)
        status = emit_error(error, as_json)
    raise typer.Exit(status)


def _parameter(name: str, flag: str, kind: type, text: str) -> inspect.Parameter:
    annotation = Annotated[kind | None, typer.Option(flag, help=text)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
