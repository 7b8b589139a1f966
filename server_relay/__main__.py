"""`python -m server_relay`, and `segue relay`: run a relay, or one of the commands beside it.

Exit status 0 done or stopped, 1 if it cannot start, fails or is refused, 2 for wrong usage.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["main"]

_MODULES = {
    "token": "token",
    "top": "top",
    "bench": "bench",
    "backup": "store",
    "verify": "store",
    "restore": "store",
    "compact": "store",
    "purge": "purge",
    "poison": "poison",
}
"""Where each command lies: one that is not asked for is not loaded."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what these arguments say (those of the process by default); return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    module = import_module(f"server_relay.command.{_MODULES.get(name, 'run')}")
    status: int = module.run(arguments, os.environ)
    return status


if __name__ == "__main__":
    sys.exit(main())
