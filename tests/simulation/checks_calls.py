"""What is watched of recorded calls: none runs again that is finished, and an answer is one that an execution gave."""

from typing import TYPE_CHECKING

from sync_core.document.calls import CallBegun, CallRecorded
from sync_core.entry import CallOutcome, EntryKind, decode_record
from tests.simulation import peek
from tests.simulation.driver import Violation
from tests.simulation.journal import CallOp

if TYPE_CHECKING:
    from tests.simulation.device import Device
    from tests.simulation.world import World

__all__ = ["CallChecks"]


class CallChecks:
    """The watcher of one world's recorded calls."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._keys: dict[tuple[str, int, str], str] = {}

    def begin_asked(self, device: "Device", task: str, version: int, step: str) -> bool:
        """Return whether the device's file holds a success of this step at the moment of asking."""
        for entry in peek.entries_of(device.disk, task):
            if entry.kind is EntryKind.CALL and b"outcome" in entry.payload:
                record = decode_record(entry.kind, entry.payload)
                if isinstance(record, CallOutcome) and record.ok and (record.version, record.step) == (version, step):
                    return True
        return False

    def call_begun(self, device: "Device", held: bool, task: str, version: int, step: str, begun: CallBegun) -> None:
        """The tool may run now: never a finished step, never before the intent is durable, always with one key."""
        if held:
            raise Violation(f"step {step} v{version} runs again on {device.label}, whose file holds its success")
        self.world.checks.intent_is_durable(device, begun.attempt, step)
        known = self._keys.setdefault((task, version, step), begun.idempotency_key)
        if known != begun.idempotency_key:
            raise Violation(f"step {step} v{version} was given two idempotency keys")

    def call_recorded(self, task: str, version: int, step: str, digest: str, recorded: CallRecorded) -> None:
        """A recorded result must be one that an execution of exactly this step produced, with these arguments."""
        shown = recorded.call.shown
        if shown is None or not shown.ok:
            raise Violation(f"step {step} v{version} was answered as recorded, without a success")
        for op in self.world.journal.calls:
            if op.attempt == shown.attempt:
                same = (op.task, op.version, op.step, op.digest) == (task, version, step, digest)
                if same and op.executed and op.ok and shown.result in (None, op.result):
                    return
        raise Violation(f"step {step} v{version} was answered with a result that no execution of it produced")

    def blob_fetched(self, result: CallOp | None, data: bytes) -> None:
        """A large result is what its execution produced."""
        if result is None or data != result.result.encode():
            raise Violation("a blob is not the result that was recorded")
