"""What every decision of the authority goes through: the rows that it needs, and what becomes of it in the turn.

A decision becomes rows, and rulings in the task's `authority` stream, in the one commit of the turn, with the entry
that led to it; the answer leaves after that. Where a row is not in the keyring, the frame waits in its task's line for
the read, and is decided afresh.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from server_relay.admission import Grant
from server_relay.authority import Asker, Decision, release
from server_relay.config import RelaySettings
from server_relay.effects import ReadKeys, RelayRead
from server_relay.key_records import EPOCH_BYTES, KeyRow, KeyState, SubjectRow, lost_guard
from server_relay.keyring import Keyring
from server_relay.records import PutKeys
from server_relay.sessions import Session, Turn
from server_relay.streams import Known, TaskLog
from sync_core.entry import Entry, EntryKind, WriterRow, encode_record
from sync_core.ids import AUTHORITY_DEVICE, Entropy, StreamName, new_writer
from sync_core.keys import entity_place
from sync_core.rulings import Ruling

__all__ = ["NO_READS", "Keeper", "hold"]

NO_READS: tuple[RelayRead, ...] = ()

_NEW_SESSION = "Its device began a new session while it ran."
_HELD_SLOTS_MAX = 256


class Keeper:
    """Rules for all tasks of a relay. `enabled` says that it does: its store is durable, and it is set to."""

    def __init__(self, settings: RelaySettings, entropy: Entropy, counts: Counter[str], *, durable: bool) -> None:
        self.enabled = durable and settings.authority
        self.ring = Keyring(settings.lease_ms)
        self.counts = counts
        self._entropy = entropy
        self._writer = 0

    # --- what is read ------------------------------------------------------------------------------------------------

    def read(self, wanted: ReadKeys, known: Known) -> tuple[RelayRead, ...]:
        """Return the read of what is neither in the keyring nor known to the frame; nothing if all is."""
        labels = tuple(label for label in wanted.labels if label not in known.labels)
        calls = tuple(call for call in wanted.calls if call not in known.approvals)
        missing = self.ring.missing(msgspec.structs.replace(wanted, labels=labels, calls=calls))
        return (missing,) if missing is not None else NO_READS

    def loaded(self, log: TaskLog) -> tuple[RelayRead, ...]:
        """Return the read of the keys that a task's attempts have, so that the end of their leases is noticed."""
        if not log.guard.running:
            return NO_READS
        return self.read(ReadKeys(*log.key, log.guard.running), Known())

    def releases_wanted(self, log: TaskLog, releases: Iterable[tuple[str, str]]) -> ReadKeys:
        """Return the read of the rows that an undoing call names, by entity or by label."""
        named = tuple(releases)
        places = tuple(entity_place(log.subject, tool, name) for tool, name in named)
        return ReadKeys(*log.key, places, named)

    def asker(
        self, turn: Turn, log: TaskLog, grant: Grant, row: KeyRow | None, session: Session, attempt: str = ""
    ) -> Asker:
        """Return who asks on this connection of this row; `attempt` is theirs, if they have one."""
        ended = ""
        if row is not None and row.state is KeyState.RUNNING:
            lease = self.ring.lease(log.subject, row, turn.now_ms)
            if row.device == grant.device and attempt not in ("", row.attempt) and lease.conn != session.conn:
                lease.ends_ms, lease.reason = turn.now_ms, _NEW_SESSION
            if lease.ends_ms is not None and lease.ends_ms <= turn.now_ms:
                ended = lease.reason
        return Asker(
            log.subject,
            log.task,
            grant.principal,
            grant.device,
            grant.role.may_write,
            log.steps.summary.version,
            log.guard.opened_version,
            self.ring.subject(log.subject),
            ended,
        )

    # --- what is written ---------------------------------------------------------------------------------------------

    def apply(self, turn: Turn, log: TaskLog, decision: Decision) -> None:
        """Put a decision's rows and rulings into the turn; the rows that it releases were read before.

        Keys outlive the task: of a purged one only their rows change, and there is no log to say so in.
        """
        rows = [decision.row] if decision.row is not None else []
        for tool, name in decision.releases:
            rows += self._released(turn, log, tool, name)
        for row in rows:
            self.ring.put_row(log.subject, row, turn.now_ms)
        grants = (decision.grant,) if decision.grant is not None and log.purged is None else ()
        for grant in grants:
            self.ring.put_grant(*log.key, grant)
        approvals = (decision.used,) if decision.used is not None else ()
        if rows or grants:
            opened = self._opened(log.subject, rows)
            turn.writes.append(PutKeys(*log.key, opened, tuple(rows), grants, approvals))
        if log.purged is None:
            if decision.row is not None:
                _note_running(log, decision.row)
            for ruling in decision.rulings:
                self.rule(turn, log, ruling)

    def rule(self, turn: Turn, log: TaskLog, ruling: Ruling) -> int:
        """Append a ruling to the task's `authority` stream; returns its place there."""
        self._writer = self._writer or new_writer(self._entropy)
        stream = log.stream(StreamName.AUTHORITY)
        if not stream.epoch:
            turn.writes.append(log.start(stream, self._entropy(EPOCH_BYTES)))
        before = stream.writers.get(self._writer, WriterRow(self._writer, AUTHORITY_DEVICE))
        entry = Entry(
            stream.id,
            self._writer,
            before.next_seq,
            EntryKind.RULING,
            encode_record(ruling),
            AUTHORITY_DEVICE,
            turn.now_ms,
        )
        log.raise_writer(stream, WriterRow(self._writer, AUTHORITY_DEVICE, 0, before.next_seq + 1), "")
        log.append(entry, stream, None, AUTHORITY_DEVICE)
        self.counts["rulings"] += 1
        return stream.head

    def lose(self, turn: Turn, log: TaskLog, epochs: Iterable[bytes]) -> None:
        """Logs of these epochs were found lost: no version of the task is open, and the subject is behind its barrier;
        the subject's row was read before."""
        log.put_guard(lost_guard(log.guard, epochs))
        turn.writes.append(PutKeys(*log.key, self.ring.raise_barrier(log.subject, turn.now_ms)))
        self.counts["losses_found"] += 1

    def _opened(self, subject: str, rows: Iterable[KeyRow]) -> SubjectRow | None:
        """Return the subject's row if these rows are the first that were opened in its era."""
        before = self.ring.subject(subject)
        if before.opened or all(row.era != before.era for row in rows):
            return None
        after = msgspec.structs.replace(before, opened=True)
        self.ring.put_subject(subject, after)
        return after

    def _released(self, turn: Turn, log: TaskLog, tool: str, name: str) -> list[KeyRow]:
        row = self.ring.row(log.subject, entity_place(log.subject, tool, name), turn.now_ms)
        named = [row] if row is not None else []
        named += self.ring.labelled(log.subject, tool, name)
        era = self.ring.subject(log.subject).era
        released = {row.place: release(row, era) for row in named}
        return [row for row in released.values() if row is not None]


def _note_running(log: TaskLog, row: KeyRow) -> None:
    """Keep the task's list of the keys that its attempts have."""
    others = tuple(place for place in log.guard.running if place != row.place)
    runs = row.state is KeyState.RUNNING and row.task == log.task
    log.put_guard(msgspec.structs.replace(log.guard, running=(*others, row.place) if runs else others))


def hold(log: TaskLog, slot: str) -> bool:
    """Let the authority hold a slot from here on; returns whether it can, as it can of a bounded number."""
    if slot in log.guard.held:
        return True
    if len(log.guard.held) >= _HELD_SLOTS_MAX:
        return False
    log.put_guard(msgspec.structs.replace(log.guard, held=(*log.guard.held, slot)))
    return True
