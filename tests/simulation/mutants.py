"""Replicas and relays that are broken on purpose: the simulator must catch every one of them.

Each mutant patches the real classes inside a context. It counts as caught only by a seed on which the real code keeps
every promise.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import msgspec

from server_relay import hello, intake
from server_relay.effects import RelayEffect, RelayEvent
from server_relay.effects import Written as RelayWritten
from server_relay.records import AppendStored
from server_relay.relay import Relay
from sync_core.document import calls, record_writes
from sync_core.document.calls import CallRecorded
from sync_core.document.document import TaskDocument
from sync_core.document.notes import NoteMerge
from sync_core.entry import Effect as ToolEffect
from sync_core.entry import Entry, EntryKind, WriterRow
from sync_core.errors import EntryRefused
from sync_core.ids import WRITER_BITS
from sync_core.replica import frames, log, snapshots
from sync_core.replica.core import Core
from sync_core.replica.outbox import Outbox
from sync_core.replica.stream import StreamReplica
from sync_core.replica.writes import NumberEntries, PutEntry, QuarantineEntry, SetWriter
from sync_core.scan import Scan, scan_update
from tests.simulation.mutants_borders import BORDER_MUTANTS
from tests.simulation.patching import Context, late_writes, patched
from tests.simulation.schedule import run_seed

__all__ = ["MUTANTS", "Caught", "Mutant", "hunt"]

_TRIES = 500


class Mutant(msgspec.Struct, frozen=True):
    """A planted fault. `apply` is a context in which the real code has it; `seeds` have caught it, and come first."""

    name: str
    apply: Callable[[], Context]
    seeds: tuple[int, ...] = ()


class Caught(msgspec.Struct, frozen=True):
    """How a hunt ended. `seed` is the first seed that showed the fault while the real code passes it."""

    name: str
    seed_found: bool
    seed: int
    tried: int
    seconds: float
    violation: str

    def line(self) -> str:
        """Return the result as a line of a table."""
        if not self.seed_found:
            return f"{self.tried} seeds, {self.seconds:.1f} s"
        return f"seed {self.seed:<6} {self.tried:>4} tried {self.seconds:5.1f} s  {self.violation[:90]}"


# --- order of durable and visible -------------------------------------------------------------------------------------


def _send_before_append() -> Context:
    return late_writes(lambda write: isinstance(write, PutEntry) and write.own)


def _cursor_before_apply() -> Context:
    late = (NumberEntries, SetWriter, QuarantineEntry)
    return late_writes(lambda write: isinstance(write, late) or (isinstance(write, PutEntry) and not write.own))


def _receipt_before_commit() -> Context:
    original = Relay.turn

    def turn(self: Relay, events: Any, now_ms: int) -> list[RelayEffect]:
        effects = original(self, events, now_ms)
        held: list[RelayEffect] = self.__dict__.get("late", [])
        late = [e for e in effects if isinstance(e, RelayWritten) and isinstance(e.write, AppendStored)]
        self.__dict__["late"] = late
        return [*held, *(effect for effect in effects if effect not in late)]

    def handle(self: Relay, event: RelayEvent, now_ms: int) -> list[RelayEffect]:
        return turn(self, (event,), now_ms)

    return patched((Relay, "turn", turn), (Relay, "handle", handle))


def _commit_failure_ignored() -> Context:
    from sync_core.replica import effects, replica

    return patched((replica, "_EVENTS", {**replica._EVENTS, effects.CommitFailed: lambda self, event: None}))


# --- order of the log -------------------------------------------------------------------------------------------------


def _receipt_moves_cursor_past_gap() -> Context:
    original = frames.on_receipt

    def on_receipt(task: Any, frame: Any) -> None:
        stream = task.stream_of(frame.stream)
        if not frame.covered and frame.epoch == stream.epoch and frame.first_relay_seq > stream.cursor:
            stream.cursor = frame.first_relay_seq - 1
        original(task, frame)

    return patched((frames, "on_receipt", on_receipt))


def _no_contiguous_prefix() -> Context:
    original = StreamReplica.place

    def place(self: StreamReplica, relay_seq: int, item: Any) -> bool:
        if relay_seq > self.cursor + 1 and isinstance(item, Entry):
            self.cursor = relay_seq - 1
        return original(self, relay_seq, item)

    return patched((StreamReplica, "place", place))


def _outbox_by_writer() -> Context:
    original = Outbox.restart

    def restart(self: Outbox) -> None:
        original(self)
        self._to_send = deque(sorted(self._to_send, key=lambda key: (key[1], key[0], key[2])))

    return patched((Outbox, "restart", restart))


def _elision_beyond_hello() -> Context:
    original = hello._follow

    def follow(log_: Any, session: Any, *rest: Any) -> Any:
        made = original(log_, session, *rest)
        for name, stream in log_.streams.items():
            for row in stream.writers.values():
                if row.device == session.grant.device:
                    made.own[name, row.writer] = 2**40
        return made

    return patched((hello, "_follow", follow))


def _epoch_and_chain_ignored() -> Context:
    original_head, original_news = frames._on_head, frames.on_news

    def on_head(task: Any, stream: Any, told: Any, *rest: Any) -> Any:
        stream.epoch = told.epoch
        return original_head(task, stream, told, *rest)

    def on_news(task: Any, frame: Any) -> None:
        for told in frame.streams:
            task.stream(told.name).epoch = told.epoch
        original_news(task, frame)

    return patched((hello, "_is_lost", lambda *_: False), (frames, "_on_head", on_head), (frames, "on_news", on_news))


# --- identities and verdicts ------------------------------------------------------------------------------------------


def _writer_kept_across_restore() -> Context:
    original = Core.__init__

    def init(self: Core, *arguments: Any) -> None:
        original(self, *arguments)
        self.writer = int.from_bytes(hashlib.sha256(self.device.encode()).digest()[:7], "big") >> (56 - WRITER_BITS)

    return patched((Core, "__init__", init))


def _guard_off() -> Context:
    def check_entry(entry: Entry, writers: Mapping[int, WriterRow]) -> tuple[WriterRow, Scan | None]:
        row = writers.get(entry.writer) or WriterRow(entry.writer, entry.device)
        end, scan = row.next_clock, None
        if entry.kind is EntryKind.UPDATE:
            try:
                scan = scan_update(entry.payload)
            except EntryRefused:
                scan = scan_update(b"\x00\x00")
            end = max([end, *(end for writer, _, end in scan.structs if writer == row.writer)])
        return WriterRow(row.writer, row.device, end, entry.writer_seq + 1, row.closed), scan

    return patched((intake, "check_entry", check_entry), (log, "check_entry", check_entry))


def _snapshot_from_live_document() -> Context:
    original = snapshots.make_snapshot

    def make_snapshot(task: Any, image: Any) -> Any:
        numbered = [
            entry if entry.relay_seq is not None else msgspec.structs.replace(entry, relay_seq=image.cursor)
            for entry in image.entries
        ]
        return original(task, msgspec.structs.replace(image, entries=tuple(numbered)))

    from sync_core.replica import recovery

    return patched((snapshots, "make_snapshot", make_snapshot), (recovery, "make_snapshot", make_snapshot))


# --- what a task holds ------------------------------------------------------------------------------------------------


def _token_from_document() -> Context:
    write_slot, clear_slot = TaskDocument.write_slot, TaskDocument.clear_slot

    def write(self: TaskDocument, name: str, text: str, status: Any, token: Any, *rest: Any) -> bytes:
        return write_slot(self, name, text, status, self.slot(name).token, *rest)

    def clear(self: TaskDocument, name: str, token: Any) -> bytes:
        return clear_slot(self, name, self.slot(name).token)

    return patched((TaskDocument, "write_slot", write), (TaskDocument, "clear_slot", clear))


def _call_cached_by_arguments() -> Context:
    original = TaskDocument.begin_call

    def begin_call(self: TaskDocument, version: int, step: str, tool: str, effect: Any, digest: str, *rest: Any) -> Any:
        for call in self.view().calls.values():
            if call.shown is not None and call.shown.ok and call.shown.arguments_digest == digest:
                return CallRecorded(call)
        return original(self, version, step, tool, effect, digest, *rest)

    return patched((TaskDocument, "begin_call", begin_call))


def _finished_call_runs_again() -> Context:
    original = calls.check_begin

    def check_begin(call: Any, step: str, effect: Any, *rest: Any) -> bool:
        return effect is not ToolEffect.IRREVERSIBLE or original(call, step, effect, *rest)

    return patched((record_writes, "check_begin", check_begin))


def _merge_against_current_text() -> Context:
    def merge_note(self: TaskDocument, name: str, text: str, *_: Any) -> NoteMerge:
        return NoteMerge(self.write_note(name, text, self.note(name).content_sha256), self.writer)

    return patched((TaskDocument, "merge_note", merge_note))


MUTANTS: tuple[Mutant, ...] = (
    Mutant("send before append", _send_before_append),
    Mutant("receipt before commit", _receipt_before_commit),
    Mutant("cursor before apply", _cursor_before_apply),
    Mutant("commit failure ignored", _commit_failure_ignored),
    Mutant("receipt moves the cursor past a gap", _receipt_moves_cursor_past_gap),
    Mutant("no contiguous prefix", _no_contiguous_prefix),
    Mutant("outbox by writer, not by commit", _outbox_by_writer),
    Mutant("payload left out beyond Hello", _elision_beyond_hello),
    Mutant("epoch and chain ignored", _epoch_and_chain_ignored),
    Mutant("writer id kept across a restore", _writer_kept_across_restore, seeds=(544, 1345)),
    Mutant("guard off", _guard_off, seeds=(40,)),
    Mutant("snapshot from the live document", _snapshot_from_live_document, seeds=(36,)),
    Mutant("token taken from the document", _token_from_document),
    Mutant("call cached by arguments", _call_cached_by_arguments),
    Mutant("finished call runs again", _finished_call_runs_again),
    Mutant("merge against the current text", _merge_against_current_text),
    *(Mutant(name, apply, seeds) for name, apply, seeds in BORDER_MUTANTS),
)


def hunt(name: str) -> Caught:
    """Look for a seed on which a mutant breaks a promise that the real code keeps: first its own, then a fixed row."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    started = time.monotonic()
    tried = 0
    for seed in chain(mutant.seeds, range(_TRIES)):
        tried += 1
        with mutant.apply():
            broken = run_seed(seed).violation
        if broken and not run_seed(seed).violation:
            return Caught(name, True, seed, tried, time.monotonic() - started, broken)
    return Caught(name, False, -1, tried, time.monotonic() - started, "")
