"""What is watched while a schedule runs: promises that must hold at every moment.

Nothing here asks the Replica or the Relay whether it did well. The truth is the journal, the modelled disks and the
frames that cross the wire.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from server_relay.records import AppendStored, MailboxWrite, StartStream
from sync_core.document.view import TaskView
from sync_core.entry import CallIntent, CallOutcome, Entry, EntryKind, decode_record, decode_snapshot
from sync_core.frames import BlobPiece, Entries, Push, Receipt, SnapshotOffer
from sync_core.ids import split_stream, stream_id
from sync_core.replica import effects as fx
from sync_core.replica.changes import EntryQuarantined, EntrySetAside, TaskDiverged
from sync_core.replica.commands import AwaitSynced
from sync_core.replica.writes import DropTask, PutEntry, StartEpoch, Write
from sync_core.wire import decode_relay, join
from tests.simulation import peek
from tests.simulation.driver import Violation
from tests.simulation.journal import CallOp, HistoryOp, NoteOp, Op, SlotOp
from tests.simulation.losses import mark_lost, mark_set_aside
from tests.simulation.verdict import at_rest, difference, final_checks, rebuilt_view, writers_clocks

if TYPE_CHECKING:
    from tests.simulation.device import Device, DeviceEvent
    from tests.simulation.world import World

__all__ = ["Checks"]

_WRITE_KEY = re.compile(rb"[a-z_]/([0-9a-f]{16})\x01w")
Key = tuple[str, int, int]


class Checks:
    """The watcher of one world. `thorough`: every announced view is compared with one read from the disk."""

    def __init__(self, world: "World", thorough: bool) -> None:
        self.world = world
        self.thorough = thorough
        self._ops: dict[tuple[str, int], Op] = {}
        self._puts: dict[str, list[bytes]] = {}
        self._senders: dict[int, Device] = {}
        self._barriers: dict[int, tuple[list[Key], dict[str, tuple[bytes, int]], int]] = {}
        self._jumped: set[str] = set()
        self._destroyed = 0
        self._may_set_aside = world.faults.plan.demotions > 0

    # --- commands -----------------------------------------------------------------------------------------------------

    def tagged(self, device: "Device", ref: int, op: Op) -> None:
        """Remember which op a command carries out."""
        self._ops[device.label, ref] = op

    def before_event(self, device: "Device", event: "DeviceEvent") -> None:
        """Note what `synced()` will have to mean."""
        if isinstance(event, AwaitSynced):
            world = self.world
            keys: list[Key] = []
            heads: dict[str, tuple[bytes, int]] = {}
            for followed in device.disk.followed_tasks():
                keys += peek.waiting_of(device.disk, followed.task)
                if world.relay.mailbox.unsynced == 0:
                    told = peek.head_of(world.relay.mailbox, world.subject, followed.task)
                    heads.update({stream_id(followed.task, name): place for name, place in told.items()})
            self._barriers[event.ref] = (keys, heads, self._destroyed)

    def after_event(self, device: "Device", event: "DeviceEvent", effects: list[fx.Effect]) -> None:
        """Note which entries carry an op: those that were written in the event that answers it."""
        if isinstance(event, fx.FrameReceived) and isinstance(event.frame, BlobPiece):
            self._jumped.add(device.label)
        refs = [effect.ref for effect in effects if isinstance(effect, fx.Reply)]
        if not refs:
            return
        for ref in refs:
            op = self._ops.get((device.label, ref))
            if op is not None:
                op.keys += [
                    (entry.stream, entry.writer, entry.writer_seq)
                    for effect in effects
                    if isinstance(effect, fx.Written) and isinstance(effect.write, PutEntry) and effect.write.own
                    for entry in (effect.write.entry,)
                ]

    def promised(self, device: "Device", op: Op) -> None:
        """A Reply said that this is durable: its content must have been committed and synced."""
        if device.disk.unsynced:
            raise Violation(f"{op.tag} was answered while a commit was not synced")
        carries = (isinstance(op, NoteOp) and op.added) or isinstance(op, HistoryOp)
        carries = carries or (isinstance(op, SlotOp) and op.status is not None)
        carries = carries or (isinstance(op, CallOp) and len(op.result) < 4_000)
        payload = self._put_with(device, op.tag) if carries else None
        if carries and payload is None:
            raise Violation(f"{type(op).__name__} {op.tag} was answered on {device.label}, but no entry holds it")
        if isinstance(op, SlotOp) and payload is not None:
            found = _WRITE_KEY.search(payload)
            op.write_id = found.group(1).decode() if found else ""

    def _put_with(self, device: "Device", tag: str) -> bytes | None:
        """Return the payload of the newest entry with this tag that the device has committed since it was made."""
        needle = tag.encode()
        return next((payload for payload in reversed(self._puts.get(device.label, [])) if needle in payload), None)

    def intent_is_durable(self, device: "Device", attempt: str, step: str) -> None:
        """Whatever may run has its intent on the disk."""
        if self._put_with(device, attempt) is None:
            raise Violation(f"attempt {attempt} of {step} may run, but its intent is not on the disk")

    # --- the disk of a device -----------------------------------------------------------------------------------------

    def device_commits(self, device: "Device", writes: Sequence[Write]) -> None:
        """Before a commit: nothing that the relay does not have may be dropped."""
        for write in writes:
            if isinstance(write, DropTask) and write.task not in self.world.endings.purged:
                for stream, writer, seq in peek.waiting_of(device.disk, write.task):
                    place = peek.mailbox_place(self.world.relay.mailbox, self.world.subject, stream, writer, seq)
                    if place is None:
                        raise Violation(f"{device.label} evicts {write.task} with an entry that is not at the relay")

    def device_committed(self, device: "Device", writes: Sequence[Write]) -> None:
        """After a commit: writers are known by their device, outcomes come behind intents, streams keep their order."""
        # A snapshot brings one stream forward at once; the order across streams begins anew behind it.
        jumped = device.label in self._jumped
        self._jumped.discard(device.label)
        arrived: dict[str, list[Entry]] = {}
        for write in writes:
            if isinstance(write, PutEntry):
                entry = write.entry
                if write.own and entry.relay_seq is None:
                    self._puts.setdefault(device.label, []).append(entry.payload)
                    self._senders.setdefault(entry.writer, device)
                elif not write.own and entry.relay_seq is not None:
                    arrived.setdefault(entry.stream.rpartition(":")[0], []).append(entry)
            elif isinstance(write, StartEpoch):
                # The order begins anew with the log.
                jumped = True
            elif isinstance(write, DropTask):
                arrived.pop(write.task, None)
                if self._destroyed:
                    mark_lost(self.world)
        for task, entries in arrived.items():
            self._check_intents(device, task, entries)
            if self.world.faults.plan.weather.in_order and not jumped and task not in self.world.endings.purged:
                self._check_arrival_order(device, task, entries)

    def _check_intents(self, device: "Device", task: str, entries: list[Entry]) -> None:
        """A receiver never sees an outcome before its intent."""
        outcomes = [entry for entry in entries if entry.kind is EntryKind.CALL and b"outcome" in entry.payload]
        if not outcomes:
            return
        begun = set()
        for entry in peek.entries_of(device.disk, task):
            if entry.kind is EntryKind.CALL:
                record = decode_record(entry.kind, entry.payload)
                if isinstance(record, CallIntent):
                    begun.add(record.attempt)
        for entry in outcomes:
            record = decode_record(entry.kind, entry.payload)
            plan = self.world.faults.plan
            honest = entry.writer in self._senders and not plan.hostile and not self._may_set_aside
            if not honest or not isinstance(record, CallOutcome) or (record.token and not record.ok):
                continue  # A grant that was never begun is reported without an intent.
            if record.attempt not in begun:
                raise Violation(f"{device.label} has the outcome of {record.step} without its intent")

    def _check_arrival_order(self, device: "Device", task: str, entries: list[Entry]) -> None:
        """Across streams: whatever the relay stored before a foreign entry is here too, or is this device's own."""
        world = self.world
        log = peek.mailbox_log(world.relay.mailbox, world.subject, task)
        heads = peek.head_of(world.relay.mailbox, world.subject, task)
        cursors = {}
        for name, (epoch, _) in heads.items():
            known, cursor = peek.cursor_of(device.disk, stream_id(task, name))
            if known != epoch:
                return
            cursors[name] = cursor
        newest = {(entry.stream, entry.relay_seq) for entry in entries}
        behind = None
        for stored in log:
            stream = stream_id(task, stored.name)
            if stored.relay_seq > cursors[stored.name]:
                if peek.row_of(device.disk, stream, stored.writer, stored.writer_seq) is None:
                    behind = behind or stored
            elif behind is not None and (stream, stored.relay_seq) in newest:
                raise Violation(
                    f"{device.label} merged {stored.name} {stored.relay_seq} before {behind.name} {behind.relay_seq}, "
                    "which the relay stored earlier"
                )

    def disk_replaced(self) -> None:
        """A disk was thrown away: what nobody else holds is lost."""
        self._destroyed += 1
        mark_lost(self.world)
        self.world.endings.disk_replaced()

    # --- the wire -----------------------------------------------------------------------------------------------------

    def frame_leaves_device(self, device: "Device", frame: object) -> None:
        """Whatever is pushed stands on the sender's synced disk."""
        if isinstance(frame, SnapshotOffer):
            self._check_offer(device, frame)
        if not isinstance(frame, Push):
            return
        for entry in frame.entries:
            payload = peek.payload_of(device.disk, entry.stream, entry.writer, entry.writer_seq)
            is_gone = payload is None and self._is_purged(entry.stream)
            if device.disk.unsynced or (payload != entry.payload and not is_gone):
                raise Violation(f"{device.label} pushed an entry that its disk does not hold")

    def _check_offer(self, device: "Device", offer: SnapshotOffer) -> None:
        """An offered snapshot holds what the log holds up to its place, and nothing that is only on the device."""
        task = offer.stream.rpartition(":")[0]
        snapshot = decode_snapshot(device.disk.load_blob(task, offer.sha256) or b"")
        clocks = writers_clocks(snapshot.document) if snapshot.document else {}
        if clocks != {row.writer: row.next_clock for row in snapshot.writers if row.next_clock}:
            raise Violation(f"{device.label} offers a snapshot of {offer.stream} with more than its writer table says")
        for entry in snapshot.records:
            place = peek.mailbox_place(
                self.world.relay.mailbox, self.world.subject, entry.stream, entry.writer, entry.writer_seq
            )
            if place is not None and place > offer.covers_seq:
                raise Violation(f"{device.label} offers a snapshot of {offer.stream} that holds a later record")

    def frames_leave_relay(self, frames: tuple[bytes, ...]) -> None:
        """Receipts and entries speak of what is on the relay's synced disk."""
        told = [frame for frame in frames if frame[2:9] in (b"receipt", b"entries")]
        if not told:
            return
        world, mailbox = self.world, self.world.relay.mailbox
        if mailbox.unsynced:
            raise Violation("the relay speaks while a commit is not synced")
        for frame in decode_relay(join(told)):
            if isinstance(frame, Receipt):
                for offset, seq in enumerate(range(frame.first_seq, frame.last_seq + 1)):
                    place = peek.mailbox_place(mailbox, world.subject, frame.stream, frame.writer, seq)
                    due = frame.first_relay_seq + (0 if frame.covered else offset)
                    if place != due and not self._is_purged(frame.stream):
                        raise Violation(f"a receipt names place {due}, the relay's disk holds {place}")
            elif isinstance(frame, Entries):
                for entry in frame.entries:
                    place = peek.mailbox_place(mailbox, world.subject, frame.stream, entry.writer, entry.writer_seq)
                    if place != entry.relay_seq and not self._is_purged(frame.stream):
                        raise Violation(f"an entry of place {entry.relay_seq} was sent, the disk holds {place}")

    def _is_purged(self, stream: str) -> bool:
        """Whether somebody wanted the stream's task to be deleted: what is told may be gone from the disk by then."""
        return split_stream(stream)[0] in self.world.endings.purged

    # --- the relay ----------------------------------------------------------------------------------------------------

    def relay_commits(self, writes: Sequence[MailboxWrite]) -> None:
        """A log that holds something gets a new epoch only if a disk was lost, or somebody lies about what he read."""
        for write in writes:
            excused = self._destroyed or self.world.faults.plan.hostile
            if isinstance(write, StartStream) and not excused and write.task not in self.world.endings.purged:
                held = peek.head_of(self.world.relay.mailbox, write.subject, write.task)
                if write.name in held:
                    raise Violation(f"{write.task}:{write.name} got a new epoch, though no log was lost")

    def relay_committed(self, writes: Sequence[MailboxWrite]) -> None:
        """A task's entries reach the relay in the order of local commits, across writers and streams.

        Where an earlier entry is refused (its number stolen, the device a reader by then) the later ones of another
        stream may be stored all the same: what is refused comes again, later, or never.
        """
        plan = self.world.faults.plan
        if not plan.weather.in_order or self._may_set_aside or "thief" in plan.hostile:
            return
        for write in writes:
            if isinstance(write, AppendStored) and write.task not in self.world.endings.purged:
                for stored in write.entries:
                    if peek.is_recovered(stored):
                        continue  # Brought back stream by stream, each in its old order (rule J).
                    stream = stream_id(write.task, stored.name)
                    self._check_sent_order(write.task, stream, stored.writer, stored.writer_seq)

    def _check_sent_order(self, task: str, stream: str, writer: int, writer_seq: int) -> None:
        sender = self._senders.get(writer)
        row = None if sender is None else peek.row_of(sender.disk, stream, writer, writer_seq)
        if sender is None or row is None or not row[1] or row[0].relay_seq is not None or row[3] is not None:
            return
        mailbox = self.world.relay.mailbox
        for name, other, seq in peek.waiting_of(sender.disk, task):
            earlier = peek.row_of(sender.disk, name, other, seq)
            if earlier is None or not earlier[1] or earlier[2] >= row[2] or earlier[3] is not None:
                continue
            if peek.mailbox_place(mailbox, self.world.subject, name, other, seq) is None:
                raise Violation(f"the relay stored {stream} {writer_seq} of {sender.label} before an earlier {name}")

    # --- what is told -------------------------------------------------------------------------------------------------

    def announced(self, device: "Device", effect: fx.Announce) -> None:
        """Honest devices quarantine, set aside and diverge from nothing."""
        plan = self.world.faults.plan
        if plan.hostile:
            return
        for change in effect.changes:
            if isinstance(change, EntrySetAside) and plan.demotions and change.code == "role":
                continue
            if isinstance(change, EntrySetAside) and change.code == "tombstone" and self._is_purged(change.stream):
                continue
            if isinstance(change, EntrySetAside) and not plan.weather.in_order and change.code == "guard":
                # An old refusal came late, when what it stood on was there already. A websocket keeps its order.
                self._may_set_aside = True
                continue
            if isinstance(change, EntryQuarantined) and self.may_be_written_twice(change.task):
                continue
            if isinstance(change, EntryQuarantined | EntrySetAside | TaskDiverged):
                raise Violation(f"{device.label} announced {type(change).__name__} among honest devices: {change}")

    def may_be_written_twice(self, task: str) -> bool:
        """Whether two copies of one file may have written the same under two ids: what one had to write again, because
        an entry was refused to it or stolen from it, the other sent as it was."""
        plan = self.world.faults.plan
        refused = plan.demotions or self._may_set_aside or task in self.world.endings.purged
        return bool(plan.clones and (refused or "thief" in plan.hostile))

    def views_shown(self, device: "Device", views: dict[str, TaskView]) -> None:
        """A view never shows what a crash right now would lose: it is the one that the disk gives."""
        if not self.thorough or self._may_set_aside:
            return  # What is set aside leaves the view after the commit that took it out.
        for task, view in views.items():
            read = rebuilt_view(self.world, device, task)
            shown = at_rest(view, read)
            if read != shown:
                detail = difference(shown, read)
                raise Violation(f"{device.label} announced a view of {task} that its disk does not give: {detail}")

    def synced_replied(self, device: "Device", ref: int) -> None:
        """`synced()` was answered: what was written before is at the relay, what it held then is merged."""
        keys, heads, destroyed = self._barriers.pop(ref, ([], {}, -1))
        if destroyed != self._destroyed:
            return
        world = self.world
        for stream, writer, seq in keys:
            row = peek.row_of(device.disk, stream, writer, seq)
            stored = peek.mailbox_place(world.relay.mailbox, world.subject, stream, writer, seq) is not None
            if row is not None and row[1] and not stored and not self._is_purged(stream):
                raise Violation(f"synced() was answered on {device.label}, but an earlier entry is not at the relay")
        followed = {known.task for known in device.disk.followed_tasks()}
        for stream, (epoch, head) in heads.items():
            known, cursor = peek.cursor_of(device.disk, stream)
            if stream.rpartition(":")[0] in followed and known == epoch and cursor < head:
                raise Violation(f"synced() was answered on {device.label} at {cursor} of {head} in {stream}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def settled(self) -> bool:
        """Whether nothing moves any more and every followed task stands at the relay's head."""
        world = self.world
        if world.network.in_flight or not world.relay.idle or not all(device.idle for device in world.devices):
            return False
        return not self.unsettled()

    def unsettled(self) -> str:
        """Return what has not settled yet, empty if nothing."""
        world = self.world
        for device in world.devices:
            if device.unanswered:
                return f"{device.unanswered} commands on {device.label} were never answered"
            for followed in device.disk.followed_tasks():
                if followed.waiting:
                    return f"{device.label} still holds {followed.waiting} entries of {followed.task}"
                heads = peek.head_of(world.relay.mailbox, world.subject, followed.task)
                for name, (epoch, head) in heads.items():
                    place = peek.cursor_of(device.disk, stream_id(followed.task, name))
                    if place != (epoch, head):
                        return f"{device.label} stands at {place[1]} of {head} in {followed.task}:{name}"
        return ""

    def final(self) -> None:
        """Compare what stands on the disks with the journal."""
        if self._may_set_aside:
            mark_set_aside(self.world)
        self.world.endings.final()
        final_checks(self.world)
