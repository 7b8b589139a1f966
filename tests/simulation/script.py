"""Scenarios by hand: a world without users, whose devices are told step by step what to do."""

from collections.abc import Callable

from sync_core.document.slots import CandidateStatus, Slot
from sync_core.document.view import TaskView
from sync_core.entry import Entry, EntryKind
from sync_core.errors import SegueError
from sync_core.ids import StreamName, stream_id
from sync_core.replica import commands as c
from tests.simulation.device import Device
from tests.simulation.driver import Violation
from tests.simulation.faults import CALM, FaultPlan
from tests.simulation.verdict import raw_content, rebuilt, rebuilt_view
from tests.simulation.world import World

__all__ = ["STATE", "TASK", "Script", "hostile_entry"]

TASK = "expense/TRIP-118"
STATE = stream_id(TASK, StreamName.STATE)
_PATIENCE_MS = 120_000


def hostile_entry(writer: int, payload: bytes) -> Entry:
    """Return an update of the task that no honest device made."""
    return Entry(STATE, writer, 1, EntryKind.UPDATE, payload, "mallory")


class Script:
    """A world and the verbs of a scenario. Every verb runs virtual time until it is done."""

    def __init__(self, *names: str, seed: int = 1, plan: FaultPlan = CALM, snapshot_tail_entries: int = 1_000) -> None:
        self.world = World(seed, plan, snapshot_tail_entries=snapshot_tail_entries, thorough=True)
        self.world.relay.boot()
        self.devices = {name: self.boot(name) for name in names}

    def boot(self, name: str) -> Device:
        """Add a device and switch it on."""
        device = self.world.add_device(name)
        device.boot()
        return device

    def wait(self, duration_ms: int) -> None:
        """Let time pass."""
        self.world.scheduler.run(self.world.scheduler.now_ms + duration_ms)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        if not condition() and not self.world.scheduler.run(self.world.scheduler.now_ms + _PATIENCE_MS, condition):
            raise Violation("what was waited for did not happen")

    def ask(self, device: Device, command: c.Command) -> object:
        """Ask a device for something and return the reply; raises the error that it failed with."""
        replies: list[object] = []
        errors: list[SegueError] = []
        device.command(command, replies.append, errors.append)
        self.until(lambda: bool(replies or errors))
        if errors:
            raise errors[0]
        return replies[0]

    def ref(self) -> int:
        """Return a fresh reference."""
        return self.world.next_ref()

    # --- verbs --------------------------------------------------------------------------------------------------------

    def open(self, device: Device, *, create: bool = True) -> TaskView:
        """Open the task."""
        view = self.ask(device, c.OpenTask(self.ref(), TASK, create=create))
        assert isinstance(view, TaskView)
        return view

    def open_both(self) -> tuple[Device, Device]:
        """Let the phone open the task and the desktop find it."""
        phone, desktop = self.devices["phone"], self.devices["desktop"]
        self.open(phone)
        self.synced(phone)
        self.open(desktop, create=False)
        return phone, desktop

    def confirm(self, device: Device, slot: str, text: str, token: frozenset[str] = frozenset()) -> Slot:
        """Confirm a slot's value (canonical JSON)."""
        command = c.WriteSlot(self.ref(), TASK, slot, text, CandidateStatus.CONFIRMED, token)
        written = self.ask(device, command)
        assert isinstance(written, Slot)
        return written

    def append(self, device: Device, text: str) -> None:
        """Append to the work log."""
        self.ask(device, c.AppendNote(self.ref(), TASK, "worklog", text))

    def synced(self, device: Device) -> None:
        """Wait until everything is at the relay and merged."""
        self.ask(device, c.AwaitSynced(self.ref()))

    def view(self, device: Device) -> TaskView:
        """Return what the device's disk gives."""
        return rebuilt_view(self.world, device, TASK)

    def settle(self) -> TaskView:
        """Heal the world, wait until it has settled, and return the one view that all devices agree on."""
        self.world.heal()
        if not self.world.settle():
            raise Violation(f"not settled: {self.world.checks.unsettled()}")
        devices = [device for device in self.world.devices if device.disk.followed_tasks()]
        views = [self.view(device) for device in devices]
        contents = [raw_content(rebuilt(self.world, device, TASK)[0].state_bytes()) for device in devices]
        assert all(view == views[0] for view in views), "the devices show different views"
        assert all(content == contents[0] for content in contents), "the devices hold different content"
        return views[0]
