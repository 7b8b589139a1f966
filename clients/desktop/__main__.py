"""`segue`, and `python -m clients.desktop`."""

import io
import os
import sys

__all__ = ["main"]

_EXTRAS = {"typer": "cli", "rich": "cli", "jwt": "relay", "prometheus_client": "relay", "pypdf": "demo"}
"""The package that a command may miss, and the extra that brings it."""


def main() -> None:
    """Run the command line; exit status 0 done, 1 refused or conflicted, 2 wrong usage, 130 for Ctrl-C at the start."""
    _mend_streams()
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # Whatever a command does with files it tells itself: what is left is that the answer cannot be written.
        _drop_output()
        sys.exit(f"Error: The answer cannot be written: {error.strerror}.")
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        sys.exit(f"Error: This command needs the package {error.name}.\nInstall it with: pip install 'segue[{extra}]'")


def _mend_streams() -> None:
    """Take any output: a closed one goes nowhere, and a character that its encoding lacks becomes an escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (open as long as the process)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Let what still waits to be written go nowhere, or the interpreter would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    if sys.argv[1:2] == ["relay"]:
        # A relay is up in a moment: it needs nothing of the command line but its own arguments.
        from server_relay.__main__ import main as relay

        sys.exit(relay(sys.argv[2:]))
    from clients.desktop.app import app

    app()


if __name__ == "__main__":
    main()
