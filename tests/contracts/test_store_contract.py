"""One suite for the store on SQLite and for the simulator's disk, and a comparison of both on random writes."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from sync_core.context.sqlite_store import SqliteStore
from sync_core.context.store import Store
from tests.contracts.store_suite import StoreSuite
from tests.contracts.store_workload import TASKS, random_commit
from tests.simulation.disk import AsyncDisk, DiskModel


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
        yield store
        await store.close()


class TestDisk(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return AsyncDisk(DiskModel())


async def everything(store: Store) -> list[object]:
    stats = replace(await store.stats(), store_bytes=0)
    images = [await store.load_task(task) for task in TASKS]
    return [*images, *await store.followed_tasks(), *await store.known_tasks(""), stats]


@pytest.mark.parametrize("seed", range(25))
async def test_the_store_and_the_disk_of_the_simulator_agree_on_random_writes(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    disk = AsyncDisk(DiskModel())
    store = await SqliteStore.open(tmp_path / "acme.db", subject="acme", compress=rng.random() < 0.5)
    try:
        for _ in range(40):
            writes = random_commit(rng)
            await disk.commit(writes)
            await store.commit(writes)
            assert await everything(store) == await everything(disk)
        await store.close()
        store = await SqliteStore.open(tmp_path / "acme.db", subject="acme")
        assert await everything(store) == await everything(disk)
    finally:
        await store.close()
