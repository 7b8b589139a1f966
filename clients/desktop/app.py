"""The command line: all commands, put together."""

from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Protocol

import typer
from typer.core import TyperGroup

from clients.config import WrongUsage
from clients.desktop import audit, doctor, ending, guarded, note, services, slot, stats, task, watch
from clients.desktop.connection import configured, connected
from clients.desktop.output import emit_error

__all__ = ["app"]


_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Base of what typer raises for wrong usage; where it lies depends on typer's version."""


_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("A task", ("tasks", "show", "brief", "calls", "history", "watch", "slot", "note")),
    (
        "What cannot be undone",
        ("approvals", "approve", "reject", "doubts", "settle", "explain", "lift-barrier"),
    ),
    ("Its end", ("handover", "complete", "purge", "evict")),
    ("Audit", ("replay", "export", "restore")),
    ("Looking after it", ("doctor", "stats", "token", "relay", "demo", "rehearse")),
)
"""How the help puts the commands together."""


class _Formatter(Protocol):
    """What the help is written with; where its class lies depends on typer's version."""

    width: int

    def section(self, name: str) -> AbstractContextManager[None]: ...

    def write_dl(self, rows: list[tuple[str, str]]) -> None: ...


class _Commands(TyperGroup):
    """The commands, told in groups. With `--json`, wrong usage of one is one document, too."""

    def format_commands(self, ctx: typer.Context, formatter: _Formatter) -> None:  # type: ignore[override]
        """Write every command in its group; one that is in none comes last."""
        grouped = {name for _, names in _GROUPS for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in grouped)
        widest = max(map(len, self.commands))
        for title, names in (*_GROUPS, ("Other", others)):
            # Padded, so that the descriptions of all groups stand in one column.
            rows = [
                (name.ljust(widest), self.commands[name].get_short_help_str(formatter.width - 6 - widest))
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.meta["segue.json"] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            # Some versions of typer tell which library found the mistake, which is nothing to the user.
            error.message = str(getattr(error, "message", error)).removeprefix("Value error, ")  # type: ignore[attr-defined]
            if not ctx.meta["segue.json"]:
                raise
            sentence = error.format_message()  # type: ignore[attr-defined]
            raise typer.Exit(emit_error(WrongUsage(sentence), as_json=True)) from None


# Locals in a traceback could show a token, and completion would write into the user's shell files.
app = typer.Typer(
    name="segue",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(asked: bool) -> None:
    if asked:
        try:
            typer.echo(f"segue {version('segue')}")
        except PackageNotFoundError:
            typer.echo("segue, not installed")
        raise typer.Exit


@app.callback()
def _segue(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Segue carries an AI agent's half-finished task from one device to the next."""


task.register(app)
audit.register(app)
app.add_typer(slot.app, name="slot")
app.add_typer(note.app, name="note")
guarded.register(app)
ending.register(app)
app.command("stats")(connected(stats.stats))
app.command("doctor")(configured(doctor.doctor))
app.command("watch")(connected(watch.watch))
services.register(app)
