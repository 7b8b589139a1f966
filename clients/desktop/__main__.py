"""`segue`, and `python -m clients.desktop`."""

import sys

__all__ = ["main"]

_EXTRAS = {"typer": "cli", "rich": "cli", "jwt": "relay", "pypdf": "demo"}
"""The package that a command may miss, and the extra that brings it."""


def main() -> None:
    """Run the command line; exit status 0 done, 1 refused or conflicted, 2 wrong usage."""
    try:
        _run()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        sys.exit(f"Error: This command needs the package {error.name}.\nInstall it with: pip install 'segue[{extra}]'")


def _run() -> None:
    if sys.argv[1:2] == ["relay"]:
        # A relay is up in a moment: it needs nothing of the command line but its own arguments.
        from server_relay.__main__ import main as relay

        sys.exit(relay(sys.argv[2:]))
    from clients.desktop.app import app

    app()


if __name__ == "__main__":
    main()
