"""One owner of a store file at a time, and only this user may read it.

The lock is the operating system's lock on `<store>-lock` beside the file: it ends with its process, however that ends,
and holds inside one process too. The lock file stays where it is, for deleting one that another process just opened
would give two owners.
"""

import fcntl
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from sync_core.errors import StoreInUse, StoreUnusable

__all__ = ["Ownership"]

_MAGIC = b"SQLite format 3\x00"
_PID_READS = 10
_PID_WAIT_S = 0.02


class Ownership:
    """The right to use a store file. `path` is the file's real place; `release` gives the right back."""

    def __init__(self, path: Path, lock: BinaryIO) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def claim(cls, path: str | os.PathLike[str]) -> "Ownership":
        """Claim a store file, making it (mode 0600) and missing folders (0700).

        Raises `StoreInUse` with the owner's pid at once if it is claimed, `StoreUnusable` if the file is a symbolic
        link, no regular file, or not this user's to open.
        """
        try:
            real = _real_path(Path(path))
            lock = _open_private(real.with_name(f"{real.name}-lock"))
            try:
                _lock(lock)
                # Only now: closing a second handle of the file would free the locks of an SQLite connection on it.
                _check_kind(real)
                _open_private(real, tighten=not real.exists() or not real.stat().st_size).close()
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise StoreUnusable(f"The store cannot be opened: {os.strerror(error.errno or 0)}.") from error
        return cls(real, lock)

    def tighten(self) -> None:
        """Take the file from other users; only once it is known to be a store of ours."""
        os.chmod(self.path, 0o600)

    def release(self) -> None:
        """Give the file back; idempotent."""
        self._lock.close()


def _real_path(path: Path) -> Path:
    """Return the place of the file with its folder's links resolved, so that two names of it meet one lock."""
    missing = []
    folder = path.absolute().parent
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            folder.chmod(0o700)
    return path.absolute().parent.resolve() / path.name


def _check_kind(path: Path) -> None:
    """Refuse a file that is no database, with the lock file beside it taken away again."""
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
        if start and start != _MAGIC:
            path.with_name(f"{path.name}-lock").unlink()
            raise StoreUnusable(
                "The file is not a store of Segue.", hint="Name another file; this one was not touched."
            )


def _open_private(path: Path, *, tighten: bool = True) -> BinaryIO:
    """Open a file for this user alone, making it if it is missing; never through a symbolic link."""
    if path.is_symlink():
        raise StoreUnusable("The store's path is a symbolic link.", hint="Name the file itself.")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
    try:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise StoreUnusable("The store's path is not a regular file.")
        if tighten and stat.S_IMODE(mode) != 0o600:
            os.fchmod(file.fileno(), 0o600)
    except BaseException:
        file.close()
        raise
    return file


def _lock(lock: BinaryIO) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner_pid(lock)
        if owner == os.getpid():
            hint = "This process has it open already: use that endpoint, or close it first."
            raise StoreInUse("The store is in use by this process.", owner_pid=owner, hint=hint) from None
        who = "another process" if owner is None else f"process {owner}"
        raise StoreInUse(f"The store is in use by {who}.", owner_pid=owner) from None
    lock.truncate(0)
    lock.seek(0)
    lock.write(str(os.getpid()).encode())


def _owner_pid(lock: BinaryIO) -> int | None:
    """Return the pid that the owner wrote; it may be about to write it."""
    for _ in range(_PID_READS):
        lock.seek(0)
        written = lock.read(20)
        if written.isdigit():
            return int(written)
        time.sleep(_PID_WAIT_S)
    return None
