"""`segue relay backup, verify, restore, compact`: what an operator does with a relay's store."""

import argparse
import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from server_relay.command.control import BackedUp, Compacted, ask
from server_relay.command.output import answer, guarded
from server_relay.command.restoring import restore
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.mailbox.verifying import verify_file
from sync_core.errors import StoreUnusable

__all__ = ["opened", "run"]

T = TypeVar("T")


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out one of the commands; return the exit status."""
    options = _parser(argv[0]).parse_args(argv[1:])
    command = {"backup": _backup, "verify": _verify, "restore": _restore, "compact": _compact}[argv[0]]
    return guarded(lambda: command(options), options.json)


def _parser(name: str) -> argparse.ArgumentParser:
    about = {
        "backup": "Copy a relay's store to a new file. A relay that runs makes the copy itself and goes on.",
        "verify": "Check a store or a backup: checksums, chains, writer tables, blobs. Status 1 if anything is wrong.",
        "restore": "Put a backup in the place of a store whose relay is stopped. What was there is kept beside it, and"
        " devices bring back what the backup lacks.",
        "compact": "Give back the room that deleted rows have left. Needs that much room once more.",
    }
    parser = argparse.ArgumentParser(prog=f"segue relay {name}", description=about[name])
    if name == "verify":
        parser.add_argument("file", type=Path, help="the store of a stopped relay, or a backup")
    else:
        parser.add_argument("--db", type=Path, required=True, help="the relay's SQLite file")
    if name == "backup":
        parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="the new file")
    if name == "restore":
        parser.add_argument("--from", dest="backup", type=Path, required=True, metavar="FILE", help="the backup")
    parser.add_argument("--json", action="store_true", help="print for programs")
    return parser


def _backup(options: argparse.Namespace) -> int:
    to = Path(os.path.abspath(options.to))
    answered = ask(options.db, "backup", BackedUp, str(to))
    size = answered.bytes if answered is not None else opened(options.db, lambda mailbox: mailbox.back_up(to))
    done = {"event": "backed_up", "to": str(to), "bytes": size, "by_the_relay": answered is not None}
    who = "the relay that runs" if answered is not None else "no relay runs"
    return answer(done, (f"Backed up to {to}: {size} bytes ({who}).",), options.json)


def _verify(options: argparse.Namespace) -> int:
    verdict = verify_file(options.file)
    counts = {
        "subjects": verdict.subjects,
        "tasks": verdict.tasks,
        "streams": verdict.streams,
        "entries": verdict.entries,
        "blobs": verdict.blobs,
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    lines = [*verdict.problems, f"{len(verdict.problems)} problems: {told}" if verdict.problems else f"Sound: {told}"]
    answer({"event": "verified", **counts, "problems": list(verdict.problems)}, lines, options.json)
    return 1 if verdict.problems else 0


def _restore(options: argparse.Namespace) -> int:
    replaced = restore(options.db, options.backup)
    done = {"event": "restored", "db": str(options.db), "replaced": str(replaced or "")}
    kept = f" What was there is kept as {replaced}." if replaced else ""
    return answer(done, (f"Restored {options.db} from {options.backup}.{kept}",), options.json)


def _compact(options: argparse.Namespace) -> int:
    done = ask(options.db, "compact", Compacted)
    if done is None:
        done = Compacted(*opened(options.db, lambda mailbox: mailbox.compact()))
    told = f"Compacted {options.db}: {done.bytes_before} bytes before, {done.bytes} now."
    return answer({"event": "compacted", **msgspec.structs.asdict(done)}, (told,), options.json)


def opened(db: Path, work: Callable[[SqliteMailbox], Coroutine[None, None, T]]) -> T:
    """Do something with a store whose relay is stopped."""
    if not db.is_file():
        raise StoreUnusable("There is no such store.", hint="Name the relay's file with --db.")

    async def opened() -> T:
        mailbox = await SqliteMailbox.open(db)
        try:
            return await work(mailbox)
        finally:
            await mailbox.close()

    return asyncio.run(opened())
