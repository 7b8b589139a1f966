"""`segue relay poison`: what a running relay refuses by its hash, and how to make it forget that."""

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from server_relay.command.control import Poisons, ask
from server_relay.command.output import answer, guarded
from server_relay.quarantine import Poison
from sync_core.errors import StoreUnusable

__all__ = ["run"]


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """List what is known, or forget it; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="segue relay poison",
        description="List the entries whose bytes no device may read, as a running relay remembers them: by hash, with"
        " who brought them. A stopped relay remembers none.",
    )
    parser.add_argument("--db", type=Path, required=True, help="the relay's SQLite file")
    parser.add_argument("--clear", action="store_true", help="forget them; the guard judges each anew when it comes")
    parser.add_argument("--json", action="store_true", help="print for programs")
    options = parser.parse_args(argv[1:])
    return guarded(lambda: _told(options.db, options.clear, options.json), options.json)


def _told(db: Path, clear: bool, as_json: bool) -> int:
    told = ask(db, "forget" if clear else "poison", Poisons)
    if told is None:
        raise StoreUnusable(
            "No relay runs on this store.", hint="Only a relay that runs knows of poison; a restart forgets it."
        )
    if clear:
        return answer({"event": "cleared", "cleared": told.cleared}, (f"Forgot {told.cleared} hashes.",), as_json)
    document = {"event": "poison", "poison": [msgspec.to_builtins(poison) for poison in told.known]}
    return answer(document, [_line(poison) for poison in told.known] or ["No poison is known."], as_json)


def _line(poison: Poison) -> str:
    last = datetime.fromtimestamp(poison.last_ms / 1000, UTC).isoformat(timespec="seconds")
    return (
        f"{poison.sha256[:16]}  {last}  {poison.times} times, {poison.kind} of {poison.size_bytes} bytes,"
        f" from {poison.subject}/{poison.device}: {poison.sentence}"
    )
