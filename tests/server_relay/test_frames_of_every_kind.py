"""Well-formed frames with wild values, over a real socket: they cost their sender at most its connection (P10)."""

from pathlib import Path
from random import Random

import pytest
from websockets.exceptions import ConnectionClosed

from server_relay.config import RelaySettings
from server_relay.server import serve
from sync_core.entry import CHAIN_START, Entry, EntryKind
from sync_core.frames import (
    WIRE_VERSION,
    BlobAbsent,
    BlobPiece,
    BlobWanted,
    DigestAt,
    Hello,
    ListTasks,
    Login,
    Push,
    Receipt,
    SnapshotConfirmed,
    SnapshotOffer,
    StreamPosition,
    Unfollow,
)
from sync_core.ids import StreamName
from sync_core.petitions import Claim, HoldSlot, LiftBarrier, SettleDoubt
from sync_core.wire import ClientFrame
from tests.server_relay.wire_client import WireClient, history_entry

TASKS = ["t", "t", "a/b", "", "../x", "t:", "\0"]
STREAMS = ["t:history", "t:state", "t:authority", "a/b:handover", "t", "", "x:y"]
NUMBERS = [0, 1, 1, 2, 3, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]
STEPS = ["pay", "a/0", "", "../x", "x" * 300, "\0"]
TEXTS = ["pay", "d" * 64, "", "\0", "x" * 5_000, "\U0010ffff", '["e"]']
SHAS = ["a" * 64, "b" * 64, "", "A" * 64]


class Wild:
    """Frames from a seed: every field is now a likely value, now one that no device would send."""

    def __init__(self, rng: Random, epoch: bytes) -> None:
        self._rng = rng
        self._epochs = [epoch, epoch, b"", b"other", bytes(300)]

    def frame(self) -> ClientFrame:
        pick, number = self._rng.choice, self._number
        task, stream, sha, epoch = pick(TASKS), pick(STREAMS), pick(SHAS), pick(self._epochs)
        size, data = pick([0, 1, 5, 5000, number()]), self._rng.randbytes(pick([0, 1, 5, 5000]))
        kinds: list[ClientFrame] = [
            Login(WIRE_VERSION, "acme", "eve"),
            Hello(task, tuple(self._position() for _ in range(pick([0, 1, 3]))), pick([False, False, True])),
            Unfollow(task),
            Push(task, tuple(self._entry() for _ in range(pick([0, 1, 4]))), pick([False, True])),
            BlobPiece(task, sha, pick([0, 0, number()]), size, data),
            BlobWanted(task, sha, number()),
            BlobAbsent(task, sha),
            ListTasks(number(), pick(["", "t", "\0", "%"]), pick(["", "t", "\uffff"])),
            DigestAt(stream, epoch, number(), pick([bytes(32), b""])),
            SnapshotOffer(stream, epoch, number(), pick([bytes(32), b""]), sha, pick(SHAS)),
            SnapshotConfirmed(stream, epoch, sha, bytes(32)),
            self._claim(task),
            SettleDoubt(task, number(), self._version(), pick(STEPS), pick(TEXTS), pick([True, False]), pick(TEXTS)),
            HoldSlot(task, number(), pick(STEPS), pick([None, "1", '"x"', "{", "\0", "[" * 5_000])),
            LiftBarrier(task, number()),
        ]
        return pick(kinds)

    def _version(self) -> int:
        return self._rng.choice([1, 1, self._number()])

    def _claim(self, task: str) -> Claim:
        pick = self._rng.choice
        releases = tuple((pick(TEXTS), pick(TEXTS)) for _ in range(pick([0, 1, 20])))
        texts = [pick(TEXTS) for _ in range(4)]
        return Claim(
            task,
            self._number(),
            self._version(),
            pick(STEPS),
            *texts,
            releases,
            pick([True, False]),
            pick([True, False]),
        )

    def _number(self) -> int:
        return self._rng.choice(NUMBERS)

    def _position(self) -> StreamPosition:
        own = tuple((self._number(), self._number()) for _ in range(self._rng.choice([0, 2])))
        name, epoch = self._rng.choice(list(StreamName)), self._rng.choice(self._epochs)
        return StreamPosition(name, epoch, self._number(), self._rng.choice([CHAIN_START, b"", b"x" * 16]), own)

    def _entry(self) -> Entry:
        pick = self._rng.choice
        payload = pick([history_entry("t", 700_001, 1, "eve").payload, b"", b"\x00\x00", self._rng.randbytes(40)])
        return Entry(
            pick(STREAMS),
            pick([700_001, 700_002, self._number()]),
            self._number(),
            pick(list(EntryKind)),
            payload,
            pick(["eve", "phone", ""]),
            self._number(),
            pick([None, None, *SHAS]),
            pick([None, self._number()]),
            pick([None, "eve", ""]),
        )


@pytest.mark.parametrize("seed", range(4))
async def test_wild_frames_leave_the_relay_standing(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    relay = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    async with await WireClient.open(relay.port, "phone") as phone:
        await phone.push("t", history_entry("t", 900_009, 1, "phone"))
        wild = Wild(rng, (await phone.next(Receipt)).epoch)
        for _ in range(60):
            try:
                async with await WireClient.open(relay.port, "eve") as eve:
                    for _ in range(5):
                        await eve.send(*(wild.frame() for _ in range(rng.choice([1, 1, 3, 10]))))
            except ConnectionClosed:
                continue
        await phone.push("t", history_entry("t", 900_009, 2, "phone"))
        assert (await phone.next(Receipt, lambda receipt: receipt.first_seq == 2)).writer == 900_009
    metrics = await relay.metrics()
    assert metrics.counts.get("commits_failed", 0) == 0
    assert metrics.counts["refused_protocol"] > 10
    await relay.close()
