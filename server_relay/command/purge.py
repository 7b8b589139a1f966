"""`segue relay purge`: delete a task, or all tasks of a subject, at the relay and on every device that comes."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from server_relay.command.control import Purged, ask
from server_relay.command.output import answer, guarded
from server_relay.command.purging import Purge, end_in_store, purge
from server_relay.command.store import opened
from sync_core.errors import ValueRefused

__all__ = ["run"]


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Purge, or say what would be purged; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="segue relay purge",
        description="Delete tasks for good: at the relay, which keeps a tombstone of each, and on every device when it"
        " comes. A relay that runs does it itself and goes on. Keys of calls that cannot be undone stay taken.",
    )
    parser.add_argument("--db", type=Path, required=True, help="the relay's SQLite file")
    parser.add_argument("--subject", required=True, help="whose tasks")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--task", metavar="KEY", help="this task alone")
    which.add_argument("--all-tasks", action="store_true", help="every task of the subject")
    parser.add_argument("--yes", action="store_true", help="do it: nobody gets it back")
    parser.add_argument("--json", action="store_true", help="print for programs")
    options = parser.parse_args(argv[1:])
    wanted = Purge(options.subject, options.task, options.yes)
    return guarded(lambda: _purged(options.db, wanted, options.json), options.json)


def _purged(db: Path, wanted: Purge, as_json: bool) -> int:
    asked = wanted.as_text()
    Purge.parsed(asked)
    done = ask(db, "purge", Purged, asked)
    by_the_relay = done is not None
    if done is None:
        done = opened(db, lambda mailbox: purge(mailbox, wanted, end_in_store(mailbox)))
    what = f"{done.tasks} tasks of {wanted.subject}" if wanted.task is None else f"{wanted.subject}'s {wanted.task}"
    if not wanted.confirmed:
        raise ValueRefused(
            f"This deletes {what}, here and on every device, and nobody gets it back.",
            hint="`segue relay backup` keeps a copy. Else give --yes.",
        )
    document = {"event": "purged", "subject": wanted.subject, "task": wanted.task, "tasks": done.tasks}
    who = "the relay that runs" if by_the_relay else "no relay runs"
    return answer({**document, "by_the_relay": by_the_relay}, (f"Purged {what} ({who}).",), as_json)
