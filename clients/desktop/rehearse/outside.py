"""The outside system of a rehearsal: where calls that cannot be undone have their effect, whatever becomes of a device.

It is a file of its own, written before a tool hears of it, so a device that dies afterwards has had its effect. It
checks idempotency keys, as a good payment service does: what comes again under a key is answered and does not happen
again. What comes twice under two keys happens twice, and is counted as a double.
"""

import sqlite3
from pathlib import Path

import msgspec

__all__ = ["Deed", "Happened", "OutsideSystem", "read_outside"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS effects (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, run INTEGER NOT NULL, step INTEGER NOT NULL,
    tool TEXT NOT NULL, entity TEXT NOT NULL, label TEXT NOT NULL, device TEXT NOT NULL, result TEXT NOT NULL,
    asked INTEGER NOT NULL DEFAULT 1, undone_by INTEGER, double INTEGER NOT NULL)
"""
_BUSY_S = 30.0


class Deed(msgspec.Struct, frozen=True):
    """What is asked of the outside system: for a call of a run, this effect. `result` is what it answers to it.

    `entity` is the business entity as canonical JSON, empty without one; `undoes` are tool and label of an earlier
    effect of the run that this one takes back.
    """

    run: int
    step: int
    tool: str
    device: str
    result: str
    entity: str = ""
    label: str = ""
    undoes: tuple[str, str] | None = None


class Happened(msgspec.Struct, frozen=True):
    """One effect. `asked` counts how often it came under its key, `undone_by` is the step that took it back.

    `double` is 1 if the same call had an effect before, or another one of the same entity stood, else 0.
    """

    run: int
    step: int
    tool: str
    device: str
    entity: str
    result: str
    asked: int
    undone_by: int | None
    double: int

    def stood_at(self, step: int) -> bool:
        """Whether it had happened, and was not taken back, when the run came to this step."""
        return self.step < step and (self.undone_by is None or self.undone_by > step)


class OutsideSystem:
    """One connection to the outside system in the file `path`, which is made if it is missing."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_SCHEMA)

    def act(self, key: str, deed: Deed) -> str:
        """Let it happen, unless it did under this key, and return the result of that time."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = self.probe(key)
            if result is None:
                result = self._happen(key, deed)
            else:
                self._connection.execute("UPDATE effects SET asked = asked + 1 WHERE key = ?", (key,))
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return result

    def probe(self, key: str) -> str | None:
        """Return the result of what happened under a key, or None if nothing did."""
        found = self._connection.execute("SELECT result FROM effects WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def close(self) -> None:
        """Close the connection; what happened stays. Idempotent."""
        self._connection.close()

    def _happen(self, key: str, deed: Deed) -> str:
        if deed.undoes is not None:
            self._connection.execute(
                "UPDATE effects SET undone_by = ? WHERE run = ? AND tool = ? AND label = ? AND undone_by IS NULL",
                (deed.step, deed.run, *deed.undoes),
            )
        (double,) = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM effects WHERE run = ?1 AND"
            " (step = ?2 OR (tool = ?3 AND entity = ?4 AND entity <> '' AND undone_by IS NULL)))",
            (deed.run, deed.step, deed.tool, deed.entity),
        ).fetchone()
        self._connection.execute(
            "INSERT INTO effects (key, run, step, tool, entity, label, device, result, double)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (key, deed.run, deed.step, deed.tool, deed.entity, deed.label, deed.device, deed.result, double),
        )
        return deed.result


def read_outside(path: Path) -> tuple[Happened, ...]:
    """Return what happened, in its order; in a file that was never made nothing did."""
    if not path.exists():
        return ()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT run, step, tool, device, entity, result, asked, undone_by, double FROM effects ORDER BY number"
        )
        return tuple(Happened(*row) for row in rows)
    finally:
        connection.close()
