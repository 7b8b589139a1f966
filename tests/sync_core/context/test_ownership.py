"""One owner at a time, and only this user may read the files (RS-14, RS-36)."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sync_core.context.ownership import Ownership
from sync_core.context.sqlite_store import SqliteStore
from sync_core.errors import StoreInUse, StoreUnusable
from sync_core.replica.writes import FollowTask


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_second_claim_in_one_process_is_refused_with_its_own_pid(tmp_path: Path) -> None:
    first = Ownership.claim(tmp_path / "acme.db")
    with pytest.raises(StoreInUse) as caught:
        Ownership.claim(tmp_path / "acme.db")
    assert caught.value.owner_pid == os.getpid()
    assert "This process" in caught.value.hint
    first.release()
    first.release()
    Ownership.claim(tmp_path / "acme.db").release()


def test_a_refused_claim_leaves_the_owners_pid_in_place(tmp_path: Path) -> None:
    owner = Ownership.claim(tmp_path / "acme.db")
    for _ in range(2):
        with pytest.raises(StoreInUse) as caught:
            Ownership.claim(tmp_path / "acme.db")
        assert caught.value.owner_pid == os.getpid()
    owner.release()


def test_two_names_of_one_folder_meet_one_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    owner = Ownership.claim(tmp_path / "link" / "acme.db")
    assert owner.path == tmp_path / "real" / "acme.db"
    with pytest.raises(StoreInUse):
        Ownership.claim(tmp_path / "real" / "acme.db")
    owner.release()


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
async def test_files_are_for_this_user_alone_under_any_umask(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "new" / "deeper" / "acme.db"
    with umask(mask):
        store = await SqliteStore.open(path, subject="acme")
        await store.commit([FollowTask("a")])
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["acme.db", "acme.db-lock", "acme.db-shm", "acme.db-wal"]
    assert {mode_of(file) for file in files} == {0o600}
    assert (mode_of(tmp_path / "new"), mode_of(path.parent)) == (0o700, 0o700)
    await store.close()


async def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"
    await (await SqliteStore.open(path, subject="acme")).close()
    path.chmod(0o644)
    await (await SqliteStore.open(path, subject="acme")).close()
    assert mode_of(path) == 0o600


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("suffix", ["", "-lock"])
async def test_a_symbolic_link_is_refused_and_its_target_untouched(tmp_path: Path, exists: bool, suffix: str) -> None:
    target = tmp_path / "target"
    if exists:
        target.write_bytes(b"someone's file")
    (tmp_path / f"acme.db{suffix}").symlink_to(target)
    with pytest.raises(StoreUnusable, match="symbolic link"):
        await SqliteStore.open(tmp_path / "acme.db", subject="acme")
    assert target.exists() == exists
    assert not exists or target.read_bytes() == b"someone's file"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    os.mkfifo(tmp_path / "pipe.db")
    for name in ("folder.db", "pipe.db"):
        with pytest.raises(StoreUnusable):
            Ownership.claim(tmp_path / name)


def test_a_refused_file_leaves_no_lock_behind(tmp_path: Path) -> None:
    (tmp_path / "acme.db").mkdir()
    for _ in range(2):
        with pytest.raises(StoreUnusable):
            Ownership.claim(tmp_path / "acme.db")


def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnusable, match="cannot be opened"):
        Ownership.claim(tmp_path / "file" / "acme.db")
