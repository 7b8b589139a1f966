"""What the entries of a push say of the subject's keys, and what guards them.

A live outcome of an attempt that has a key settles it. A live approval is followed by the ruling that it counts, made
for the principal of the connection that brought it. A live decision of a business version opens that version's keys.
After a lost log, what devices bring back may close keys, never open one; rulings are then taken from them too, and at
no other time from anybody.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from server_relay.admission import Grant
from server_relay.authority import Decision, close, decide_outcome, key_of, new_row
from server_relay.effects import ReadKeys, RelayRead
from server_relay.keeper import NO_READS, Keeper, hold
from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, KeyState
from server_relay.records import PutKeys
from server_relay.sessions import Turn
from server_relay.streams import Known, TaskLog
from sync_core.entry import CallOutcome, Entry, EntryKind, VersionDecision, decode_record
from sync_core.frames import RefusalCode
from sync_core.guard import Scan
from sync_core.ids import StreamName
from sync_core.keys import idempotency_key
from sync_core.rulings import Approval, Approved, Doubted, Granted, Held, Settled

__all__ = ["evidence_wanted", "note_version", "refusal_of", "take_evidence"]

_Evidence = CallOutcome | Granted | Settled | Doubted | Held
_LOST = "The relay's log was lost while this attempt had the key."
_APPROVAL_BYTES_MAX = 64 * 1024
"""The ruling on an approval says who gave it, besides, and must be an entry too."""


def refusal_of(
    log: TaskLog, entry: Entry, scan: Scan | None, grant: Grant, keeper: Keeper, recovered: bool
) -> tuple[RefusalCode, str] | None:
    """Return why an entry that passed the guard is not for this connection to bring; None if it is."""
    if recovered:
        if not log.guard.lost and (
            entry.kind is EntryKind.RULING
            or (entry.kind is EntryKind.SNAPSHOT and entry.stream == log.stream(StreamName.AUTHORITY).id)
        ):
            return RefusalCode.GUARD, "Rulings are taken back only after a log was lost."
        return None
    if entry.kind is EntryKind.APPROVAL:
        if not (keeper.enabled and grant.authenticated):
            return RefusalCode.ROLE, "This relay cannot tell who approves."
        if len(entry.payload) > _APPROVAL_BYTES_MAX:
            return RefusalCode.TOO_LARGE, f"An approval exceeds {_APPROVAL_BYTES_MAX} bytes."
    if scan is not None and log.guard.held:
        held = set(log.guard.held)
        for root, key, _, _ in scan.sets:
            slot = key.partition("/")[0]
            if root == "slots" and slot in held:
                return RefusalCode.HELD_BY_AUTHORITY, f"The slot {slot} is written by the authority alone."
    return None


def evidence_wanted(
    log: TaskLog, entries: Iterable[Entry], recovered: bool, keeper: Keeper, known: Known
) -> tuple[RelayRead, ...]:
    """Return the reads without which it cannot be said what these entries mean; nothing for any that name no grant."""
    attempts: dict[str, None] = {}
    places: dict[str, None] = {}
    releases: list[tuple[str, str]] = []
    for entry in entries:
        record = _evidence(entry, recovered)
        if record is None or not keeper.enabled or (recovered and not log.guard.lost) or isinstance(record, Held):
            continue
        attempts[record.attempt] = None
        grant = keeper.ring.grant(*log.key, record.attempt)
        if grant is not None:
            places[grant.place] = None
            if isinstance(record, CallOutcome) and record.ok and not recovered:
                releases += grant.releases
        if log.guard.lost:
            places[_found(log, record, KeyState.IN_DOUBT).place] = None
    if not attempts:
        return NO_READS
    released = keeper.releases_wanted(log, releases)
    wanted = ReadKeys(*log.key, (*places, *released.places), released.labels, tuple(attempts))
    return keeper.read(wanted, known)


def note_version(log: TaskLog, decision: VersionDecision, recovered: bool) -> None:
    """Open a business version that is decided live, in the present epoch, above all that was known of the task; close
    one that turns out to have been decided before a log was lost."""
    guard = log.guard
    if recovered:
        if guard.lost and decision.version == guard.opened_version:
            log.put_guard(replace(guard, opened_version=0))
        return
    state = log.stream(StreamName.STATE)
    # A log that was emptied on purpose is not lost: what was decided in it holds.
    ended = log.tombstone.epochs if log.tombstone is not None else ()
    present = decision.epoch in (state.epoch, *ended) if decision.epoch else not guard.lost
    raises = decision.version >= log.steps.summary.version + guard.lost
    if present and raises and decision.version > guard.opened_version:
        log.put_guard(replace(guard, opened_version=decision.version))


def take_evidence(
    turn: Turn, log: TaskLog, entry: Entry, records: Iterable[Entry], grant: Grant, recovered: bool, keeper: Keeper
) -> None:
    """Rule on an entry that was stored in this turn; `records` are those of a recovered snapshot, or it alone."""
    if entry.kind is EntryKind.APPROVAL and not recovered:
        _approve(turn, log, entry, grant, keeper)
        return
    for one in records:
        record = _evidence(one, recovered)
        if record is None or not keeper.enabled:
            continue
        if isinstance(record, Held):
            hold(log, record.slot)
            continue
        grant_row = keeper.ring.grant(*log.key, record.attempt) if recovered is False or log.guard.lost else None
        if isinstance(record, CallOutcome) and not recovered and grant_row is not None:
            if grant_row.device == one.device:
                row = keeper.ring.row(log.subject, grant_row.place, turn.now_ms)
                if row is not None:
                    decision = decide_outcome(row, grant_row, record, one.blob, log.subject, grant.principal)
                    keeper.apply(turn, log, decision)
        elif log.guard.lost:
            _close(turn, log, one, record, grant_row, keeper)


def _approve(turn: Turn, log: TaskLog, entry: Entry, grant: Grant, keeper: Keeper) -> None:
    said = decode_record(entry.kind, entry.payload)
    assert isinstance(said, Approval)
    call = (said.step, said.version, said.tool, said.arguments_digest)
    ruling = Approved(*call, said.approved, grant.principal, grant.device, said.reason)
    place = keeper.rule(turn, log, ruling)
    row = ApprovalRow(said.version, said.step, said.tool, said.arguments_digest, grant.principal, said.approved, place)
    turn.writes.append(PutKeys(*log.key, approvals=(row,)))


def _evidence(entry: Entry, recovered: bool) -> _Evidence | None:
    """Return what an entry says of a key that somebody was given; None if nothing."""
    if entry.kind is EntryKind.CALL or (recovered and entry.kind is EntryKind.RULING):
        record = decode_record(entry.kind, entry.payload)
        if isinstance(record, CallOutcome):
            return record if record.token and (record.ok or not recovered) else None
        if isinstance(record, (Granted, Settled, Doubted, Held)):
            return record
    return None


# --- after a lost log -------------------------------------------------------------------------------------------------


def _close(
    turn: Turn,
    log: TaskLog,
    entry: Entry,
    record: CallOutcome | Granted | Settled | Doubted,
    grant: GrantRow | None,
    keeper: Keeper,
) -> None:
    """Close the key that a record of a lost log is about, and let no later grant have a token that it gave out."""
    happened = record.ok if isinstance(record, CallOutcome) else isinstance(record, Settled) and record.happened
    if isinstance(record, (CallOutcome, Settled)) and not happened:
        return
    ring = keeper.ring
    found = _found(log, record, KeyState.DONE if happened else KeyState.IN_DOUBT, entry)
    if grant is not None and not isinstance(record, Granted):
        base = ring.row(log.subject, grant.place, turn.now_ms)
        if base is not None:
            found = _like(base, found)
    elif grant is not None and grant.happened:
        # The outcome came back before the ruling that tells whose key it was.
        before = ring.row(log.subject, grant.place, turn.now_ms)
        if before is not None:
            found = replace(
                found, state=KeyState.DONE, result=before.result, blob=before.blob, label=before.label, reason=""
            )
    row = ring.row(log.subject, found.place, turn.now_ms)
    era = ring.outrun(log.subject, record.token)
    if era is not None:
        turn.writes.append(PutKeys(*log.key, era))
    place = found.place
    kept = GrantRow(record.attempt, place, key_of(log.subject, found), record.token, found.device)
    if grant is not None:
        kept = replace(grant, place=place if isinstance(record, Granted) else grant.place)
    if happened:
        kept = replace(kept, happened=True)
    after = close(row, found, ring.subject(log.subject).barrier)
    keeper.apply(turn, log, Decision(after, kept))


def _like(base: KeyRow, found: KeyRow) -> KeyRow:
    """Return what was found as a row of the key that its attempt had."""
    same = base.attempt == found.attempt
    return replace(
        found,
        place=base.place,
        tool=base.tool,
        entity=base.entity,
        generation=base.generation,
        digest=base.digest if same else "",
        device=base.device if same else found.device,
        principal=base.principal if same else "",
        checked=base.checked if same else False,
    )


def _found(
    log: TaskLog, record: CallOutcome | Granted | Settled | Doubted, state: KeyState, entry: Entry | None = None
) -> KeyRow:
    """Return the row of a key as a record of a lost log shows it; it was opened in no era that counts."""
    if isinstance(record, Granted):
        row = new_row(log.subject, log.task, record.version, record.step, record.tool, record.entity)
        row = replace(
            row,
            generation=record.generation,
            digest=record.arguments_digest,
            device=record.device,
            principal=record.principal,
        )
    else:
        row = KeyRow(idempotency_key(log.subject, log.task, record.version, record.step), "")
    if isinstance(record, (CallOutcome, Settled)) and state is KeyState.DONE:
        row = replace(row, result=record.result, label=record.label)
    return replace(
        row,
        state=state,
        token=record.token,
        task=log.task,
        step=record.step,
        version=record.version,
        attempt=record.attempt,
        device=row.device or (entry.device if isinstance(record, CallOutcome) and entry is not None else ""),
        blob=entry.blob if entry is not None and isinstance(record, CallOutcome) else None,
        reason=_LOST if state is KeyState.IN_DOUBT else "",
    )
