"""The command line: all commands, put together."""

import typer
from typer.core import TyperGroup

from clients.desktop import audit, note, services, slot, task, watch
from clients.desktop.connection import connected

__all__ = ["app"]


class _Commands(TyperGroup):
    def invoke(self, ctx: object) -> object:
        try:
            return super().invoke(ctx)  # type: ignore[arg-type]
        except typer.BadParameter as error:
            # Some versions of typer tell which library found the mistake, which is nothing to the user.
            error.message = error.message.removeprefix("Value error, ")
            raise


# Locals in a traceback could show a token, and completion would write into the user's shell files.
app = typer.Typer(
    name="segue",
    cls=_Commands,
    help="Segue carries an AI agent's half-finished task from one device to the next.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
task.register(app)
audit.register(app)
app.add_typer(slot.app, name="slot")
app.add_typer(note.app, name="note")
app.command("watch")(connected(watch.watch))
services.register(app)
