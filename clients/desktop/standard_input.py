"""What a command takes from standard input, or from a file."""

import sys
from pathlib import Path

from clients.config import WrongUsage

__all__ = ["read_file", "read_input"]


def read_input() -> str:
    """Return all of standard input; raises `WrongUsage` if it is closed, cannot be read, or is no UTF-8."""
    # A process may be started with its input closed, and then there is no stream at all.
    if sys.stdin is None:
        raise WrongUsage("There is no standard input to read from.", hint="Give the text as an argument.")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise WrongUsage("The text is not UTF-8.") from None
    except OSError as error:
        raise WrongUsage(f"Standard input cannot be read: {error.strerror}.") from None


def read_file(path: Path) -> str:
    """Return the text of a file, - for standard input; raises `WrongUsage` if it cannot be read, or is no UTF-8."""
    if str(path) == "-":
        return read_input()
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise WrongUsage("The text is not UTF-8.") from None
