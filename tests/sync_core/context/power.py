"""A disk that can lose power, and one that refuses a write, under SQLite: a VFS of apsw that keeps a tape.

The tape holds every write, truncation, sync and deletion of the database and its log, in order. `files_after_cut` gives
what may be on the disk when the power goes at a place of the tape: all that was synced, any subset of what was not, and
the last surviving write torn at a 512-byte sector.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

import apsw

__all__ = ["Op", "PowerDisk", "files_after_cut", "power_connection"]

SECTOR_BYTES = 512


class Op(NamedTuple):
    """One thing that happened to a file: `write`, `truncate`, `sync` or `delete`."""

    what: str
    file: str
    offset: int = 0
    data: bytes = b""


class PowerDisk:
    """The tape of one database. `fail_write` lets the n-th write from now on (0 is the next) fail as a full disk."""

    def __init__(self) -> None:
        self.tape: list[Op] = []
        self.writes = 0
        self.fail_write: int | None = None
        self.failed_file = ""

    def note(self, op: Op) -> None:
        """Add to the tape."""
        self.tape.append(op)

    def check(self, file: str) -> None:
        """Count a write, and fail it if it was planned to fail."""
        if self.fail_write is not None and self.writes >= self.fail_write:
            self.failed_file = file
            raise apsw.FullError("the disk is full")
        self.writes += 1


class _File(apsw.VFSFile):
    def __init__(self, disk: PowerDisk, inherit: str, name: "str | apsw.URIFilename", flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk = disk
        self._file = path.removeprefix(path.rpartition("/")[0] + "/")
        super().__init__(inherit, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.check(self._file)
        super().xWrite(data, offset)
        self._disk.note(Op("write", self._file, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._disk.note(Op("truncate", self._file, size))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.note(Op("sync", self._file))


class _Vfs(apsw.VFS):
    def __init__(self, disk: PowerDisk) -> None:
        self._disk = disk
        super().__init__("power", "")

    def xOpen(self, name: "str | apsw.URIFilename | None", flags: list[int]) -> apsw.VFSFile:
        if name is None:
            return apsw.VFSFile("", name, flags)
        return _File(self._disk, "", name, flags)

    def xDelete(self, name: str, sync_folder: bool) -> None:
        super().xDelete(name, sync_folder)
        self._disk.note(Op("delete", name.rpartition("/")[2]))


@contextmanager
def power_connection(path: str) -> Iterator[tuple[PowerDisk, apsw.Connection]]:
    """Open a database on a disk with a tape."""
    disk = PowerDisk()
    vfs = _Vfs(disk)
    connection = apsw.Connection(path, vfs="power")
    try:
        yield disk, connection
    finally:
        disk.fail_write = None
        connection.close()
        vfs.unregister()


def files_after_cut(tape: list[Op], rng: Random) -> dict[str, bytes]:
    """Return the files' contents if the power goes right after the last entry of the tape."""
    stable: dict[str, bytearray] = {}
    pending: dict[str, list[Op]] = {}
    for op in tape:
        waiting = pending.setdefault(op.file, [])
        if op.what == "sync":
            content = stable.setdefault(op.file, bytearray())
            for earlier in waiting:
                _carry_out(content, earlier)
            waiting.clear()
        elif op.what == "delete":
            stable.pop(op.file, None)
            waiting.clear()
        else:
            waiting.append(op)
    for file, waiting in pending.items():
        content = stable.setdefault(file, bytearray())
        for op in _survivors(waiting, rng):
            _carry_out(content, op)
    return {file: bytes(content) for file, content in stable.items()}


def _survivors(waiting: list[Op], rng: Random) -> list[Op]:
    mode = rng.random()
    if mode < 0.4:
        kept = waiting[: rng.randint(0, len(waiting))]
    elif mode < 0.8:
        kept = [op for op in waiting if rng.random() < 0.5]
    else:
        kept = []
    if kept and kept[-1].what == "write" and rng.random() < 0.5:
        last = kept[-1]
        kept[-1] = last._replace(data=last.data[: rng.randrange(0, len(last.data) + 1, SECTOR_BYTES)])
    return kept


def _carry_out(content: bytearray, op: Op) -> None:
    if op.what == "truncate":
        del content[op.offset :]
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data
