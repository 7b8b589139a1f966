"""A device with the relay's part of guarded calls in the test's hands."""

from sync_core.document.calls import CallBegun
from sync_core.entry import Effect, Entry, EntryKind, Record, encode_record
from sync_core.errors import SegueError
from sync_core.frames import Entries, StreamHead
from sync_core.ids import AUTHORITY_DEVICE, StreamName, stream_id
from sync_core.petitions import Claim, ClaimAnswer, ClaimVerdict
from sync_core.replica import commands as c
from sync_core.rulings import Granted
from sync_core.values import digest_text
from tests.sync_core.replica.fleet import TASK
from tests.sync_core.replica.solo import EPOCH, Solo

__all__ = ["ARGUMENTS", "AUTHORITY", "DIGEST", "Guarded", "begin_granted"]

AUTHORITY = stream_id(TASK, StreamName.AUTHORITY)
ARGUMENTS = '{"amount":5}'
DIGEST = digest_text(ARGUMENTS)
_RELAY_WRITER = 2**40 + 5


def begin_granted(ref: int, claimed: c.Claimed, step: str = "pay") -> c.BeginCall:
    """The command that writes the intent of a granted attempt."""
    answer = claimed.answer
    return c.BeginCall(
        ref,
        TASK,
        1,
        step,
        "pay",
        Effect.IRREVERSIBLE,
        DIGEST,
        ARGUMENTS,
        claimed.attempt,
        answer.token,
        answer.key,
    )


class Guarded(Solo):
    """A device with the task open, known at the relay, at its heads and with nothing to send."""

    def __init__(self, role: str = "write") -> None:
        super().__init__()
        self.log_in(role)
        self.rulings = 0
        self.places = {StreamName.STATE: 0, StreamName.AUTHORITY: 0}
        self.open_alone()

    def open_alone(self) -> None:
        """Open the task, which nobody has, and let the relay store what that writes."""
        self.handle(c.OpenTask(self.ref(), TASK, True))
        self.heads(known=False)
        self.store_all()

    def told(self) -> tuple[StreamHead, ...]:
        """The relay's heads."""
        return tuple(StreamHead(name, EPOCH, place) for name, place in self.places.items() if place)

    def store_all(self) -> None:
        """Let the relay store everything that waits, in order."""
        for entry in self.unsent():
            name = StreamName(entry.stream.rpartition(":")[2])
            self.places[name] += 1
            self.receipt(entry, place=self.places[name])

    def rule(self, *records: Record) -> None:
        """Let the relay write rulings and send them."""
        for record in records:
            self.rulings += 1
            place = self.places[StreamName.AUTHORITY] = self.places[StreamName.AUTHORITY] + 1
            payload = encode_record(record)
            kind, device = EntryKind.RULING, AUTHORITY_DEVICE
            entry = Entry(AUTHORITY, _RELAY_WRITER, self.rulings, kind, payload, device, relay_seq=place)
            self.hear(Entries(AUTHORITY, EPOCH, (entry,)))

    def claim(self, step: str = "pay", digest: str = DIGEST, **more: object) -> int:
        """Ask for the key of a step; return the command's reference."""
        command = c.ClaimCall(self.ref(), TASK, 1, step, "pay", digest, **more)  # type: ignore[arg-type]
        self.handle(command)
        return command.ref

    def answer(self, verdict: ClaimVerdict, **more: object) -> c.Claimed:
        """Answer the last claim and return what the program is told."""
        request = self.sent(Claim)[-1].request
        self.hear(ClaimAnswer(TASK, request, verdict, "key", **more))  # type: ignore[arg-type]
        reply = self.replies.pop(request)
        assert isinstance(reply, c.Claimed)
        return reply

    def granted(self, attempt: str, token: int = 1, approved_by: str = "") -> Granted:
        """The ruling of a grant to this device."""
        return Granted("key", "pay", 1, "pay", DIGEST, attempt, token, "ann", "phone", approved_by=approved_by)

    def begin_granted(self, claimed: c.Claimed) -> CallBegun:
        """Write the intent of a grant."""
        return self.ask(begin_granted(self.ref(), claimed), CallBegun)

    def settle(self, **more: object) -> int:
        """Say that the step happened; return the command's reference."""
        command = c.SettleCall(self.ref(), TASK, 1, "pay", "pay", True, **more)  # type: ignore[arg-type]
        self.handle(command)
        return command.ref

    def claim_version(self, version: int) -> int:
        """Ask for the key of a step of another version; return the command's reference."""
        command = c.ClaimCall(self.ref(), TASK, version, "pay", "pay", DIGEST)
        self.handle(command)
        return command.ref

    def ask_none(self, command: c.Command) -> None:
        """Carry out a command whose reply is empty."""
        assert self.ask(command, type(None)) is None

    def error(self, ref: int) -> SegueError:
        """The error that a command was answered with."""
        reply = self.replies.pop(ref)
        assert isinstance(reply, SegueError), reply
        return reply
