"""Devices that ask the authority, for the relay's tests: what they push, claim and settle."""

from itertools import count

from server_relay.admission import Grant, Role
from sync_core.entry import (
    CallIntent,
    CallOutcome,
    Entry,
    EntryKind,
    Record,
    VersionDecision,
    decode_record,
    encode_record,
)
from sync_core.frames import Entries, Hello, Login, Push, Refusal, RefusalCode, StreamPosition
from sync_core.ids import AUTHORITY_DEVICE
from sync_core.petitions import Claim, ClaimAnswer, HoldSlot, LiftBarrier, Ruled, SettleDoubt
from sync_core.rulings import Approval, Ruling
from tests.server_relay.harness import Client, Harness

__all__ = ["DIGEST", "OTHER_DIGEST", "TASK", "TOOL", "Petitioner", "admit_by_token"]

TASK = "expense/TRIP-118"
TOOL = "pay"
DIGEST, OTHER_DIGEST = "d" * 64, "e" * 64

_KIND_OF = {CallIntent: EntryKind.CALL, CallOutcome: EntryKind.CALL, VersionDecision: EntryKind.VERSION}


def admit_by_token(login: Login, now_ms: int) -> Grant:
    """Admit by a token `<principal>/<role>`; an empty one is an authenticated writer named like its device."""
    principal, _, role = login.token.partition("/")
    return Grant(principal or login.device, login.device, login.subject, Role(role or "write"))


class Petitioner:
    """One device on one connection, which follows the task. `rulings` are those that it was sent and did not take."""

    _writers = count(800_001)
    _attempts = count(1)

    def __init__(self, harness: Harness, device: str, token: str = "", task: str = TASK, *, hello: bool = True) -> None:
        self.harness = harness
        self.device = device
        self.token = token
        self.task = task
        self.client: Client = harness.login(device, token=token)
        self.writer = next(self._writers)
        self._seqs: dict[str, int] = {}
        self._requests = count(1)
        self.last_attempt = ""
        if hello:
            self.hello()

    def hello(self, *positions: StreamPosition) -> None:
        """Follow the task from these places."""
        self.client.send(Hello(self.task, positions))

    def again(self) -> "Petitioner":
        """Return the device on a new connection, as a new opening; the old one stays as it is."""
        return Petitioner(self.harness, self.device, self.token, self.task)

    # --- entries -----------------------------------------------------------------------------------------------------

    def entry(self, record: Record, *, stream: str = "state", kind: EntryKind | None = None, **more: object) -> Entry:
        """Return this device's next entry of a stream."""
        seq = self._seqs[stream] = self._seqs.get(stream, 0) + 1
        of_kind = kind or _KIND_OF[type(record)]
        payload = encode_record(record)
        return Entry(f"{self.task}:{stream}", self.writer, seq, of_kind, payload, self.device, **more)  # type: ignore[arg-type]

    def open(self, version: int = 1, epoch: bytes = b"") -> None:
        """Decide a business version."""
        self.client.push(self.task, self.entry(VersionDecision(version, self.device, epoch)))

    def outcome(self, granted: ClaimAnswer, step: str = "pay", version: int = 1, **more: object) -> None:
        """Push how the granted attempt ended; it succeeded unless `ok` says something else."""
        record = {"ok": True, "result": '"paid"'} | more
        attempt = str(record.pop("attempt", self.last_attempt))
        outcome = CallOutcome(step, version, attempt, token=granted.token, **record)  # type: ignore[arg-type]
        self.client.push(self.task, self.entry(outcome))

    def approve(self, step: str = "pay", digest: str = DIGEST, *, approved: bool = True) -> None:
        """Push an approval of a call of version 1, or a rejection."""
        said = Approval(step, 1, TOOL, digest, approved)
        self.client.push(self.task, self.entry(said, stream="authority", kind=EntryKind.APPROVAL))

    # --- petitions ---------------------------------------------------------------------------------------------------

    def claim_frame(self, step: str = "pay", **more: object) -> Claim:
        """Return a claim, of a fresh attempt if none is given."""
        fields = {"version": 1, "tool": TOOL, "arguments_digest": DIGEST} | more
        self.last_attempt = str(fields.setdefault("attempt", f"a{next(self._attempts)}"))
        return Claim(self.task, next(self._requests), step=step, **fields)  # type: ignore[arg-type]

    def claim(self, step: str = "pay", **more: object) -> ClaimAnswer:
        """Claim, and return the answer."""
        frame = self.claim_frame(step, **more)
        self.client.send(frame)
        (answer,) = self.client.take(ClaimAnswer)
        assert (answer.task, answer.request) == (self.task, frame.request)
        return answer

    def settle(self, happened: bool, step: str = "pay", **more: object) -> str:
        """Say how a call in doubt ended; return the code of the answer, empty if it was taken."""
        fields = {"version": 1, "tool": TOOL} | more
        self.client.send(SettleDoubt(self.task, next(self._requests), step=step, happened=happened, **fields))  # type: ignore[arg-type]
        return self._ruled()

    def hold(self, slot: str, value: str | None = None) -> str:
        """Have a slot held, or write it; return the code of the answer."""
        self.client.send(HoldSlot(self.task, next(self._requests), slot, value))
        return self._ruled()

    def lift(self) -> str:
        """Lift the subject's barrier; return the code of the answer."""
        self.client.send(self.lift_frame())
        return self._ruled()

    def lift_frame(self) -> LiftBarrier:
        """Return the petition to lift the barrier."""
        return LiftBarrier(self.task, next(self._requests))

    def _ruled(self) -> str:
        (answer,) = self.client.take(Ruled)
        assert answer.task == self.task
        return answer.code

    # --- what came ---------------------------------------------------------------------------------------------------

    def rulings(self) -> list[Ruling]:
        """Take the rulings that came."""
        self.harness.drain()
        entries = [entry for frame in self.client.take(Entries) for entry in frame.entries]
        rulings = [entry for entry in entries if entry.kind is EntryKind.RULING]
        assert all(entry.device == AUTHORITY_DEVICE for entry in rulings)
        return [decode_record(entry.kind, entry.payload) for entry in rulings]  # type: ignore[misc]

    def kinds(self) -> list[type[Ruling]]:
        """Take the rulings that came; return of which kind they are."""
        return [type(ruling) for ruling in self.rulings()]

    def refusals(self) -> list[RefusalCode]:
        """Take the codes of the refusals that came."""
        return [refusal.code for refusal in self.client.take(Refusal)]

    def pushes(self, *entries: Entry, recovered: bool = False) -> Push:
        """Return a push of these entries."""
        return Push(self.task, entries, recovered)
