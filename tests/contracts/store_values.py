"""Values for tests of a store: names, entries, and how an image is looked at."""

import hashlib

from sync_core.context.store import Store
from sync_core.entry import Entry, EntryKind
from sync_core.replica.writes import StreamImage

__all__ = [
    "CHAIN",
    "EPOCH",
    "HISTORY",
    "MINE",
    "NEXT_EPOCH",
    "OTHER",
    "STATE",
    "TASK",
    "THEIRS",
    "image_of",
    "make_entry",
    "places",
    "sha",
]

TASK = "expense/TRIP-118"
STATE = f"{TASK}:state"
HISTORY = f"{TASK}:history"
MINE, THEIRS, OTHER = 700_001, 800_002, 900_003
EPOCH, NEXT_EPOCH = b"epoch-1", b"epoch-2"
CHAIN = bytes(range(16))


def make_entry(
    writer: int = MINE,
    seq: int = 1,
    *,
    stream: str = STATE,
    payload: bytes = b"",
    kind: EntryKind = EntryKind.UPDATE,
    relay_seq: int | None = None,
    vouched_by: str | None = None,
    blob: str | None = None,
) -> Entry:
    """Return an entry whose payload, if not given, names it."""
    content = payload or f"{writer}/{seq}".encode()
    device = "phone" if writer == MINE else "desktop"
    return Entry(stream, writer, seq, kind, content, device, 1_700 + seq, blob, relay_seq, vouched_by)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def image_of(store: Store, stream: str = STATE) -> StreamImage:
    (found,) = [image for image in (await store.load_task(TASK)).streams if image.stream == stream]
    return found


def places(image: StreamImage) -> list[tuple[int, int, int | None]]:
    return [(entry.writer, entry.writer_seq, entry.relay_seq) for entry in image.entries]
