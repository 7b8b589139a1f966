"""A process that owns a store and commits entry after entry, saying each number once it is durable."""

import asyncio
import sys

from sync_core.context.sqlite_store import SqliteStore
from sync_core.entry import Entry, EntryKind
from sync_core.replica.writes import FollowTask, PutEntry, SetPosition, Write

__all__ = ["STREAM", "TASK", "WRITER", "payload_of"]

TASK = "expense/TRIP-118"
STREAM = f"{TASK}:state"
WRITER = 700_001


def payload_of(seq: int) -> bytes:
    """Return the payload of an entry: some fill a page, some several."""
    return f"entry {seq} ".encode() * (1 + seq % 7 * 100)


async def main(path: str) -> None:
    """Go on from what the file holds, until the process is killed."""
    store = await SqliteStore.open(path, subject="acme")
    await store.commit([FollowTask(TASK)])
    seq = len((await store.load_task(TASK)).unsent)
    print("open", flush=True)
    while True:
        seq += 1
        entry = Entry(STREAM, WRITER, seq, EntryKind.UPDATE, payload_of(seq), "phone", seq)
        # The position stands for what must change together with the entry.
        writes: list[Write] = [PutEntry(entry, own=True), SetPosition(STREAM, b"epoch", seq, bytes(16))]
        await store.commit(writes)
        print(seq, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
