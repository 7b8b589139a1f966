"""What the relay's commands print: lines for people, or one JSON document for programs.

Exit status 0 done, 1 refused or failed; argparse itself ends with 2 for wrong usage.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence

from sync_core.errors import SegueError

__all__ = ["answer", "fail", "guarded", "printable"]


def answer(document: Mapping[str, object], lines: Sequence[str], as_json: bool) -> int:
    """Print what a command has to say; return the exit status."""
    if as_json:
        print(json.dumps(document), flush=True)
    else:
        print("\n".join(map(printable, lines)), flush=True)
    return 0


def fail(problem: Mapping[str, object], text: str, as_json: bool) -> int:
    """Print why a command failed; return the exit status."""
    if as_json:
        print(json.dumps({"event": "failed", **problem}), flush=True)
    else:
        print(printable(text), file=sys.stderr)
    return 1


def guarded(command: Callable[[], int], as_json: bool) -> int:
    """Run a command; a refusal becomes its output and status 1."""
    try:
        return command()
    except SegueError as error:
        return fail(error.as_json(), str(error), as_json)
    except ModuleNotFoundError as error:
        text = f"This needs the package {printable(str(error.name))}; install it with: pip install 'segue[relay]'"
        return fail({"code": "missing_package", "sentence": text, "hint": ""}, text, as_json)


def printable(text: str) -> str:
    """Return the text with what would move the cursor or end the line written as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
